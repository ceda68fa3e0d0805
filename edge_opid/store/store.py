"""The store: what a node must not forget, as opaque bytes.

1. `append` keeps a record in memory and says its index; `commit` makes all of them durable with
   one write and one sync. **Committed** means that `commit` returned.
2. After a power cut, `open` gives back the newest good snapshot and the records after it: all that
   was committed, perhaps some that were appended, never another, never out of order.
3. Apply a record to the state after its commit. A snapshot is the state after exactly the
   committed records.
4. If the disk is full, read-only or broken, `commit` and `snapshot` raise `StoreError`, the records
   stay pending, and the next call tries again; `open` works on a disk that can only be read. A
   folder that is gone is noticed by the next commit; nothing counts as settled until it is back.
5. Everything is bounded: see `StoreLimits`. A record that is too large, or one too many, is
   refused, and nothing has changed.
6. What was spoilt is set aside (`*.quarantined`) and told in `Recovered.notes`.

When to commit and when to snapshot is the node's decision; there is no clock here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from edge_opid.store.disk import Disk
from edge_opid.store.errors import Note, StoreError, disk_errors
from edge_opid.store.files import Cleanup
from edge_opid.store.frames import RECORD_HEADER_BYTES
from edge_opid.store.journal import Journal
from edge_opid.store.limits import StoreLimits
from edge_opid.store.snapshots import Snapshots


def random_nonce() -> bytes:
    """Eight bytes that no sender can guess: see rule 3 of `frames`."""
    return os.urandom(8)


@dataclass(slots=True, kw_only=True)
class Recovered:
    """What the disk remembered.

    `snapshot` is the newest good state (None: there is none), and covers the records before
    `index`; `records` gives those from `index` to `end`, once, read from the disk as they are asked
    for (replay them before the next snapshot); `notes` says what was torn or quarantined.
    """

    snapshot: bytes | None
    index: int
    end: int
    records: Iterator[bytes]
    notes: tuple[Note, ...]


class Store:
    """The durable state of one node.

    Costs: a commit of a small group is one page (4 KiB) on the card; a snapshot is its own size
    and some 64 KiB of the file system's; memory is what is pending, at most `pending_bytes_max`.

    >>> import tempfile
    >>> from edge_opid.store import RealDisk, Store
    >>> folder = tempfile.TemporaryDirectory()
    >>> with RealDisk(folder.name) as disk:
    ...     store, recovered = Store.open(disk)
    ...     store.append(b"21.3"), store.append(b"21.4"), store.pending
    ...     store.commit()
    ...     store.snapshot(b"mean 21.35 of 2")
    ...     store.append(b"21.9"), store.commit()
    (0, 1, 2)
    2
    (2, 3)
    >>> with RealDisk(folder.name) as disk:  # after a power cut
    ...     store, recovered = Store.open(disk)
    ...     recovered.snapshot, list(recovered.records), recovered.notes
    (b'mean 21.35 of 2', [b'21.9'], ())
    >>> folder.cleanup()
    """

    def __init__(self, disk: Disk, limits: StoreLimits, nonce: Callable[[], bytes]) -> None:
        self.limits = limits
        self._chores = Cleanup()
        self._chores.add(disk.sync_names)  # a name we are about to believe may not be durable yet
        self._snapshots = Snapshots(disk, limits, self._chores)
        self._journal = Journal(
            disk, limits, self._chores, self._snapshots.index, self._snapshots.floor, nonce
        )
        self._chores.add(disk.sync_names)
        self._disk = disk
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._gone = False

    @classmethod
    def open(
        cls,
        disk: Disk,
        limits: StoreLimits | None = None,
        nonce: Callable[[], bytes] = random_nonce,
    ) -> tuple[Store, Recovered]:
        """Read back what the disk remembers, and go on from there."""
        with disk_errors("opening the store", "check the folder and its owner"):
            store = cls(disk, limits or StoreLimits(), nonce)
        notes = [*store._snapshots.notes, *store._journal.notes]
        try:
            store._chores.finish()
        except OSError as error:
            sentence = f"the disk refused to be tidied up: {error}; the next commit tries again"
            notes.append(Note("postponed", "", sentence))
        return store, store._recovered(tuple(notes))

    def _recovered(self, notes: tuple[Note, ...]) -> Recovered:
        index, end = self._snapshots.index, self._journal.end
        records = self._journal.records(index, end)
        return Recovered(
            snapshot=self._snapshots.take_state(),
            index=index,
            end=end,
            records=records,
            notes=notes,
        )

    @property
    def committed(self) -> int:
        """The index after the last durable record."""
        return self._journal.end

    @property
    def pending(self) -> int:
        """How many records wait for a commit."""
        return len(self._pending)

    @property
    def pending_bytes(self) -> int:
        """How many bytes they take; at most `pending_bytes_max`."""
        return self._pending_bytes

    @property
    def settled(self) -> bool:
        """Whether everything `open` gave back is known to be durable, there, and tidied up.

        Only then may a node acknowledge what it recovered; if it is not, call `commit`.
        """
        return not self._chores and not self._gone

    @property
    def snapshot_due(self) -> bool:
        """Whether the journal since the newest snapshot takes more than a third of the segments.

        A node that takes a snapshot whenever it is due never sees the journal full.
        """
        begun = self._journal.begun_since(self._snapshots.index)
        return begun > self.limits.segments_max // 3

    def append(self, record: bytes) -> int:
        """Keep a record for the next commit; its index."""
        size = len(record) + RECORD_HEADER_BYTES
        if len(record) > self.limits.record_bytes_max:
            raise StoreError(
                "record",
                f"record of {len(record)} bytes: at most {self.limits.record_bytes_max} are "
                "taken; split it, or raise record_bytes_max",
            )
        if self._pending_bytes + size > self.limits.pending_bytes_max:
            raise StoreError(
                "pending",
                f"record of {len(record)} bytes: {self._pending_bytes} of "
                f"{self.limits.pending_bytes_max} pending bytes are taken; commit first",
            )
        self._pending.append(bytes(record))
        self._pending_bytes += size
        return self.committed + len(self._pending) - 1

    def commit(self) -> int:
        """Make everything pending durable; the index after the last durable record."""
        with disk_errors(
            f"commit of {self.pending} records from {self.committed} on",
            "they stay pending; free some space or check the disk, then commit again",
        ):
            self._write()
        self._pending, self._pending_bytes = [], 0
        return self.committed

    def _write(self) -> None:
        try:
            self._chores.finish()
            if self._pending:
                self._journal.write(self._pending)
            self._gone = False
        except StoreError as error:
            self._gone = self._gone or error.reason == "state-gone"
            raise

    def snapshot(self, state: bytes) -> None:
        """Keep the state after exactly the committed records; the journal before may then go."""
        if len(state) > self.limits.snapshot_bytes_max:
            raise StoreError(
                "snapshot",
                f"snapshot of {len(state)} bytes: at most {self.limits.snapshot_bytes_max} are "
                "taken; raise snapshot_bytes_max",
            )
        with disk_errors(
            f"snapshot at record {self.committed}",
            "the older ones still count; free some space or check the disk, then try again",
        ):
            self._chores.finish()
            self._snapshots.write(state, self.committed)
        self._give_up_journal()

    def _give_up_journal(self) -> None:
        self._journal.release(self._snapshots.floor)
        self._chores.add(self._disk.sync_names)
        with suppress(OSError):  # the snapshot is durable; the next commit tidies up, or says why
            self._chores.finish()
