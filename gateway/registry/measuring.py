"""Sensors announced without reference and scale: their first readings say what they are.

A sensor that has not moved has no scale yet, and is measured until it has. One whose scale an
operator wants measured anew keeps its columns meanwhile, and is measured by its own values alone.

What was measured so far is not durable: after a restart the gateway listens again from the
beginning, and a sensor that is being measured is in no layout, so nobody waits for it. A sensor
that replaces a living one is heard for longer, measured or not: see `overlap`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from edge_opid.layout import FirstValues, WarmUp
from edge_opid.layout.first_values import has_moved
from edge_opid.layout.sensor import Sensor
from gateway.registry.capacity import columns_left
from gateway.registry.events import retire_replaced
from gateway.registry.fleet import Fleet
from gateway.registry.lifecycle import SensorEvent, SensorState, step
from gateway.registry.overlap import Overlaps, newcomers
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

    def __init__(self, readings: int, together: int = 0) -> None:
        self._readings = readings
        self.overlaps = Overlaps(together)
        self._first: dict[tuple[str, str, str], tuple[int, FirstValues]] = {}
        """With the date of the announcement: a later one is about another thing of the same id."""
        self._agreed: dict[Peers, list[Sensor]] = {}
        """What peers' values suggest, once there are enough: one for each make among them."""
        self._remarks: list[str] = []
        self._turn = -1
        self._nodes: set[NodeKey] = set()
        self._spoke: set[NodeKey] = set()
        """Nodes whose readings came since the last look at who may enter."""

    def refresh(self, fleet: Fleet) -> set[NodeKey]:
        """Drop what was heard of sensors retired since; the nodes whose readings are wanted.

        >>> Measuring(50).refresh(Fleet([]))
        set()
        """
        wanted = fleet.agenda.measured
        if self._turn == fleet.agenda.measured_turn:
            return self._nodes
        self._turn = fleet.agenda.measured_turn
        self.overlaps.keep_only(wanted.keys())
        self._first = {key: first for key, first in self._first.items() if key in wanted}
        roles = {(fleet.nodes[each.site, each.node].group, each.role) for each in wanted.values()}
        self._agreed = {peers: found for peers, found in self._agreed.items() if peers[:2] in roles}
        self._nodes = {(site, node) for site, node, _ in wanted}
        return self._nodes

    def add_values(
        self, fleet: Fleet, key: NodeKey, values: Mapping[str, float], now_ms: int
    ) -> list[str]:
        """Take values in; returns the sensors that are measured by them."""
        finished = []
        self._spoke.add(key)
        self.overlaps.hear(fleet, key, values, self._so_far)
        for sensor, value in values.items():
            record = fleet.sensors[key].get(sensor)
            if record is not None and _has_to_be_measured(record):
                estimate = self._add(fleet, record, value)
                if estimate is not None:
                    _, first = self._first.pop(record.key)
                    if first.aside:
                        self._remarks.append(f"{'/'.join(key)}: sensor {first.aside}")
                    self._enter(fleet, record, estimate, now_ms)
                    finished.append(sensor)
        return finished

    def take_stirred(self, fleet: Fleet) -> list[NodeKey]:
        """The nodes of which a sensor may enter now: a reading, or a word about a sensor of the
        node, came since the last time.
        """
        found = self._nodes & (fleet.agenda.take_stirred() | self._spoke)
        self._spoke.clear()
        return sorted(found)

    def take_over(self, fleet: Fleet, keys: Iterable[NodeKey], now_ms: int) -> list[SensorRecord]:
        """Let sensors enter that are known and have no reason to wait any more; which they are."""
        found = []
        for key in keys:
            for record in newcomers(fleet, key):
                if record.is_known and not self.overlaps.has_to_wait(fleet, record):
                    _activate(fleet, record, now_ms)
                    found.append(record)
        return found

    def take_remarks(self) -> list[str]:
        """Sentences about values that were set aside, since the last time."""
        remarks, self._remarks = self._remarks, []
        return remarks

    def _so_far(self, record: SensorRecord) -> Sensor | None:
        """A new sensor as it is known, or as its values so far suggest; None where they do not."""
        if record.reference is not None and record.scale is not None:
            return Sensor(record.role, record.reference, record.scale, record.knots)
        announced_ms, first = self._first.get(record.key, (-1, None))
        if first is None or announced_ms != record.announced_ms or first.heard < OWN_MIN:
            return None
        return first.sensor() if has_moved(np.array(first.values)) else None

    def _add(self, fleet: Fleet, record: SensorRecord, value: float) -> Sensor | None:
        """Keep a value; what all of them suggest, when there are enough."""
        announced_ms, first = self._first.get(record.key, (-1, None))
        again = record.state == SensorState.REMEASURING
        knots = len(record.knots) or 1 if again else knots_like_its_neighbours(fleet, record)
        if first is None or announced_ms != record.announced_ms:
            gate = fleet.nodes[record.site, record.node].gate
            first = FirstValues(record.id, self._readings, knots, gate=gate)
            self._first[record.key] = record.announced_ms, first
        first.add(value)
        if first.ready:
            own = first.sensor()
            return own if again else self._peers_say(fleet, record, own, knots) or own
        if again or first.heard < OWN_MIN or not has_moved(np.array(first.values)):
            return None
        return self._peers_say(fleet, record, first.sensor(), knots)

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
        for _, each in sorted(fleet.agenda.measured.items()):
            announced_ms, first = self._first.get(each.key, (-1, None))
            if each.state != SensorState.MEASURING:
                continue
            if (fleet.nodes[each.site, each.node].group, each.role) != (group, role):
                continue
            if first is None or announced_ms != each.announced_ms:
                continue  # not heard so far
            if _are_alike(own, first.sensor()):
                found += first.values
        return found

    def _enter(self, fleet: Fleet, record: SensorRecord, found: Sensor, now_ms: int) -> None:
        """It is measured: it gets its column, unless it has to wait beside another sensor."""
        again = record.state == SensorState.REMEASURING
        measured = replace(
            record,
            reference=found.reference,
            scale=found.scale,
            knots=found.knots if again else record.knots or found.knots,
            reason="measured anew" if again else "measured",
        )
        if again or not self.overlaps.has_to_wait(fleet, record):
            _activate(fleet, measured, now_ms)
        else:
            fleet.put(measured)


def _activate(fleet: Fleet, record: SensorRecord, now_ms: int) -> None:
    state = step(record.state, SensorEvent.MEASURED)
    fleet.put(replace(record, state=state, since_ms=now_ms))
    retire_replaced(fleet, (record.site, record.node), record.id, now_ms)


def _has_to_be_measured(record: SensorRecord) -> bool:
    """Not one that is known, and only waits beside another sensor."""
    if record.state == SensorState.MEASURING:
        return not record.is_known
    return record.state == SensorState.REMEASURING


def knots_like_its_neighbours(fleet: Fleet, record: SensorRecord) -> int:
    """As many hats as most sensors of its node have, if there is room: a lifted node lifts all."""
    counts = Counter(len(each.knots) for each in fleet.in_layout((record.site, record.node)))
    usual = counts.most_common(1)[0][0] if counts else 1
    return max(1, min(usual, columns_left(fleet, record)))


def _are_alike(one: Sensor, other: Sensor) -> bool:
    wider = max(one.scale, other.scale)
    near = abs(one.reference - other.reference) <= LIKE_SCALES * wider
    return near and wider <= LIKE_TIMES * min(one.scale, other.scale)
