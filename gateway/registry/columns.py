"""Names under which columns of different nodes are the same column.

A linear sensor's column is its role: z means the same wherever it is measured. A hat means the same
only where the knots are the same, so a lifted role carries a digest of them: statistics of hats at
other knots are never added up, and weights for them never pushed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from functools import lru_cache
from struct import pack

from edge_opid.layout import Layout, Sensor
from edge_opid.node.orders import layout_of
from gateway.registry.records import LayoutRecord


def layout_in(record: LayoutRecord, only: Collection[str] | None = None) -> Layout:
    """The layout of a record as the node makes it, perhaps of only these sensors."""
    sensors = [each for each in record.sensors if only is None or each.id in only]
    vanishing = [each for each in record.vanishing if only is None or each in only]
    return layout_of(sensors, vanishing, record.gate)


def columns_of(record: LayoutRecord, only: Collection[str] | None = None) -> tuple[str, ...]:
    """The names of a record's columns, perhaps of only these sensors.

    Cohorts have thousands of layouts, and few shapes.
    """
    return _columns_of(
        tuple(
            (each.role, each.knots, each.id in record.vanishing)
            for each in record.sensors
            if only is None or each.id in only
        )
    )


@lru_cache(maxsize=4096)
def _columns_of(shape: tuple[tuple[str, tuple[float, ...], bool], ...]) -> tuple[str, ...]:
    sensors = [Sensor(role, knots=knots) for role, knots, _ in shape]
    return column_names(Layout(sensors, [role for role, _, vanishes in shape if vanishes]))


def column_names(layout: Layout) -> tuple[str, ...]:
    """A name for every column, in the order of `encode`.

    >>> from edge_opid.layout import Sensor
    >>> column_names(Layout([Sensor("co2", 420, 25), Sensor("temp", knots=(-1, 0, 1))]))
    ('co2', 'temp#bec1f26f[0]', 'temp#bec1f26f[1]', 'temp#bec1f26f[2]', 'bias')
    """
    knots = {sensor.name: sensor.knots for sensor in layout.sensors}
    found = []
    for column in layout.columns:
        role, bracket, rest = column.partition("[")
        found.append(f"{role}#{_digest(knots[role])}[{rest}" if bracket else column)
    return tuple(found)


def role_of(column: str) -> str:
    """The role a column belongs to.

    >>> role_of("temp#1f0c[2]"), role_of("co2")
    ('temp', 'co2')
    """
    return column.partition("#")[0]


def _digest(knots: tuple[float, ...]) -> str:
    packed = pack(f"<{len(knots)}f", *knots)  # float32, as the learner has them
    return hashlib.blake2b(packed, digest_size=4).hexdigest()
