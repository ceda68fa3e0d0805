"""From what the operator said and what the group knows to a task: how each role is scaled.

In this order: what the mapping says; what the node of that name has, or most nodes of the group;
what the first values of the archive suggest, as they would at a sensor's warm-up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from edge_opid.archive.tables import Wanted, batch_numbers
from edge_opid.errors import SettingError
from edge_opid.layout import Layout, Sensor, WarmUp
from edge_opid.wire import LIMITS
from gateway.archive.mapping import ArchiveMapping, GivenSensor
from gateway.archive.sources import Archive, SourceError
from gateway.archive.task import Task
from gateway.policy import Group
from gateway.registry.fleet import Fleet

MEASURED = 10_000
"""First values of a role that say its reference and scale."""
GATE = 8.0


@dataclass(frozen=True)
class Plan:
    """A task, and where the scale of each role comes from, in words."""

    task: Task
    origins: dict[str, str]


def plan(
    archive: Archive,
    fleet: Fleet,
    group: Group,
    since_ms: int | None = None,
    until_ms: int | None = None,
) -> Plan:
    """How this archive is learned by this group."""
    mapping = archive.mapping
    gates = Counter(fleet.nodes[key].gate for key in group.keys if key in fleet.nodes)
    gate = gates.most_common(1)[0][0] if gates else GATE
    known = _known(fleet, group)
    sensors: dict[str, Sensor] = {}
    origins: dict[str, str] = {}
    for role in sorted(mapping.by_role):
        sensors[role], origins[role] = _default(archive, role, known.get(role, Counter()), gate)
    layout = Layout(sensors.values(), gate=gate)
    _check_width(layout)
    task = Task(
        layout=layout,
        wanted=Wanted(
            sensors=mapping.by_role,
            label=mapping.label,
            classes=group.classes,
            labels=mapping.labels,
        ),
        node=mapping.node,
        time=mapping.time,
        since_ms=since_ms,
        until_ms=until_ms,
        layouts=_own_layouts(fleet, group, mapping, layout),
    )
    return Plan(task, origins)


def _known(fleet: Fleet, group: Group) -> dict[str, Counter[Sensor]]:
    """How the group's nodes scale each role today, and how many each way."""
    found: dict[str, Counter[Sensor]] = {}
    for key in group.keys:
        for sensor in _sensors(fleet, key):
            found.setdefault(sensor.name, Counter())[sensor] += 1
    return found


def _sensors(fleet: Fleet, key: tuple[str, str]) -> Iterator[Sensor]:
    if key in fleet.layouts:
        for each in fleet.layouts[key].sensors:
            yield Sensor(each.role, each.reference, each.scale, each.knots)


def _own_layouts(
    fleet: Fleet, group: Group, mapping: ArchiveMapping, layout: Layout
) -> dict[str, Layout]:
    """Of nodes that the group knows: on their own scales, where the mapping does not say others."""
    found = {}
    for key in group.keys if mapping.node else ():
        own = {
            sensor.name: sensor
            for sensor in _sensors(fleet, key)
            if sensor.name in layout.names and sensor.name not in mapping.sensors
        }
        mine = Layout([own.get(sensor.name, sensor) for sensor in layout.sensors], gate=layout.gate)
        if mine != layout:
            _check_width(mine)
            found[key[1]] = mine
    return found


def _default(
    archive: Archive, role: str, known: Counter[Sensor], gate: float
) -> tuple[Sensor, str]:
    given = archive.mapping.sensors.get(role, GivenSensor())
    if given.reference is not None and given.scale is not None:
        knots = given.knots if isinstance(given.knots, tuple) else ()
        return Sensor(role, given.reference, given.scale, knots), "given"
    if known and given.knots is None:
        usual = sorted(known.items(), key=lambda item: (-item[1], repr(item[0])))[0]
        return usual[0], f"as {usual[1]} of {sum(known.values())} nodes of the group have it"
    values = _first_values(archive, role)
    count = given.knots if isinstance(given.knots, int) else 1
    warmup = WarmUp([role], len(values), count, gate=gate)
    for value in values:
        warmup.add({role: value})
    measured = warmup.layout().sensors[0]
    if isinstance(given.knots, tuple):
        measured = Sensor(role, measured.reference, measured.scale, given.knots)
    return measured, f"measured from its first {len(values)} values in the archive"


def _first_values(archive: Archive, role: str) -> Sequence[float]:
    """The first finite values of a role, from as many parts as that takes."""
    found: list[float] = []
    column = archive.mapping.by_role[role]
    for part in archive.parts:
        for batch in part.batches():
            values = np.asarray(batch_numbers(batch, column), np.float64)
            found += values[np.isfinite(values)][: MEASURED - len(found)].tolist()
            if len(found) == MEASURED:
                return found
    if len(found) < 2:
        raise SourceError(f"column {column!r} has {len(found)} values: give {role} a scale")
    return found


def _check_width(layout: Layout) -> None:
    if layout.width > LIMITS.columns_max:
        raise SettingError(
            "columns",
            f"must be {LIMITS.columns_max} at most with their hats, got {layout.width}: leave some "
            "out",
        )
