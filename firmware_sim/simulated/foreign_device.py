"""A device that knows nothing of us: it says what it reads on a topic of its own, as ESPHome does.

It keeps nothing and counts nothing, and so may be lost, but never heard twice. Whether the broker
retains what it says is its own setting, and not ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from edge_opid.config.node import ForeignConfig, SensorConfig
from firmware_sim.chaos.promises import Said, SaidOnce
from firmware_sim.simulated.link import SimLink
from firmware_sim.simulated.network import Network

ROOT = "esphome"
SOURCE, ROLE = "lamp", "lux"


def foreign_topic(node: str) -> str:
    """Where the device of a node says what it reads."""
    return f"{ROOT}/{node}/state"


def foreign_sensor(node: str, timeout_s: float = 4.0) -> SensorConfig:
    """The node's name for what the device reads."""
    return SensorConfig(f"{ROLE}-{node}", role=ROLE, reference=0.0, scale=1.0, timeout_s=timeout_s)


def foreign_config(node: str) -> ForeignConfig:
    """What the node is told about its device."""
    return ForeignConfig(foreign_topic(node), SOURCE, {ROLE: f"{ROLE}-{node}"}, "truth")


class ForeignDevice:
    """One device, which speaks until its end."""

    def __init__(
        self,
        network: Network,
        node: str,
        said: SaidOnce,
        read: Callable[[int], Said],
        *,
        period_ms: int,
        until_ms: int,
    ) -> None:
        self._clock, self._topic, self._said = network.clock, foreign_topic(node), said
        self._read, self._period_ms, self._until_ms = read, period_ms, until_ms
        self._link = SimLink(network, f"{ROOT}-{node}", persistent=False)
        self._link.start()
        self._places = 0
        self.retained = False
        self._clock.after(period_ms, self._turn)

    def _turn(self) -> None:
        if self._clock.now_ms < self._until_ms:
            self.speak()
            self._clock.after(self._period_ms, self._turn)

    def speak(self) -> None:
        """Say what it reads now: once, and no matter who hears it."""
        values, label = self._read(self._places)
        self._places += 1
        (value,) = values.values()
        self._said.say(value, label)
        document = {ROLE: value} if label is None else {ROLE: value, "truth": label}
        self._link.publish(self._topic, json.dumps(document).encode(), qos=0, retain=self.retained)
