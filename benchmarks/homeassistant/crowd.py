"""Many nodes in one process, for Home Assistant to look at: real decisions, one connection."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Self

from edge_opid.config.node import NodeConfig, SensorConfig
from edge_opid.homeassistant.announcer import SETTLE_MS, Announcer
from edge_opid.link.background import BackgroundLink
from edge_opid.link.options import MqttOptions
from edge_opid.node.actions import Action, Publish
from edge_opid.node.node import Node
from edge_opid.wire import Channel, NodeTopics, Reading, encode

SITE = "town"
WAIT_S = 60.0


class Crowd:
    """As many nodes, called many-1, many-2 and so on."""

    def __init__(self, options: MqttOptions, count: int, roles: int) -> None:
        self._link = BackgroundLink(options)
        self._nodes = [_node(f"many-{number}", roles) for number in range(count)]
        self._now_ms = round(1000 * time.time())
        self._readings = 0

    def __enter__(self) -> Self:
        self._link.start()
        self._link.wait_connected(WAIT_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._link.stop()

    def announce(self) -> list[int]:
        """All of them have just connected; the bytes of each announcement."""
        sizes = []
        for node in self._nodes:
            actions = [*node.start(self._now_ms), *node.on_connected(self._now_ms)]
            node.tick(self._now_ms)  # before anything has come from the broker
            actions += node.tick(self._now_ms + SETTLE_MS)
            self._publish(actions)
            sizes += [len(a.payload) for a in _said(actions) if a.topic.endswith("/config")]
        return sizes

    def speak(self) -> None:
        """A labelled reading of each, and another one that is predicted; then a status."""
        first = self._readings + 1
        self._readings += 2
        for node in self._nodes:
            topic = str(NodeTopics(SITE, node.config.node).to(Channel.READING, "box"))
            for seq, label in ((first, "dry"), (first + 1, None)):
                values = {sensor.id: float(seq) for sensor in node.config.sensors}
                reading = encode(Reading(1, seq, self._now_ms, values, label))
                self._publish(node.handle(topic, reading, self._now_ms, None))
            self._publish(node.on_connected(self._now_ms))

    def _publish(self, actions: Iterable[Action]) -> None:
        for action in _said(actions):
            end = time.monotonic() + WAIT_S
            while not self._link.publish(action.topic, action.payload, retain=action.retain):
                self._link.check()
                if time.monotonic() > end:
                    raise TimeoutError("the broker takes nothing more")
                time.sleep(0.01)


def _said(actions: Iterable[Action]) -> list[Publish]:
    return [each for each in actions if isinstance(each, Publish)]


def _node(name: str, roles: int) -> Node:
    sensors = tuple(
        SensorConfig(f"s{number}", role=f"r{number}", reference=0.0, scale=1.0)
        for number in range(roles)
    )
    config = NodeConfig(
        site=SITE, node=name, classes=("dry", "damp"), sensors=sensors, homeassistant=True
    )
    node = Node(config)
    node.homeassistant = Announcer(config, node.tally)
    return node
