"""Records on their way to the disk, in order, whatever the disk does.

A record the store refuses waits here; while one waits, the service takes nothing more from the
link, so the broker keeps it. A snapshot the disk refused is kept in memory: a journal that is full
can then still be emptied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from edge_opid.store import Store, StoreError, StoreLimits
from edge_opid.wire import LIMITS

# A signed document is the largest record: the store must take whatever the wire lets through.
STORE_LIMITS = StoreLimits(record_bytes_max=LIMITS.payload_bytes_max + 1_024)


class JournalWriter:
    """Records on their way to the disk, and the snapshots that make room for them."""

    def __init__(self, store: Store, saved_at: int) -> None:
        self.store = store
        self._saved_at = saved_at  # the index that the newest snapshot covers
        self._waiting: deque[bytes] = deque()
        self._unsaved: tuple[int, bytes] | None = None  # index and state the disk refused

    @property
    def waiting(self) -> int:
        """How many records the store would not even keep in memory."""
        return len(self._waiting)

    @property
    def settled(self) -> bool:
        """Whether everything appended is durable."""
        return not self._waiting and not self.store.pending and self.store.settled

    def append(self, record: bytes) -> None:
        """Keep a record: in the store, if need be after a commit, or else here."""
        if self._waiting or not (self._offer(record) or self._offer_after_commit(record)):
            self._waiting.append(record)

    def commit(self) -> None:
        """Make everything durable, or raise `StoreError`; then nothing is lost, and try again."""
        self._write()
        while self._waiting:
            while self._waiting and self._offer(self._waiting[0]):
                self._waiting.popleft()
            self._write()

    def snapshot_if_due(self, state: Callable[[], bytes], *, ending: bool = False) -> None:
        """Save the state, if it is worth it and exactly the committed records made it."""
        worth_it = self._saved_at < self.store.committed if ending else self.store.snapshot_due
        if not worth_it or not self.settled:
            return
        self._unsaved = self.store.committed, state()
        self._save(self._unsaved[1])

    def _write(self) -> None:
        try:
            self.store.commit()
        except StoreError as error:
            kept = self._unsaved
            if error.reason != "journal-full" or kept is None or kept[0] != self.store.committed:
                raise
            self._save(kept[1])
            self.store.snapshot(kept[1])  # the journal reaches back to the older of two
            self.store.commit()

    def _save(self, state: bytes) -> None:
        self.store.snapshot(state)
        self._saved_at, self._unsaved = self.store.committed, None

    def _offer(self, record: bytes) -> bool:
        try:
            self.store.append(record)
        except StoreError as error:
            if error.reason != "pending":
                raise  # no disk would ever take it
            return False
        return True

    def _offer_after_commit(self, record: bytes) -> bool:
        try:
            self._write()
        except StoreError:
            return False
        return self._offer(record)
