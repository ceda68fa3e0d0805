"""A power cut at every disk operation of a node's first 300 readings, with the real service.

One world: two senders, somebody whose labels come late, a gateway that orders another layout, a
broker that stays up, and a node on a disk that tears. After a cut the node is started again on what
the disk may hold; the senders bring again what was not acknowledged, and the story goes on.
`EVERY=1` adds four more ways for the disk to look after each cut.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random

import numpy as np
import pytest
from rig import CLASSES, KEY, TOPICS, config, desired, folded
from torn_disk import SMALL, PowerCut, TornDisk

from edge_opid.link import MemoryBroker, MemoryLink
from edge_opid.node import inputs
from edge_opid.node.actions import Release
from edge_opid.node.config import SensorConfig
from edge_opid.node.edge_node import EdgeNode
from edge_opid.node.inputs import Accepted, Closed, Labelled, Ordered, Silenced
from edge_opid.notify import Notify
from edge_opid.service import Service
from edge_opid.store import Store
from edge_opid.wire import (
    Ack,
    Channel,
    InstanceId,
    Label,
    Reading,
    Topic,
    decode,
    encode,
    seal_desired,
)

READINGS = 300
SILENT_AT, ORDER_AT = 80, 160  # c falls silent; the gateway retires it and deploys e
BEFORE, AFTER = "abcd", "abde"
LABELLED = READINGS - READINGS // 5 + READINGS // 30
STEP_MS = 100
CUTS_MAX = 400
SEEDS = 5 if os.environ.get("EVERY") else 1
SPOILING = ("quarantined", "damaged")


# --- what the world sends ---------------------------------------------------------------------


@dataclass(frozen=True)
class Sent:
    """One message of the story; `seq` is 0 if it is not a reading."""

    topic: Topic
    payload: bytes
    seq: int = 0


@cache
def story() -> tuple[Sent, ...]:
    """300 readings of two sources in turn, late labels between them, an order in the middle."""
    rng, sent = np.random.default_rng(3), []
    for place in range(1, READINGS + 1):
        values = dict(zip("abcde", map(float, rng.normal(size=5)), strict=True))
        truth = CLASSES[int(np.argmax([values["a"], values["b"], values["d"]]))]
        source, seq = "porch" if place % 2 else "roof", (place + 1) // 2
        said = {name: values[name] for name in spoken(source, place)}
        reading = Reading(1, seq, place * STEP_MS, said, truth if place % 5 else None)
        sent.append(Sent(TOPICS.to(Channel.READING, source), encode(reading), seq))
        if place % 30 == 0:
            sent.append(Sent(TOPICS.to(Channel.LABEL), encode(late_label(place - 5))))
        if place == ORDER_AT:
            sent.append(Sent(TOPICS.to(Channel.DESIRED), the_order()))
    return tuple(sent)


def spoken(source: str, place: int) -> str:
    """The sensors that this reading has values of."""
    if source == "porch":
        return "ab"
    return "cd" if place <= SILENT_AT else "d" if place <= ORDER_AT else "de"


def late_label(place: int) -> Label:
    """The truth about a reading that came without: by its time or by its number."""
    if place % 2 and place % 4 == 1:
        return Label(CLASSES[0], time_ms=place * STEP_MS)
    return Label(CLASSES[0], InstanceId("porch", 1, (place + 1) // 2))


def the_order() -> bytes:
    W = np.random.default_rng(4).normal(size=(len(AFTER) + 1, len(CLASSES)))
    return seal_desired(desired(5, sensors=tuple(AFTER), weights=folded(W)), KEY)


# --- a node in this world ---------------------------------------------------------------------


def node_config(**changes):
    sensors = tuple(SensorConfig(s, reference=0.0, scale=1.0, timeout_s=2.0) for s in BEFORE)
    options = {"sensors": sensors, "vanishing": ("c",), "recent": 24, "commit_records": 7}
    return config(**{**options, **changes})


class KeptStore(Store):
    """A store whose every record and every promise is kept where no power cut reaches."""

    history: list[bytes]
    promised = 0

    def append(self, record: bytes) -> int:
        self.history.append(record)
        index = super().append(record)
        assert index == len(self.history) - 1
        return index

    def commit(self) -> int:
        self.promised = super().commit()
        return self.promised


@dataclass
class Clock:
    ms: int = 1_000_000

    def now_ms(self) -> int:
        return self.ms


@dataclass
class World:
    """Everybody but the node lives through the power cut."""

    rng: Random
    kind: type[EdgeNode] = EdgeNode
    changes: dict = field(default_factory=dict)
    disk: TornDisk = field(default_factory=TornDisk)
    broker: MemoryBroker = field(default_factory=MemoryBroker)
    clock: Clock = field(default_factory=Clock)
    history: list[bytes] = field(default_factory=list)
    promised: int = 0
    acked: Counter = field(default_factory=Counter)
    told: int = 0
    snapshots: int = 0

    def __post_init__(self):
        self.senders = MemoryLink(self.broker, "senders")
        self.senders.start()
        self.senders.subscribe([str(TOPICS.to(Channel.ACK, s)) for s in ("porch", "roof")])

    def live(self) -> bool:
        """Start the node and tell it the rest of the story; whether the power lasted."""
        self.node = self.kind(node_config(**self.changes), [KEY.verify_key])
        self.link = MemoryLink(self.broker, "node")
        try:
            self.begin()
            self.go_on()
        except PowerCut:
            self.link.abort()
            self.hear()
            return False
        return True

    def begin(self) -> None:
        """Open the store, hold it to its promises, start the service, bring again what is open."""
        rng = self.rng
        store, found = KeptStore.open(self.disk, SMALL, lambda: rng.randbytes(8))
        spoilt = [str(note) for note in found.notes if note.kind in SPOILING]
        assert spoilt == [], "a power cut alone spoils no file"
        assert self.promised <= found.end <= len(self.history), "a promise is broken"
        records = list(found.records)
        assert records == self.history[found.index : found.end], "the journal is another one"
        del self.history[found.end :]
        for source, seq in self.acked.items():
            assert seq <= applied(self.history)[source], "an acknowledged reading is lost"
        self.node.restore(found.snapshot, records)
        assert self.node.snapshot() == fold(self), "the state is not the fold of its inputs"
        store.history, store.promised, self.store = self.history, found.end, store
        self.promised = found.end
        topic = str(TOPICS.to(Channel.STATUS))
        self.service = Service(
            self.node,
            self.link,
            store,
            self.clock,
            Notify({}),
            status_topic=topic,
            saved_at=found.index,
            poll_s=0.0,
        )
        self.service.start()
        for sent in story()[: self.told]:
            if sent.seq > self.acked[sent.topic.source]:
                self.send(sent)

    def go_on(self) -> None:
        for sent in story()[self.told :]:
            self.told += 1
            self.send(sent)
            self.round()
        for _ in range(50):
            self.round()
        self.service.drain()
        self.promised = self.store.promised

    def round(self) -> None:
        self.clock.ms += STEP_MS
        try:
            self.service.round()
        finally:
            self.promised = self.store.promised
            self.hear()

    def send(self, sent: Sent) -> None:
        retain = sent.topic.channel is Channel.DESIRED
        self.senders.publish(str(sent.topic), sent.payload, retain=retain)

    def hear(self) -> None:
        """Senders forget what is acknowledged, and nothing else."""
        while (delivery := self.senders.poll()) is not None:
            ack, source = decode(delivery.payload, Ack), Topic.parse(delivery.topic).source
            self.acked[source] = max(self.acked[source], ack.seq)
            self.senders.acknowledge(delivery)

    def after_power_cut(self) -> None:
        self.disk = self.disk.crash(self.rng, spoil=self.rng.random() < 0.3)


def applied(history: list[bytes]) -> Counter:
    """How far each source has come, each number exactly once and in order."""
    reached: Counter = Counter()
    for change in map(inputs.unpack, history):
        if isinstance(change, Accepted):
            assert change.seq == reached[change.source] + 1, "applied twice, or out of order"
            reached[change.source] += 1
    return reached


def fold(world: World) -> bytes:
    """Every bit of the state that these inputs make, in one process and without a disk."""
    known = reference_states(tuple(world.changes.items()))
    if world.history and (state := known.get(tuple(world.history))) is not None:
        return state
    node = EdgeNode(node_config(**world.changes), [KEY.verify_key])
    node.restore(None, world.history)
    return node.snapshot()


STATES: dict[tuple, dict[tuple[bytes, ...], bytes]] = {}


def reference_states(changes: tuple) -> dict[tuple[bytes, ...], bytes]:
    """The states along the uninterrupted run, once there is one."""
    return STATES.get(changes, {})


@cache
def uninterrupted(**changes) -> World:
    """The same story on a disk that never fails."""
    world = World(Random(0), changes=changes)
    assert world.live()
    node, states = EdgeNode(node_config(**changes), [KEY.verify_key]), {}
    for end, record in enumerate(world.history, 1):
        node.state.apply(inputs.unpack(record))
        states[tuple(world.history[:end])] = node.snapshot()
    STATES[tuple(changes.items())] = states
    return world
