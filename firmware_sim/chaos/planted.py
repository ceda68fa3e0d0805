"""Deliberate faults in copies of the real parts, to see whether the checks would find them.

A check that has never found anything proves nothing. Each plant takes one precaution away, as a
tired colleague might, for the time of a run; the checks must find it within a few hundred seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from nacl.signing import VerifyKey

import edge_opid.node.orders as node_desired
from edge_opid.node import node as edge_node
from edge_opid.node.actions import Action
from edge_opid.node.node import Node
from edge_opid.node.orders import Standing
from edge_opid.node.sequencing import Sequencer, Take, Verdict
from edge_opid.node.state import NodeState
from edge_opid.service.loop import NodeLoop
from edge_opid.source.backlog import Backlog
from edge_opid.source.number import ReadingNumber
from edge_opid.source.source import Source
from edge_opid.store import segment
from edge_opid.store.disk import Disk
from edge_opid.store.frames import SegmentHeader, decode_frame_header, encode_frame
from edge_opid.store.segment import Segment
from edge_opid.store.snapshots import Snapshots
from edge_opid.wire import Desired, Reading, decode, open_sealed
from edge_opid.wire.envelope import HEADER_BYTES
from gateway.decisions import orders as publish
from gateway.registry import NodeKey
from gateway.registry.fleet import Fleet


@dataclass(frozen=True)
class Plant:
    """One precaution that is missing: whose, under which name, and what is there instead."""

    sentence: str
    owner: Any
    attribute: str
    instead: Any


def _acknowledge_before_sync(
    self: Node, actions: list[Action], source: str | None, token: object
) -> list[Action]:
    owing = _owing(self, actions, source, token)
    if source is None:
        return owing
    boot, following = self.state.expected[source]
    return [*owing, self._publications.acknowledgement(source, boot, following - 1)]


def _no_deduplication(self: Sequencer, source: str, reading: Reading, now_ms: int) -> Verdict:
    following = self._next(source, reading.boot)
    if following is not None and reading.seq < following:
        return Take((reading,))
    return _offer(self, source, reading, now_ms)


def _gap_acknowledged(self: Sequencer, source: str, reading: Reading, next_seq: int) -> Verdict:  # noqa: ARG001
    return Take((reading,))


def _torn_tail_kept(header: SegmentHeader, head: bytes, payload: bytes) -> list[bytes] | None:
    """The real one without the checksum: whatever the lengths cut out is a record."""
    frame = decode_frame_header(header, head)
    if frame is None or len(payload) < frame.length:
        return None
    records, position = [], 0
    while position < frame.length:
        size = int.from_bytes(payload[position : position + 4], "little")
        position += 4 + size
        records.append(payload[position - size : min(position, frame.length)])
    return records


def _commit_not_synced(
    self: Segment, disk: Disk, offset: int, first: int, records: Sequence[bytes]
) -> int:
    frame = encode_frame(self.header, first, records)
    disk.write(self.name, offset, frame)
    return offset + len(frame)


class _NoSync:
    """A disk whose `sync` was forgotten."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def sync(self, name: str) -> None:
        """Nothing."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)


def _snapshot_not_synced(self: Snapshots, state: bytes, snapshot: Any) -> None:
    disk, self._disk = self._disk, _NoSync(self._disk)
    try:
        _write_file(self, state, snapshot)
    finally:
        self._disk = disk


def _floor_not_stored(self: NodeState) -> dict[str, Any]:
    return {**_parts(self), "versions": [0, "", self.layout_version]}


def _signature_not_checked(payload: bytes, trusted: Iterable[VerifyKey]) -> bytes:  # noqa: ARG001
    return payload[HEADER_BYTES:]


def _change_applied_twice(payload: bytes, trusted: Sequence[VerifyKey], mine: Standing) -> bytes:
    """The real one without a word about versions that are equal."""
    document = open_sealed(payload, trusted)
    desired = decode(document, Desired)
    node_desired._check_address(desired, mine)
    if desired.version != mine.version:
        node_desired._check_version(desired, mine)
    node_desired._check_layout(desired, mine)
    return document


def _old_order_obeyed(desired: Desired, mine: Standing) -> None:
    """Any version will do."""


def _version_used_twice(fleet: Fleet, key: NodeKey) -> int:
    """The real one without a look at the order that may be on its way."""
    return fleet.nodes[key].reported_version + 1


def _sensor_trusts_the_broker(self: Source) -> None:
    """What the link took is forgotten: a PUBACK will come, and then the broker has it."""
    _transmit(self)
    while self._link.connected and self._window._pending:
        self._backlog.acknowledge(self._window._pending[0].number, 0, self._monotonic())


def _acknowledge_across_boots(self: Backlog, upto: ReadingNumber, newest: int, now: float) -> None:
    """As once: what the node knows a higher boot than, it must have heard before."""
    freed = ReadingNumber(newest, 0) if newest > upto.boot else upto
    while self._window._pending and self._window._pending[0].number <= freed:
        _acknowledge(self, self._window._pending[0].number, 0, now)


def _sent_boot_joined(self: Backlog, number: ReadingNumber) -> bool:
    """The real one, without asking whether a former life may have sent of this boot."""
    return number.boot != self.boot


def _thread_dies_silently(self: NodeLoop) -> None:
    """Feed the watchdog, whether the link is alive or not."""
    self._systemd.tell_alive(self._clock.passed_ms())


def _retained_learned_twice(
    self: Node,
    topic: str,
    payload: bytes,
    now_ms: int,
    token: object,
    retained: bool = False,  # noqa: ARG001
) -> list[Action]:
    """The real one, without a look at the broker's word that it has kept this."""
    return _handle(self, topic, payload, now_ms, token)


