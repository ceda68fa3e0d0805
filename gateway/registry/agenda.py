"""What a tick has to look at: an index of the fleet's records by state and by time.

*Handlers only write records; every tick derives from the records all that is due.* The agenda does
not change that: it follows from the records, `Fleet.put` keeps it up to date, and a gateway that
starts has it from reading them. It only spares a tick to look at ten thousand nodes of which none
is due. What is here answers "of whom could something be due?"; the rules, which stand where they
always stood, decide.

| of what | what makes a tick look at it |
|---|---|
| a silent sensor | since when it is silent |
| a sensor with an end of life | that time |
| a sensor that is measured | its state |
| a node whose sensors changed | when the last of them did |
| a change | a record of it, its batch or one of its members was written; its age |
| a node that has not obeyed | it is online again (and its retry: `decisions.orders`) |

`tests/test_gateway_agenda.py` has the same questions answered by looking at everything, and holds
whole gateways against each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from gateway.registry.due import DueTimes
from gateway.registry.lifecycle import UNDER_WAY, SensorState
from gateway.registry.records import (
    ChangeRecord,
    ChangeState,
    LayoutRecord,
    NodeKey,
    NodeRecord,
    SensorRecord,
)

SensorKey = tuple[str, str, str]
"""Site, node and id."""
Signature = tuple[str, tuple[str, ...], tuple[str, ...]]
"""Group, columns and newcomers of a change: who has the same is in the same open one."""


class Agenda:
    """Who may have something due. Every `note_…` is called by `Fleet` when a record changes."""

    def __init__(self) -> None:
        self.measured: dict[SensorKey, SensorRecord] = {}
        """The sensors that are being measured."""
        self.measured_turn = 0
        """Another number whenever one of those records has changed."""
        self._silent: DueTimes[SensorKey] = DueTimes()
        self._ending: DueTimes[SensorKey] = DueTimes()
        self._kept: defaultdict[NodeKey, dict[SensorKey, SensorRecord]] = defaultdict(dict)
        self._released: list[SensorKey] = []
        self._moved: DueTimes[NodeKey] = DueTimes()
        self._stirred: set[NodeKey] = set()
        self._stirred_changes: set[int] = set()
        self._young: DueTimes[int] = DueTimes()
        self._gathering: DueTimes[int] = DueTimes()
        self._open: dict[Signature, int] = {}
        self._behind: defaultdict[int, set[NodeKey]] = defaultdict(set)
        self._returned: set[NodeKey] = set()

    # -- sensors -------------------------------------------------------------------------------

    def note_sensor(self, before: SensorRecord | None, sensor: SensorRecord) -> None:
        """A sensor's record was written."""
        node = sensor.site, sensor.node
        self._moved.set(node, sensor.since_ms)
        self._stirred.add(node)
        if before is not None and before.state in UNDER_WAY:
            self.measured.pop(before.key, None)
            self.measured_turn += 1
        if sensor.state in UNDER_WAY:
            self.measured[sensor.key] = sensor
            self.measured_turn += 1
        if node in self._kept:
            self._release(node)
        self._schedule(sensor)

    def _schedule(self, sensor: SensorRecord) -> None:
        key = sensor.key
        if sensor.state == SensorState.SILENT:
            self._silent.set(key, sensor.since_ms)
        else:
            self._silent.discard(key)
        if sensor.end_of_life_ms is not None and sensor.state != SensorState.RETIRED:
            self._ending.set(key, sensor.end_of_life_ms)
        else:
            self._ending.discard(key)

    def take_overdue(
        self, silent_before_ms: float | None, ends_before_ms: float | None
    ) -> dict[NodeKey, set[str]]:
        """The sensors that are silent since before that, or have had their time, by node.

        None: it is not the time to judge. Whoever cannot be retired is to be kept (`keep`).
        """
        due: list[SensorKey] = []
        if silent_before_ms is not None:
            due += self._silent.take(silent_before_ms)
        if ends_before_ms is not None:
            due += self._ending.take(ends_before_ms)
        found: dict[NodeKey, set[str]] = {}
        for site, node, sensor in due:
            found.setdefault((site, node), set()).add(sensor)
        return found

    def keep(self, sensor: SensorRecord) -> None:
        """It is due and cannot go: it is looked at again when a sensor of its node has changed."""
        self._silent.discard(sensor.key)
        self._ending.discard(sensor.key)
        self._kept[sensor.site, sensor.node][sensor.key] = sensor

    def release_kept(self) -> None:
        """Look at all of them again."""
        for node in list(self._kept):
            self._release(node)

    def _release(self, node: NodeKey) -> None:
        for key, sensor in self._kept.pop(node).items():
            self._released.append(key)
            self._schedule(sensor)

    def take_released(self) -> list[SensorKey]:
        """Those that were kept, and are looked at again."""
        found, self._released = self._released, []
        return found

    def take_stirred(self) -> set[NodeKey]:
        """The nodes of which a sensor's record was written since the last time."""
        found, self._stirred = self._stirred, set()
        return found

    # -- nodes and layouts ---------------------------------------------------------------------

    def note_node(self, before: NodeRecord | None, node: NodeRecord) -> None:
        """A node's record was written."""
        if node.online and (before is None or not before.online):
            self._returned.add(node.key)

    def take_returned(self) -> set[NodeKey]:
        """The nodes that came online since the last time."""
        found, self._returned = self._returned, set()
        return found

    def note_layout(self, before: LayoutRecord | None, layout: LayoutRecord) -> None:
        """A node has another newest layout."""
        key = layout.site, layout.node
        if before is None:
            self._moved.set(key, 0)
        else:
            self._behind[before.change].discard(key)
            self._stirred_changes.add(before.change)
        self._stirred_changes.add(layout.change)

    def note_reported(self, node: NodeRecord, layout: LayoutRecord) -> None:
        """How far a node has come with its newest layout."""
        behind = self._behind[layout.change]
        if node.reported_layout < layout.version:
            behind.add(node.key)
        elif node.key in behind:
            behind.discard(node.key)
            self._stirred_changes.add(layout.change)

    def take_moved(
        self, before_ms: float, at_most: int, moved_ms: Callable[[NodeKey], int]
    ) -> list[NodeKey]:
        """Nodes whose sensors have not moved since before that, the earliest first, each once.

        A node stands here with the time of the record written last, which is no later than the
        time of its last move (`moved_ms`).
        """
        found: list[NodeKey] = []
        while len(found) < at_most and (first := self._moved.first(before_ms)) is not None:
            at_ms, key = first
            last_ms = moved_ms(key)
            if last_ms > at_ms:
                self._moved.set(key, last_ms)
            else:
                self._moved.discard(key)
                found.append(key)
        return found

    def forget_node(self, key: NodeKey, sensors: dict[str, SensorRecord]) -> None:
        """Nothing is known of a node any more."""
        self._kept.pop(key, None)
        for sensor in sensors.values():
            self._silent.discard(sensor.key)
            self._ending.discard(sensor.key)
            if self.measured.pop(sensor.key, None) is not None:
                self.measured_turn += 1
        self._moved.discard(key)
        self._stirred.discard(key)
        self._returned.discard(key)

    def forget_layout(self, layout: LayoutRecord) -> None:
        """A node of this change is forgotten."""
        self._behind[layout.change].discard((layout.site, layout.node))
        self._stirred_changes.add(layout.change)

    # -- changes -------------------------------------------------------------------------------

    def note_change(self, change: ChangeRecord) -> None:
        """A change's record was written."""
        self.stir(change.id)
        signature = change.group, change.columns, change.arrived
        if change.state == ChangeState.GATHERING:
            self._young.set(change.id, change.opened_ms)
            self._gathering.set(change.id, change.opened_ms)
            self._open.setdefault(signature, change.id)
        else:
            self._young.discard(change.id)
            self._gathering.discard(change.id)
            if self._open.get(signature) == change.id:
                del self._open[signature]

    def stir(self, change: int) -> None:
        """Look at this change at the next tick."""
        self._stirred_changes.add(change)

    def take_changes(self, waited_before_ms: float, over_before_ms: float | None) -> list[int]:
        """The changes to look at: stirred, or opened before one of these times (None: it is not
        the time to judge).
        """
        found = self._stirred_changes
        self._stirred_changes = set()
        found.update(self._young.take(waited_before_ms))
        if over_before_ms is not None:
            found.update(self._gathering.take(over_before_ms))
        return sorted(found)

    def put_back_change(self, change: ChangeRecord) -> None:
        """It was looked at and is still open: its age counts on."""
        self._gathering.set(change.id, change.opened_ms)

    def open_change(self, signature: Signature) -> int | None:
        """The change that gathers for this group, these columns and these newcomers."""
        return self._open.get(signature)

    def all_reported(self, change: int) -> bool:
        """Whether every member obeys the layout of this change."""
        return not self._behind.get(change)

    def forget_change(self, change: int) -> None:
        """It is history."""
        self._behind.pop(change, None)
        self._stirred_changes.discard(change)
