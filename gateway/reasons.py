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
    EXAMPLES = "examples", COUNTED, "", "Labelled instances added to a batch.", "", NODES
    MEASURED = (
        "measured",
        COUNTED,
        "",
        "Sensors measured: reference and scale are known.",
        "",
        NODES,
    )
    ORDERS = "orders", COUNTED, "", "Orders signed.", "", NODES
    LABELS = "labels", COUNTED, "", "Labels given by people and passed to the broker.", "", WEB_PAGE
    FITS = "fits", COUNTED, "", "Fits made.", "", NODES
    CLOCK_CONFIRMED = (
        "clock-confirmed", COUNTED, "", "A node's time agrees with a clock that was in doubt.", "",
        NODES,
    )  # fmt: skip
    NOT_INTRODUCED = (
        "not-introduced", COUNTED, "",
        "Status messages from nodes that have not introduced themselves yet; their introduction "
        "follows.",
        "", NODES,
    )  # fmt: skip

    # -- what matters to whoever looks after the fleet
    ADOPTED = "adopted", INFO, "node adopted", "A node of a group has introduced itself.", "", NODES
    LAYOUTS = "layouts", INFO, "layout advanced", "A node gets a new layout.", "", NODES
    FORGOTTEN = (
        "forgotten", INFO, "node forgotten", "An operator had a node forgotten.", "", NODES,
    )  # fmt: skip
    SENSOR_SILENT = (
        "sensor-silent", INFO, "sensor silent", "A node no longer hears a sensor.",
        "It is retired automatically after `gateway.silence_s`.", NODES,
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
        "An operator asked for a sensor's scale to be measured again.", "", NODES,
    )  # fmt: skip
    SCALE_MEASURED = (
        "scale-measured", INFO, "scale proved wrong",
        "A node found a sensor's scale to be wrong; the gateway orders the scale that the node "
        "measured.",
        "Nothing to do; if it repeats, check the sensor.", NODES,
    )  # fmt: skip
    TOOK_OVER = (
        "took-over", INFO, "sensor takes over",
        "A new sensor has taken over the column of the one it replaces: both were heard together "
        "for long enough, or the old one has stopped.", "", NODES,
    )  # fmt: skip
    OVERDUE = (
        "overdue", WARNING, "sensor retired",
        "A sensor was silent for too long and has been retired.",
        "Replace it: `opid-gateway sensor deploy … --replaces` keeps its column.", NODES,
    )  # fmt: skip
    EXPIRED = (
        "expired", INFO, "sensor retired", "A sensor reached its announced end of life.",
        "", NODES,
    )  # fmt: skip
    UNANNOUNCED = (
        "unannounced", WARNING, "sensors unannounced",
        "A node has sensors that nobody announced to the gateway.",
        "Announce them with `opid-gateway sensor deploy`.", NODES,
    )  # fmt: skip
    OVERTAKEN = (
        "overtaken", WARNING, "node ahead of us",
        "A node reports a newer order than this gateway has given.",
        "Unless the database was restored from a backup, somebody is impersonating the node.",
        TRUST,
    )  # fmt: skip
    BEYOND_REACH = (
        "beyond-reach", WARNING, "order out of reach",
        "A node's current order is too far ahead for it to accept, so the gateway issues a new "
        "one.",
        "Somebody has impersonated it: check the broker's access rules.", TRUST,
    )  # fmt: skip
    VALUES_SET_ASIDE = (
        "values-set-aside", WARNING, "values set aside",
        "Codes such as 65535, 85 or −127 among a sensor's first values were ignored.",
        "If it repeats, check the sensor.", NODES,
    )  # fmt: skip
    CLOCK = (
        "clock", WARNING, "clock in doubt",
        "This machine's clock was set, or disagrees with the nodes' clocks.",
        "Set it, or wait for its time server; no sensor is retired while the clock is in doubt.",
        NODES,
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
        "A change could not be fitted; the gateway tries again when the batch has grown.",
        "The message says why; if it repeats, please report it.", NODES,
    )  # fmt: skip

    # -- examples that are not taken
    EXAMPLE_OTHER_LAYOUT = (
        "example-of-another-layout", INFO, "example ignored",
        "A labelled instance belongs to a different layout than the node has now.",
        "Nothing to do.", NODES,
    )  # fmt: skip
    EXAMPLE_NOT_NEEDED = (
        "example-not-needed", INFO, "example ignored",
        "A labelled instance arrived after the batch of its change was full or closed.",
        "Nothing to do.", NODES,
    )  # fmt: skip
    EXAMPLE_TWICE = (
        "example-twice", INFO, "example ignored",
        "A labelled instance arrived twice, for example after a node's restart.",
        "Nothing to do.", NODES,
    )  # fmt: skip
    EXAMPLE_CLASS = (
        "refused-class", WARNING, REFUSED, "A label is not one of the group's classes.",
        "Give node and group the same classes.", NODES,
    )  # fmt: skip
    EXAMPLE_QUOTA = (
        "refused-quota", WARNING, REFUSED,
        "A node sends more labelled instances than it was asked for.",
        "Somebody may be impersonating it: check the broker's access rules.", TRUST,
    )  # fmt: skip

    # -- reports and announcements that are not believed
    CLAIM = (
        "refused-claim", WARNING, REFUSED,
        "A summary claims more readings than its node can have received.",
        "Somebody may be impersonating it, or its clock was set.", TRUST,
    )  # fmt: skip
    STRANGER = (
        "refused-stranger", WARNING, REFUSED, "A node is not in any group of this gateway.",
        "Add it to `groups` in gateway.toml, or remove its account from the broker.", NODES,
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
        "refused-unknown-sensor", WARNING, REFUSED,
        "An event is about a sensor that nobody has announced.",
        "Check its id; `opid-gateway sensor list` shows the known sensors.", NODES,
    )  # fmt: skip
    SENSOR_COUNT = (
        "refused-sensors", WARNING, REFUSED, "A node has, or would have, too many sensors.",
        "Retire some first.", NODES,
    )  # fmt: skip
    ROLE = (
        "refused-role", WARNING, REFUSED,
        "A sensor's role is invalid, or its node has no such role.",
        "Use another role.", NODES,
    )  # fmt: skip
    ROLE_IN_USE = (
        "refused-role-in-use", WARNING, REFUSED, "Another sensor already has this role.",
        "Retire that sensor first, or say that this one replaces it.", NODES,
    )  # fmt: skip
    ID_IN_USE = (
        "refused-id-in-use", WARNING, REFUSED, "A sensor with this id is in use.",
        "Give the new sensor another id, or retire the old one first.", NODES,
    )  # fmt: skip
    EMPTY_LAYOUT = (
        "refused-empty-layout", WARNING, REFUSED, "The last sensor of a node cannot be retired.",
        "Deploy another one first, or have the node forgotten.", NODES,
    )  # fmt: skip
    END_OF_LIFE = (
        "refused-end-of-life", WARNING, REFUSED,
        "An end-of-life date is too early or too far away.",
        "Give a date in the future.", NODES,
    )  # fmt: skip
    GATE = (
        "refused-gate", WARNING, REFUSED, "A node has a different gate from its group.",
        "Give `node.gate` the same value on all nodes of the group.", NODES,
    )  # fmt: skip
    LIFECYCLE = (
        "refused-lifecycle", WARNING, REFUSED,
        "What was announced cannot happen to a sensor in its current state.",
        "`opid-gateway sensor list` shows the state.", NODES,
    )  # fmt: skip
    LATE = (
        "refused-late", INFO, REFUSED, "An event is older than what is already known.",
        "Nothing to do.", NODES,
    )  # fmt: skip
    STALE = (
        "refused-stale", INFO, REFUSED, "An event is too old to be believed.",
        "If it repeats, compare the clocks of node and gateway.", NODES,
    )  # fmt: skip

    # -- the loop
    RECLAIMED = (
        "reclaimed", WARNING, "the lost lock is taken again",
        "The database had dropped the lock that lets only one gateway serve it.",
        "If it repeats, look at the database's log.", NODES,
    )  # fmt: skip
    HEARTBEAT_LOST = (
        "heartbeat-lost", WARNING, "heartbeat lost",
        "The database did not accept this gateway's heartbeat. When the lease expires, the "
        "gateway stops serving its sites until it does.",
        "Check the database and the network.", NODES,
    )  # fmt: skip
    SITE_HELD = (
        "site-held", WARNING, "a site cannot be taken yet",
        "A transaction of the gateway that served a site before is still open; this gateway "
        "tries again at once.",
        "If it repeats, make sure that all gateways log in to PostgreSQL with the same role.",
        NODES,
    )  # fmt: skip
    HISTORY_UNTIDY = (
        "history-untidy", WARNING, "history not thinned out",
        "The database refused to thin out the history; the gateway tries again in an hour.",
        "Check the database and its disk.", WEB_PAGE,
    )  # fmt: skip
    COMMANDS_UNREAD = (
        "commands-unread", ERROR, "commands cannot be read",
        "The operators' commands could not be read from the database; the gateway tries again.",
        "Check the database.", NODES,
    )  # fmt: skip
    DATABASE_REFUSES = (
        "database-refuses", ERROR, "the database refuses",
        "The database does not accept what was decided; nothing is acknowledged until it does.",
        "Check the database and its disk.", NODES,
    )  # fmt: skip
    COMMAND_REFUSED = (
        "command-refused", WARNING, "command refused",
        "An operator's command could not be read or carried out; nothing has changed.",
        "The message says why.", NODES,
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
