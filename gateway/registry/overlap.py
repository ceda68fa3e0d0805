"""A new sensor speaks beside the one it replaces before it takes over its column.

While both speak, every reading tells the node how the new one follows from the old, and no label is
needed for that. So a replacement waits, measured or not, until the two have been heard together
`overlap_readings` times. It waits for nobody who is gone: when the old one is retired, reported
silent, or has said nothing for `ALONE_MAX` values of the new one, the change goes ahead.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gateway.registry.fleet import Fleet
from gateway.registry.lifecycle import SPEAKING, SensorState
from gateway.registry.records import NodeKey, SensorRecord

ALONE_MAX = 10
"""Values of the new sensor without one of the old: somebody has taken that one away. Its node says
so only after the old one's timeout; and one so much slower than the new has little to tell."""
SAVED_EVERY = 10
"""Readings together from one write to the next: after a restart at most so many count again."""


@dataclass
class _Heard:
    """What was heard of an old and a new sensor, since the new one was announced."""

    announced_ms: int
    together: int
    spoke: set[str] = field(default_factory=set)
    """Which of the two have spoken since the last reading that counted."""
    alone: int = 0
    """Values of the new one since the last of the old."""


class Overlaps:
    """How often each new sensor has been heard together with the one it replaces.

    Two sensors may come from different sources at different rates: it is a reading together when
    both have spoken since the last one.
    """

    def __init__(self, readings: int) -> None:
        self._readings = readings
        self._heard: dict[tuple[str, str, str], _Heard] = {}

    def keep_only(self, sensors: set[tuple[str, str, str]]) -> None:
        """Drop what was heard of others: they have joined, or are gone."""
        self._heard = {key: heard for key, heard in self._heard.items() if key in sensors}

    def hear(self, fleet: Fleet, key: NodeKey, spoken: set[str]) -> None:
        """These sensors of a node have spoken in one reading."""
        for record in newcomers(fleet, key):
            old = living_predecessor(fleet, record)
            if old is not None and spoken & {old.id, record.id}:
                self._count(fleet, record, old.id, spoken)

    def _count(self, fleet: Fleet, record: SensorRecord, old: str, spoken: set[str]) -> None:
        heard = self._heard.get(record.key)
        if heard is None or heard.announced_ms != record.announced_ms:
            heard = self._heard[record.key] = _Heard(record.announced_ms, record.together)
        heard.alone = 0 if old in spoken else heard.alone + 1
        heard.spoke |= spoken & {old, record.id}
        if len(heard.spoke) == 2:
            heard.spoke.clear()
            heard.together += 1
            if heard.together - record.together >= SAVED_EVERY:
                fleet.put(replace(record, together=heard.together))

    def has_to_wait(self, fleet: Fleet, record: SensorRecord) -> bool:
        """Whether this new sensor is to be heard beside the old one for longer."""
        heard = self._heard.get(record.key)
        if heard is None or heard.announced_ms != record.announced_ms:
            return readings_left(fleet, record, self._readings) > 0
        if heard.alone >= ALONE_MAX:
            return False
        so_far = replace(record, together=heard.together)
        return readings_left(fleet, so_far, self._readings) > 0


def newcomers(fleet: Fleet, key: NodeKey) -> list[SensorRecord]:
    """The sensors of a node that have no column yet."""
    return [each for each in fleet.sensors[key].values() if each.state == SensorState.MEASURING]


def living_predecessor(fleet: Fleet, record: SensorRecord) -> SensorRecord | None:
    """The sensor whose column this one is to take over, as long as it has it and speaks."""
    old = fleet.sensors[record.site, record.node].get(record.replaces or "")
    # its id may have been deployed again meanwhile, in another role
    speaks = old is not None and old.state in SPEAKING and old.role == record.role
    return old if speaks else None


def successor(fleet: Fleet, old: SensorRecord) -> SensorRecord | None:
    """The sensor that waits to take over this one's column, if there is one."""
    for each in newcomers(fleet, (old.site, old.node)):
        if each.replaces == old.id and each.role == old.role:
            return each
    return None


def readings_left(fleet: Fleet, record: SensorRecord, readings: int) -> int:
    """How many more readings this new sensor and the old one should speak together, as saved."""
    if record.state != SensorState.MEASURING or living_predecessor(fleet, record) is None:
        return 0
    return max(0, readings - record.together)


def takeover_sentence(fleet: Fleet, record: SensorRecord, readings: int) -> str:
    """When a new sensor takes over; empty where it waits for no other one."""
    left = readings_left(fleet, record, readings)
    if not left:
        return ""
    more = f"{left} more reading{'s' if left > 1 else ''} together"
    return f"{record.id} takes over from {record.replaces} after {more}"
