"""The truth comes an hour later, from a person: say which moment you mean.

It prints what the node makes of 58 µg/m³ before and after the labels, and of a label for nothing.

    ?
"""

import json

from edge_opid.node.config import NodeConfig, SensorConfig
from edge_opid.node.edge_node import EdgeNode
from edge_opid.wire import Label, Reading, encode

pm25, classes = SensorConfig("pm25", reference=15.0, scale=8.0), ("clean", "smoke")
config = NodeConfig(
    site="home", node="n1", classes=classes, sensors=(pm25,), prediction_format="json"
)
node = EdgeNode(config)
for seq, value in enumerate([58.0, 12.0, 61.0, 14.0, 58.0], start=1):
    if seq == 5:  # an hour later
        for minute, label in [(1, "smoke"), (2, "clean"), (3, "smoke"), (4, "clean"), (77, "smoke")]:
            told = encode(Label(label, time_ms=60_000 * minute))
            node.handle("opid/1/home/n1/label", told, 3_600_000, None)
    reading = encode(Reading(boot=1, seq=seq, time_ms=60_000 * seq, values={"pm25": value}))
    _, prediction = node.handle("opid/1/home/n1/reading/roof", reading, 60_000 * seq, None)
    if value == 58.0:
        print("58 µg/m³ is", json.loads(prediction.payload)["label"])
print(dict(node.counts))
