"""Readings on disk until the node has them: append-only segments, bounded.

Rules, in the order of the code:

1. A segment is written once, from its start, by one life of the script; it begins with a mark.
2. A reading is in the spool when `append` returns, and safe from a power cut when `sync` has.
3. A record whose checksum fails ends its segment; what follows in that segment is lost, and the
   numbers missing show how much.
4. A segment is deleted when all of it is acknowledged, after the mark that says so is synced.
5. When the bound is reached, a reading is refused, or the oldest segment makes room.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from edge_opid.errors import OpidError
from edge_opid.source import record
from edge_opid.source.number import NOTHING, Number, sync_folder

SEGMENTS_PER_SPOOL = 16  # what one deletion frees, and what one rotten byte may cost


class SpoolError(OpidError, OSError):
    """The disk is at fault: full, read-only, or in use by another script."""


class SpoolFullError(OpidError, RuntimeError):
    """The node has been away for longer than the spool can bridge."""


@dataclass(slots=True)
class Segment:
    """One file: its size so far and the highest number in it."""

    path: Path
    handle: int
    size: int = 0
    last: Number = NOTHING


class Spool:
    """A queue on disk. `append` at one end, `read_next` from the other, `acknowledge` to forget.

    `mark` is the highest number acknowledged, `last` the highest ever seen. A folder that is
    opened again continues where the acknowledgements stood.
    """

    def __init__(self, folder: Path, bytes_max: int, *, drop_oldest: bool = False) -> None:
        self.mark = self.last = NOTHING
        self._marked = NOTHING  # the mark on disk
        self.unsynced = 0  # readings that a power cut would take
        self._folder = folder
        self._bytes_max = bytes_max
        self._drop_oldest = drop_oldest
        self._segments: deque[Segment] = deque()
        self._active: Segment | None = None
        self._reading_at: tuple[Segment | None, int] = (None, 0)
        for path in sorted(folder.glob("*.spool")):
            self._scan(path)
        self._reading_at = (self._segments[0] if self._segments else None, 0)

    @property
    def bytes_used(self) -> int:
        """What the segments take on disk."""
        return sum(segment.size for segment in self._segments)

    def append(self, number: Number, payload: bytes) -> None:
        """Write one reading at the end; raises `SpoolFullError` or `SpoolError`."""
        data = record.pack(record.READING, number, payload)
        self._make_room(len(data))
        self._write(data)
        if self._active is not None:
            self._active.last = number
        self.last = max(self.last, number)
        self.unsynced += 1

    def sync(self) -> None:
        """Make everything appended so far, and the mark, safe from a power cut."""
        if self._active is not None and (self.unsynced or self._marked != self.mark):
            self._commit()

    def read_next(self) -> tuple[Number, bytes] | None:
        """The next reading that is not acknowledged, or None when all were read."""
        while (segment := self._reading_at[0]) is not None:
            found = record.read(segment.handle, self._reading_at[1])
            if found is None:
                following = self._after(segment)
                if following is None:
                    return None
                self._reading_at = (following, 0)
                continue
            self._reading_at = (segment, found.end)
            if found.kind == record.READING and found.number > self.mark:
                return found.number, found.payload
        return None

    def acknowledge(self, number: Number) -> None:
        """Everything up to this number may be forgotten."""
        if number <= self.mark:
            return
        self.mark = number
        done = [s for s in self._segments if s.last <= number and s is not self._active]
        if done:
            with suppress(SpoolError):  # on a full disk, deleting is the only way out
                self._commit()
            for segment in done:
                self._delete(segment)

    def close(self) -> None:
        """Sync, and let go of the files."""
        try:
            self.sync()
        finally:
            for segment in self._segments:
                os.close(segment.handle)
            self._segments.clear()
            self._active = None

    def _scan(self, path: Path) -> None:
        segment = Segment(path, os.open(path, os.O_RDONLY), path.stat().st_size)
        for found in _records(segment.handle):
            if found.kind == record.MARK:
                self.mark = max(self.mark, found.number)
            else:
                segment.last = max(segment.last, found.number)
        self.last = max(self.last, self.mark, segment.last)
        self._segments.append(segment)

    def _make_room(self, size: int) -> None:
        full_segment = self._bytes_max // SEGMENTS_PER_SPOOL
        if self._active is not None and self._active.size + size > full_segment:
            self._roll()
        while self.bytes_used + size > self._bytes_max:
            self._roll()
            oldest = self._segments[0] if self._segments else None
            if oldest is None or not (self._drop_oldest or oldest.last <= self.mark):
                raise SpoolFullError(
                    f"spool {self._folder} holds {self.bytes_used} of {self._bytes_max} bytes "
                    f"and the node has acknowledged nothing after {tuple(self.mark)}: "
                    "check that the node runs, or allow a larger spool"
                )
            self._delete(oldest)

    def _commit(self) -> None:
        self._write(record.pack(record.MARK, self.mark))
        try:
            if self._active is not None:
                os.fdatasync(self._active.handle)
        except OSError as error:
            self._active = None  # what became of its last pages, nobody knows
            raise self._error(error) from error
        self._marked = self.mark
        self.unsynced = 0

    def _roll(self) -> None:
        """End the active segment; the next append begins another."""
        if self._active is not None:
            self.sync()
            self._active = None

    def _write(self, data: bytes) -> None:
        try:
            active = self._active or self._begin()
            written = os.write(active.handle, data)
            if written < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            active.size += written
        except OSError as error:
            self._abandon()
            raise self._error(error) from error

    def _begin(self) -> Segment:
        index = int(self._segments[-1].path.stem) + 1 if self._segments else 1
        path = self._folder / f"{index:08d}.spool"
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        segment = Segment(path, handle)
        self._segments.append(segment)
        self._active = segment
        if self._reading_at[0] is None:
            self._reading_at = (segment, 0)
        sync_folder(self._folder)
        self._write(record.pack(record.MARK, self.mark))
        return segment

    def _error(self, error: OSError) -> SpoolError:
        return SpoolError(
            error.errno,
            f"spool {self._folder} cannot be written: {error.strerror}; "
            "make room on the disk or mount it writable",
        )

    def _abandon(self) -> None:
        """After a failed write: cut what is half written, never write to that segment again."""
        active, self._active = self._active, None
        if active is not None:
            try:
                os.ftruncate(active.handle, active.size)
            except OSError:
                active.size = os.fstat(active.handle).st_size  # its checksum tells it is torn

    def _after(self, segment: Segment) -> Segment | None:
        place = self._segments.index(segment) + 1
        return self._segments[place] if place < len(self._segments) else None

    def _delete(self, segment: Segment) -> None:
        if self._reading_at[0] is segment:
            self._reading_at = (self._after(segment), 0)
        self._segments.remove(segment)
        os.close(segment.handle)
        segment.path.unlink()


def _records(handle: int) -> Iterator[record.Record]:
    offset = 0
    while (found := record.read(handle, offset)) is not None:
        yield found
        offset = found.end
