"""What one node has appended and committed, what its state must therefore be, and what it serves.

A node that nobody lies for may not be turned round by one that somebody lies for. A pushed model
may be worse than the node's own; it may not be wrong nearly always where its own is right.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence

from edge_opid.config.node import NodeConfig
from edge_opid.native import available as kernels
from edge_opid.node import journal_records
from edge_opid.node.inputs import apply
from edge_opid.node.journal_records import Accepted, Input, Labelled, Ordered, pack_state
from edge_opid.node.node import Node
from edge_opid.node.predicting import predicted_unkept
from edge_opid.node.state import NodeState
from edge_opid.source.number import ReadingNumber, expected_after
from edge_opid.store import Note, Store
from edge_opid.wire import Desired, InstanceId, decode
from firmware_sim.chaos.promises import BrokenPromise, Digest, SaidOnce, SentBy, Ticks
from firmware_sim.chaos.story import CLASSES, Story
from firmware_sim.simulated.clock import dice

SPOILT = ("quarantined", "damaged")
LABELS_MIN = 20  # from which on a node must see through a liar, as far as its labels tell
ASKED = 45  # instances whose truth is known
FEW, MANY = ASKED // 5, ASKED // 2  # a guess is right in a third
NUMBER = InstanceId("trial", 0, 1)


class WatchedStore(Store):
    """The real store; each record and each promise is told to the chronicle, too."""

    chronicle: Chronicle | None = None

    def append(self, record: bytes) -> int:
        """As `Store` does."""
        index = super().append(record)
        if self.chronicle is not None:
            self.chronicle.appended(index, record)
        return index

    def commit(self) -> int:
        """As `Store` does."""
        end = super().commit()
        if self.chronicle is not None:
            self.chronicle.committed(end)
            self.chronicle.covered(self._snapshots.floor)
        return end


class Chronicle:
    """The history of one node across all its lives, kept where no power cut reaches.

    `history` is every record from index `since` on that is, or may be, on the node's disk; those
    before index `promised` were committed. Two snapshots cover the records before `since`: no life
    of the node may ask for them again. The `shadow` is a state that has lived through the committed
    inputs without ever being saved or restored.
    """

    def __init__(
        self,
        config: NodeConfig,
        sources: Mapping[str, SentBy],
        signed: Mapping[int, bytes],
        digest: Digest,
    ) -> None:
        self._config, self._sources, self._signed = config, sources, signed
        self._digest = digest
        self.foreign: dict[str, SaidOnce] = {}  # by source: devices that number nothing
        self.history: list[bytes] = []
        self.since = self.promised = 0
        self.floor = 0
        self._labelled = Ticks()
        self._shadow = NodeState(config)
        self._uncommitted: list[Input] = []  # the records from index `promised` on, unpacked

    @property
    def end(self) -> int:
        """The index after the last record."""
        return self.since + len(self.history)

    # --- while it lives ---------------------------------------------------------------------------

    def appended(self, index: int, record: bytes) -> None:
        """The node has changed its state, and will remember why."""
        if index != self.end:
            self._complain("history", f"record {index} was appended after {self.end}")
        change = journal_records.unpack_record(record)
        if isinstance(change, Ordered):
            self._check_signed(change.document)
        self.history.append(record)
        self._uncommitted.append(change)

    def committed(self, end: int) -> None:
        """The node says that so much is durable."""
        count = max(0, end - self.promised)
        first = self.promised - self.since
        for record in self.history[first : first + count]:
            self._digest.add(self._config.node, record)
        for change in self._uncommitted[:count]:
            match change:
                case Accepted():
                    self._check_reading(change)
                case Ordered(document=document):
                    self._check_order(document)
                case Labelled(instance=instance) if instance is not None:
                    self._check_label(instance)
            apply(self._shadow, change)
        del self._uncommitted[:count]
        self.promised += count

    def covered(self, floor: int) -> None:
        """Two snapshots say all that the records before this index said."""
        if floor > self.since:
            del self.history[: floor - self.since]
            self.since = floor

    def _check_reading(self, accepted: Accepted) -> None:
        number, source = ReadingNumber(accepted.boot, accepted.seq), accepted.source
        if source in self.foreign:
            (value,) = accepted.values.values()
            self.foreign[source].committed(value, accepted.label)
            return
        sent = self._sources[source]
        last = sent.arrived.last
        if number <= last:
            self._complain("reading twice", f"{source} {tuple(number)} after {tuple(last)}")
        if (former := sent.twice(number)) is not None:
            what = f"{source} {tuple(number)} was taken as {tuple(former)}"
            self._complain("reading twice", what)
        if number != expected_after(last, number.boot):
            self._complain("reading skipped", f"{source} {tuple(number)} after {tuple(last)}")
        if sent.said.get(number) != (accepted.values, accepted.label):
            self._complain("reading altered", f"{source} {tuple(number)} is not what was sent")
        sent.committed(number)

    def _check_order(self, document: bytes) -> None:
        version = decode(document, Desired).version
        if version == self.floor:
            self._complain("change applied twice", f"order {version}")
        if version < self.floor:
            self._complain("floor dropped", f"order {version} was obeyed after {self.floor}")
        self.floor = version

    def _check_signed(self, document: bytes) -> None:
        if document not in self._signed.values():
            self._complain("unsigned weights", "an order was obeyed that the gateway never gave")

    def _check_label(self, instance: InstanceId) -> None:
        if not self._labelled.add(instance):
            self._complain("label twice", f"{instance}")

    # --- when it comes back -----------------------------------------------------------------------

    def noted(self, notes: Sequence[Note]) -> None:
        """What the store says about its files: a power cut alone spoils none of them."""
        for note in notes:
            if note.kind in SPOILT:
                self._complain("file spoilt", f"{note.kind}: {note.sentence}")

    def recovered(self, index: int, end: int, records: Sequence[bytes]) -> None:
        """A new life has read back these records, behind a snapshot that covers those before."""
        if end < self.promised:
            self._complain("committed record lost", f"{end} of {self.promised} were found")
        if index < self.since:
            what = f"it began at {index}, where two snapshots covered {self.since}"
            self._complain("committed record lost", what)
        mine = self.history[index - self.since : end - self.since]
        if end > self.end or list(records) != mine:
            what = f"the records from {index} to {end} are not those that were written"
            self._complain("history altered", what)
        del self.history[end - self.since :]
        del self._uncommitted[end - self.promised :]

    def restored(self, node: Node, *, durable: bool) -> None:
        """It has become what it read: hold it to all that was promised."""
        if node.state.version < self.floor:
            self._complain("floor dropped", f"from {self.floor} to {node.state.version}")
        for source, sent in self._sources.items():
            boot, following = node.state.expected.get(source, (0, 1))
            if sent.acknowledged > ReadingNumber(boot, following - 1):
                reached = f"{source} was told {tuple(sent.acknowledged)}"
                where = f"the node knows {(boot, following - 1)}"
                self._complain("acknowledged reading lost", f"{reached}, and {where}")
        self.compare(node)
        if durable:
            self.committed(self.end)

    def compare(self, node: Node) -> None:
        """Every bit of the state must be the fold of the history."""
        shadow = self._shadow
        if self._uncommitted:  # a power cut may take them back, and the shadow cannot forget
            shadow = copy.deepcopy(shadow, _shared(self._config))
            for change in self._uncommitted:
                apply(shadow, change)
        if pack_state(shadow.state()) != node.snapshot():
            what = f"after {self.end} records the state is not what they make"
            self._complain("state is no prefix", what)

    def _complain(self, promise: str, sentence: str) -> None:
        raise BrokenPromise(promise, f"{self._config.node}: {sentence}")


def _shared(config: NodeConfig) -> dict[int, object]:
    """What a copy of a state has in common with it, as `copy.deepcopy` wants to know it."""
    return {id(each): each for each in (config, *kernels.values())}


def check_not_turned(story: Story, name: str, state: NodeState) -> None:
    """Raise `BrokenPromise` if it serves what is turned round, and could have known.

    It could not if it has hardly seen a label so far, or if what it has seen does not tell: labels
    that came with values held from before are noise, and the weights look as good as its own.
    """
    seen = list(state.trial.rows())
    if state.warmup is not None or not state.pushed_models or len(seen) < LABELS_MIN:
        return
    served, own = _right(state, seen)
    if own < 2 * served:
        return
    chance = dice(story.seed, "trial", name)
    sensors = {s: state.local_models.sensors[s].role for s in state.local_models.alive}
    asked = []
    for _ in range(ASKED):
        truth = chance.randrange(len(CLASSES))
        asked.append(({s: story.seen(role, truth, chance) for s, role in sensors.items()}, truth))
    served, own = _right(state, asked)
    if served <= FEW and own >= MANY:
        what = f"{name} serves a model that is right in {served} of {ASKED}, its own in {own}"
        raise BrokenPromise("turned by a liar", what)


def _right(
    state: NodeState, instances: Iterable[tuple[Mapping[str, float], int]]
) -> tuple[int, int]:
    """In how many of these what is served is right, and what the node has learned itself."""
    served = own = 0
    for values, truth in instances:
        served += predicted_unkept(state, values, NUMBER, 0, 0).winner == truth
        scores = state.local_models.own(state.local_models.encode(values))
        own += int(scores.argmax()) == truth
    return served, own
