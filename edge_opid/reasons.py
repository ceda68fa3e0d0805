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
        "refused-size", WARNING, REFUSED, "A message is larger than its kind allows.",
        "Send fewer values at a time, or publish other data on other topics.",
    )  # fmt: skip
    TRUNCATED = (
        "refused-truncated", WARNING, REFUSED, "A message ends before it is complete.", SENDER,
    )  # fmt: skip
    TRAILING = (
        "refused-trailing", WARNING, REFUSED,
        "There are extra bytes after the end of a message.", SENDER,
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
        "A message contains a msgpack extension type, which is not allowed.", SENDER,
    )  # fmt: skip
    SCHEMA = (
        "refused-schema", WARNING, REFUSED, "A message has another schema version.",
        "Update the older side.",
    )  # fmt: skip
    KIND = (
        "refused-kind", WARNING, REFUSED, "A message is not of the kind that its topic carries.",
        SENDER,
    )  # fmt: skip
    TYPE = (
        "refused-type", WARNING, REFUSED, "A field has the wrong type.", SENDER,
    )  # fmt: skip
    RANGE = (
        "refused-range", WARNING, REFUSED, "A number is out of range.", SENDER,
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
        "A name is invalid: use lower-case letters, digits, `-` and `_`, at most 32 characters.",
        "Rename it; list foreign devices with capitals one by one.", SENSORS,
    )  # fmt: skip
    TRUTH_VALUE = (
        "refused-truth-value", WARNING, "truth dropped",
        "A value on a `[[truth]]` topic is not mapped to a class.",
        "Add it to `values`; do nothing if it is something like `unavailable`.", TRUTHS,
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
        "A required field is missing, or none of a mapping's fields is present.",
        "Compare `fields` with what the device sends.", SENSORS,
    )  # fmt: skip
    SHAPE = (
        "refused-shape", WARNING, REFUSED, "An array's length does not match its shape.",
        SENDER,
    )  # fmt: skip
    CONTENT = (
        "refused-content", WARNING, REFUSED, "Two fields of a message contradict each other.",
        SENDER,
    )  # fmt: skip
    SIGNATURE = (
        "refused-signature", WARNING, REFUSED,
        "An order is not signed by a key that this node trusts.",
        "Put the gateway's public key (`opid-gateway check`) in `gateway.keys`. If it is there "
        "already, somebody else is publishing orders.",
    )  # fmt: skip
    LAYOUT = (
        "refused-layout", WARNING, REFUSED,
        "An order or a report does not fit the layout it names.",
        "If it repeats, restart the gateway: it will send the node a new order.",
    )  # fmt: skip
    MISMATCH = (
        "refused-mismatch", WARNING, REFUSED,
        "Two things that should match do not: their columns, classes, λ or ρ differ.",
        "Compare the settings of node and gateway.",
    )  # fmt: skip
    OTHER = (
        "refused-error", WARNING, REFUSED, "A message was refused for a reason that has no name.",
        "The log says why; please report it.",
    )  # fmt: skip


