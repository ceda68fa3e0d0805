"""Sensors announced without reference and scale: their first readings say what they are.

Nothing here is durable: after a restart the gateway listens again from the beginning, and a sensor
that is being measured is in no layout, so nobody waits for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from edge_opid.layout import WarmUp
from edge_opid.layout.sensor import Sensor

from .fleet import Fleet
from .lifecycle import SensorEvent, SensorState, step
from .lives import give_way
from .records import NodeKey, SensorRecord
from .room import room_for


class Measuring:
    """The first values of sensors in state `measuring`."""

    def __init__(self, readings: int) -> None:
        self._readings = readings
        self._first: dict[tuple[str, str, str], tuple[int, WarmUp]] = {}
        """With the date of the announcement: a later one is about another thing of the same id."""

    def listening(self, fleet: Fleet) -> set[NodeKey]:
        """The nodes whose readings are wanted. What was heard of sensors retired since is dropped.

        >>> Measuring(50).listening(Fleet([]))
        set()
        """
        wanted = {
            each.key
            for sensors in fleet.sensors.values()
            for each in sensors.values()
            if each.state == SensorState.MEASURING
        }
        self._first = {key: first for key, first in self._first.items() if key in wanted}
        return {(site, node) for site, node, _ in wanted}

    def heard(
        self, fleet: Fleet, key: NodeKey, values: Mapping[str, float], now_ms: int
    ) -> list[str]:
        """Take values in; returns the sensors that are measured by them."""
        finished = []
        for sensor, value in values.items():
            record = fleet.sensors[key].get(sensor)
            if record is not None and record.state == SensorState.MEASURING:
                estimate = self._add(fleet, record, value)
                if estimate is not None:
                    self._enter(fleet, record, estimate, now_ms)
                    finished.append(sensor)
        return finished

    def _add(self, fleet: Fleet, record: SensorRecord, value: float) -> Sensor | None:
        """Keep a value; what all of them suggest, when there are enough."""
        told_ms, warmup = self._first.get(record.key, (-1, None))
        if warmup is None or told_ms != record.told_ms:
            knots = knots_like_its_neighbours(fleet, record)
            gate = fleet.nodes[record.site, record.node].gate
            warmup = WarmUp([record.id], self._readings, knots, gate=gate)
            self._first[record.key] = record.told_ms, warmup
        warmup.add({record.id: value})
        if not warmup.full:
            return None
        del self._first[record.key]
        return warmup.layout().sensors[0]

    def _enter(self, fleet: Fleet, record: SensorRecord, found: Sensor, now_ms: int) -> None:
        known = record.reference is not None
        fleet.put(
            replace(
                record,
                state=step(record.state, SensorEvent.MEASURED),
                since_ms=now_ms,
                reference=record.reference if known else found.reference,
                scale=record.scale if record.scale is not None else found.scale,
                knots=record.knots or found.knots,
                reason="measured",
            )
        )
        give_way(fleet, (record.site, record.node), record.id, now_ms)


def knots_like_its_neighbours(fleet: Fleet, record: SensorRecord) -> int:
    """As many hats as most sensors of its node have, if there is room: a lifted node lifts all."""
    counts = Counter(len(each.knots) for each in fleet.in_layout((record.site, record.node)))
    usual = counts.most_common(1)[0][0] if counts else 1
    return max(1, min(usual, room_for(fleet, record)))
