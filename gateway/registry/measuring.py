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
from gateway.registry.capacity import columns_left
from gateway.registry.events import retire_replaced
from gateway.registry.fleet import Fleet
from gateway.registry.lifecycle import SensorEvent, SensorState, step
from gateway.registry.records import NodeKey, SensorRecord

OWN_MIN = 8
"""Values of its own that a sensor needs, however many peers it has: they look at one moment, and
whoever has seen only that takes it for the sensor's whole range."""
LIKE_SCALES, LIKE_TIMES = 4.0, 10.0
"""Two sensors are alike when the middles of their values are within so many scales, of the wider
one, and its scale is at most so many times the other's."""

Peers = tuple[str, str, int]
"""Group, role, and how many knots: those who may share an estimate."""


class Measuring:
    """The first values of sensors in state `measuring`.

    A sensor needs `readings` values, its own or those of its peers: sensors in the same role of the
    same group that are measured at the same time. A hundred nodes that get the same new sensor know
    after a few readings what one node knows after fifty; all of them then have the same reference
    and scale, as if from a data sheet, so that what they learn adds up. Sensors whose values are
    not alike are different makes, and no peers.
    """

    def __init__(self, readings: int) -> None:
        self._readings = readings
        self._first: dict[tuple[str, str, str], tuple[int, WarmUp]] = {}
        """With the date of the announcement: a later one is about another thing of the same id."""
        self._agreed: dict[Peers, list[Sensor]] = {}
        """What peers' values suggest, once there are enough: one for each make among them."""
        self._remarks: list[str] = []

    def refresh(self, fleet: Fleet) -> set[NodeKey]:
        """Drop what was heard of sensors retired since; the nodes whose readings are wanted.

        >>> Measuring(50).refresh(Fleet([]))
        set()
        """
        wanted = {each.key: each for each in _measured(fleet)}
        self._first = {key: first for key, first in self._first.items() if key in wanted}
        roles = {(fleet.nodes[each.site, each.node].group, each.role) for each in wanted.values()}
        self._agreed = {peers: found for peers, found in self._agreed.items() if peers[:2] in roles}
        return {(site, node) for site, node, _ in wanted}

    def add_values(
        self, fleet: Fleet, key: NodeKey, values: Mapping[str, float], now_ms: int
    ) -> list[str]:
        """Take values in; returns the sensors that are measured by them."""
        finished = []
        for sensor, value in values.items():
            record = fleet.sensors[key].get(sensor)
            if record is not None and record.state == SensorState.MEASURING:
                estimate = self._add(fleet, record, value)
                if estimate is not None:
                    _, warmup = self._first.pop(record.key)
                    aside = list(warmup.aside.values())
                    self._remarks += [f"{'/'.join(key)}: sensor {sentence}" for sentence in aside]
                    self._enter(fleet, record, estimate, now_ms)
                    finished.append(sensor)
        return finished

    def take_remarks(self) -> list[str]:
        """Sentences about values that were set aside, since the last time."""
        remarks, self._remarks = self._remarks, []
        return remarks

    def _add(self, fleet: Fleet, record: SensorRecord, value: float) -> Sensor | None:
        """Keep a value; what all of them suggest, when there are enough."""
        announced_ms, warmup = self._first.get(record.key, (-1, None))
        knots = knots_like_its_neighbours(fleet, record)
        if warmup is None or announced_ms != record.announced_ms:
            gate = fleet.nodes[record.site, record.node].gate
            warmup = WarmUp([record.id], self._readings, knots, gate=gate)
            self._first[record.key] = record.announced_ms, warmup
        warmup.add({record.id: value})
        if len(_values(warmup)) < OWN_MIN and not warmup.full:
            return None
        own = warmup.layout().sensors[0]
        return self._peers_say(fleet, record, own, knots) or (own if warmup.full else None)

    def _peers_say(
        self, fleet: Fleet, record: SensorRecord, own: Sensor, knots: int
    ) -> Sensor | None:
        """What sensors like this one have agreed on, or can now: None where they are too few."""
        node = fleet.nodes[record.site, record.node]
        agreed = self._agreed.setdefault((node.group, record.role, knots), [])
        for found in agreed:
            if _are_alike(own, found):
                return found
        values = self._values_like(fleet, node.group, record.role, own)
        if len(values) < self._readings:
            return None
        together = WarmUp([record.role], len(values), knots, gate=node.gate)
        for value in values:
            together.add({record.role: value})
        agreed.append(together.layout().sensors[0])
        return agreed[-1]

    def _values_like(self, fleet: Fleet, group: str, role: str, own: Sensor) -> list[float]:
        """The first values of everybody in this role whose values are like these."""
        found: list[float] = []
        for each in _measured(fleet):
            announced_ms, warmup = self._first.get(each.key, (-1, None))
            if (fleet.nodes[each.site, each.node].group, each.role) != (group, role):
                continue
            if warmup is None or announced_ms != each.announced_ms:
                continue  # not heard so far
            if _are_alike(own, warmup.layout().sensors[0]):
                found += _values(warmup)
        return found

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
        retire_replaced(fleet, (record.site, record.node), record.id, now_ms)


def knots_like_its_neighbours(fleet: Fleet, record: SensorRecord) -> int:
    """As many hats as most sensors of its node have, if there is room: a lifted node lifts all."""
    counts = Counter(len(each.knots) for each in fleet.in_layout((record.site, record.node)))
    usual = counts.most_common(1)[0][0] if counts else 1
    return max(1, min(usual, columns_left(fleet, record)))


def _measured(fleet: Fleet) -> list[SensorRecord]:
    """Every sensor that is being measured."""
    return [
        each
        for sensors in fleet.sensors.values()
        for each in sensors.values()
        if each.state == SensorState.MEASURING
    ]


def _values(warmup: WarmUp) -> list[float]:
    """What one sensor's warm-up has kept."""
    return [value for row, _ in warmup.rows() for value in row.values()]


def _are_alike(one: Sensor, other: Sensor) -> bool:
    wider = max(one.scale, other.scale)
    near = abs(one.reference - other.reference) <= LIKE_SCALES * wider
    return near and wider <= LIKE_TIMES * min(one.scale, other.scale)
