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
from support.rig import CLASSES, KEY, TOPICS, config, desired, folded
from support.store_life import SMALL

from edge_opid.config.node import SensorConfig
from edge_opid.node import journal_records
from edge_opid.node.actions import Append, Publish, Release
from edge_opid.node.journal_records import (
    Accepted,
    Closed,
    Configured,
    Labelled,
    Ordered,
    Silenced,
)
from edge_opid.node.node import Node
from edge_opid.service.loop import NodeLoop
from edge_opid.service.systemd import Systemd
from edge_opid.store import Store
from edge_opid.testing import MemoryBroker, MemoryLink
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
from firmware_sim.live.timeless import but_for_times
from firmware_sim.simulated.disk import PowerCut, TornDisk

READINGS = 300
SILENT_AT, ORDER_AT = 80, 160  # c falls silent; the gateway retires it and deploys e
BEFORE, AFTER = "abcd", "abde"
LABELLED = READINGS - READINGS // 5 + READINGS // 30
STEP_MS = 100
WINDOW_MS = 150  # a reading of each source; what lacks a sensor waits for the clock
CUTS_MAX = 400
PARTS = 4  # of the longest test, so that they can run beside each other
SEEDS = 5 if os.environ.get("EVERY") else 1
SPOILING = ("quarantined", "damaged")
TIGHT = replace(SMALL, segments_max=4)  # a snapshot is due after every second segment


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
    if place % 4 == 1:
        return Label(CLASSES[0], time_ms=place * STEP_MS)
    return Label(CLASSES[0], InstanceId("porch", 1, (place + 1) // 2))


def the_order() -> bytes:
    W = np.random.default_rng(4).normal(size=(len(AFTER) + 1, len(CLASSES)))
    return seal_desired(desired(5, sensors=tuple(AFTER), weights=folded(W)), KEY)


# --- a node in this world ---------------------------------------------------------------------


def node_config(**changes):
    sensors = tuple(SensorConfig(s, reference=0.0, scale=1.0, timeout_s=2.0) for s in BEFORE)
    options = {"sensors": sensors, "vanishing": ("c",), "recent": 24, "commit_records": 5}
    return config(**{**options, **changes})


class KeptStore(Store):
    """A store whose every record and every promise is kept where no power cut reaches."""

    history: list[bytes]
    promised = 0

    def append(self, record: bytes) -> int:
        index = super().append(record)
        self.history.append(record)
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

    passed_ms = now_ms


@dataclass
class World:
    """Everybody but the node lives through the power cut."""

    rng: Random
    kind: type[Node] = Node
    changes: dict = field(default_factory=dict)
    disk: TornDisk = field(default_factory=TornDisk)
    broker: MemoryBroker = field(default_factory=MemoryBroker)
    clock: Clock = field(default_factory=Clock)
    history: list[bytes] = field(default_factory=list)
    promised: int = 0
    acked: Counter = field(default_factory=Counter)
    told: int = 0
    whole: World | None = None  # the uninterrupted one, to save time
    kept: list[bytes] = field(default_factory=list)

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
        store, found = KeptStore.open(self.disk, TIGHT, lambda: rng.randbytes(8))
        spoilt = [str(note) for note in found.notes if note.kind in SPOILING]
        assert spoilt == [], "a power cut alone spoils no file"
        assert self.promised <= found.end <= len(self.history), "a promise is broken"
        records = list(found.records)
        assert records == self.history[found.index : found.end], "the journal is another one"
        del self.history[found.end :]
        for source, seq in self.acked.items():
            assert seq <= applied(self.history)[source], "an acknowledged reading is lost"
        self.node.restore(found.snapshot, records, durable=store.settled)
        assert self.node.snapshot() == self.folded(), "the state is not the fold of its inputs"
        store.history, store.promised, self.store = self.history, found.end, store
        self.promised = found.end
        topic = str(TOPICS.to(Channel.STATUS))
        self.service = NodeLoop(
            self.node,
            self.link,
            store,
            self.clock,
            Systemd({}),
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
            if sent.topic.source == "roof":
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

    def folded(self) -> bytes:
        """Every bit of the state that these inputs make, in one process and without a disk."""
        if self.whole is not None and self.history == self.whole.history[: len(self.history)]:
            return self.whole.states()[len(self.history)]
        node = Node(node_config(**self.changes), [KEY.verify_key])
        node.restore(None, self.history)
        return node.snapshot()

    def states(self) -> list[bytes]:
        """The same after none of the inputs, the first, the first two …: made once."""
        if not self.kept:
            node = Node(node_config(**self.changes), [KEY.verify_key])
            self.kept.append(node.snapshot())
            for record in self.history:
                node.restore(None, [record])
                self.kept.append(node.snapshot())
        return self.kept

    def after_power_cut(self) -> None:
        self.disk = self.disk.crash(self.rng, spoil=self.rng.random() < 0.3)


def applied(history: list[bytes]) -> Counter:
    """How far each source has come, each number exactly once and in order."""
    reached: Counter = Counter()
    for change in map(journal_records.unpack_record, history):
        if isinstance(change, Accepted):
            assert change.seq == reached[change.source] + 1, "applied twice, or out of order"
            reached[change.source] += 1
    return reached


@cache
def uninterrupted(window_ms: int) -> World:
    """The same story on a disk that never fails."""
    world = World(Random(0), changes={"window_ms": window_ms})
    assert world.live()
    return world


def cut_at(step: int, seed: int, window_ms: int = 0, kind: type[Node] = Node) -> World:
    """The power fails at this operation of the first life; in every third case once more."""
    world = World(Random(1_000 * seed + step), kind, {"window_ms": window_ms})
    world.whole = uninterrupted(window_ms)
    world.disk.cut_at = step
    assert not world.live()
    world.after_power_cut()
    world.disk.cut_at = world.rng.choice((None, None, world.rng.randint(1, 60)))
    if not world.live():
        world.after_power_cut()
        assert world.live()
    return world


def timeless(history: list[bytes]) -> list:
    """The inputs without the times at which the node saw them."""
    return [journal_records.unpack_record(record)._replace(now_ms=0) for record in history]


def hold_to_account(world: World, whole: World) -> bool:
    """All was applied exactly once, as without any cut; whether it made the same bits."""
    assert applied(world.history) == applied(whole.history) == {"porch": 150, "roof": 150}
    assert world.acked == whole.acked == {"porch": 150, "roof": 150}
    assert world.node.state.standing() == whole.node.state.standing()
    if world.changes["window_ms"]:  # another moment may make other instances
        assert world.node.snapshot() == world.folded()
        return False
    assert world.node.state.frequency.counts == whole.node.state.frequency.counts, (
        "a label is lost, or twice"
    )
    assert world.node.state.local_models.learner.readings == LABELLED
    if timeless(world.history) != timeless(whole.history):  # silence was noticed later
        assert world.node.snapshot() == world.folded()
        return False
    mine, theirs = (each.node.state.state() for each in (world, whole))
    assert but_for_times(mine) == but_for_times(theirs)
    return True


def cut_everywhere(
    window_ms: int = 0, stride: int = 1, first: int = 1, **options
) -> tuple[int, int]:
    """How many worlds there were, and how many ended with the very bits of the whole one."""
    whole = uninterrupted(window_ms)
    steps = range(first, whole.disk.step + 1, max(stride, -(-whole.disk.step // CUTS_MAX)))
    cuts = [(step, seed) for step in steps for seed in range(SEEDS)]
    ends = [hold_to_account(cut_at(*cut, window_ms, **options), whole) for cut in cuts]
    return len(ends), sum(ends)


def test_the_story_has_everything_that_could_be_torn():
    """First start, snapshots, recycled segments, silence, late labels, an order, open instances."""
    world, joined = uninterrupted(0), uninterrupted(WINDOW_MS)
    kinds = Counter(type(journal_records.unpack_record(record)) for record in world.history)
    assert kinds == {Configured: 1, Accepted: READINGS, Labelled: 10, Silenced: 1, Ordered: 1}
    assert Closed in {type(journal_records.unpack_record(record)) for record in joined.history}
    assert world.node.state.local_models.learner.readings == LABELLED
    assert world.node.status(0).model_version == 5
    operations = world.disk.counts
    assert {"create", "write", "sync", "replace", "remove", "sync_names"} <= set(operations)
    assert sum(name.startswith("snapshot") for name in world.disk.files) == 2
    assert operations["remove"] >= 1, "a third snapshot was taken"


@pytest.mark.timeout(1_800)  # with EVERY=1
@pytest.mark.parametrize("first", range(1, PARTS + 1))
def test_power_cut_at_every_operation_loses_nothing_acknowledged(first):
    """After each cut a prefix that has all of it; in the end every reading exactly once."""
    worlds, same = cut_everywhere(stride=PARTS, first=first)
    assert worlds >= 150 // PARTS
    assert same > worlds / 2


def test_power_cut_while_an_instance_is_open_loses_nothing():
    """Values of two sources make one instance: what waits for the second is durable, too."""
    worlds, _ = cut_everywhere(WINDOW_MS, stride=8)
    assert worlds >= 20


class Hasty(Node):
    """Acknowledges by number what is not committed yet."""

    def handle(self, topic, payload, now_ms, token, retained=False):
        actions = super().handle(topic, payload, now_ms, token, retained)
        source = Topic.parse(topic).source
        if source and any(isinstance(action, Append) for action in actions):
            reading = decode(payload, Reading)
            ack = encode(Ack(reading.boot, reading.seq))
            actions.append(Publish(str(TOPICS.to(Channel.ACK, source)), ack))
        return actions


class Careless(Node):
    """Tells the broker to forget what is not committed yet."""

    def handle(self, topic, payload, now_ms, token, retained=False):
        actions = super().handle(topic, payload, now_ms, token, retained)
        released = Release(token) in actions
        return actions if released else [*actions, Release(token)]


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [(Hasty, "an acknowledged reading is lost"), (Careless, "a label is lost")],
)
def test_a_node_that_did_not_wait_for_the_commit_would_be_caught(kind, complaint):
    """To the sender by number, to the broker by packet: either too early fails the same test."""
    with pytest.raises(AssertionError, match=complaint):
        cut_everywhere(stride=5, kind=kind)
