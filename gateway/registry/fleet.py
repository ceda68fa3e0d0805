"""The whole fleet in memory, and what of it is not saved yet. Decisions read and `put` here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from edge_opid.log import worth_a_line
from edge_opid.wire import SensorDescription
from gateway.policy import Group, check_groups
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
    doubts: Sequence[DoubtRecord] = ()
    issued: Sequence[IssuedRecord] = ()


class Fleet:
    """Every record by its key. `put` is the only way to change one.

    >>> fleet = Fleet([Group("air", "street", ("fresh", "stale"), ("north",))])
    >>> fleet.put(NodeRecord(site="street", node="north", group="air", gate=8.0))
    >>> [record.node for record in fleet.take_unsaved()], fleet.take_unsaved()
    (['north'], [])
    """

    def __init__(self, groups: Iterable[Group], stored: StoredFleet | None = None) -> None:
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
        self.examples: defaultdict[int, set[ExampleNumber]] = defaultdict(set)
        """The batch of each change; the values are in the store."""
        self.doubts: dict[tuple[str, str, str], DoubtRecord] = {}
        """What was said and is not believed, by site, node and kind."""
        self._issued: dict[NodeKey, IssuedRecord] = {}
        self.next_change = 1
        self.touched: set[NodeKey] = set()
        """Nodes with a sensor that changed since somebody looked at their layout."""
        self.claims: dict[NodeKey, tuple[int, int]] = {}
        """How many readings each node's last summary was of, and when it came; of this life."""
        self._described: dict[tuple[str, str, str], SensorDescription] = {}
        self._members: defaultdict[int, dict[NodeKey, None]] = defaultdict(dict)
        self._unsaved: dict[object, Record] = {}
        if stored is not None:
            self._load(stored)

    def _load(self, stored: StoredFleet) -> None:
        kept: tuple[Sequence[Record], ...]
        kept = stored.nodes, stored.sensors, stored.layouts, stored.orders, stored.changes
        for records in (*kept, stored.doubts, stored.issued):
            for record in records:
                self.put(record)
        for change, numbers in stored.examples.items():
            self.examples[change].update(numbers)
        self.next_change = stored.next_change
        self._unsaved.clear()
        for key, node in list(self.nodes.items()):
            group = self.group_of(key)
            if group is not None and group.id != node.group:  # moved, in the configuration
                self.put(replace(node, group=group.id))

    def put(self, record: Record) -> None:
        """Replace the record with this key, and remember that it is to be saved."""
        match record:
            case NodeRecord():
                self.nodes[record.key] = record
            case SensorRecord():
                self.sensors[record.site, record.node][record.id] = record
                self.touched.add((record.site, record.node))
                self._described.pop(record.key, None)
            case LayoutRecord():
                self._enrol(record)
            case OrderRecord():
                self._keep_highest(record)
                self.orders[record.key] = record
            case ChangeRecord():
                self.changes[record.id] = record
                self.next_change = max(self.next_change, record.id + 1)
            case ExampleRecord():
                number = record.site, record.node, record.source, record.boot, record.seq
                self.examples[record.change].add(number)
            case IssuedRecord():
                self._issued[record.key] = record
            case DoubtRecord():
                self.doubts[record.key] = record
            case _:
                pass  # summaries and fits are only kept in the store
        key = tuple(getattr(record, name) for name in record.KEY)
        self._unsaved[type(record), key] = record

    def _enrol(self, layout: LayoutRecord) -> None:
        """The node leaves the change of its former layout, and joins that of the new one."""
        key = layout.site, layout.node
        if key in self.layouts:
            if layout.version < self.layouts[key].version:
                return  # history: what a former number means, for the statistics under it
            self._members[self.layouts[key].change].pop(key, None)
        self.layouts[key] = layout
        self._members[layout.change][key] = None

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
        for records in (self.nodes, self.sensors, self.orders, self._issued):
            records.pop(key, None)
        layout = self.layouts.pop(key, None)
        if layout is not None:
            self._members[layout.change].pop(key, None)
        self.touched.discard(key)
        for batch in self.examples.values():
            batch -= {number for number in batch if number[:2] == key}
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


def node_of(record: Record) -> NodeKey | None:
    """Whom a record is about; None for changes and fits, which are of many."""
    if isinstance(record, ChangeRecord | FitRecord):
        return None
    return record.site, record.node
