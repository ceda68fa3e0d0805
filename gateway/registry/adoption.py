"""A node that introduces itself becomes one of the fleet."""

from __future__ import annotations

from dataclasses import replace

from edge_opid.wire import Introduction, SensorDescription

from ..policy import Group
from .fleet import Fleet
from .lifecycle import SensorEvent, SensorState, step
from .lives import EventError
from .records import LayoutRecord, NodeKey, NodeRecord, SensorRecord


def adopt(fleet: Fleet, key: NodeKey, group: Group, message: Introduction, now_ms: int) -> bool:
    """Take the node in as it describes itself; False where it is known already.

    Its layout is numbered one above its own, so that the first order makes it the gateway's.
    """
    if message.classes != group.classes:
        raise EventError(
            "classes",
            f"{'/'.join(key)} tells {list(message.classes)} apart, its group {group.id!r} has "
            f"{list(group.classes)}: make them equal, order included",
        )
    if key in fleet.nodes:
        _heard_again(fleet, key, message)
        return False
    versions = message.version, message.layout_version
    fleet.put(NodeRecord(*key, group.id, message.gate, True, now_ms, *versions))
    for sensor in message.sensors:
        fleet.put(_brought_along(key, sensor, now_ms))
    own = LayoutRecord(
        *key,
        message.layout_version,
        message.sensors,
        message.vanishing,
        message.gate,
        change=0,
        at_ms=now_ms,
    )
    fleet.put(own)  # its summaries are numbered so
    fleet.put(replace(own, version=own.version + 1))
    return True


def _heard_again(fleet: Fleet, key: NodeKey, message: Introduction) -> None:
    node = fleet.nodes[key]
    news = replace(
        node,
        online=True,
        reported_version=message.version,
        reported_layout=message.layout_version,
    )
    if news != node:
        fleet.put(news)


def _brought_along(key: NodeKey, sensor: SensorDescription, now_ms: int) -> SensorRecord:
    return SensorRecord(
        *key,
        sensor.id,
        sensor.role,
        step(SensorState.UNKNOWN, SensorEvent.DEPLOYED),
        now_ms,
        sensor.timeout_s,
        sensor.reference,
        sensor.scale,
        sensor.knots,
        sensor.unit,
        reason="introduced by its node",
    )
