"""The truth comes an hour later, from a person: say which moment you mean.

It prints what a node makes of 58 µg/m³ before and after four labels, and what became of a fifth.

    58 µg/m³ is clean
    58 µg/m³ is smoke
    {'readings': 5, 'predictions': 5, 'learned': 4, 'label-unknown-instance': 1}
"""

import json

from edge_opid.node.config import NodeConfig, SensorConfig
from edge_opid.node.edge_node import EdgeNode
from edge_opid.wire import Label, Reading, encode

sensors = (SensorConfig("pm25", reference=15.0, scale=8.0),)
told = {"classes": ("clean", "smoke"), "sensors": sensors, "prediction_format": "json"}
node = EdgeNode(NodeConfig(site="home", node="n1", **told))
MINUTE_MS = 60_000


def read(seq, minute, value):
    """What the node predicts for a reading."""
    reading = encode(Reading(boot=1, seq=seq, time_ms=minute * MINUTE_MS, values={"pm25": value}))
    _, say = node.handle("opid/1/home/n1/reading/roof", reading, minute * MINUTE_MS, None)
    return json.loads(say.payload)["label"]


print("58 µg/m³ is", [read(n, n, value) for n, value in enumerate([12, 61, 14, 58], 1)][-1])
for minute, label in [(1, "clean"), (2, "smoke"), (3, "clean"), (4, "smoke"), (30, "smoke")]:
    late = encode(Label(label, time_ms=minute * MINUTE_MS))
    node.handle("opid/1/home/n1/label", late, 60 * MINUTE_MS, None)
print("58 µg/m³ is", read(5, 61, 58))
print(dict(node.counts))
