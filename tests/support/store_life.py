"""A life lived on a disk that tears: a pretended node that remembers what it was promised."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random

from edge_opid.store import Note, Store, StoreError, StoreLimits
from firmware_sim.simulated.disk import TornDisk

SMALL = StoreLimits(
    page_bytes=512,
    segment_bytes=8192,
    segments_max=6,
    record_bytes_max=1024,
    pending_bytes_max=2048,
    snapshot_bytes_max=65_536,
)


def state_after(history: list[bytes]) -> bytes:
    """The state of a pretended node: it depends on every record, and on their order."""
    digest = blake2b(digest_size=32)
    for record in history:
        digest.update(len(record).to_bytes(4, "little") + record)
    return b"state after %d: " % len(history) + digest.digest() * 20


@dataclass
class Life:
    """A node that appends, commits and takes snapshots, and remembers what it was promised.

    `history` is every record appended, in order; the first `committed` of them are a promise. Each
    power cut makes the next records differ from those that were lost, so that none can come back
    unnoticed.
    """

    disk: TornDisk
    rng: Random
    limits: StoreLimits = SMALL
    history: list[bytes] = field(default_factory=list)
    committed: int = 0
    generation: int = 0
    refusals: int = 0
    goes_on_meanwhile: bool = False  # readings keep coming while the disk refuses

    def begin(self) -> tuple[Note, ...]:
        """Open the store, and hold it to its promise."""
        self.store, found = Store.open(self.disk, self.limits, lambda: self.rng.randbytes(8))
        records = list(found.records)
        assert self.committed <= found.end <= len(self.history), "a promise is broken"
        if found.snapshot is None:
            assert found.index == 0
        else:
            assert found.snapshot == state_after(self.history[: found.index])
        assert records == self.history[found.index : found.end]
        assert self.store.committed == found.end
        assert self.store.pending == 0
        self.history, self.committed = self.history[: found.end], found.end
        self.generation += 1
        return found.notes

    def record(self) -> None:
        """Append one record of a random size."""
        text = b"%d of life %d " % (len(self.history), self.generation)
        record = text + self.rng.randbytes(self.rng.randint(0, 150))
        self.history.append(record)
        assert self.store.append(record) == len(self.history) - 1

    def commit(self) -> None:
        """Commit until the disk takes it."""
        while self.store.pending:
            try:
                self.committed = self.store.commit()
            except StoreError:
                self.refused()
        assert self.store.settled
        assert self.committed == len(self.history)

    def snapshot(self) -> None:
        """Take a snapshot as soon as the disk takes it."""
        while True:
            try:
                self.store.snapshot(state_after(self.history[: self.store.committed]))
            except StoreError:
                self.refused()
            else:
                return

    def refused(self) -> None:
        """The disk said no; more may have to wait by the next try."""
        self.refusals += 1
        assert self.refusals < 10_000, "the disk has recovered, and the store has not"
        if self.goes_on_meanwhile and self.store.pending_bytes + 200 < SMALL.pending_bytes_max:
            self.record()

    def live(self, records: int, snapshots_at: tuple[int, ...] = ()) -> None:
        """Append so many records in groups of one to twelve, with snapshots in between."""
        end = len(self.history) + records
        while len(self.history) < end:
            for _ in range(min(self.rng.randint(1, 12), end - len(self.history))):
                self.record()
            self.commit()
            crossed = [at for at in snapshots_at if at <= len(self.history)]
            if crossed or self.store.snapshot_due:
                self.snapshot()
                snapshots_at = snapshots_at[len(crossed) :]

    def after_power_cut(self, rng: Random, *, spoil: bool = False) -> Life:
        """The same node with the disk as it may look after a power cut now."""
        disk = self.disk.crash(rng, spoil=spoil)
        disk.lies = self.disk.lies
        history = list(self.history)
        return Life(
            disk, Random(rng.random()), self.limits, history, self.committed, self.generation
        )
