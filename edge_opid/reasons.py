"""Everything a node counts, and so everything it can refuse, drop, clip or ignore: one table.

A `Reason` is the name of a counter. It also says how it is logged, what happened in a plain
sentence, what to do about it, and where that is explained. Nothing is counted or refused under a
name that is not here: `Tally` takes only members, and a test walks the code for names that are
missing and for lines that nothing uses. `docs/refusals.md` is written from these tables
(`make refusals`), and from the gateway's (`gateway.reasons`).

What happens as it should is only counted: such a reason has no level, and no line in the log.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self

COUNTED = ""  # as it should be: counted, and never a line in the log
INFO = "info"
WARNING = "warning"
ERROR = "error"

SENSORS = "node.md#sensors-that-speak-to-it"
WHEN = "node.md#what-it-does-when"
TRUTHS = "node.md#truths"
LABELS = "labels.md"
TOGETHER = "node.md#sensors-that-do-not-report-together"
SCALES = "node.md#scales"
LINK = "node.md#the-connection"
TFLITE = "tflite.md"
HOMEASSISTANT = "homeassistant.md"


class Reason(StrEnum):
    """A name to count by, and everything else there is to say of it.

    >>> NodeReason.RATE_LIMITED, NodeReason.RATE_LIMITED.event
    (<NodeReason.RATE_LIMITED: 'rate-limited'>, 'message refused')
    """

    level: str
    event: str
    what: str
    do: str
    page: str

    def __new__(
        cls, name: str, level: str, event: str, what: str, do: str = "", page: str = WHEN
    ) -> Self:
        """A member, from its line of the table."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.level, member.event, member.what, member.do = level, event, what, do
        member.page = page
        return member


REFUSED = "message refused"
SENDER = "Correct the sender; the log shows its topic and the first bytes."


class WireReason(Reason):
    """A message whose bytes, topic or fields are wrong. A node and a gateway count it alike."""

    SIZE = (
        "refused-size", WARNING, REFUSED, "A message has more bytes than its kind may have.",
        "Send fewer values at a time, or publish something else elsewhere.",
    )  # fmt: skip
    TRUNCATED = (
        "refused-truncated", WARNING, REFUSED, "A message ends before it is complete.", SENDER,
    )  # fmt: skip
    TRAILING = (
        "refused-trailing", WARNING, REFUSED, "Bytes follow after the end of a message.", SENDER,
    )  # fmt: skip
    FORMAT = (
        "refused-format", WARNING, REFUSED,
        "A payload is neither msgpack nor, on a foreign topic, the JSON or number that its "
        "mapping expects.", SENDER,
    )  # fmt: skip
    NESTING = (
        "refused-nesting", WARNING, REFUSED, "A payload is nested too deeply.", SENDER,
    )  # fmt: skip
    EXT = (
        "refused-ext", WARNING, REFUSED,
        "A message contains a msgpack extension type, and none is allowed.", SENDER,
    )  # fmt: skip
    SCHEMA = (
        "refused-schema", WARNING, REFUSED, "A message has another schema version.",
        "Update the older side.",
    )  # fmt: skip
    KIND = (
        "refused-kind", WARNING, REFUSED, "A message is of another kind than its topic carries.",
        SENDER,
    )  # fmt: skip
    TYPE = (
        "refused-type", WARNING, REFUSED, "A field has another type than it must have.", SENDER,
    )  # fmt: skip
    RANGE = (
        "refused-range", WARNING, REFUSED, "A number is outside the range that it must be in.",
        SENDER,
    )  # fmt: skip
    NONFINITE = (
        "refused-nonfinite", WARNING, REFUSED, "A value is NaN, infinite or too large for float32.",
        "Look at the sensor: most drivers report a failed measurement this way.",
    )  # fmt: skip
    LENGTH = (
        "refused-length", WARNING, REFUSED, "A list, map or text is too long or too short.",
        SENDER,
    )  # fmt: skip
    ID = (
        "refused-id", WARNING, REFUSED,
        "A name breaks the rules: small letters, digits, `-` and `_`, at most 32 characters.",
        "Rename it; list foreign devices with capitals one by one.", SENSORS,
    )  # fmt: skip
    TRUTH_VALUE = (
        "refused-truth-value", WARNING, "truth dropped",
        "A value on a `[[truth]]` topic means no class.",
        "Add it to `values`, or do nothing if it is `unavailable` and the like.", TRUTHS,
    )  # fmt: skip
    TEXT = (
        "refused-text", WARNING, REFUSED, "A text is not one printable line of UTF-8.", SENDER,
    )  # fmt: skip
    TOPIC = (
        "refused-topic", WARNING, REFUSED, "Nothing is expected on this topic here.",
        "Compare site, node and channel with the configuration; `opid-node check` lists the "
        "topics.",
    )  # fmt: skip
    DUPLICATE = (
        "refused-duplicate", WARNING, REFUSED, "A message names the same key twice.", SENDER,
    )  # fmt: skip
    MISSING = (
        "refused-missing", WARNING, REFUSED,
        "A field that must be there is missing, or none of a mapping's fields is there.",
        "Compare `fields` with what the device sends.", SENSORS,
    )  # fmt: skip
    SHAPE = (
        "refused-shape", WARNING, REFUSED, "An array has another length than its shape says.",
        SENDER,
    )  # fmt: skip
    CONTENT = (
        "refused-content", WARNING, REFUSED, "Two fields of a message contradict each other.",
        SENDER,
    )  # fmt: skip
    SIGNATURE = (
        "refused-signature", WARNING, REFUSED,
        "An order is not signed by a key that this node trusts.",
        "Put the gateway's public key (`opid-gateway check`) into `gateway.keys`; if it is there, "
        "somebody else publishes orders.",
    )  # fmt: skip
    LAYOUT = (
        "refused-layout", WARNING, REFUSED,
        "An order or a report does not fit the layout it names.",
        "If it repeats, restart the gateway: it orders the node anew.",
    )  # fmt: skip
    MISMATCH = (
        "refused-mismatch", WARNING, REFUSED,
        "Two things that should belong together do not: other columns, classes, λ or ρ.",
        "Compare the settings of node and gateway.",
    )  # fmt: skip
    OTHER = (
        "refused-error", WARNING, REFUSED, "A message was refused for a reason without a name.",
        "The log has the sentence; please report it.",
    )  # fmt: skip