class OrderReason(Reason):
    """An order, or the model in it, that a node does not obey."""

    ADDRESS = (
        "refused-address", WARNING, REFUSED, "An order is addressed to another node.",
        "Somebody has copied a retained order to this topic: delete it there.",
    )  # fmt: skip
    CONFLICT = (
        "refused-conflict", WARNING, REFUSED,
        "An order has the same version as the last one but different content.",
        "Two gateways are sending orders to this node: stop one.",
    )  # fmt: skip
    OLD_VERSION = (
        "refused-old-version", WARNING, REFUSED,
        "An order is older than the last one obeyed.",
        "Nothing to do if it happens once. If it repeats, two gateways are sending orders to "
        "this node.",
    )  # fmt: skip
    FAR_VERSION = (
        "refused-far-version", WARNING, REFUSED,
        "A version is too far ahead to be believed.",
        "Somebody is impersonating the node or the gateway: check the broker's access rules.",
    )  # fmt: skip
    CLASSES = (
        "refused-classes", WARNING, REFUSED, "The other side has different classes.",
        "Give node and group the same classes.",
    )  # fmt: skip
    COLUMNS = (
        "refused-columns", WARNING, REFUSED,
        "A model or a change needs different columns, or more than there is room for.",
        "Use fewer sensors or fewer knots.",
    )  # fmt: skip
    FORM = (
        "refused-form", WARNING, REFUSED, "A model has a form that this node does not know.",
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
        "Predictions of `unknown`: nothing was learned yet, or the confidence was below "
        "`confidence_min`.",
        "Send labels.",
    )  # fmt: skip
    LEARNED = "learned", COUNTED, "", "Labelled instances learned."
    ASKED = "asked", COUNTED, "", "Instances that the node has asked about.", "", LABELS
    LEARNED_UNSCORED = (
        "learned-unscored", COUNTED, "",
        "Labels of instances that were predicted as `unknown`: learned, but not part of any "
        "accuracy.",
    )  # fmt: skip
    EXAMPLE = "example", COUNTED, "", "Labelled instances reported to the gateway."
    INTRODUCTION = "introduction", COUNTED, "", "Introductions sent to the gateway."
    REPEATED = (
        "repeated", COUNTED, "",
        "Messages sent again because the gateway had not confirmed them.",
    )  # fmt: skip
    ANNOUNCED = (
        "announced", COUNTED, "", "Announcements to Home Assistant.", "", HOMEASSISTANT,
    )  # fmt: skip
    ORDER_REPEATED = (
        "order-repeated", COUNTED, "",
        "Orders that were already obeyed: the broker delivers the last one again.",
    )  # fmt: skip

    # -- what matters to whoever looks after it
    SENSOR_SILENT = (
        "sensor-silent", WARNING, "sensor silent",
        "A sensor has sent nothing for longer than its timeout; the node goes on without it.",
        "Check its battery and its radio; it is used again as soon as it reports.",
    )  # fmt: skip
    SENSOR_RETURNED = (
        "sensor-returned", INFO, "sensor returned", "A silent sensor reports again and is used.",
    )  # fmt: skip
    SENSOR_DEPLOYED = (
        "sensor-deployed", INFO, "sensor deployed", "A sensor has joined the layout.",
    )  # fmt: skip
    SENSOR_RETIRED = (
        "sensor-retired", INFO, "sensor retired", "A sensor has left the layout for good.",
    )  # fmt: skip
    LAYOUT_CHANGED = (
        "layout-changed", INFO, "layout changed",
        "The node's sensors have changed; what was learned with the remaining ones is kept.",
    )  # fmt: skip
    HOMEASSISTANT_STARTED = (
        "homeassistant-started", INFO, "home assistant started",
        "Home Assistant has started, so the node announces itself again.", "",
        HOMEASSISTANT,
    )  # fmt: skip
    HOMEASSISTANT_UNFIT = (
        "homeassistant-unfit", WARNING, "announcement ignored",
        "The broker's retained announcement for this node is invalid; the next one replaces it.",
        "If it repeats, somebody else is writing to that topic: check the broker's access rules.",
        HOMEASSISTANT,
    )  # fmt: skip
    SETTINGS_CHANGED = (
        "settings-changed", WARNING, "configuration",
        "The configuration differs from the saved state: the node has applied the change and "
        "kept what was learned.",
        "If this was a mistake, restore the file; `opid-node check` shows such changes beforehand.",
        "node.md#a-configuration-that-changes",
    )  # fmt: skip
    LEFT_TO_GATEWAY = (
        "left-to-gateway", WARNING, "configuration not used",
        "The file changes something that the gateway decides, so the change is not applied.",
        "Tell the gateway (`opid-gateway sensor deploy` or `retire`), or restore the file.",
        "node.md#a-configuration-that-changes",
    )  # fmt: skip
    SENSOR_MEASURED = (
        "sensor-measured", INFO, "sensor measured",
        "A sensor without a scale has sent enough values and has moved: it joins the layout.",
        "", SCALES,
    )  # fmt: skip
    MODEL_SWAPPED = (
        "model-swapped", INFO, "weights swapped", "The gateway's weights are now served.",
    )  # fmt: skip
    MODEL_DOUBTED = (
        "model-doubted", WARNING, "weights doubted",
        "The gateway's weights contradict what this node has seen; they are not served until "
        "labels confirm them.",
        "Send labels. If it happens on many nodes, look at the change on the gateway.",
    )  # fmt: skip
    MODEL_FALLBACK = (
        "model-fallback", WARNING, "weights fell back",
        "The last pushed weights did worse than those before, which are served again.",
    )  # fmt: skip
    VALUES_SET_ASIDE = (
        "values-set-aside", WARNING, "values set aside",
        "Codes such as 65535, 85 or −127 among a sensor's first values were ignored.",
        "If it repeats, check the sensor.",
    )  # fmt: skip
    SENSOR_WAITS = (
        "sensor-waits", WARNING, "sensor waits",
        "A sensor did not move during the warm-up, or sent few values or none, so its scale is "
        "unknown: it is heard but not used.",
        "Nothing to do if it is at rest (a light at night): it joins once it has moved. Or give "
        "its reference and scale.", SCALES,
    )  # fmt: skip
    SENSOR_MOVED = (
        "sensor-moved", INFO, "sensor has moved",
        "A sensor that was waiting for a scale has moved: the node asks the gateway to add it.", "",
        SCALES,
    )  # fmt: skip
    NOTHING_MOVED = (
        "nothing-moved", WARNING, "nothing moved",
        "No sensor moved during the warm-up, which starts again.",
        "Check whether the sensors measure anything.", SCALES,
    )  # fmt: skip
    SCALE_MOVED = (
        "scale-moved", WARNING, "scale moved",
        "A sensor's scale proved wrong, or was measured again: what was learned is converted to "
        "the new one. Values that were clipped stay clipped.",
        "Nothing to do; if it repeats, give reference and scale in the configuration.", SCALES,
    )  # fmt: skip
    REMEASURING = (
        "remeasuring", INFO, "sensor measured anew", "An operator asked for it.", "", SCALES,
    )  # fmt: skip
    REMEASURE_REFUSED = (
        "remeasure-refused", WARNING, "sensor not measured anew",
        "The sensor that an operator named has no scale yet, or does not belong to this node.", "",
        SCALES,
    )  # fmt: skip
    SCALE_MEASURED = (
        "scale-measured", WARNING, "scale proves wrong",
        "A sensor's scale proved wrong: the node asks the gateway to order a new one.",
        "", SCALES,
    )  # fmt: skip
    NUMBERS_RESCUED = (
        "numbers-rescued", WARNING, "numbers rescued",
        "Rounding had spoiled a matrix; the node repaired it and goes on.",
        "If it repeats, please report it.",
    )  # fmt: skip
    SUMMARY_TOO_WIDE = (
        "summary-too-wide", WARNING, "summary not sent",
        "The layout has more columns than a summary can hold, so the group cannot pool it.",
        "Use fewer knots.",
    )  # fmt: skip
    INPUT_FAILED = (
        "input-failed", ERROR, "input failed",
        "An input passed every check but could not be applied; the rest of the state is unharmed.",
        "This is a bug in the node: please report the log line.",
    )  # fmt: skip
    BEGUN_ANEW = (
        "begun-anew", WARNING, "begins anew",
        "The state folder is empty: the node is new, or its disk is missing.",
        "If the node has run before, mount its disk and set `state.must_exist = true`.",
    )  # fmt: skip
    NOT_PUBLISHED = (
        "not-published", ERROR, "not published",
        "Something could not be encoded as a message; its record is kept.",
        "This is a bug in the node: please report the log line.",
    )  # fmt: skip

    # -- readings
    UNKNOWN_SENSOR = (
        "unknown-sensor", WARNING, "value ignored",
        "A reading has a value for a sensor that is not in the layout; its other values are used.",
        "Add the sensor to `node.toml`, or announce it to the gateway; or stop sending it.",
        SENSORS,
    )  # fmt: skip
    VALUE_GATED = (
        "values-gated", INFO, "value clipped",
        "A value is more than `gate` scales from its sensor's reference, and counts as a value "
        "at the gate.",
        "Nothing to do if it is rare. If it repeats, the scale is wrong: run `opid-node "
        "remeasure`.",
        SENSORS,
    )  # fmt: skip
    FOREIGN_FIELDS_MISSING = (
        "foreign-fields-missing", INFO, "field missing",
        "A foreign message lacks some of the fields that its mapping names; the others are used.",
        "Nothing to do if the device sends them in turn. Otherwise compare `fields` with what it "
        "sends.", SENSORS,
    )  # fmt: skip
    FOREIGN_FIELDS_UNFIT = (
        "foreign-fields-unfit", WARNING, "field ignored",
        "A field of a foreign message is not a finite number, or does not name a valid sensor; "
        "the others are used.",
        "Check the device: values like `unavailable` or NaN mean that a probe has failed.", SENSORS,
    )  # fmt: skip
    RETAINED_FOREIGN = (
        "retained-foreign", INFO, REFUSED,
        "A foreign message is the retained copy that the broker sends at every connection, not a "
        "new reading.",
        "Nothing to do. It was applied when it was published.", SENSORS,
    )  # fmt: skip
    RATE_LIMITED = (
        "rate-limited", WARNING, REFUSED,
        "A source sends faster than its rate limit. A `Source` retries; a foreign message is lost.",
        "Send more slowly, or raise `node.rate_per_second` and `node.rate_burst`.", SENSORS,
    )  # fmt: skip
    TOO_MANY_SOURCES = (
        "too-many-sources", WARNING, "source refused",
        "There are already 256 sources, all heard within the last day.",
        "Give scripts fixed source names instead of new ones at every start.", SENSORS,
    )  # fmt: skip
    SOURCE_FORGOTTEN = (
        "source-forgotten", WARNING, "source forgotten",
        "A source was forgotten to make room for another one.",
        "Give scripts fixed source names instead of new ones at every start.", SENSORS,
    )  # fmt: skip
    BOOT_TOO_FAR = (
        "boot-too-far", WARNING, "source refused",
        "A reading has a boot number beyond any plausible clock.",
        "Set the sender's clock and delete its spool. If the sender is not yours, check the "
        "broker's access rules.", SENSORS,
    )  # fmt: skip
    BOOT_UNSETTLED = (
        "boot-unsettled", INFO, "reading refused",
        "A reading of an older boot arrived before the newer boot was committed; its sender "
        "retries.",
        "Nothing to do.", SENSORS,
    )  # fmt: skip
    BOOT_OVER = (
        "boot-over", INFO, "reading refused",
        "A reading is from an older boot than the newest; its sender is told to renumber it.",
        "Nothing to do if it happens once. If it repeats, two scripts use the same source name.",
        SENSORS,
    )  # fmt: skip
    DUPLICATE = (
        "duplicate", INFO, "reading repeated",
        "A reading arrived again after it was applied. It is acknowledged again, and nothing "
        "changes.",
        "Nothing to do. A rising count means that acknowledgements are lost or late.",
        SENSORS,
    )  # fmt: skip
    HELD = (
        "held", INFO, "reading held", "A reading waits for the numbers before it.",
        "Nothing to do.", SENSORS,
    )  # fmt: skip
    HOLD_FULL = (
        "hold-full", INFO, "reading refused",
        "Too many readings are waiting for a missing number; the sender will retry this one.",
        "Nothing to do, unless it continues for minutes: then check the sender's spool.", SENSORS,
    )  # fmt: skip
    HOLD_DROPPED = (
        "hold-dropped", INFO, "held readings dropped",
        "Readings waiting for a missing number were dropped to make room for others; their "
        "sender retries.",
        "Nothing to do.", SENSORS,
    )  # fmt: skip
    RESEND_ASKED = (
        "resend-asked", INFO, "resend asked",
        "A number is missing: the node has asked its sender for it.",
        "Nothing to do.", SENSORS,
    )  # fmt: skip
    GAP_ADOPTED = (
        "gap-adopted", WARNING, "gap given up",
        "A missing reading never arrived, although the node asked for it; the node goes on "
        "without it.",
        "Check the sender's spool: its folder was deleted or its disk failed.", SENSORS,
    )  # fmt: skip
    NUMBERS_SKIPPED = (
        "numbers-skipped", COUNTED, "", "Readings given up in all gaps.", "", SENSORS,
    )  # fmt: skip
    NOT_KEPT = (
        "not-kept", WARNING, "reading not kept",
        "The disk cannot be written: the reading was predicted but not learned, and is not "
        "acknowledged, so a `Source` retries.",
        "Free some space, or check the disk; the status shows its error.",
    )  # fmt: skip
    ACK_WITHHELD = (
        "ack-withheld", INFO, "acknowledgement withheld",
        "After a restart it is not known until the next commit whether the last records are "
        "safely on disk, so nothing is acknowledged until then.",
        "Nothing to do, unless the disk reports errors too.",
    )  # fmt: skip
    COMMIT_FAILED = (
        "commit-failed", ERROR, "commit refused",
        "The disk refused a commit: everything waits in memory, and nothing is acknowledged.",
        "Free some space, or check the disk.",
    )  # fmt: skip

    # -- labels
    LABEL_UNKNOWN_INSTANCE = (
        "label-unknown-instance", WARNING, "label dropped",
        "A label is for an instance that the node does not have or has forgotten, or for a time "
        "without an instance.",
        "Send it sooner, compare the clocks, or raise `node.recent` or "
        "`node.label_tolerance_ms`.", SENSORS,
    )  # fmt: skip
    LABEL_ALREADY_LABELLED = (
        "label-already-labelled", INFO, "label dropped",
        "A label is for an instance that already has one; the first one counts.",
        "Nothing to do if it was sent twice.", SENSORS,
    )  # fmt: skip
    UNKNOWN_CLASS = (
        "unknown-class", WARNING, "label dropped",
        "A label is not one of the node's classes; if it came with a reading, the reading is "
        "used without it.",
        "Compare its spelling with `node.classes`.", SENSORS,
    )  # fmt: skip
    LABEL_RATE_LIMITED = (
        "label-rate-limited", WARNING, "label dropped",
        "Labels arrive faster than their rate limit.",
        "Send more slowly, or raise `node.rate_per_second` and `node.rate_burst`.", SENSORS,
    )  # fmt: skip
    LABEL_STRETCH_CUT = (
        "label-stretch-cut", INFO, "label",
        "A label is for a period that begins before the recent instances; it was learned for "
        "those that are left.",
        "Send it sooner, or raise `node.recent`.", LABELS,
    )  # fmt: skip
    UNLEARNED = (
        "unlearned", INFO, "label taken back",
        "A label was taken back: what was learned from it is subtracted.", "", LABELS,
    )  # fmt: skip
    UNDO_WITHOUT_LABEL = (
        "undo-without-label", WARNING, "undo refused",
        "There is no label to take back, or its instance has been forgotten.",
        "Nothing to do if it was sent twice.", LABELS,
    )  # fmt: skip
    UNDO_TOO_LATE = (
        "undo-too-late", WARNING, "undo refused",
        "A label can no longer be taken back: since it was learned, sensors have joined, left or "
        "been rescaled, its class was removed, or `forgetting` was changed. Nothing has changed.",
        "Give the next instances correct labels: they will outweigh it.", LABELS,
    )  # fmt: skip
    DEVICE_ONLINE = (
        "device-online", COUNTED, "", "A device announced that it is online.", "", TOGETHER,
    )  # fmt: skip
    DEVICE_OFFLINE = (
        "device-offline", INFO, "device offline",
        "A device was announced as offline: its sensors count as silent at once.",
        "Check the device: its battery, its radio, its plug.", TOGETHER,
    )  # fmt: skip
    TRUTH_REPEATED = (
        "truth-repeated", COUNTED, "",
        "A truth was repeated: it stays valid for longer, and nothing else changes.", "", TRUTHS,
    )  # fmt: skip
    TRUTH_WITHOUT_NEWS = (
        "truth-without-news", COUNTED, "",
        "No sensor has reported since the last instance labelled by a truth: the same values are "
        "not learned twice.", "", TRUTHS,
    )  # fmt: skip
    TRUTH_WITHOUT_INSTANCE = (
        "truth-without-instance", INFO, "truth dropped",
        "A truth is about a time for which there is no instance any more.",
        "Raise `node.recent`, or make `delay_s` smaller.", TRUTHS,
    )  # fmt: skip
    TRUTH_FIELD_MISSING = (
        "truth-field-missing", INFO, "truth dropped",
        "A message on a `[[truth]]` topic lacks its field.",
        "Nothing to do if the device does not send it every time. Otherwise compare `field` with "
        "what it sends.", TRUTHS,
    )  # fmt: skip
    NOTHING_HELD = (
        "nothing-held", INFO, "no instance",
        "A beat or a truth came before any sensor had reported, or after all values had become "
        "too old.",
        "Nothing to do after a start. Otherwise check the sensors, or raise `hold_s`.", TOGETHER,
    )  # fmt: skip
    RETAINED_LABEL = (
        "retained-label", WARNING, "label dropped",
        "A retained label that names its instance by time would be learned again and again.",
        "Publish labels without the retain flag, and delete this one.", SENSORS,
    )  # fmt: skip
    LABEL_NOT_KEPT = (
        "label-not-kept", WARNING, "label dropped",
        "The disk cannot be written, so a label was not learned.",
        "Free some space, or check the disk.",
    )  # fmt: skip
    ORDER_NOT_KEPT = (
        "order-not-kept", WARNING, "order postponed",
        "The disk cannot be written, so an order was not obeyed; the broker keeps it.",
        "Free some space, or check the disk.",
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
        "Export a file for the current layout.", TFLITE,
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
        "Something accepted the connection but did not answer like an MQTT broker.",
        "Is it the right port, and is TLS on at both ends or at neither?", LINK,
    )  # fmt: skip
    NOT_TRUSTED = (
        "broker-not-trusted", ERROR, "not connected",
        "The TLS connection to the broker failed, or its certificate cannot be verified.",
        "Compare `broker.tls_ca` and the host name with the certificate, and check the clock.",
        LINK,
    )  # fmt: skip
    SECRETS = (
        "broker-secret-files", ERROR, "not connected",
        "The file with the password or the certificate cannot be used.",
        "The message names the file and what is wrong with it.", LINK,
    )  # fmt: skip
    BAD_CREDENTIALS = (
        "broker-refused-credentials", ERROR, "not connected",
        "The broker refused the user name or the password.",
        "Correct the two lines of `broker.credentials`, or set the password at the broker "
        "(mosquitto_passwd) and reload it.", LINK,
    )  # fmt: skip
    NOT_AUTHORISED = (
        "broker-not-authorised", ERROR, "not connected",
        "The broker does not allow this user to connect.",
        "With mosquitto this also means a wrong password, or none where one is needed: correct "
        "`broker.credentials`.", LINK,
    )  # fmt: skip
    BAD_CLIENT_ID = (
        "broker-refused-client-id", ERROR, "not connected", "The broker refused the client id.",
        "Set another `broker.client_id`, or allow this one at the broker.", LINK,
    )  # fmt: skip
    REFUSED = (
        "broker-refused", WARNING, "not connected", "The broker refused the connection.",
        "The message gives the broker's own reason; its log may say more.", LINK,
    )  # fmt: skip
    TAKEN_OVER = (
        "session-taken-over", ERROR, "not connected",
        "Another client has connected with the same client id, so the broker closed our "
        "connection.",
        "Give each process its own `broker.client_id`, or its own user if the broker uses user "
        "names as client ids (`use_username_as_clientid`); stop the second copy.", LINK,
    )  # fmt: skip
    PROBABLY_TAKEN_OVER = (
        "session-probably-taken-over", ERROR, "not connected",
        "The broker has closed three connections in a row without a reason: probably another "
        "client uses the same client id.",
        "Give each process its own `broker.client_id`, or its own user if the broker uses user "
        "names as client ids (`use_username_as_clientid`); stop the second copy.", LINK,
    )  # fmt: skip
    ENDED = (
        "connection-ended", WARNING, "not connected", "The connection to the broker has ended.",
        "Nothing to do: it reconnects.", LINK,
    )  # fmt: skip
    UNCONFIRMED = (
        "publication-unconfirmed", WARNING, "not connected",
        "The broker did not confirm a publication for 30 s; it is sent again on a new connection.",
        "If it repeats, check the broker: it may be overloaded.", LINK,
    )  # fmt: skip
    FAULT = (
        "link-fault", ERROR, "link fault",
        "An error in this program ended the connection; it reconnects.",
        "Please report the traceback in the log.", LINK,
    )  # fmt: skip
    SUBSCRIPTION_REFUSED = (
        "subscription-refused", ERROR, "subscription refused",
        "The broker does not allow this user to subscribe to a topic, so nothing is received on "
        "it.",
        "Give the user read access to it in the broker's access rules; within a minute the broker "
        "is asked again.", LINK,
    )  # fmt: skip

    # -- what came in and cannot be used
    TOO_LARGE = (
        "dropped-too-large", WARNING, "message dropped",
        "A message is larger than 256 KiB. It was skipped and never held in memory.",
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
        "A message came with QoS 2, which nothing here subscribes to.",
        "Somebody else has used this client id: give each process its own.", LINK,
    )  # fmt: skip
    CONNECTION_LOST = (
        "dropped-connection-lost", COUNTED, "",
        "Messages that were waiting when the connection ended: the broker still has them and "
        "sends them again.", "", LINK,
    )  # fmt: skip

    # -- what did not go out
    UNSENT_TOO_LARGE = (
        "unsent-too-large", WARNING, "publication dropped",
        "An outgoing message is larger than the link or the broker accepts.",
        "Raise the broker's limit (`max_packet_size`, `message_size_limit`).", LINK,
    )  # fmt: skip
    UNSENT_QUEUE_FULL = (
        "unsent-queue-full", WARNING, "publication dropped",
        "Predictions are made faster than the broker accepts them, so some were dropped. No "
        "reading is lost.",
        "Check the broker's load and the network, or send fewer readings per second.", LINK,
    )  # fmt: skip
    UNSENT_BY_BROKER = (
        "unsent-by-broker", WARNING, "publication dropped",
        "The broker received an outgoing message and refused it.",
        "Give the user write access to the topic in the broker's access rules.", LINK,
    )  # fmt: skip
    UNSENT_NOT_RUNNING = (
        "unsent-not-running", COUNTED, "",
        "Publications before the start, or after the disconnect.", "", LINK,
    )  # fmt: skip


