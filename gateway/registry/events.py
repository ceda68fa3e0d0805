"""What happens to sensors: announcements, and reports of nodes, applied to the fleet.

The rules for an announcement, in this order; what breaks one is an `EventError`, changes nothing,
and is counted by its reason:

1. The node is known. 2. It is newer than the last announcement about this sensor: brokers deliver
twice. 3. The lifecycle table has the event for the sensor's state. 4. A node keeps at least one
sensor. 5. A role belongs to one sensor of a node: a new one in the same role says which it
`replaces`, and then has the role of the one replaced. 6. A layout has no more columns than an order
can carry, and the book of a node no more sensors than `SENSORS_MAX`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from edge_opid.layout.layout import BIAS
from edge_opid.wire import (
    Event,
    ScaleMeasured,
    SensorDeployed,
    SensorRemeasured,
    SensorRetired,
    SensorReturned,
    SensorSilent,
)
from gateway.policy import Policy
from gateway.registry.capacity import check_end, check_room, not_retired
from gateway.registry.fleet import AHEAD_MS, Fleet
from gateway.registry.lifecycle import (
    IN_LAYOUT,
    SPEAKING,
    EventError,
    LifecycleError,
    SensorEvent,
    SensorState,
    step,
)
from gateway.registry.overlap import living_predecessor, successor
from gateway.registry.records import NodeKey, SensorRecord
from gateway.registry.text import listed

ANNOUNCEMENTS = SensorRetired, SensorDeployed, SensorRemeasured
"""What an operator may say of a sensor."""
Announcement = SensorRetired | SensorDeployed | SensorRemeasured


def apply_event(fleet: Fleet, key: NodeKey, event: Event, now_ms: int) -> None:
    """Apply an event to the node's sensors."""
    if key not in fleet.nodes:
        known = listed("/".join(each) for each in sorted(fleet.nodes))
        raise EventError("unknown-node", f"no node {'/'.join(key)} is known; known: {known}")
    _HANDLERS[type(event)](fleet, key, event, now_ms)


def retire(fleet: Fleet, key: NodeKey, sensor: str, event: SensorEvent, why: str, at: int) -> None:
    """A sensor goes for good, for whichever reason; at least one must stay."""
    record = _find_sensor(fleet, key, sensor)
    others = [each for each in fleet.in_layout(key) if each.id != sensor]
    heir = successor(fleet, record)
    if record.state in IN_LAYOUT and not others and not (heir and heir.is_known):
        raise EventError(
            "empty-layout",
            f"sensor {sensor!r} is the last one of {'/'.join(key)}, and a layout needs one: "
            "deploy another first",
        )
    fleet.put(_after_event(record, event, at, reason=why))


def take_overdue(
    fleet: Fleet, policy: Policy, now_ms: int, *, hearing: bool = True, sure: bool = True
) -> list[tuple[NodeKey, str, SensorEvent, str]]:
    """Sensors whose time has come: silent for longer than the policy allows, or worn out.

    While nothing can be heard (`hearing`), silence is nobody's fault; while the clock is doubted
    (`sure`), nobody is worn out. Each is named once: whoever cannot retire one has to `keep` it.
    """
    silent_before_ms = now_ms - 1000 * policy.silence_s
    due = fleet.agenda.take_overdue(
        silent_before_ms if hearing else None, now_ms + 1 if sure else None
    )
    found = []
    for key in sorted(due):
        for sensor in fleet.sensors[key].values():
            if sensor.id not in due[key]:
                continue
            silent = sensor.state == SensorState.SILENT and sensor.since_ms < silent_before_ms
            if hearing and silent:
                why = f"silent for more than {policy.silence_s:g} s"
                found.append((key, sensor.id, SensorEvent.OVERDUE, why))
            else:
                found.append((key, sensor.id, SensorEvent.EXPIRED, "end of life"))
    return found


def _find_sensor(fleet: Fleet, key: NodeKey, sensor: str) -> SensorRecord:
    record = fleet.sensors[key].get(sensor)
    if record is None:
        there, where = listed(sorted(fleet.sensors[key])), "/".join(key)
        raise EventError("unknown-sensor", f"{where} has no sensor {sensor!r}; it has: {there}")
    return record