class OrderReason(Reason):
    """An order, or the model in it, that a node does not obey."""

    ADDRESS = (
        "refused-address", WARNING, REFUSED, "An order is addressed to another node.",
        "Somebody has copied a retained order to this topic: delete it there.",
    )  # fmt: skip
    CONFLICT = (
        "refused-conflict", WARNING, REFUSED,
        "An order has the version of the last one and other content.",
        "Two gateways order this node: stop one.",
    )  # fmt: skip
    OLD_VERSION = (
        "refused-old-version", WARNING, REFUSED,
        "An order is older than the one obeyed last.",
        "Nothing to do if it happens once. If it repeats, two gateways order this node.",
    )  # fmt: skip
    FAR_VERSION = (
        "refused-far-version", WARNING, REFUSED,
        "A version is too far ahead to be believed.",
        "Somebody else speaks in the name of the node or the gateway: look at the broker's access "
        "rules.",
    )  # fmt: skip
    CLASSES = (
        "refused-classes", WARNING, REFUSED, "The other side has other classes.",
        "Give node and group the same classes.",
    )  # fmt: skip
    COLUMNS = (
        "refused-columns", WARNING, REFUSED,
        "A model, or a change, needs other or more columns than fit.",
        "Use fewer sensors or fewer knots.",
    )  # fmt: skip
    FORM = (
        "refused-form", WARNING, REFUSED, "A model is of a form that this node does not know.",
        "Update the node.",
    )  # fmt: skip
    LANDMARKS = (
        "refused-landmarks", WARNING, REFUSED, "A kernel model has too few or too many landmarks.",
        "Update the gateway.",
    )  # fmt: skip


