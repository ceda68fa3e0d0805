"""The scales of a node's sensors: whose proves wrong, and whose is measured again.

Part of the durable state, and a function of the inputs alone. Nothing is decided here about the
layout: `rescaling` moves what was learned itself, or, where a gateway has the say, reports it. Who
has no scale yet waits in `warmup.SensorsMeasured`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from edge_opid.config.node import NodeSettings
from edge_opid.layout import FirstValues, ScaleWatch, Sensor
from edge_opid.wire import LIMITS, SensorDescription

COUNTS_SHOWN = 8
"""Sensors whose values at the gate a status counts: those with the most."""
ASK_AGAIN = 256
"""Instances after which a gateway that did not answer is asked for a scale once more."""


class NodeScales:
    """What is known of the scales of a node's sensors, by sensor id."""

    def __init__(self, settings: NodeSettings) -> None:
        self.settings = settings
        self.again: dict[str, FirstValues] = {}
        """Sensors that keep their columns while they are measured again."""
        self._watch = ScaleWatch()
        self._instances = 0
        self._asked: dict[str, int] = {}
        """At which instance the gateway was last asked for another scale of a sensor."""

    def take_settings(self, settings: NodeSettings) -> None:
        """Go by these settings: what is being measured is so under them from here on."""
        self.settings = settings
        for sensor, first in self.again.items():
            self.measure_again(sensor, first.knots)
            self.again[sensor].restore(first.state())

    @property
    def counts(self) -> dict[str, int]:
        """How many values of each sensor were at the gate or beyond, in all."""
        return self._watch.counts

    def measure_again(self, sensor: str, knots: int) -> None:
        """Measure a sensor by what it says from here on; it goes on as it is meanwhile."""
        readings, gate = self.settings.warmup_readings, self.settings.gate
        self.again[sensor] = FirstValues(sensor, readings, max(1, knots), gate=gate)

    def hear(self, values: Mapping[str, float]) -> list[Sensor]:
        """Take values in; who has been measured again."""
        ready = []
        for sensor, first in self.again.items():
            if sensor in values:
                first.add(values[sensor])
                if first.ready:
                    ready.append(first.sensor())
        return ready

    def note(
        self,
        values: Mapping[str, float],
        gated: Collection[str],
        sensors: Mapping[str, SensorDescription],
        gate: float,
    ) -> list[Sensor]:
        """Watch an instance; the sensors whose scales have proved wrong, as they should be.

        What somebody gave in the configuration is only reported, in `troubles`.
        """
        self._instances += 1
        if not self._watch.note(values, gated):
            return []
        return self._watch.take_wrong(self._movable(sensors), gate, gated=bool(gated))

    def _movable(self, sensors: Mapping[str, SensorDescription]) -> list[Sensor]:
        given = {each.id for each in self.settings.sensors if each.scale is not None}
        return [
            Sensor(each.id, each.reference, each.scale, each.knots)
            for each in sensors.values()
            if each.id not in given
        ]

    def describe(self, found: Sensor, known: SensorDescription) -> SensorDescription:
        """A sensor with what was measured, and what is known of it."""
        return replace(known, reference=found.reference, scale=found.scale, knots=found.knots)

    def may_ask(self, sensor: str) -> bool:
        """Whether the gateway is to be asked now: not if it was a moment ago."""
        before = self._asked.get(sensor)
        if before is not None and self._instances - before < ASK_AGAIN:
            return False
        self._asked[sensor] = self._instances
        return True

    def forget(self, sensor: str) -> None:
        """The sensor has another scale."""
        self._watch.forget(sensor)
        self.again.pop(sensor, None)

    def keep_only(self, sensors: Collection[str]) -> None:
        """Another layout: those who left are none of ours, and nobody waits for an answer."""
        self._watch.keep_only(sensors)
        self.again = {sensor: first for sensor, first in self.again.items() if sensor in sensors}
        self._asked.clear()

    def troubles(self) -> list[str]:
        """A line for every sensor that is at the gate too often, and is not moved."""
        return [self._watch.doubt(sensor) for sensor in self._watch.suspects]

    def shown_counts(self) -> dict[str, int]:
        """What a status counts of values at the gate: `gated-` and the sensor.

        A name that would be too long loses its beginning: what a sensor measures stands at the end.
        """
        most = sorted(self.counts.items(), key=lambda each: (-each[1], each[0]))
        room, found = LIMITS.id_chars_max - len("gated-"), dict[str, int]()
        for sensor, count in most[:COUNTS_SHOWN]:
            name = f"gated-{sensor[-room:]}"
            found[name] = found.get(name, 0) + count
        return found

    def state(self) -> dict[str, Any]:
        """Plain values, for `restored`."""
        again = {sensor: [first.knots, first.state()] for sensor, first in self.again.items()}
        asked = [self._instances, self._asked]
        return {"again": again, "watch": self._watch.state(), "asked": asked}

    @classmethod
    def restored(cls, saved: Mapping[str, Any], settings: NodeSettings) -> NodeScales:
        """What `state` described."""
        mine = cls(settings)
        for sensor, (knots, first) in saved["again"].items():
            mine.measure_again(sensor, knots)
            mine.again[sensor].restore(first)
        mine._watch = ScaleWatch.restored(saved["watch"])
        mine._instances, mine._asked = saved["asked"][0], dict(saved["asked"][1])
        return mine
