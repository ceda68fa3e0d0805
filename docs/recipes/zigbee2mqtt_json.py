"""Sensors you have already, as zigbee2mqtt sends them: a node in memory, and no broker.

It prints what the node would publish for a message without a label, and what it refused.

    ?
"""

import json

from edge_opid.config import parse_config
from edge_opid.node.actions import Publish
from edge_opid.node.edge_node import EdgeNode

CONFIG = """
node = { site = "home", node = "north", classes = ["dry", "fine"], prediction_format = "json" }
state = { folder = "state" }
sensors = [{ id = "fern", reference = 40.0, scale = 15.0 }]
[[foreign]]
filter = "zigbee2mqtt/soil/+"           # any device below
source = "{1}"                          # is a source of its own,
fields = { soil_moisture = "{1}" }      # this field is the sensor of that name,
label_field = "verdict"                 # and here is what you said of it
"""
node = EdgeNode(parse_config(CONFIG, {}).node)
for second, (moisture, verdict) in enumerate([(12, "dry"), (55, "fine"), (20, "dry"), (48, "fine")]):
    message = {"soil_moisture": moisture, "linkquality": 90, "verdict": verdict}
    node.handle("zigbee2mqtt/soil/fern", json.dumps(message).encode(), 1000 * second, None)
for action in node.handle("zigbee2mqtt/soil/fern", b'{"soil_moisture": 15}', 9000, None):
    if isinstance(action, Publish):
        print(action.topic, json.loads(action.payload)["label"])
node.handle("zigbee2mqtt/soil/fern", b"\xff\x00", 9500, None)
print({name: count for name, count in node.counts.items() if "refused" in name})