class NodeReason(Reason):
    """What else becomes of readings, labels, orders and sensors on a node."""

    # -- as it should be: counted, no line
    READINGS = "readings", COUNTED, "", "Readings accepted."
    PREDICTIONS = "predictions", COUNTED, "", "Predictions published."
    PREDICTIONS_UNKNOWN = (
        "predictions-unknown", COUNTED, "",
        "Predictions that said `unknown`: nothing was learned yet, or they were less sure than "
        "`confidence_min`.",
        "Send labels.",
    )  # fmt: skip
    LEARNED = "learned", COUNTED, "", "Labelled instances learned."
    ASKED = "asked", COUNTED, "", "Instances that the node has asked about.", "", LABELS
    LEARNED_UNSCORED = (
        "learned-unscored", COUNTED, "",
        "Labels of instances that were predicted as `unknown`: learned, and not part of any "
        "accuracy.",
    )  # fmt: skip
    EXAMPLE = "example", COUNTED, "", "Labelled instances reported to the gateway."
    INTRODUCTION = "introduction", COUNTED, "", "Introductions sent to the gateway."
    REPEATED = (
        "repeated", COUNTED, "",
        "Messages sent again, since the gateway had not confirmed them.",
    )  # fmt: skip
    ANNOUNCED = (
        "announced", COUNTED, "", "Announcements to Home Assistant.", "", HOMEASSISTANT,
    )  # fmt: skip
    ORDER_REPEATED = (
        "order-repeated", COUNTED, "",
        "Orders that were obeyed already: the broker keeps the last.",
    )  # fmt: skip

    # -- what matters to whoever looks after it
    SENSOR_SILENT = (
        "sensor-silent", WARNING, "sensor silent",
        "A sensor has said nothing for longer than its timeout; the node goes on without it.",
        "Look at its battery and its radio; it is used again as soon as it speaks.",
    )  # fmt: skip
    SENSOR_RETURNED = (
        "sensor-returned", INFO, "sensor returned", "A silent sensor speaks again and is used.",
    )  # fmt: skip
    SENSOR_DEPLOYED = (
        "sensor-deployed", INFO, "sensor deployed", "A sensor has joined the layout.",
    )  # fmt: skip
    SENSOR_RETIRED = (
        "sensor-retired", INFO, "sensor retired", "A sensor has left the layout for good.",
    )  # fmt: skip
    LAYOUT_CHANGED = (
        "layout-changed", INFO, "layout changed",
        "The node's sensors have changed; what was learned of those that remain is kept.",
    )  # fmt: skip
    HOMEASSISTANT_STARTED = (
        "homeassistant-started", INFO, "home assistant started",
        "Home Assistant says that it has started: the node announces itself again.", "",
        HOMEASSISTANT,
    )  # fmt: skip
    HOMEASSISTANT_UNFIT = (
        "homeassistant-unfit", WARNING, "announcement ignored",
        "What the broker keeps as this node's announcement is none; the next one replaces it.",
        "If it repeats, somebody else writes there: look at the broker's access rules.",
        HOMEASSISTANT,
    )  # fmt: skip
    SETTINGS_CHANGED = (
        "settings-changed", WARNING, "configuration",
        "The configuration differs from the state's: a start made this change, and kept what was "
        "learned.",
        "If it was not meant, put the file back as it was; `opid-node check` tells before a start.",
        "node.md#a-configuration-that-changes",
    )  # fmt: skip
    LEFT_TO_GATEWAY = (
        "left-to-gateway", WARNING, "configuration not used",
        "The file says something of the sensors that the gateway decides: the state goes on.",
        "Tell the gateway (`opid-gateway sensor deploy` or `retire`), or change the file back.",
        "node.md#a-configuration-that-changes",
    )  # fmt: skip
    SENSOR_MEASURED = (
        "sensor-measured", INFO, "sensor measured",
        "A sensor without a scale has said enough, and moved: it joins the layout.", "", SCALES,
    )  # fmt: skip
    MODEL_SWAPPED = "model-swapped", INFO, "weights swapped", "The gateway's weights are served."
    MODEL_DOUBTED = (
        "model-doubted", WARNING, "weights doubted",
        "The gateway's weights contradict what this node has seen; they wait for labels that "
        "speak for them.",
        "Send labels. If it repeats on many nodes, look at the change on the gateway.",
    )  # fmt: skip
    MODEL_FALLBACK = (
        "model-fallback", WARNING, "weights fell back",
        "The weights pushed last did worse than those before, which are served again.",
    )  # fmt: skip
    VALUES_SET_ASIDE = (
        "values-set-aside", WARNING, "values set aside",
        "Codes such as 65535, 85 or −127 among a sensor's first values are no measurements.",
        "Look at the sensor if it repeats.",
    )  # fmt: skip
    SENSOR_WAITS = (
        "sensor-waits", WARNING, "sensor waits",
        "A sensor has not moved in the warm-up, or said little or nothing, so no scale can be "
        "told: it is heard and not used.",
        "Nothing to do if it rests (a light at night): it joins when it has moved. Or give "
        "reference and scale.", SCALES,
    )  # fmt: skip
    SENSOR_MOVED = (
        "sensor-moved", INFO, "sensor has moved",
        "A sensor that had to wait for a scale has moved: the gateway is asked to let it in.", "",
        SCALES,
    )  # fmt: skip
    NOTHING_MOVED = (
        "nothing-moved", WARNING, "nothing moved",
        "No sensor has moved in the warm-up, which begins anew.",
        "Look whether the sensors measure anything.", SCALES,
    )  # fmt: skip
    SCALE_MOVED = (
        "scale-moved", WARNING, "scale moved",
        "A sensor's scale proved wrong, or was measured anew: what was learned is moved to another "
        "one. Values that had been clipped stay clipped.",
        "Nothing to do; if it repeats, give reference and scale in the configuration.", SCALES,
    )  # fmt: skip
    REMEASURING = (
        "remeasuring", INFO, "sensor measured anew", "An operator asked for it.", "", SCALES,
    )  # fmt: skip
    REMEASURE_REFUSED = (
        "remeasure-refused", WARNING, "sensor not measured anew",
        "The sensor that an operator named has no scale yet, or is none of this node's.", "",
        SCALES,
    )  # fmt: skip
    SCALE_MEASURED = (
        "scale-measured", WARNING, "scale proves wrong",
        "A sensor's scale proved wrong, and the gateway is asked to order another one.",
        "", SCALES,
    )  # fmt: skip
    NUMBERS_RESCUED = (
        "numbers-rescued", WARNING, "numbers rescued",
        "Rounding had spoiled a matrix; it was repaired and the node goes on.",
        "Report it if it repeats.",
    )  # fmt: skip
    SUMMARY_TOO_WIDE = (
        "summary-too-wide", WARNING, "summary not sent",
        "The layout has more columns than a summary may carry, so the group cannot pool it.",
        "Use fewer knots.",
    )  # fmt: skip
    INPUT_FAILED = (
        "input-failed", ERROR, "input failed",
        "An input that had passed every check could not be applied; the rest of the state is "
        "unharmed.",
        "A fault of the node: please report the log line.",
    )  # fmt: skip
    BEGUN_ANEW = (
        "begun-anew", WARNING, "begins anew", "The state folder holds nothing: its first life, or "
        "not the disk it had.",
        "If the node has run before, mount its disk; set `state.must_exist = true`.",
    )  # fmt: skip
    NOT_PUBLISHED = (
        "not-published", ERROR, "not published",
        "Something could not be put into a message; the record of it is kept.",
        "A fault of the node: please report the log line.",
    )  # fmt: skip

    # -- readings
    UNKNOWN_SENSOR = (
        "unknown-sensor", WARNING, "value ignored",
        "A reading brought a value of a sensor that is not in the layout; its other values are "
        "used.",
        "Add the sensor to `node.toml`, or announce it to the gateway; or stop sending it.",
        SENSORS,
    )  # fmt: skip
    VALUE_GATED = (
        "values-gated", INFO, "value clipped",
        "A value is further from its sensor's reference than `gate` scales, and counts as one at "
        "the gate.",
        "Nothing to do if it is rare. If it repeats, the scale is wrong: `opid-node remeasure`.",
        SENSORS,
    )  # fmt: skip
    FOREIGN_FIELDS_MISSING = (
        "foreign-fields-missing", INFO, "field missing",
        "A foreign message came without some of the fields that its mapping names; the others are "
        "used.",
        "Nothing to do if the device reports them by turns. Otherwise compare `fields` with what "
        "it sends.", SENSORS,
    )  # fmt: skip
    FOREIGN_FIELDS_UNFIT = (
        "foreign-fields-unfit", WARNING, "field ignored",
        "A field of a foreign message is no number, not finite, or names no valid sensor; the "
        "others are used.",
        "Look at the device: `unavailable`, NaN and the like mean a probe that failed.", SENSORS,
    )  # fmt: skip
    RETAINED_FOREIGN = (
        "retained-foreign", INFO, REFUSED,
        "A foreign message is the copy that the broker keeps, and says again at every connection: "
        "it is no new reading.",
        "Nothing to do. It was applied when it was published.", SENSORS,
    )  # fmt: skip
    RATE_LIMITED = (
        "rate-limited", WARNING, REFUSED,
        "A source sends faster than its rate allows. A `Source` sends it again; a foreign message "
        "is lost.",
        "Send more slowly, or raise `node.rate_per_second` and `node.rate_burst`.", SENSORS,
    )  # fmt: skip
    TOO_MANY_SOURCES = (
        "too-many-sources", WARNING, "source refused",
        "All 256 places for sources are taken by sources heard within a day.",
        "Give scripts fixed source names instead of new ones at every start.", SENSORS,
    )  # fmt: skip
    SOURCE_FORGOTTEN = (
        "source-forgotten", WARNING, "source forgotten",
        "A source had to make room for another one.",
        "Give scripts fixed source names instead of new ones at every start.", SENSORS,
    )  # fmt: skip
    BOOT_TOO_FAR = (
        "boot-too-far", WARNING, "source refused",
        "A reading carries a boot number beyond any clock.",
        "Set the sender's clock and delete its spool; if it is no sender of yours, look at the "
        "broker's access rules.", SENSORS,
    )  # fmt: skip
    BOOT_UNSETTLED = (
        "boot-unsettled", INFO, "reading refused",
        "A reading of an older boot came before the newer boot was committed; its sender sends it "
        "again.",
        "Nothing to do.", SENSORS,
    )  # fmt: skip
    BOOT_OVER = (
        "boot-over", INFO, "reading refused",
        "A reading is of an older boot than the newest; its sender is told to number it anew.",
        "Nothing to do if it happens once. If it repeats, two scripts use the same source name.",
        SENSORS,
    )  # fmt: skip
    DUPLICATE = (
        "duplicate", INFO, "reading repeated",
        "A copy of a reading that was applied: acknowledged again, nothing changed.",
        "Nothing to do. A rising number means that acknowledgements get lost or come late.",
        SENSORS,
    )  # fmt: skip
    HELD = (
        "held", INFO, "reading held", "A reading waits for the numbers before it.",
        "Nothing to do.", SENSORS,
    )  # fmt: skip
    HOLD_FULL = (
        "hold-full", INFO, "reading refused",
        "Too many readings wait for a missing number; the sender sends this one again.",
        "Nothing to do unless it goes on for minutes: then look at the sender's spool.", SENSORS,
    )  # fmt: skip
    HOLD_DROPPED = (
        "hold-dropped", INFO, "held readings dropped",
        "Readings that waited for a missing number made room for others; their sender sends them "
        "again.",
        "Nothing to do.", SENSORS,
    )  # fmt: skip
    RESEND_ASKED = (
        "resend-asked", INFO, "resend asked", "A number is missing: its sender was asked for it.",
        "Nothing to do.", SENSORS,
    )  # fmt: skip
    GAP_ADOPTED = (
        "gap-adopted", WARNING, "gap given up",
        "A missing number never came, though its sender was asked; the node goes on after it.",
        "Look at the sender's spool: its folder was deleted or its disk failed.", SENSORS,
    )  # fmt: skip
    NUMBERS_SKIPPED = (
        "numbers-skipped", COUNTED, "", "Readings given up in all such gaps.", "", SENSORS,
    )  # fmt: skip
    NOT_KEPT = (
        "not-kept", WARNING, "reading not kept",
        "The disk takes nothing more: the reading was predicted and not learned, and is not "
        "acknowledged, so a `Source` sends it again.",
        "Free space, or look at the disk; the status says what it reports.",
    )  # fmt: skip
    ACK_WITHHELD = (
        "ack-withheld", INFO, "acknowledgement withheld",
        "Whether what was read back is durable is not known before the next commit, so nothing is "
        "acknowledged until then.",
        "Nothing to do unless the disk refuses as well.",
    )  # fmt: skip
    COMMIT_FAILED = (
        "commit-failed", ERROR, "commit refused",
        "The disk refused a commit: everything waits in memory and nothing is acknowledged.",
        "Free space, or look at the disk.",
    )  # fmt: skip

    # -- labels
    LABEL_UNKNOWN_INSTANCE = (
        "label-unknown-instance", WARNING, "label dropped",
        "A label is for an instance that the node does not have, or not any more, or for a time "
        "at which there was none.",
        "Send it sooner, compare the clocks, or raise `node.recent` or "
        "`node.label_tolerance_ms`.", SENSORS,
    )  # fmt: skip
    LABEL_ALREADY_LABELLED = (
        "label-already-labelled", INFO, "label dropped",
        "A label is for an instance that has one already; the first one counts.",
        "Nothing to do if it is a repetition.", SENSORS,
    )  # fmt: skip
    UNKNOWN_CLASS = (
        "unknown-class", WARNING, "label dropped",
        "A label is none of the node's classes; a reading that brought it is used without it.",
        "Compare it with `node.classes`, letter by letter.", SENSORS,
    )  # fmt: skip
    LABEL_RATE_LIMITED = (
        "label-rate-limited", WARNING, "label dropped",
        "Labels come faster than their rate allows.",
        "Send more slowly, or raise `node.rate_per_second` and `node.rate_burst`.", SENSORS,
    )  # fmt: skip
    LABEL_STRETCH_CUT = (
        "label-stretch-cut", INFO, "label",
        "A label is about a stretch of time that begins before the recent instances do; those "
        "that are there have learned it.",
        "Send it sooner, or raise `node.recent`.", LABELS,
    )  # fmt: skip
    UNLEARNED = (
        "unlearned", INFO, "label taken back",
        "A label was a mistake: what was learned from it is subtracted again.", "", LABELS,
    )  # fmt: skip
    UNDO_WITHOUT_LABEL = (
        "undo-without-label", WARNING, "undo refused",
        "A label is to be taken back where none was learned, or not any more.",
        "Nothing to do if it is a repetition.", LABELS,
    )  # fmt: skip
    UNDO_TOO_LATE = (
        "undo-too-late", WARNING, "undo refused",
        "A label cannot be taken back any more: since it was learned, sensors have come, gone or "
        "been rescaled, its class was removed, or forgetting was changed. Nothing has changed.",
        "Give the next instances their right labels: they outweigh it.", LABELS,
    )  # fmt: skip
    DEVICE_ONLINE = (
        "device-online", COUNTED, "", "A device said that it is there.", "", TOGETHER,
    )  # fmt: skip
    DEVICE_OFFLINE = (
        "device-offline", INFO, "device offline",
        "A device is said to be gone: its sensors count as silent at once.",
        "Look at the device: its battery, its radio, its plug.", TOGETHER,
    )  # fmt: skip
    TRUTH_REPEATED = (
        "truth-repeated", COUNTED, "",
        "A truth was repeated: it is valid for longer; nothing else changed.", "", TRUTHS,
    )  # fmt: skip
    TRUTH_WITHOUT_NEWS = (
        "truth-without-news", COUNTED, "",
        "No sensor has spoken since the last instance that a truth taught: the same values are "
        "not learned twice.", "", TRUTHS,
    )  # fmt: skip
    TRUTH_WITHOUT_INSTANCE = (
        "truth-without-instance", INFO, "truth dropped",
        "A truth is about a time of which no instance is left.",
        "Raise `node.recent`, or make `delay_s` smaller.", TRUTHS,
    )  # fmt: skip
    TRUTH_FIELD_MISSING = (
        "truth-field-missing", INFO, "truth dropped",
        "A message of a `[[truth]]` topic came without its field.",
        "Nothing to do if the device reports it by turns. Otherwise compare `field` with what "
        "it sends.", TRUTHS,
    )  # fmt: skip
    NOTHING_HELD = (
        "nothing-held", INFO, "no instance",
        "A beat or a truth came before any sensor had spoken, or after all values had become too "
        "old.",
        "Nothing to do at a start. Otherwise look at the sensors, or raise `hold_s`.", TOGETHER,
    )  # fmt: skip
    RETAINED_LABEL = (
        "retained-label", WARNING, "label dropped",
        "A retained label names its instance by time: it would be learned again and again.",
        "Publish labels without the retain flag, and delete this one.", SENSORS,
    )  # fmt: skip
    LABEL_NOT_KEPT = (
        "label-not-kept", WARNING, "label dropped", "The disk takes nothing more, so a label was "
        "not learned.",
        "Free space, or look at the disk.",
    )  # fmt: skip
    ORDER_NOT_KEPT = (
        "order-not-kept", WARNING, "order postponed",
        "The disk takes nothing more, so an order was not obeyed; the broker keeps it.",
        "Free space, or look at the disk.",
    )  # fmt: skip

    # -- a predictor from outside
    TFLITE_FAILED = (
        "tflite-failed", WARNING, "tflite failed",
        "The served file gave no usable scores; the node's own prediction was published.",
        "Export the file again.", TFLITE,
    )  # fmt: skip
    TFLITE_DOES_NOT_FIT = (
        "tflite-does-not-fit", WARNING, "tflite does not fit",
        "The served file was made for other columns or classes; the node's own predictions are "
        "published.",
        "Export a file for the present layout.", TFLITE,
    )  # fmt: skip


