"""A new sensor speaks beside the one it replaces before it takes over its column.

While both speak, every reading tells the node how the new one follows from the old, and no label is
needed for that. So a replacement waits, measured or not, until the two have been heard together
`overlap_readings` times. It waits for nobody who is gone: when the old one is retired, reported
silent, or has said nothing for `ALONE_MAX` values of the new one, the change goes ahead.

Where a node has said what it knows, each reading together is also a question to that model: does it
answer the same with the new one in the place of the old? It decides nothing, and is told to
whoever asks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from edge_opid.layout.sensor import Sensor
from gateway.registry.fleet import Fleet
from gateway.registry.lifecycle import SPEAKING, SensorState
from gateway.registry.records import NodeKey, SensorRecord

ALONE_MAX = 10
"""Values of the new sensor without one of the old: somebody has taken that one away. Its node says
so only after the old one's timeout; and one so much slower than the new has little to tell."""
SAVED_EVERY = 10
"""Readings together from one write to the next: after a restart at most so many count again."""
RECALLED_AT_ONCE = 20
"""Nodes whose model is read in one tick: each takes milliseconds."""

MODELS_MAX = 2_000
"""Nodes whose model is held, some 20 kB each. In a larger wave the others are told no share."""

Describe = Callable[[SensorRecord], Sensor | None]
"""A new sensor with its reference and scale, as far as they are known; None where they are not."""


class KnownModel(Protocol):
    """What a node knows, as far as it has said it."""

    def agrees(
        self, values: Mapping[str, float], old: str, new: Sensor, value: float
    ) -> bool | None:
        """Whether it answers the same when the new sensor says this in the old one's place.

        None where it cannot tell.
        """
        ...


@dataclass
class _Heard:
    """What was heard of an old and a new sensor, since the new one was announced."""

    announced_ms: int
    together: int
    judged: int
    agreed: int
    spoke: set[str] = field(default_factory=set)
    """Which of the two have spoken since the last reading that counted."""
    alone: int = 0
    """Values of the new one since the last of the old."""

    def on(self, record: SensorRecord) -> SensorRecord:
        """The record with what was heard."""
        return replace(record, together=self.together, judged=self.judged, agreed=self.agreed)


class Overlaps:
    """How often each new sensor has been heard together with the one it replaces.

    Two sensors may come from different sources at different rates: it is a reading together when
    both have spoken since the last one.
    """

    def __init__(self, readings: int) -> None:
        self._readings = readings
        self._heard: dict[tuple[str, str, str], _Heard] = {}
        self._values: dict[NodeKey, dict[str, float]] = {}
        """The last ones of the sensors of nodes in which somebody is heard beside another."""
        self._models: dict[NodeKey, KnownModel | None] = {}
        self._unread: dict[NodeKey, None] = {}
        """Nodes whose model is wanted, in the order in which they were heard."""

    def keep_only(self, sensors: Collection[tuple[str, str, str]]) -> None:
        """Drop what was heard of others: they have joined, or are gone."""
        nodes = {(site, node) for site, node, _ in sensors}
        self._heard = {key: heard for key, heard in self._heard.items() if key in sensors}
        self._values = {key: values for key, values in self._values.items() if key in nodes}
        self._models = {key: model for key, model in self._models.items() if key in nodes}
        self._unread = {key: None for key in self._unread if key in nodes}

    # -- models --------------------------------------------------------------------------------

    def take_unread(self) -> tuple[NodeKey, ...]:
        """Some of the nodes whose model is wanted."""
        found = tuple(self._unread)[:RECALLED_AT_ONCE]
        for key in found:
            del self._unread[key]
        return found

    def know(self, key: NodeKey, model: KnownModel | None) -> None:
        """What a node has said of what it knows, or that it has not."""
        self._models[key] = model

    def forget_model(self, key: NodeKey) -> None:
        """It has said something newer."""
        self._models.pop(key, None)

    # -- readings ------------------------------------------------------------------------------

    def hear(
        self,
        fleet: Fleet,
        key: NodeKey,
        values: Mapping[str, float],
        describe: Describe,
    ) -> None:
        """What sensors of a node have said in one reading."""
        for record in newcomers(fleet, key):
            old = living_predecessor(fleet, record)
            if old is None:
                continue
            last = self._values.setdefault(key, {})
            last |= {each: value for each, value in values.items() if each in fleet.sensors[key]}
            if {old.id, record.id} & values.keys() and self._count(record, old.id, set(values)):
                self._judge(fleet, record, old.id, describe)
                self._save(fleet, record)

    def _count(self, record: SensorRecord, old: str, spoken: set[str]) -> bool:
        """Whether it is a reading together."""
        heard = self._heard.get(record.key)
        if heard is None or heard.announced_ms != record.announced_ms:
            saved = record.together, record.judged, record.agreed
            heard = self._heard[record.key] = _Heard(record.announced_ms, *saved)
        heard.alone = 0 if old in spoken else heard.alone + 1
        heard.spoke |= spoken & {old, record.id}
        if len(heard.spoke) < 2:
            return False
        heard.spoke.clear()
        heard.together += 1
        return True

    def _judge(self, fleet: Fleet, record: SensorRecord, old: str, describe: Describe) -> None:
        """Ask the node's model, where it is known, and the new one's scale as well."""
        key, heard = (record.site, record.node), self._heard[record.key]
        if key not in self._models and len(self._models) + len(self._unread) < MODELS_MAX:
            self._unread[key] = None
        model, last = self._models.get(key), self._values[key]
        new = describe(record) if model is not None else None
        if model is None or new is None:
            return
        speaking = {s: v for s, v in last.items() if fleet.sensors[key][s].state in SPEAKING}
        same = model.agrees(speaking, old, new, last[record.id])
        if same is not None:
            heard.judged += 1
            heard.agreed += same

    def _save(self, fleet: Fleet, record: SensorRecord) -> None:
        heard = self._heard[record.key]
        if heard.together - record.together >= SAVED_EVERY:
            fleet.put(heard.on(record))

    def has_to_wait(self, fleet: Fleet, record: SensorRecord) -> bool:
        """Whether this new sensor is to be heard beside the old one for longer."""
        heard = self._heard.get(record.key)
        if heard is None or heard.announced_ms != record.announced_ms:
            return readings_left(fleet, record, self._readings) > 0
        if heard.alone >= ALONE_MAX:
            return False
        return readings_left(fleet, heard.on(record), self._readings) > 0


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
    return f"{record.id} takes over from {record.replaces} after {more}{_agreement(record)}"


def _agreement(record: SensorRecord) -> str:
    """How often a model of the node has answered the same with either sensor, where one is known.

    Rounded down: only what always agreed is 100 %.
    """
    if not record.judged:
        return ""
    share = 100 * record.agreed // record.judged
    readings = f"{record.judged} reading{'s' if record.judged > 1 else ''}"
    return f"; so far, the model answers the same with either sensor in {share} % of {readings}"
