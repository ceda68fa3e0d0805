"""A thousand nodes in one process: real decisions, one connection, no disk.

    python benchmarks/gateway_fleet.py PORT COUNT SENSORS

Every node has learned a little. It prints `ready` when it is connected, and then a line for each
command on its standard input: `retire`, which announces a death and a birth at every node.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from nacl.signing import SigningKey

from edge_opid.link.mqtt import MqttLink
from edge_opid.link.options import MqttOptions
from edge_opid.node.actions import Action, Commit, Publish
from edge_opid.node.config import NodeConfig, SensorConfig
from edge_opid.node.edge_node import EdgeNode
from edge_opid.wire import Channel, NodeTopics, SensorDeployed, SensorRetired, Topic, encode

SITE, CLASSES = "city", ("calm", "busy", "alarm")
KEY = SigningKey(bytes(range(32)))
LEARNED = 40


def node(name: str, sensors: int) -> EdgeNode:
    """A node that has seen a few labelled instances of its own world."""
    listed = tuple(SensorConfig(f"r{n}", reference=0.0, scale=1.0) for n in range(sensors))
    config = NodeConfig(site=SITE, node=name, classes=CLASSES, sensors=listed)
    made = EdgeNode(config, [KEY.verify_key])
    rng = np.random.default_rng(int(name[1:]))
    for _ in range(LEARNED):
        label = int(rng.integers(len(CLASSES)))
        x = np.append(rng.normal(size=sensors) + label, 1.0).astype(np.float32)
        made.state.senses.learn(x, label)
    return made


class Crowd:
    """All nodes behind one link."""

    def __init__(self, port: int, count: int, sensors: int) -> None:
        self.nodes = {f"n{n}": node(f"n{n}", sensors) for n in range(count)}
        self.link = MqttLink(
            MqttOptions(
                client_id="crowd",
                port=port,
                outbox_messages_max=100_000,
                outbox_bytes_max=2**30,
                inbox_messages_max=100_000,
                inbox_bytes_max=2**30,
            )
        )
        self.link.subscribe([f"opid/1/{SITE}/+/desired"])

    def perform(self, name: str, actions: list[Action]) -> None:
        """Publish what a node says; what it would write is taken as written."""
        for action in actions:
            match action:
                case Publish(topic, payload, retain):
                    self.link.publish(topic, payload, retain=retain)
                case Commit():
                    self.perform(name, self.nodes[name].committed(now_ms()))
                case _:
                    pass

    def start(self) -> None:
        """Connect, and introduce everybody."""
        self.link.start()
        self.link.wait_connected(30.0)
        for name, made in self.nodes.items():
            self.perform(name, made.connected(now_ms()))

    def announce(self) -> None:
        """At every node one sensor dies and another one joins."""
        for name in self.nodes:
            topic = str(NodeTopics(SITE, name).to(Channel.EVENT))
            self.link.publish(topic, encode(SensorRetired("r0", now_ms(), "worn out")))
            joins = SensorDeployed("new", "new", now_ms(), reference=0.0, scale=1.0)
            self.link.publish(topic, encode(joins))

    def listen(self) -> None:
        """Obey what comes, for a while."""
        while (delivery := self.link.poll(0.05)) is not None:
            name = Topic.parse(delivery.topic).node
            made = self.nodes[name]
            self.perform(name, made.handle(delivery.topic, delivery.payload, now_ms(), None))
            self.link.acknowledge(delivery)


def now_ms() -> int:
    """The wall clock."""
    return int(time.time() * 1000)


def main() -> None:
    """Serve until the benchmark ends us."""
    port, count, sensors = map(int, sys.argv[1:4])
    crowd = Crowd(port, count, sensors)
    crowd.start()
    print("ready", flush=True)
    announced = False
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        crowd.listen()
        versions = [made.state.layout_version for made in crowd.nodes.values()]
        if not announced and min(versions) == 1:  # everybody is adopted
            announced = True
            crowd.announce()


if __name__ == "__main__":
    main()