class LinkReason(Reason):
    """What becomes of the connection to the broker and of messages on it, on node and gateway."""

    # -- the connection
    NOT_YET = "not-connected-yet", COUNTED, "", "The first connection is being made.", "", LINK
    STOPPED = "link-stopped", COUNTED, "", "The connection was ended by this program.", "", LINK
    UNREACHABLE = (
        "broker-unreachable", WARNING, "not connected",
        "Nobody answers at the broker's address.",
        "Is the broker running there? Compare `broker.host` and `broker.port`.", LINK,
    )  # fmt: skip
    UNANSWERED = (
        "broker-silent", WARNING, "not connected",
        "Somebody took the connection and did not answer as an MQTT broker does.",
        "Is it the right port, and is TLS on at both ends or at neither?", LINK,
    )  # fmt: skip
    NOT_TRUSTED = (
        "broker-not-trusted", ERROR, "not connected",
        "TLS with the broker does not come about, or its certificate cannot be verified.",
        "Compare `broker.tls_ca` and the host name with the certificate, and check the clock.",
        LINK,
    )  # fmt: skip
    SECRETS = (
        "broker-secret-files", ERROR, "not connected",
        "The file with the password or the certificate cannot be used.",
        "The sentence names the file and what is wrong with it.", LINK,
    )  # fmt: skip
    BAD_CREDENTIALS = (
        "broker-refused-credentials", ERROR, "not connected",
        "The broker refused the user name or the password.",
        "Correct the two lines of `broker.credentials`, or set the password at the broker "
        "(mosquitto_passwd) and reload it.", LINK,
    )  # fmt: skip
    NOT_AUTHORISED = (
        "broker-not-authorised", ERROR, "not connected",
        "The broker does not let this user connect.",
        "With mosquitto this also means a wrong password, or none where one is needed: correct "
        "`broker.credentials`.", LINK,
    )  # fmt: skip
    BAD_CLIENT_ID = (
        "broker-refused-client-id", ERROR, "not connected", "The broker refused the client id.",
        "Set another `broker.client_id`, or allow this one at the broker.", LINK,
    )  # fmt: skip
    REFUSED = (
        "broker-refused", WARNING, "not connected", "The broker refused the connection.",
        "The sentence has the broker's own reason; its log may have more.", LINK,
    )  # fmt: skip
    TAKEN_OVER = (
        "session-taken-over", ERROR, "not connected",
        "Another client has connected with the same client id, and the broker ended ours.",
        "Give each process its own `broker.client_id`, and where the broker uses user names as "
        "client ids (`use_username_as_clientid`) its own user; stop the second copy.", LINK,
    )  # fmt: skip
    PROBABLY_TAKEN_OVER = (
        "session-probably-taken-over", ERROR, "not connected",
        "The broker has ended three connections in a row without a word: probably another client "
        "uses the same client id.",
        "Give each process its own `broker.client_id`, and where the broker uses user names as "
        "client ids (`use_username_as_clientid`) its own user; stop the second copy.", LINK,
    )  # fmt: skip
    ENDED = (
        "connection-ended", WARNING, "not connected", "The connection to the broker has ended.",
        "Nothing to do: it connects again.", LINK,
    )  # fmt: skip
    UNCONFIRMED = (
        "publication-unconfirmed", WARNING, "not connected",
        "The broker did not confirm a publication for 30 s; it is sent again on a new connection.",
        "Look at the broker if it repeats: it may be overloaded.", LINK,
    )  # fmt: skip
    FAULT = (
        "link-fault", ERROR, "link fault",
        "An error of this program ended the connection; it is made again.",
        "Please report the trace in the log.", LINK,
    )  # fmt: skip
    SUBSCRIPTION_REFUSED = (
        "subscription-refused", ERROR, "subscription refused",
        "The broker does not let this user subscribe to a topic, so nothing of it is heard.",
        "Give the user read access to it in the broker's access rules.", LINK,
    )  # fmt: skip

    # -- what came in and cannot be used
    TOO_LARGE = (
        "dropped-too-large", WARNING, "message dropped",
        "A message has more than 256 KiB. It was skipped and never held in memory.",
        "Nobody should publish that on these topics.", LINK,
    )  # fmt: skip
    MALFORMED = (
        "dropped-malformed", WARNING, "message dropped",
        "The broker sent a PUBLISH packet that makes no sense.", "Update the broker.", LINK,
    )  # fmt: skip
    NOT_UTF8 = (
        "dropped-topic-not-utf8", WARNING, "message dropped", "A topic is not UTF-8.",
        "Update the broker: it should have refused it.", LINK,
    )  # fmt: skip
    NO_TOPIC = (
        "dropped-topic-empty", WARNING, "message dropped", "A message has no topic.",
        "Update the broker: it should have refused it.", LINK,
    )  # fmt: skip
    NOT_ASKED_FOR = (
        "dropped-qos-2", WARNING, "message dropped",
        "A message came with QoS 2, for which nobody here subscribed.",
        "Somebody else has used this client id: give each process its own.", LINK,
    )  # fmt: skip
    CONNECTION_LOST = (
        "dropped-connection-lost", COUNTED, "",
        "Messages that waited here when the connection ended: the broker has them and sends them "
        "again.", "", LINK,
    )  # fmt: skip

    # -- what did not go out
    UNSENT_TOO_LARGE = (
        "unsent-too-large", WARNING, "publication dropped",
        "A message of ours is larger than the link or the broker takes.",
        "Raise the broker's limit (`max_packet_size`, `message_size_limit`).", LINK,
    )  # fmt: skip
    UNSENT_QUEUE_FULL = (
        "unsent-queue-full", WARNING, "publication dropped",
        "Predictions come faster than the broker takes them, so some were dropped. No reading is "
        "lost.",
        "Look at the broker's load and the network; send fewer readings a second.", LINK,
    )  # fmt: skip
    UNSENT_BY_BROKER = (
        "unsent-by-broker", WARNING, "publication dropped",
        "The broker received a message of ours and refused it.",
        "Give the user write access to the topic in the broker's access rules.", LINK,
    )  # fmt: skip
    UNSENT_NOT_RUNNING = (
        "unsent-not-running", COUNTED, "",
        "Publications after the goodbye, or before the start.", "", LINK,
    )  # fmt: skip


