"""A node that introduces itself becomes one of the fleet, or is recognised."""

from __future__ import annotations

from dataclasses import replace

from edge_opid.layout.layout import BIAS
from edge_opid.learner.settings import LIMIT
from edge_opid.wire import Introduction, SensorDescription
from gateway.policy import Group
from gateway.registry.fleet import Fleet
from gateway.registry.lifecycle import EventError, SensorEvent, SensorState, step
from gateway.registry.records import LayoutRecord, NodeKey, NodeRecord, SensorRecord
from gateway.registry.reports import check_reach
from gateway.registry.text import listed


def adopt(fleet: Fleet, key: NodeKey, group: Group, message: Introduction, now_ms: int) -> bool:
    """Take the node in as it describes itself; False where it is known already.

    Its layout is numbered one above its own, so that the first order makes it the gateway's.
    """
    check_introduction(key, group, message)
    check_reach(fleet, key, message.version, message.layout_version, now_ms)
    if key in fleet.nodes:
        _update_node(fleet, key, message, now_ms)
        return False
    fleet.put(
        NodeRecord(
            site=key[0],
            node=key[1],
            group=group.id,
            gate=message.gate,
            online=True,
            seen_ms=now_ms,
            reported_version=message.version,
            reported_layout=message.layout_version,
        )
    )
    for sensor in message.sensors:
        fleet.put(_introduced_sensor(key, sensor, now_ms))
    own = _own_layout(key, message, now_ms)
    fleet.put(own)  # its summaries are numbered so
    fleet.put(replace(own, version=own.version + 1))
    return True


def check_introduction(key: NodeKey, group: Group, message: Introduction) -> None:
    """Refuse a node that no order could be written for, or that would obey none."""
    if message.classes != group.classes:
        raise EventError(
            "classes",
            f"{'/'.join(key)} has the classes {list(message.classes)}, its group {group.id!r} has "
            f"{list(group.classes)}: make them the same, in the same order",
        )
    for sensor in message.sensors:
        if BIAS in (sensor.id, sensor.role):
            sentence = f"{'/'.join(key)} calls a sensor {BIAS!r}: the node uses that column itself"
            raise EventError("role", sentence)
    if message.gate > LIMIT:
        sentence = f"the gate of {'/'.join(key)} must be <= {LIMIT:g}, got {message.gate:g}"
        raise EventError("gate", sentence)


def unannounced_sentence(fleet: Fleet, key: NodeKey, message: Introduction) -> str:
    """What to say of a node that has started over with sensors its book does not have, or nothing.

    Its card was replaced, or its state deleted, and its configuration names others than before. The
    book counts: it gets its former layout back, and would never use them without a word.
    """
    known = fleet.sensors[key]
    strangers = sorted(each.id for each in message.sensors if each.id not in known)
    if message.version > 0 or not strangers:
        return ""
    return (
        f"{'/'.join(key)} has started from scratch with sensors that nobody announced: "
        f"{listed(strangers)}; it gets its former layout back: deploy them"
    )


def _update_node(fleet: Fleet, key: NodeKey, message: Introduction, now_ms: int) -> None:
    node = fleet.nodes[key]
    news = replace(
        node,
        online=True,
        reported_version=message.version,
        reported_layout=message.layout_version,
    )
    if news != node:
        fleet.put(news)
    if message.layout_version == 0:  # perhaps other sensors than at its adoption
        fleet.put(_own_layout(key, message, now_ms))


def _own_layout(key: NodeKey, message: Introduction, now_ms: int) -> LayoutRecord:
    return LayoutRecord(
        site=key[0],
        node=key[1],
        version=message.layout_version,
        sensors=message.sensors,
        vanishing=message.vanishing,
        gate=message.gate,
        change=0,
        at_ms=now_ms,
    )


def _introduced_sensor(key: NodeKey, sensor: SensorDescription, now_ms: int) -> SensorRecord:
    return SensorRecord(
        site=key[0],
        node=key[1],
        id=sensor.id,
        role=sensor.role,
        state=step(SensorState.UNKNOWN, SensorEvent.DEPLOYED),
        since_ms=now_ms,
        timeout_s=sensor.timeout_s,
        reference=sensor.reference,
        scale=sensor.scale,
        knots=sensor.knots,
        unit=sensor.unit,
        reason="introduced by its node",
    )