class ServiceReason(Reason):
    """What the loop around a node or a gateway does with its disk, its files and its listeners."""

    SNAPSHOT_REFUSED = (
        "snapshot-refused", ERROR, "snapshot refused",
        "The disk refused a snapshot; the journal still has everything.",
        "Free some space, or check the disk.",
    )  # fmt: skip
    STATUS_FILE_REFUSED = (
        "status-file-refused", WARNING, "status file cannot be written",
        "The file that `opid-node status` reads cannot be written.",
        "Create its folder, and make the node's user its owner.",
    )  # fmt: skip
    WATCH_REFUSED = (
        "watch-refused", WARNING, "watch socket cannot be opened",
        "`opid-node watch` cannot reach this node: its socket could not be created.",
        "Make the node's user the owner of the status file's folder, and keep its path short.",
        "node.md#watching-a-node",
    )  # fmt: skip
    WATCH_BEHIND = (
        "watch-behind", INFO, "watcher left behind",
        "A watcher is too slow: some of its lines were dropped, because the node does not wait.",
        "Watch one topic only.", "node.md#watching-a-node",
    )  # fmt: skip
    STORE_TORN = (
        "store-torn", WARNING, "store", "The last commit before a power cut is incomplete; none of "
        "it had been acknowledged.", "Nothing to do.",
    )  # fmt: skip
    STORE_QUARANTINED = (
        "store-quarantined", WARNING, "store",
        "A state file is damaged and was set aside; an older one and the journal are used.",
        "Check the disk, and keep the file for a bug report.",
    )  # fmt: skip
    STORE_DAMAGED = (
        "store-damaged", WARNING, "store",
        "Part of a state file is damaged; a snapshot covers what is lost.",
        "Check the disk.",
    )  # fmt: skip
    STORE_POSTPONED = (
        "store-postponed", WARNING, "store",
        "Old files could not be tidied up; the next commit tries again.",
        "Free some space, or check the disk.",
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
