"""A sensor's life as a table of states and events; the diagram in the docs is printed from it.

A sensor that is *measured* or *silent* keeps its place: only `retired` takes its column away. An
event that the table does not have for a state is a mistake, and changes nothing.

>>> print(step(SensorState.ACTIVE, SensorEvent.SILENT))
silent
>>> step(SensorState.RETIRED, SensorEvent.RETIRED)
Traceback (most recent call last):
...
gateway.registry.lifecycle.LifecycleError: a retired sensor cannot be retired; it can be: \
announced, deployed
"""

from __future__ import annotations

from enum import StrEnum

from edge_opid.errors import RefusedError


class EventError(RefusedError, ValueError):
    """An event that cannot be: `reason` is a word to count by."""


class LifecycleError(EventError):
    """An event that cannot happen to a sensor in this state."""

    def __init__(self, sentence: str) -> None:
        super().__init__("lifecycle", sentence)


class SensorState(StrEnum):
    """Where a sensor is in its life."""

    UNKNOWN = "unknown"
    """Nobody has spoken of it yet; no record has this state."""
    MEASURING = "measuring"
    """Heard, and without a column: its first readings say what its reference and scale are, and
    how it follows from the sensor that it replaces."""
    ACTIVE = "active"
    """In the layout of its node."""
    REMEASURING = "remeasuring"
    """In the layout with the scale it has, while its next readings tell a better one."""
    SILENT = "silent"
    """In the layout, and its node hears nothing of it: the node bridges alone."""
    RETIRED = "retired"
    """Gone for good. Its id may be deployed again, as a new sensor."""


class SensorEvent(StrEnum):
    """What can happen to a sensor."""

    ANNOUNCED = "announced"
    """Deployed, but nobody knows its reference and scale, or another sensor still has its column.
    """
    DEPLOYED = "deployed"
    """Deployed, with all that is needed to use it."""
    MEASURED = "measured"
    """Enough first readings: reference and scale are known, and nobody has to be waited for."""
    REMEASURED = "remeasured"
    """An operator wants its scale to be measured anew."""
    SILENT = "silent"
    """Its node reports silence."""
    RETURNED = "returned"
    """Its node hears it again."""
    OVERDUE = "overdue"
    """Silent for longer than the policy allows."""
    EXPIRED = "expired"
    """Its planned end of life has come."""
    REPLACED = "replaced"
    """Another sensor has taken over its role."""
    RETIRED = "retired"
    """An operator says so."""


TABLE: dict[SensorState, dict[SensorEvent, SensorState]] = {
    SensorState.UNKNOWN: {
        SensorEvent.ANNOUNCED: SensorState.MEASURING,
        SensorEvent.DEPLOYED: SensorState.ACTIVE,
    },
    SensorState.MEASURING: {
        SensorEvent.MEASURED: SensorState.ACTIVE,
        SensorEvent.RETIRED: SensorState.RETIRED,
        SensorEvent.EXPIRED: SensorState.RETIRED,
        SensorEvent.REPLACED: SensorState.RETIRED,
    },
    SensorState.ACTIVE: {
        SensorEvent.REMEASURED: SensorState.REMEASURING,
        SensorEvent.SILENT: SensorState.SILENT,
        SensorEvent.RETIRED: SensorState.RETIRED,
        SensorEvent.EXPIRED: SensorState.RETIRED,
        SensorEvent.REPLACED: SensorState.RETIRED,
    },
    SensorState.REMEASURING: {
        SensorEvent.MEASURED: SensorState.ACTIVE,
        SensorEvent.SILENT: SensorState.SILENT,
        SensorEvent.RETIRED: SensorState.RETIRED,
        SensorEvent.EXPIRED: SensorState.RETIRED,
        SensorEvent.REPLACED: SensorState.RETIRED,
    },
    SensorState.SILENT: {
        SensorEvent.SILENT: SensorState.SILENT,
        SensorEvent.RETURNED: SensorState.ACTIVE,
        SensorEvent.OVERDUE: SensorState.RETIRED,
        SensorEvent.RETIRED: SensorState.RETIRED,
        SensorEvent.EXPIRED: SensorState.RETIRED,
        SensorEvent.REPLACED: SensorState.RETIRED,
    },
    SensorState.RETIRED: {
        SensorEvent.ANNOUNCED: SensorState.MEASURING,
        SensorEvent.DEPLOYED: SensorState.ACTIVE,
    },
}
SPEAKING = frozenset({SensorState.ACTIVE, SensorState.REMEASURING})
UNDER_WAY = frozenset({SensorState.MEASURING, SensorState.REMEASURING})
IN_LAYOUT = SPEAKING | {SensorState.SILENT}


def step(state: SensorState, event: SensorEvent) -> SensorState:
    """The state after the event, or a `LifecycleError` that says what could happen instead."""
    found = TABLE[state].get(event)
    if found is None:
        possible = ", ".join(TABLE[state])
        raise LifecycleError(f"a {state} sensor cannot be {event}; it can be: {possible}")
    return found


def diagram() -> str:
    """The table as a Mermaid state diagram, for docs/gateway.md."""
    names = {SensorState.UNKNOWN: "[*]"}
    lines = ["stateDiagram-v2"]
    for state, events in TABLE.items():
        grouped: dict[SensorState, list[str]] = {}
        for event, after in events.items():
            grouped.setdefault(after, []).append(event)
        for after, reasons in grouped.items():
            lines.append(f"    {names.get(state, state)} --> {after}: {', '.join(reasons)}")
    return "\n".join(lines)
