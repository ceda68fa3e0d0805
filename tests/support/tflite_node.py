"""Runs in an environment with a TFLite runtime: a whole node that serves a file, one reading in.

    python tests/tflite_node.py MODEL.tflite

Prints the predictions as JSON: one while all sensors live, one after a sensor has fallen silent;
then what is degraded, what was counted, and whether the state is that of a node without the file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from edge_opid.config.node import NodeConfig, SensorConfig
from edge_opid.models.tflite import load_tflite
from edge_opid.node.actions import Publish
from edge_opid.node.external_model import ExternalModel
from edge_opid.node.node import Node
from edge_opid.wire import Channel, NodeTopics, Reading, encode

TOPICS = NodeTopics("farm", "n1")
CONFIG = NodeConfig(
    site="farm",
    node="n1",
    classes=("fresh", "stale"),
    sensors=tuple(
        SensorConfig(name, reference=0.0, scale=1.0, timeout_s=60.0) for name in ("temp", "co2")
    ),
    vanishing=("co2",),
    format="json",
)


def lived(node: Node) -> list[dict]:
    """What it predicts for a reading with both sensors, and for one when `co2` is silent."""
    topic, said = str(TOPICS.to(Channel.READING, "attic")), []
    steps = [(1, 1, {"temp": 1.0, "co2": 2.0}), (2, 100_000, {"temp": 1.0}), (3, 100_001, {})]
    for seq, now_ms, values in steps:
        payload = encode(Reading(1, seq, now_ms, values or {"temp": 0.5}, "fresh"))
        actions = [*node.handle(topic, payload, now_ms, seq), *node.tick(now_ms)]
        published = [each for each in actions if isinstance(each, Publish)]
        said += [json.loads(p.payload) for p in published if p.topic.endswith("/prediction")]
    return said


def main(path: str) -> None:
    """Two nodes with the same life, one of which serves the file."""
    served = Node(CONFIG, external_model=ExternalModel(load_tflite(Path(path))))
    alone = Node(CONFIG)
    found = {"served": lived(served), "alone": lived(alone)}
    found["degraded"] = list(served.status(200_000).degraded)
    found["counts"] = dict(served.counted())
    found["same state"] = served.snapshot() == alone.snapshot()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
