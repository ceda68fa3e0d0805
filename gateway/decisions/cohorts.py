"""From sensors' lives to layouts, and from layouts to changes: who is in the same one.

A node's layout is derived: the sensors that are active or silent. When it differs from the newest
layout the node was told, and has not moved again for `settle_s`, the layout advances by one
version. So announcements that come together are one change, and a change during a change is simply
the next version.

Nodes of a group that come to the same columns with the same newcomers, while the change is open,
are one cohort: one batch, one fit. A newcomer of a change that was overtaken before it could be
fitted is still a newcomer in the next one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from edge_opid.wire import SensorDescription
from gateway.policy import Policy
from gateway.registry import ChangeRecord, ChangeState, LayoutRecord, NodeKey
from gateway.registry.columns import columns_of
from gateway.registry.fleet import Fleet

SETTLED_AT_ONCE = 200
"""Nodes whose layouts are looked at in one tick: the rest follow in the next ones."""


def take_settled(fleet: Fleet, policy: Policy, now_ms: int) -> tuple[list[NodeKey], bool]:
    """Some nodes whose sensors have settled in another layout than they were told, once each; and
    whether there may be more of them now.
    """
    before_ms = math.floor(now_ms - 1000 * policy.settle_s) + 1
    looked_at = fleet.agenda.take_moved(before_ms, SETTLED_AT_ONCE, partial(moved_ms, fleet))
    found = [key for key in looked_at if key in fleet.layouts and unsettled(fleet, key)]
    return found, len(looked_at) == SETTLED_AT_ONCE


def wanted(fleet: Fleet, key: NodeKey) -> tuple[SensorDescription, ...]:
    """The sensors the node's layout should have now, by role."""
    return tuple(fleet.description_of(sensor) for sensor in fleet.in_layout(key))


def unsettled(fleet: Fleet, key: NodeKey) -> bool:
    """Whether the node should have another layout than the newest it was told."""
    told = sorted(fleet.layouts[key].sensors, key=lambda sensor: sensor.role)
    return tuple(told) != wanted(fleet, key)


def moved_ms(fleet: Fleet, key: NodeKey) -> int:
    """When a sensor of the node last changed its state."""
    return max((sensor.since_ms for sensor in fleet.sensors[key].values()), default=0)


def advance(fleet: Fleet, key: NodeKey, policy: Policy, now_ms: int) -> LayoutRecord:
    """Give the node its next layout, in the change it belongs to."""
    before, sensors = fleet.layouts[key], wanted(fleet, key)
    vanishing = _vanishing(fleet, key, before)
    after = replace(
        before, version=before.version + 1, sensors=sensors, vanishing=vanishing, at_ms=now_ms
    )
    after = replace(after, change=_change_for(fleet, before, after, policy, now_ms).id)
    fleet.put(after)
    close_empty(fleet, before.change, now_ms)
    return after


def _vanishing(fleet: Fleet, key: NodeKey, before: LayoutRecord) -> tuple[str, ...]:
    """The sensors expected to go next: planned by their end of life, or by the node's own plan."""
    return tuple(
        sensor.id
        for sensor in fleet.in_layout(key)
        if sensor.end_of_life_ms is not None or sensor.id in before.vanishing
    )


def _change_for(
    fleet: Fleet, before: LayoutRecord, after: LayoutRecord, policy: Policy, now_ms: int
) -> ChangeRecord:
    """An open change to the same columns with the same newcomers, or a new one."""
    group = fleet.nodes[after.site, after.node].group
    columns = tuple(sorted(columns_of(after)))
    arrived = arrivals(before.sensors, after.sensors, fleet.changes.get(before.change), policy)
    open_one = fleet.agenda.open_change((group, columns, arrived))
    if open_one is not None:
        return fleet.changes[open_one]
    gone = {sensor.role for sensor in before.sensors} - {sensor.role for sensor in after.sensors}
    change = ChangeRecord(
        id=fleet.next_change,
        group=group,
        retired=tuple(sorted(gone)),
        arrived=arrived,
        columns=columns,
        opened_ms=now_ms,
    )
    fleet.put(change)
    return change


def arrivals(
    before: Iterable[SensorDescription],
    after: Iterable[SensorDescription],
    overtaken: ChangeRecord | None,
    policy: Policy,
) -> tuple[str, ...]:
    """Roles that the statistics of before know nothing of, sorted.

    A role continues where it has the same basis as before, whichever sensor fills it.
    """
    knots = {sensor.role: sensor.knots for sensor in before}
    found = {sensor.role for sensor in after if knots.get(sensor.role) != sensor.knots}
    if overtaken is not None and overtaken.pushed < policy.first_batch:
        found |= set(overtaken.arrived) & {sensor.role for sensor in after}
    return tuple(sorted(found))


def close(fleet: Fleet, change: ChangeRecord, now_ms: int) -> None:
    """No more is gathered for this change."""
    fleet.put(replace(change, state=ChangeState.CLOSED, closed_ms=now_ms))


def close_empty(fleet: Fleet, change_id: int, now_ms: int) -> None:
    """A change that its last node has left is over."""
    change = fleet.changes.get(change_id)
    if change is None or fleet.size_of(change_id):
        return
    if change.state == ChangeState.GATHERING:
        close(fleet, change, now_ms)
