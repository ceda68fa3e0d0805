"""What travels between sensors, nodes and gateways: the only place that knows bytes.

Read in this order: `limits` (how much), `ids` and `topics` (where), `messages`, `sensors` and
`documents` (what), `codec` (as bytes), `envelope` (signed), `labels` (as people write them),
`foreign` (what other people's devices send). `schema`, `arrays` and `reader` are the machinery
below.

>>> reading = Reading(boot=1, seq=1, time_ms=0, values={"attic-temp": 21.5}, label="fresh")
>>> decode(encode(reading), Reading) == reading
True
>>> print(NodeTopics("farm", "n1").to(Channel.READING, "attic"))
opid/1/farm/n1/reading/attic
"""

from edge_opid.errors import WireError
from edge_opid.wire.arrays import Matrix, from_bytes, to_bytes
from edge_opid.wire.codec import (
    MESSAGES_ON,
    READABLE,
    REPEATED,
    decode,
    decode_on,
    encode,
    encode_as,
    encode_prediction,
    to_json,
)
from edge_opid.wire.documents import AllReadings, Desired, Introduction, SummaryMessage, Weights
from edge_opid.wire.envelope import Sealer, digest, open_desired, open_sealed, seal, seal_desired
from edge_opid.wire.ids import check_id
from edge_opid.wire.labels import read_label, read_word
from edge_opid.wire.limits import LIMITS, WireLimits
from edge_opid.wire.messages import (
    SCHEMA_VERSION,
    UNKNOWN,
    Ack,
    Asked,
    Confirmed,
    Example,
    InstanceId,
    Label,
    Message,
    Prediction,
    Reading,
    Status,
    Undo,
)
from edge_opid.wire.sensors import (
    Event,
    ScaleMeasured,
    SensorDeployed,
    SensorDescription,
    SensorRemeasured,
    SensorRetired,
    SensorReturned,
    SensorSilent,
)
from edge_opid.wire.topics import Channel, Filter, NodeTopics, Topic, gateway_filters

__all__ = [
    "LIMITS",
    "MESSAGES_ON",
    "READABLE",
    "REPEATED",
    "SCHEMA_VERSION",
    "UNKNOWN",
    "Ack",
    "AllReadings",
    "Asked",
    "Channel",
    "Confirmed",
    "Desired",
    "Event",
    "Example",
    "Filter",
    "InstanceId",
    "Introduction",
    "Label",
    "Matrix",
    "Message",
    "NodeTopics",
    "Prediction",
    "Reading",
    "ScaleMeasured",
    "Sealer",
    "SensorDeployed",
    "SensorDescription",
    "SensorRemeasured",
    "SensorRetired",
    "SensorReturned",
    "SensorSilent",
    "Status",
    "SummaryMessage",
    "Topic",
    "Undo",
    "Weights",
    "WireError",
    "WireLimits",
    "check_id",
    "decode",
    "decode_on",
    "digest",
    "encode",
    "encode_as",
    "encode_prediction",
    "from_bytes",
    "gateway_filters",
    "open_desired",
    "open_sealed",
    "read_label",
    "read_word",
    "seal",
    "seal_desired",
    "to_bytes",
    "to_json",
]
