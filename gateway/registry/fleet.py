"""The whole fleet in memory, and what of it is not saved yet. Decisions read and `put` here."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from edge_opid.log import worth_a_line
from edge_opid.wire import SensorDescription, Status
from gateway.policy import Group, check_groups
from gateway.registry.agenda import Agenda
from gateway.registry.heard import Heard, HeardRecord
from gateway.registry.history import Chronicle, LifeRecord, MinutesRecord
from gateway.registry.lifecycle import IN_LAYOUT, SensorState
from gateway.registry.records import (
    ChangeRecord,
    ChangeState,
    DoubtRecord,
    ExampleRecord,
    FitRecord,
    ForgottenRecord,
    IssuedRecord,
    LayoutRecord,
    NodeKey,
    NodeRecord,
    OrderRecord,
    Record,
    SensorRecord,
    key_of,
)

AHEAD_MS = 3_600_000
"""How far an announcer's clock may be ahead of ours and still tell copies from news. What is dated
later counts as of then: a clock a year ahead must not make every later announcement a stale one."""
ExampleNumber = tuple[str, str, str, int, int]
"""Site, node, source, boot and sequence number of an instance."""


@dataclass(frozen=True)
class StoredFleet:
    """What a store remembers when a gateway starts; examples and summaries stay there."""

    nodes: Sequence[NodeRecord] = ()
    sensors: Sequence[SensorRecord] = ()
    layouts: Sequence[LayoutRecord] = ()
    """The newest of each node."""
    orders: Sequence[OrderRecord] = ()
    changes: Sequence[ChangeRecord] = ()
    """Those that gather, and those the newest layouts belong to."""
    examples: Mapping[int, Collection[ExampleNumber]] = field(default_factory=dict)
    """Which instances the batches of those changes have."""
    next_change: int = 1
    changes_apart: int = 1
    """From one number to the next: sites with gateways of their own share the numbers."""
    site: str = ""
    """The only one of this fleet; empty where it has them all."""
    doubts: Sequence[DoubtRecord] = ()
    issued: Sequence[IssuedRecord] = ()
    hours: Sequence[MinutesRecord] = ()
    """The hour that it is, of each node: what comes is added to it."""


class ExampleBatch(Set[ExampleNumber]):
    """The instances of one change, and how many of them each node gave: every order asks.

    No plain set: whatever changed one without `add` and `drop` would leave the counts behind.

    >>> batch = ExampleBatch()
    >>> batch.add(("street", "north", "attic", 1, 7))
    >>> batch.given_by(("street", "north")), batch.given_by(("street", "south")), len(batch)
    (1, 0, 1)
    """

    def __init__(self) -> None:
        self._numbers: set[ExampleNumber] = set()
        self._given: Counter[NodeKey] = Counter()

    def __contains__(self, number: object) -> bool:
        return number in self._numbers

    def __iter__(self) -> Iterator[ExampleNumber]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, number: ExampleNumber) -> None:
        """One more; not if it is there."""
        if number not in self._numbers:
            self._numbers.add(number)
            self._given[number[:2]] += 1

    def given_by(self, key: NodeKey) -> int:
        """How many are this node's."""
        return self._given.get(key, 0)

    def drop(self, key: NodeKey) -> None:
        """Nothing of it is this node's."""
        if self._given.pop(key, 0):
            self._numbers = {number for number in self._numbers if number[:2] != key}