class ServiceReason(Reason):
    """What the loop around a node or a gateway does with its disk, its files and its listeners."""

    SNAPSHOT_REFUSED = (
        "snapshot-refused", ERROR, "snapshot refused",
        "The disk refused a snapshot; the journal still has everything.",
        "Free space, or look at the disk.",
    )  # fmt: skip
    STATUS_FILE_REFUSED = (
        "status-file-refused", WARNING, "status file cannot be written",
        "The file that `opid-node status` reads cannot be written.",
        "Make its folder, and let it belong to the node's user.",
    )  # fmt: skip
    WATCH_REFUSED = (
        "watch-refused", WARNING, "watch socket cannot be opened",
        "`opid-node watch` cannot reach this node: its socket could not be made.",
        "Let the status file's folder belong to the node's user, and keep its path short.",
        "node.md#watching-a-node",
    )  # fmt: skip
    WATCH_BEHIND = (
        "watch-behind", INFO, "watcher left behind",
        "Somebody who watches is too slow: lines for them were dropped, the node did not wait.",
        "Watch one topic only.", "node.md#watching-a-node",
    )  # fmt: skip
    STORE_TORN = (
        "store-torn", WARNING, "store", "The last commit before a power cut is incomplete; none of "
        "it had been acknowledged.", "Nothing to do.",
    )  # fmt: skip
    STORE_QUARANTINED = (
        "store-quarantined", WARNING, "store",
        "A file of the state is damaged and was put aside; an older one and the journal are used.",
        "Look at the disk; keep the file for a report.",
    )  # fmt: skip
    STORE_DAMAGED = (
        "store-damaged", WARNING, "store",
        "A part of a file of the state is damaged; a snapshot covers what is lost of it.",
        "Look at the disk.",
    )  # fmt: skip
    STORE_POSTPONED = (
        "store-postponed", WARNING, "store",
        "The disk refused to be tidied up; the next commit tries again.",
        "Free space, or look at the disk.",
    )  # fmt: skip


TABLES: tuple[type[Reason], ...] = (
    NodeReason, WireReason, OrderReason, LinkReason, ServiceReason,
)  # fmt: skip
"""What a node can say. A gateway shares all but the first, and has one of its own."""

_NAMED: dict[str, Reason] = {each: each for table in TABLES for each in table}
_REFUSED: dict[str, Reason] = {each: each for table in (WireReason, OrderReason) for each in table}


def named(name: str) -> Reason:
    """The line of the table with this name, which must be there.

    >>> named("held").event
    'reading held'
    """
    return _NAMED[name]


def refused(error: Exception) -> Reason:
    """The line of the table for an error that refused a message.

    >>> from edge_opid.errors import WireError
    >>> refused(WireError("size", "too much")).value
    'refused-size'
    """
    return _REFUSED.get(f"refused-{getattr(error, 'reason', 'error')}", WireReason.OTHER)