_offer, _owing, _parts = Sequencer.offer, Node._owing, NodeState.parts
_write_file, _transmit = Snapshots._write_file, Source._transmit
_acknowledge, _handle = Backlog.acknowledge, Node.handle

PLANTS: dict[str, Plant] = {
    "acknowledge-before-sync": Plant(
        "a reading is acknowledged by number before it is committed",
        Node,
        "_owing",
        _acknowledge_before_sync,
    ),
    "no-deduplication": Plant(
        "a number that was applied is applied again", Sequencer, "offer", _no_deduplication
    ),
    "torn-tail-kept": Plant(
        "the journal's checksums are not looked at", segment, "decode_records", _torn_tail_kept
    ),
    "commit-not-synced": Plant(
        "a commit is written and not synced", Segment, "write", _commit_not_synced
    ),
    "snapshot-not-synced": Plant(
        "a snapshot gets its name before it is synced",
        Snapshots,
        "_write_file",
        _snapshot_not_synced,
    ),
    "floor-not-stored": Plant(
        "a snapshot forgets which order was obeyed last", NodeState, "parts", _floor_not_stored
    ),
    "signature-not-checked": Plant(
        "whoever writes an order is obeyed", node_desired, "open_sealed", _signature_not_checked
    ),
    "gap-acknowledged": Plant(
        "a number that is missing is not waited for", Sequencer, "_too_early", _gap_acknowledged
    ),
    "change-applied-twice": Plant(
        "an order that was obeyed is obeyed again", edge_node, "verified", _change_applied_twice
    ),
    "old-order-obeyed": Plant(
        "an older order counts like a newer", node_desired, "_check_version", _old_order_obeyed
    ),
    "version-used-twice": Plant(
        "an order that nobody has reported yet lends its version to the next",
        publish,
        "next_version",
        _version_used_twice,
    ),
    "sensor-trusts-the-broker": Plant(
        "a sensor forgets what the broker has taken",
        Source,
        "_transmit",
        _sensor_trusts_the_broker,
    ),
    "acknowledge-across-boots": Plant(
        "an acknowledgement of a higher boot frees what lower ones have left",
        Backlog,
        "acknowledge",
        _acknowledge_across_boots,
    ),
    "sent-boot-joined": Plant(
        "readings that may have been sent get other numbers",
        Backlog,
        "_is_worth_joining",
        _sent_boot_joined,
    ),
    "thread-dies-silently": Plant(
        "a node whose link will never work again goes on",
        NodeLoop,
        "_say_alive",
        _thread_dies_silently,
    ),
    "retained-learned-twice": Plant(
        "what a broker has kept of a foreign device is a reading each time it is said",
        Node,
        "handle",
        _retained_learned_twice,
    ),
}


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Take the precaution of this name away until the end of the block; None takes nothing."""
    if name is None:
        yield
        return
    if name not in PLANTS:
        raise ValueError(f"no plant {name!r}; there are: {', '.join(PLANTS)}")
    plant = PLANTS[name]
    real: Callable[..., Any] = getattr(plant.owner, plant.attribute)
    setattr(plant.owner, plant.attribute, plant.instead)
    try:
        yield
    finally:
        setattr(plant.owner, plant.attribute, real)