class Fleet:
    """Every record by its key. `put` is the only way to change one.

    >>> fleet = Fleet([Group("air", "street", ("fresh", "stale"), ("north",))])
    >>> fleet.put(NodeRecord(site="street", node="north", group="air", gate=8.0))
    >>> [record.node for record in fleet.take_unsaved()], fleet.take_unsaved()
    (['north'], [])
    """

    def __init__(
        self,
        groups: Iterable[Group],
        stored: StoredFleet | None = None,
        agenda: Agenda | None = None,
    ) -> None:
        listed = tuple(groups)
        check_groups(listed)
        self.groups = {group.id: group for group in listed}
        self._group_of = {key: group for group in listed for key in group.keys}
        self.nodes: dict[NodeKey, NodeRecord] = {}
        self.sensors: defaultdict[NodeKey, dict[str, SensorRecord]] = defaultdict(dict)
        self.layouts: dict[NodeKey, LayoutRecord] = {}
        """The newest layout of each node, obeyed or not."""
        self.orders: dict[NodeKey, OrderRecord] = {}
        self.changes: dict[int, ChangeRecord] = {}
        self.examples: defaultdict[int, ExampleBatch] = defaultdict(ExampleBatch)
        """The batch of each change; the values are in the store."""
        self.doubts: dict[tuple[str, str, str], DoubtRecord] = {}
        """What was said and is not believed, by site, node and kind."""
        self._issued: dict[NodeKey, IssuedRecord] = {}
        self.next_change, self._changes_apart = 1, 1
        self.site = stored.site if stored is not None else ""
        self.agenda = Agenda() if agenda is None else agenda
        """Of whom something may be due; follows from the records."""
        self.claims: dict[NodeKey, tuple[int, int]] = {}
        """How many readings each node's last summary was of, and when it came; of this life."""
        self._described: dict[tuple[str, str, str], SensorDescription] = {}
        self._silent: defaultdict[NodeKey, set[str]] = defaultdict(set)
        self._members: defaultdict[int, dict[NodeKey, None]] = defaultdict(dict)
        self._unsaved: dict[object, Record] = {}
        hours = stored.hours if stored is not None else ()
        self._heard = Heard()
        self._chronicle = Chronicle({(each.site, each.node): each for each in hours})
        if stored is not None:
            self._load(stored)

    def _load(self, stored: StoredFleet) -> None:
        kept: tuple[Sequence[Record], ...]
        kept = stored.nodes, stored.sensors, stored.layouts, stored.orders, stored.changes
        for records in (*kept, stored.doubts, stored.issued):
            for record in records:
                self.put(record)
        for change, numbers in stored.examples.items():
            for number in numbers:
                self.examples[change].add(number)
        self.next_change, self._changes_apart = stored.next_change, stored.changes_apart
        self._unsaved.clear()
        for key, node in list(self.nodes.items()):
            group = self.group_of(key)
            if group is not None and group.id != node.group:  # moved, in the configuration
                self.put(replace(node, group=group.id))

    def put(self, record: Record) -> None:
        """Replace the record with this key, and remember that it is to be saved."""
        match record:
            case NodeRecord():
                self._put_node(record)
            case SensorRecord():
                self._put_sensor(record)
            case LayoutRecord():
                self._enrol(record)
            case OrderRecord():
                self._keep_highest(record)
                self.orders[record.key] = record
            case ChangeRecord():
                self.changes[record.id] = record
                if record.id >= self.next_change:
                    self.next_change = record.id + self._changes_apart
                self.agenda.note_change(record)
            case ExampleRecord():
                number = record.site, record.node, record.source, record.boot, record.seq
                self.examples[record.change].add(number)
                self.agenda.stir(record.change)
            case IssuedRecord():
                self._issued[record.key] = record
            case DoubtRecord():
                self.doubts[record.key] = record
            case _:
                pass  # summaries and fits are only kept in the store
        self._unsaved[type(record), key_of(record)] = record

    def _put_node(self, node: NodeRecord) -> None:
        before, layout = self.nodes.get(node.key), self.layouts.get(node.key)
        self.nodes[node.key] = node
        self.agenda.note_node(before, node)
        if layout is not None:
            self.agenda.note_reported(node, layout)

    def _put_sensor(self, sensor: SensorRecord) -> None:
        """A sensor that comes into another state has one more event in its life."""
        sensors = self.sensors[sensor.site, sensor.node]
        before = sensors.get(sensor.id)
        if before is None or before.state != sensor.state:
            self.put(
                LifeRecord(
                    site=sensor.site,
                    node=sensor.node,
                    sensor=sensor.id,
                    at_ms=sensor.since_ms,
                    state=sensor.state,
                    role=sensor.role,
                    replaces=sensor.replaces,
                    reason=sensor.reason,
                )
            )
        sensors[sensor.id] = sensor
        if sensor.state == SensorState.SILENT:
            self._silent[sensor.site, sensor.node].add(sensor.id)
        else:
            self._silent[sensor.site, sensor.node].discard(sensor.id)
        self._described.pop(sensor.key, None)
        self.agenda.note_sensor(before, sensor)

    def note_heard(self, key: NodeKey, status: Status, payload: bytes, now_ms: int) -> None:
        """A node is still here; the first status in a minute is a sample of its history."""
        self._heard.note(key, payload, now_ms)
        self._chronicle.note(key, status, now_ms)

    def put_heard(self, now_ms: int, *, busy: bool) -> None:
        """Write down of a few nodes that they are still here, and their samples."""
        self._put_spoken(self._heard.take_due(now_ms, busy=busy))
        for record in self._heard.take_times(now_ms):
            self.put(record)

    def put_all_heard(self, now_ms: int) -> None:
        """Write it down of everybody: it is the end."""
        self._put_spoken(self._heard.take_all(now_ms))

    def _put_spoken(self, spoken: Iterable[tuple[NodeKey, int, bytes]]) -> None:
        for key, seen_ms, status in spoken:
            self.put(replace(self.nodes[key], seen_ms=seen_ms, status=status))
            for record in self._chronicle.take(key):
                self.put(record)

    def _enrol(self, layout: LayoutRecord) -> None:
        """The node leaves the change of its former layout, and joins that of the new one."""
        key = layout.site, layout.node
        before, node = self.layouts.get(key), self.nodes.get(key)
        if before is not None:
            if layout.version < before.version:
                return  # history: what a former number means, for the statistics under it
            self._members[before.change].pop(key, None)
        self.layouts[key] = layout
        self._members[layout.change][key] = None
        self.agenda.note_layout(before, layout)
        if node is not None:
            self.agenda.note_reported(node, layout)

    def cap_times(self, now_ms: int) -> None:
        """After a clock was set back: nobody must wait until it has caught up with the records."""
        for sensors in self.sensors.values():
            for sensor in list(sensors.values()):
                since_ms = min(sensor.since_ms, now_ms)
                announced_ms = min(sensor.announced_ms, now_ms + AHEAD_MS)
                if (since_ms, announced_ms) != (sensor.since_ms, sensor.announced_ms):
                    self.put(replace(sensor, since_ms=since_ms, announced_ms=announced_ms))
        for change in list(self.changes.values()):
            if change.opened_ms > now_ms:
                self.put(replace(change, opened_ms=now_ms))
        for node in list(self.nodes.values()):
            if node.seen_ms > now_ms:
                self.put(replace(node, seen_ms=now_ms))

    def shift_times(self, step_ms: int, now_ms: int) -> None:
        """Time on the clock that did not pass: silences and changes are as old as they were."""
        for sensors in self.sensors.values():
            for sensor in list(sensors.values()):
                if sensor.state == SensorState.SILENT:
                    since_ms = min(sensor.since_ms + step_ms, now_ms)
                    self.put(replace(sensor, since_ms=since_ms))
        for change in list(self.changes.values()):
            if change.state == ChangeState.GATHERING:
                self.put(replace(change, opened_ms=min(change.opened_ms + step_ms, now_ms)))

    def _keep_highest(self, order: OrderRecord) -> None:
        """An order below the former one must not make us forget how far we have counted."""
        highest = self.issued(order.key)
        if order.version < highest:
            self.put(IssuedRecord(*order.key, highest))

    def issued(self, key: NodeKey) -> int:
        """The highest version that this node was ever given; 0 before any."""
        order, highest = self.orders.get(key), self._issued.get(key)
        return max(order.version if order else 0, highest.version if highest else 0)

    def doubt(self, key: NodeKey, kind: str, sentence: str, now_ms: int) -> None:
        """Remember what was not believed; a flood of the same is written now and then only."""
        before = self.doubts.get((*key, kind))
        count = before.count + 1 if before else 1
        record = DoubtRecord(
            site=key[0], node=key[1], kind=kind, sentence=sentence, count=count, at_ms=now_ms
        )
        if before is None or not before.sentence or worth_a_line(count):
            self.put(record)
        else:
            self.doubts[record.key] = record

    def forget(self, key: NodeKey) -> None:
        """Nothing of this node was ever heard: all that is known of it goes, here and saved."""
        self.agenda.forget_node(key, self.sensors.get(key, {}))
        for records in (self.nodes, self.sensors, self.orders, self._issued, self._silent):
            records.pop(key, None)
        layout = self.layouts.pop(key, None)
        if layout is not None:
            self._members[layout.change].pop(key, None)
            self.agenda.forget_layout(layout)
        self._chronicle.forget(key)
        self._heard.forget(key)
        for batch in self.examples.values():
            batch.drop(key)
        self.doubts = {name: each for name, each in self.doubts.items() if name[:2] != key}
        self._described = {name: s for name, s in self._described.items() if name[:2] != key}
        of_node = [name for name, record in self._unsaved.items() if node_of(record) == key]
        for name in of_node:
            del self._unsaved[name]
        # first in the transaction: the node may introduce itself again before that
        self._unsaved = {(ForgottenRecord, key): ForgottenRecord(*key), **self._unsaved}

    def take_unsaved(self) -> list[Record]:
        """Everything put since the last time, each key once, for one transaction."""
        records = list(self._unsaved.values())
        self._unsaved.clear()
        return records

    def group_of(self, key: NodeKey) -> Group | None:
        """The group a node is configured in; None for a stranger."""
        return self._group_of.get(key)

    def in_layout(self, key: NodeKey) -> list[SensorRecord]:
        """The sensors that have a column, by role: what the node's layout should be."""
        living = (each for each in self.sensors[key].values() if each.state in IN_LAYOUT)
        return sorted(living, key=lambda sensor: sensor.role)

    def silent_of(self, key: NodeKey) -> Set[str]:
        """The ids of a node's sensors that are silent: every status is compared with them."""
        return self._silent.get(key, frozenset())

    def description_of(self, sensor: SensorRecord) -> SensorDescription:
        """The sensor as the wire describes it, checked once: a wave asks for thousands."""
        found = self._described.get(sensor.key)
        if found is None:
            found = self._described[sensor.key] = sensor.description()
        return found

    def members(self, change: int) -> list[NodeKey]:
        """The nodes whose newest layout belongs to this change."""
        return list(self._members.get(change, ()))

    def size_of(self, change: int) -> int:
        """How many nodes are in it."""
        return len(self._members.get(change, ()))

    def forget_change(self, change: int) -> None:
        """A closed change that no node is in any more is the store's alone."""
        self.changes.pop(change, None)
        self.examples.pop(change, None)
        self._members.pop(change, None)
        self.agenda.forget_change(change)


def node_of(record: Record) -> NodeKey | None:
    """Whom a record is about; None for changes, fits and times, which are of many."""
    if isinstance(record, ChangeRecord | FitRecord | HeardRecord):
        return None
    return record.site, record.node