def _after_event(
    record: SensorRecord, event: SensorEvent, now_ms: int, **changes: Any
) -> SensorRecord:
    try:
        state = step(record.state, event)
    except LifecycleError as error:
        raise EventError("lifecycle", f"sensor {record.id!r}: {error}") from error
    since = record.since_ms if state == record.state else now_ms
    return replace(record, state=state, since_ms=since, **changes)


def _check_newer(record: SensorRecord, at_ms: int) -> None:
    if at_ms <= record.announced_ms:
        raise EventError(
            "stale",
            f"the announcement about {record.id!r} is of {at_ms} ms, and one of "
            f"{record.announced_ms} ms has been heard",
        )


# -- reports of nodes ------------------------------------------------------------------------------


def _apply_silent(fleet: Fleet, key: NodeKey, event: SensorSilent, now_ms: int) -> None:
    fleet.put(_after_event(_find_unretired(fleet, key, event.sensor), SensorEvent.SILENT, now_ms))


def _apply_returned(fleet: Fleet, key: NodeKey, event: SensorReturned, now_ms: int) -> None:
    record = _find_unretired(fleet, key, event.sensor)
    if record.state in SPEAKING:
        raise EventError("late", f"sensor {event.sensor!r} of {'/'.join(key)} is already active")
    fleet.put(_after_event(record, SensorEvent.RETURNED, now_ms))


def reconcile(fleet: Fleet, key: NodeKey, silent: Collection[str], now_ms: int) -> None:
    """What a status says of silence counts: an event may have met a broker without memory."""
    if fleet.silent_of(key) == set(silent):  # as nearly always
        return
    differing = [
        sensor
        for sensor in fleet.sensors[key].values()
        if (sensor.state is SensorState.SILENT) != (sensor.id in silent)
    ]
    for sensor in differing:
        if sensor.state is SensorState.SILENT:
            fleet.put(_after_event(sensor, SensorEvent.RETURNED, now_ms))
        elif sensor.state in SPEAKING:
            fleet.put(_after_event(sensor, SensorEvent.SILENT, now_ms))


def _apply_scale(fleet: Fleet, key: NodeKey, event: ScaleMeasured, now_ms: int) -> None:
    """A node has found a sensor's scale to be wrong: it gets the layout with the one it measured.

    What it has learned it moves itself when it obeys; its summaries are moved where they are read.
    """
    record = _find_unretired(fleet, key, event.sensor)
    if record.state not in IN_LAYOUT:
        raise EventError("late", f"sensor {event.sensor!r} of {'/'.join(key)} is {record.state}")
    measured = replace(
        record,
        reference=event.reference,
        scale=event.scale,
        knots=event.knots if len(event.knots) == len(record.knots) else record.knots,
        since_ms=now_ms if record.state != SensorState.SILENT else record.since_ms,
        reason="its old scale proved wrong",
    )
    if record.state == SensorState.REMEASURING:
        measured = replace(measured, state=step(record.state, SensorEvent.MEASURED))
    fleet.put(measured)


def _find_unretired(fleet: Fleet, key: NodeKey, sensor: str) -> SensorRecord:
    """A node may speak of a sensor before it hears that it is retired."""
    record = _find_sensor(fleet, key, sensor)
    if record.state == SensorState.RETIRED:
        raise EventError("late", f"sensor {sensor!r} of {'/'.join(key)} is already retired")
    return record


# -- announcements ---------------------------------------------------------------------------------


def _apply_retired(fleet: Fleet, key: NodeKey, event: SensorRetired, now_ms: int) -> None:
    _check_newer(_find_sensor(fleet, key, event.sensor), event.at_ms)
    retire(fleet, key, event.sensor, SensorEvent.RETIRED, event.reason, now_ms)
    announced_ms = min(event.at_ms, now_ms + AHEAD_MS)
    fleet.put(replace(fleet.sensors[key][event.sensor], announced_ms=announced_ms))


def _apply_remeasured(fleet: Fleet, key: NodeKey, event: SensorRemeasured, now_ms: int) -> None:
    record = _find_sensor(fleet, key, event.sensor)
    _check_newer(record, event.at_ms)
    announced_ms = min(event.at_ms, now_ms + AHEAD_MS)
    after = _after_event(record, SensorEvent.REMEASURED, now_ms, announced_ms=announced_ms)
    fleet.put(after)


