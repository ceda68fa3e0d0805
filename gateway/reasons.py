"""Everything a gateway counts, and so everything it can refuse or drop: the table.

What it shares with a node (messages that cannot be read, the connection to the broker) is in
`edge_opid.reasons`. `docs/refusals.md` is written from both (`make refusals`).
"""

from __future__ import annotations

from edge_opid.reasons import (
    COUNTED,
    ERROR,
    INFO,
    WARNING,
    LinkReason,
    OrderReason,
    Reason,
    ServiceReason,
    WireReason,
)

REFUSED = "message refused"
NODES = "gateway.md#what-it-does-when"
TRUST = "attacks.md"
WEB_PAGE = "web.md"


class GatewayReason(Reason):
    """What becomes of reports, events, summaries, examples, commands and fits."""

    # -- as it should be: counted, no line
    SUMMARIES = "summaries", COUNTED, "", "Summaries kept for pooling.", "", NODES
    EXAMPLES = "examples", COUNTED, "", "Labelled instances taken into a batch.", "", NODES
    MEASURED = (
        "measured",
        COUNTED,
        "",
        "Sensors measured: reference and scale are known.",
        "",
        NODES,
    )
    ORDERS = "orders", COUNTED, "", "Orders signed.", "", NODES
    LABELS = "labels", COUNTED, "", "Labels that people gave, handed to the broker.", "", WEB_PAGE
    FITS = "fits", COUNTED, "", "Fits made.", "", NODES
    CLOCK_CONFIRMED = (
        "clock-confirmed", COUNTED, "", "A node's time agrees with a clock that was in doubt.", "",
        NODES,
    )  # fmt: skip
    NOT_INTRODUCED = (
        "not-introduced", COUNTED, "",
        "Statuses of nodes that have not introduced themselves yet; their introduction follows.",
        "", NODES,
    )  # fmt: skip

    # -- what matters to whoever looks after the fleet
    ADOPTED = "adopted", INFO, "node adopted", "A node of a group has introduced itself.", "", NODES
    LAYOUTS = "layouts", INFO, "layout advanced", "A node gets another layout.", "", NODES
    FORGOTTEN = (
        "forgotten", INFO, "node forgotten", "An operator had a node forgotten.", "", NODES,
    )  # fmt: skip
    SENSOR_SILENT = (
        "sensor-silent", INFO, "sensor silent", "A node hears nothing of a sensor any more.",
        "It is retired by itself after `gateway.silence_s`.", NODES,
    )  # fmt: skip
    SENSOR_RETURNED = (
        "sensor-returned", INFO, "sensor returned", "A node hears a silent sensor again.", "",
        NODES,
    )  # fmt: skip
    SENSOR_DEPLOYED = (
        "sensor-deployed", INFO, "sensor deployed", "A sensor was announced.", "", NODES,
    )  # fmt: skip
    SENSOR_RETIRED = (
        "sensor-retired", INFO, "sensor retired", "A sensor was retired by announcement.", "",
        NODES,
    )  # fmt: skip
    SENSOR_REMEASURED = (
        "sensor-remeasured", INFO, "sensor measured anew",
        "An operator wants a sensor's scale to be measured anew.", "", NODES,
    )  # fmt: skip
    SCALE_MEASURED = (
        "scale-measured", INFO, "scale proved wrong",
        "A node found a sensor's scale to be wrong; it is ordered the one that it measured.",
        "Nothing to do; if it repeats, look at the sensor.", NODES,
    )  # fmt: skip
    TOOK_OVER = (
        "took-over", INFO, "sensor takes over",
        "A new sensor has the column of the one it replaces: both have spoken together for long "
        "enough, or the old one has stopped.", "", NODES,
    )  # fmt: skip
    OVERDUE = (
        "overdue", WARNING, "sensor retired",
        "A sensor was silent for too long and was retired.",
        "Replace it: `opid-gateway sensor deploy … --replaces` keeps its column.", NODES,
    )  # fmt: skip
    EXPIRED = (
        "expired", INFO, "sensor retired", "The announced end of a sensor's life came.",
        "", NODES,
    )  # fmt: skip
    UNANNOUNCED = (
        "unannounced", WARNING, "sensors unannounced",
        "A node has sensors that nobody announced to the gateway.",
        "Announce them with `opid-gateway sensor deploy`.", NODES,
    )  # fmt: skip
    OVERTAKEN = (
        "overtaken", WARNING, "node ahead of us",
        "A node says that it obeys a newer order than this gateway gave.",
        "Unless the database was restored from a backup, somebody speaks in its name.", TRUST,
    )  # fmt: skip
    BEYOND_REACH = (
        "beyond-reach", WARNING, "order out of reach",
        "A node's order in force is too far ahead for it; it is ordered anew.",
        "Somebody has spoken in its name: look at the broker's access rules.", TRUST,
    )  # fmt: skip
    VALUES_SET_ASIDE = (
        "values-set-aside", WARNING, "values set aside",
        "Codes such as 65535, 85 or −127 among a sensor's first values are no measurements.",
        "Look at the sensor if it repeats.", NODES,
    )  # fmt: skip
    CLOCK = (
        "clock", WARNING, "clock in doubt",
        "The clock of this machine was set, or disagrees with the nodes'.",
        "Set it, or wait for its time server; nobody is retired by a doubted clock.", NODES,
    )  # fmt: skip
    CLOCK_SET = (
        "clock-set", COUNTED, "", "Somebody has set this machine's clock.", "", NODES,
    )  # fmt: skip
    FIT_WITHOUT = (
        "fit-without", WARNING, "fitted without a node",
        "A change was fitted without a node whose summary or labels cannot be right.",
        "`opid-gateway change show` says why.", TRUST,
    )  # fmt: skip
    FIT_FAILED = (
        "fit-failed", ERROR, "fit failed",
        "A change could not be fitted; it is tried again when the batch has grown.",
        "The sentence says why; report it if it repeats.", NODES,
    )  # fmt: skip

    # -- examples that are not taken
    EXAMPLE_OTHER_LAYOUT = (
        "example-of-another-layout", INFO, "example ignored",
        "A labelled instance is of another layout than the node has now.", "Nothing to do.", NODES,
    )  # fmt: skip
    EXAMPLE_NOT_NEEDED = (
        "example-not-needed", INFO, "example ignored",
        "A labelled instance came after its change's batch was full or closed.",
        "Nothing to do.", NODES,
    )  # fmt: skip
    EXAMPLE_TWICE = (
        "example-twice", INFO, "example ignored",
        "A labelled instance came again, as after a node's restart.", "Nothing to do.", NODES,
    )  # fmt: skip
    EXAMPLE_CLASS = (
        "refused-class", WARNING, REFUSED, "A label is none of the group's classes.",
        "Give node and group the same classes.", NODES,
    )  # fmt: skip
    EXAMPLE_QUOTA = (
        "refused-quota", WARNING, REFUSED,
        "A node sends more labelled instances than it was asked for.",
        "Somebody may speak in its name: look at the broker's access rules.", TRUST,
    )  # fmt: skip

    # -- reports and announcements that are not believed
    CLAIM = (
        "refused-claim", WARNING, REFUSED,
        "A summary claims more readings than its node can have taken.",
        "Somebody may speak in its name, or its clock was set.", TRUST,
    )  # fmt: skip
    STRANGER = (
        "refused-stranger", WARNING, REFUSED, "A node is in no group of this gateway.",
        "Add it to `groups` in gateway.toml, or take its rights at the broker.", NODES,
    )  # fmt: skip
    UNKNOWN_NODE = (
        "refused-unknown-node", WARNING, REFUSED,
        "A message or a command is about a node that has not introduced itself.",
        "Start the node; it introduces itself after its warm-up.", NODES,
    )  # fmt: skip
    REPORT_NOT_INTRODUCED = (
        "refused-not-introduced", WARNING, REFUSED,
        "A summary came from a node that has not introduced itself.",
        "Nothing to do: it will.", NODES,
    )  # fmt: skip
    UNKNOWN_SENSOR = (
        "refused-unknown-sensor", WARNING, REFUSED, "An event is about a sensor nobody announced.",
        "Compare its id; `opid-gateway sensor list` shows those that are known.", NODES,
    )  # fmt: skip
    SENSOR_COUNT = (
        "refused-sensors", WARNING, REFUSED, "A node has, or would have, too many sensors.",
        "Retire some first.", NODES,
    )  # fmt: skip
    ROLE = (
        "refused-role", WARNING, REFUSED, "A sensor's role cannot be, or is no role of its node.",
        "Use another role.", NODES,
    )  # fmt: skip
    ROLE_IN_USE = (
        "refused-role-in-use", WARNING, REFUSED, "Another sensor has this role.",
        "Retire that one first, or say that this one replaces it.", NODES,
    )  # fmt: skip
    ID_IN_USE = (
        "refused-id-in-use", WARNING, REFUSED, "A sensor of this id is in use.",
        "Give the new sensor another id, or retire the old one first.", NODES,
    )  # fmt: skip
    EMPTY_LAYOUT = (
        "refused-empty-layout", WARNING, REFUSED, "The last sensor of a node cannot be retired.",
        "Deploy another one first, or have the node forgotten.", NODES,
    )  # fmt: skip
    END_OF_LIFE = (
        "refused-end-of-life", WARNING, REFUSED, "An end of life is too early or too far away.",
        "Give a date in the future.", NODES,
    )  # fmt: skip
    GATE = (
        "refused-gate", WARNING, REFUSED, "A node has another gate than its group can use.",
        "Give `node.gate` the same value on all nodes of the group.", NODES,
    )  # fmt: skip
    LIFECYCLE = (
        "refused-lifecycle", WARNING, REFUSED,
        "What is announced cannot happen to a sensor in its state.",
        "`opid-gateway sensor list` shows the state.", NODES,
    )  # fmt: skip
    LATE = (
        "refused-late", INFO, REFUSED, "An event is older than what is known already.",
        "Nothing to do.", NODES,
    )  # fmt: skip
    STALE = (
        "refused-stale", INFO, REFUSED, "An event is too old to be believed.",
        "Compare the clocks of node and gateway if it repeats.", NODES,
    )  # fmt: skip

    # -- the loop
    RECLAIMED = (
        "reclaimed", WARNING, "the lost lock is taken again",
        "The database had dropped the lock by which one gateway serves it.",
        "Look at the database's log if it repeats.", NODES,
    )  # fmt: skip
    HEARTBEAT_LOST = (
        "heartbeat-lost", WARNING, "heartbeat lost",
        "The database did not take the word that this gateway is alive; when the lease is over it "
        "does nothing more for its sites until it does.",
        "Look at the database and the network to it.", NODES,
    )  # fmt: skip
    SITE_HELD = (
        "site-held", WARNING, "a site cannot be taken yet",
        "A transaction of the gateway that had a site is not over; it is tried again at once.",
        "If it repeats, let all gateways log in at PostgreSQL as the same role.", NODES,
    )  # fmt: skip
    HISTORY_UNTIDY = (
        "history-untidy", WARNING, "history not thinned out",
        "The database refused to thin out the history; it is tried again in an hour.",
        "Look at the database and its disk.", WEB_PAGE,
    )  # fmt: skip
    COMMANDS_UNREAD = (
        "commands-unread", ERROR, "commands cannot be read",
        "The database refused to show operators' commands; they are asked for again.",
        "Look at the database.", NODES,
    )  # fmt: skip
    DATABASE_REFUSES = (
        "database-refuses", ERROR, "the database refuses",
        "The database does not take what was decided; nothing is acknowledged until it does.",
        "Look at the database and its disk.", NODES,
    )  # fmt: skip
    COMMAND_REFUSED = (
        "command-refused", WARNING, "command refused",
        "An operator's command could not be read or done; nothing has changed.",
        "The sentence says why.", NODES,
    )  # fmt: skip


TABLES: tuple[type[Reason], ...] = (
    GatewayReason,
    WireReason,
    OrderReason,
    LinkReason,
    ServiceReason,
)
"""What a gateway can say."""

_NAMED: dict[str, Reason] = {each: each for table in reversed(TABLES) for each in table}


def refused(error: Exception) -> Reason:
    """The line of the tables for an error that refused a message or a command."""
    return _NAMED.get(f"refused-{getattr(error, 'reason', 'error')}", WireReason.OTHER)


def named(name: str) -> Reason:
    """The line of the tables with this name, which must be there."""
    return _NAMED[name]
