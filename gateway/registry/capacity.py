"""What a node has room for: columns in an order, sensors in the book, time in a sensor's life."""

from __future__ import annotations

from edge_opid.config.node import MEMORY_MB, columns_for
from gateway.registry.fleet import Fleet
from gateway.registry.lifecycle import EventError, SensorState
from gateway.registry.records import NodeKey, SensorRecord

COLUMNS_MAX = columns_for(MEMORY_MB)
"""Of a layout that a gateway orders: it is not told what memory a node has, and all have this."""
SENSORS_MAX = 1_000
"""Sensors of a node, the retired ones included: one a week for 19 years. All are in memory."""


def check_end(record: SensorRecord, now_ms: int) -> None:
    """A sensor that is to be retired at once was not meant."""
    if record.end_of_life_ms is not None and record.end_of_life_ms <= now_ms:
        raise EventError(
            "end-of-life",
            f"the end of life of {record.id!r}, {record.end_of_life_ms} ms, must be in the future, "
            f"and it is {now_ms} ms",
        )


def check_room(fleet: Fleet, record: SensorRecord) -> None:
    """Its node has a page in the book for it, and as many columns as it needs."""
    ids = fleet.sensors[record.site, record.node]
    if record.id not in ids and len(ids) >= SENSORS_MAX:
        raise EventError(
            "sensors",
            f"{record.site}/{record.node} has had {len(ids)} sensors, and the gateway has room for "
            f"{SENSORS_MAX}: use the id of a retired one again",
        )
    left, needed = columns_left(fleet, record), max(1, len(record.knots))
    if needed > left:
        raise EventError(
            "columns",
            f"{record.site}/{record.node} would have {COLUMNS_MAX - left + needed} columns "
            f"with {record.id!r}, and a node has room for {COLUMNS_MAX}: retire another "
            "sensor first, or give this one fewer knots",
        )


def columns_left(fleet: Fleet, record: SensorRecord) -> int:
    """How many columns this sensor may take beside the bias and all others, also the measured."""
    gone = record.id, record.replaces
    others = not_retired(fleet, (record.site, record.node))
    taken = sum(max(1, len(each.knots)) for each in others if each.id not in gone)
    return COLUMNS_MAX - 1 - taken


def not_retired(fleet: Fleet, key: NodeKey) -> list[SensorRecord]:
    """The sensors of a node that have a role: in its layout, or being measured."""
    return [each for each in fleet.sensors[key].values() if each.state != SensorState.RETIRED]