def _apply_deployed(fleet: Fleet, key: NodeKey, event: SensorDeployed, now_ms: int) -> None:
    before = fleet.sensors[key].get(event.sensor)
    if before is not None:
        _check_newer(before, event.at_ms)
        if before.state != SensorState.RETIRED:
            where, role = "/".join(key), before.role
            raise EventError(
                "id-in-use",
                f"sensor {event.sensor!r} of {where} is {before.state} as {role!r}: retire it "
                "first, or give the new one another id",
            )
    old = _find_replaced(fleet, key, event)
    record = _announced_record(key, event, now_ms, old)
    check_end(record, now_ms)
    check_room(fleet, record)
    state = before.state if before else SensorState.UNKNOWN
    at_once = record.is_known and living_predecessor(fleet, record) is None
    change = SensorEvent.DEPLOYED if at_once else SensorEvent.ANNOUNCED
    fleet.put(replace(record, state=step(state, change)))
    if at_once and old is not None:
        retire_replaced(fleet, key, event.sensor, now_ms)


def _announced_record(
    key: NodeKey, event: SensorDeployed, now_ms: int, old: SensorRecord | None
) -> SensorRecord:
    timeout = event.timeout_s or (old.timeout_s if old else None)
    return SensorRecord(
        site=key[0],
        node=key[1],
        id=event.sensor,
        role=event.role,
        state=SensorState.UNKNOWN,
        since_ms=now_ms,
        timeout_s=timeout,
        reference=event.reference if event.scale is not None else None,
        scale=event.scale if event.reference is not None else None,
        knots=event.knots or (old.knots if old else ()),
        unit=event.unit or (old.unit if old else None),
        end_of_life_ms=event.end_of_life_ms,
        replaces=event.replaces,
        reason="deployed",
        announced_ms=min(event.at_ms, now_ms + AHEAD_MS),
    )


def _find_replaced(fleet: Fleet, key: NodeKey, event: SensorDeployed) -> SensorRecord | None:
    """The sensor whose column this one takes over; a role may not be taken otherwise."""
    if BIAS in (event.role, event.sensor):
        raise EventError("role", f"no sensor may be {BIAS!r}: the node uses that column itself")
    if event.replaces is None:
        taken = [each for each in not_retired(fleet, key) if each.role == event.role]
        if taken:
            raise EventError(
                "role-in-use",
                f"role {event.role!r} of {'/'.join(key)} belongs to {taken[0].id!r}: retire that "
                "one first, or say that the new sensor replaces it",
            )
        return None
    old = _find_sensor(fleet, key, event.replaces)
    if old.role != event.role:
        raise EventError(
            "role",
            f"{event.sensor!r} replaces {old.id!r} and must have its role {old.role!r}, "
            f"got {event.role!r}",
        )
    others = [e for e in not_retired(fleet, key) if e.role == event.role and e.id != old.id]
    if others:
        raise EventError(
            "role-in-use",
            f"role {event.role!r} of {'/'.join(key)} belongs to {others[0].id!r}, beside "
            f"{old.id!r}: retire one of the two first",
        )
    return old


def retire_replaced(fleet: Fleet, key: NodeKey, sensor: str, now_ms: int) -> None:
    """Whoever this sensor replaces goes in the moment it enters: a role has one sensor."""
    newcomer = fleet.sensors[key][sensor]
    old = fleet.sensors[key].get(newcomer.replaces or "")
    # its id may have been deployed again meanwhile, in another role
    if old is not None and old.role == newcomer.role and old.state != SensorState.RETIRED:
        why = f"replaced by {sensor}"
        fleet.put(_after_event(old, SensorEvent.REPLACED, now_ms, reason=why))


_HANDLERS: dict[type[Any], Callable[[Fleet, NodeKey, Any, int], None]] = {
    SensorRetired: _apply_retired,
    SensorSilent: _apply_silent,
    SensorReturned: _apply_returned,
    SensorDeployed: _apply_deployed,
    SensorRemeasured: _apply_remeasured,
    ScaleMeasured: _apply_scale,
}
