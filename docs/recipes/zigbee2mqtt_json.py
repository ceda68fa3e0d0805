"""Sensors you already have, as zigbee2mqtt sends them: a node in memory, without a broker.

It prints what the node would publish for a message without a label, and what it refused.

    opid/1/home/north/prediction dry
    {'refused-format': 1}
"""

import json

from edge_opid.config.service import parse_config
from edge_opid.node.actions import Publish
from edge_opid.node.node import Node

CONFIG = """
node = { site = "home", node = "north", classes = ["dry", "fine"] }
state = { folder = "state" }
sensors = [{ id = "fern", reference = 40.0, scale = 15.0 }]
[[foreign]]
filter = "zigbee2mqtt/soil/+"           # any device below
source = "{1}"                          # is a source of its own,
fields = { soil_moisture = "{1}" }      # this field is the sensor of that name,
label_field = "verdict"                 # and here somebody said what it was
"""
node, topic = Node(parse_config(CONFIG, {}).node), "zigbee2mqtt/soil/fern"
for second, moisture in enumerate([12, 55, 20, 48]):
    message = {"soil_moisture": moisture, "verdict": "dry" if moisture < 30 else "fine"}
    node.handle(topic, json.dumps(message).encode(), 1000 * second, None)
for action in node.handle(topic, b'{"soil_moisture": 15, "linkquality": 90}', 4000, None):
    if isinstance(action, Publish):
        print(action.topic, json.loads(action.payload)["label"])
node.handle(topic, b"\xff\x00", 5000, None)
print({str(name): count for name, count in node.counts.items() if "refused" in name})
