"""Readings on disk until the node has them: append-only segments, bounded.

Rules, in the order of the code:

1. A segment is written once, from its start, by one life of the script; it begins with a mark.
2. A reading is in the spool when `append` returns, and safe from a power cut when `sync` has.
3. A record whose checksum fails ends its segment; what follows in that segment is lost, and the
   numbers missing show how much.
4. A segment is deleted when all of it is acknowledged, after the mark that says so is synced.
5. When the bound is reached, a reading is refused, or the oldest segment makes room.
6. Readings get other numbers all at once or not at all: they are copied to new segments, synced,
   and the last of these gets its name, with a mark above every old number: that is the moment. A
   power cut before it leaves copies without a mark, which are deleted; one after it leaves copies
   and the mark, which are taken up, and old segments, of which the mark says that they are done.
7. What was in a file when its sync failed may be gone, whatever a later sync says. So it is written
   once more at the start of the next segment, and `unsynced` counts it until that is synced.
8. A script that cron starts leaves a segment for each reading while nobody acknowledges. Many short
   ones at the end become one when the spool is opened: a process may have 1,024 files open, and one
   that needs more could never start again. The copy is synced before they are deleted.
9. An error of the disk leaves everything as it was or as it should be: whoever calls may go on.

A record is `crc32 | length | kind | boot | seq | payload`, little-endian: a reading, or a mark that
says how far the node has acknowledged. The checksum covers all that follows it, so that a torn or
rotten record is never taken for a whole one.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from edge_opid.errors import RefusedError
from edge_opid.source.number import NOTHING, ReadingNumber
from edge_opid.store.whole_file import sync_folder

HEADER = struct.Struct("<IIBQQ")
PAYLOAD_BYTES_MAX = 2**20  # far beyond any reading; a larger length is a rotten one
READING, MARK = 1, 2
SEGMENTS_PER_SPOOL = 16  # what one deletion frees, and what one rotten byte may cost
SHORT_ONES = 32  # segments that together are no longer than one: these are joined
Renumber = Callable[
    [ReadingNumber, ReadingNumber, bytes], bytes
]  # old number, new number, payload: the new one


class SpoolError(RefusedError, OSError):
    """The disk is at fault: full, read-only, or in use by another script."""

    def __init__(self, errno: int | None, sentence: str) -> None:
        super().__init__("disk", sentence)
        self.errno = errno


class SourceError(RefusedError, RuntimeError):
    """The source cannot send any more: it is closed, or its thread has ended."""

    def __init__(self, sentence: str) -> None:
        super().__init__("closed", sentence)


class SpoolFullError(RefusedError, RuntimeError):
    """The node has been away for longer than the spool can bridge."""

    def __init__(self, sentence: str) -> None:
        super().__init__("full", sentence)


class SpoolRecord(NamedTuple):
    """What was written, and where the next record begins."""

    kind: int
    number: ReadingNumber
    payload: bytes
    end: int


@dataclass(slots=True, eq=False, kw_only=True)
class SpoolSegment:
    """One file: its size so far and the highest number in it."""

    path: Path
    handle: int
    size: int = 0
    last: ReadingNumber = NOTHING
    synced: int = 0  # bytes of it that no power cut can take
    own: bool = False  # it has readings that no other segment has

    def write(self, data: bytes) -> None:
        """Append all of it, or raise."""
        written = os.write(self.handle, data)
        if written < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.size += written


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
        self._segments: deque[SpoolSegment] = deque()
        self._active: SpoolSegment | None = None
        self._reading_at: tuple[SpoolSegment | None, int] = (None, 0)
        self._read_to = NOTHING  # of those that `read_next` has returned; copies come after it
        self._doubtful: list[SpoolSegment] = []  # ended before all of it was synced
        self._unwanted: list[Path] = []  # of a renumbering that failed; nothing is written before
        for path in sorted(folder.glob("*.spool")):
            self._scan(path)
        self._take_up_copies()
        self._join_short_ones()
        self._marked = self.mark
        self._reading_at = (self._segments[0] if self._segments else None, 0)

    @property
    def bytes_used(self) -> int:
        """What the segments take on disk."""
        return sum(segment.size for segment in self._segments)

    def append(self, number: ReadingNumber, payload: bytes) -> None:
        """Write one reading at the end; raises `SpoolFullError` or `SpoolError`."""
        data = pack_record(READING, number, payload)
        self._make_room(len(data))
        self._write(data)
        if self._active is not None:
            self._active.last, self._active.own = number, True
        self.last = max(self.last, number)
        self.unsynced += 1

    def sync(self) -> None:
        """Make everything appended so far, and the mark, safe from a power cut."""
        if self.unsynced or self._marked != self.mark:
            self._commit()

    def settle(self) -> None:
        """Make the mark safe from a power cut, whatever else is."""
        if self._marked != self.mark:
            self._commit()

    def read_next(self) -> tuple[ReadingNumber, bytes] | None:
        """The next reading that is not acknowledged, or None when all were read."""
        while (segment := self._reading_at[0]) is not None:
            try:
                found = read_record(segment.handle, self._reading_at[1])
            except OSError as error:
                raise self._error(error) from error
            if found is None:
                following = self._after(segment)
                if following is None:
                    return None
                self._reading_at = (following, 0)
                continue
            self._reading_at = (segment, found.end)
            if found.kind == READING and found.number > max(self.mark, self._read_to):
                self._read_to = found.number
                return found.number, found.payload
        return None

    def count_waiting(self) -> tuple[int, int]:
        """How many readings are not acknowledged, and of how many boots they are."""
        try:
            boots = [number.boot for number, _ in self._waiting()]
        except OSError as error:
            raise self._error(error) from error
        return len(boots), len(set(boots))

    def acknowledge(self, number: ReadingNumber) -> None:
        """Everything up to this number may be forgotten.

        A `SpoolError` says that a file would not go: it goes with the next acknowledgement.
        """
        if number <= self.mark:
            return
        self.mark = number
        if self._done():
            self._settle_if_room()
            self._delete_done()

    def renumber(self, boot: int, renumbered: Renumber) -> int:
        """Give all that is not acknowledged the numbers 1, 2, 3 … of a higher boot; how many.

        Needs as much room again on the disk until it is done. A `SpoolError`: nothing has changed.
        """
        self._roll()
        copies: list[SpoolSegment] = []
        count = 0
        try:
            for count, (number, payload) in enumerate(self._waiting(), 1):
                new = ReadingNumber(boot, count)
                data = pack_record(READING, new, renumbered(number, new, payload))
                self._append_copy(copies, data, new)
            if not copies:
                self._begin_copy(copies, boot)
            self._keep(copies)
        except OSError as error:
            self._discard(copies)
            raise self._error(error) from error
        except BaseException:
            self._discard(copies)
            raise
        self._segments.extend(copies)
        self._reading_at = (copies[0], 0)
        self.mark = self._marked = self._read_to = ReadingNumber(boot, 0)
        self.last, self.unsynced = ReadingNumber(boot, count), 0
        for copy in copies[:-1]:
            with suppress(OSError):  # else the next life does it
                copy.path = copy.path.replace(copy.path.with_suffix(".spool"))
        with suppress(SpoolError):  # else they go with the next acknowledgement
            self._delete_done()
        return count

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
        segment = SpoolSegment(
            path=path, handle=os.open(path, os.O_RDONLY), size=path.stat().st_size
        )
        self._segments.append(segment)
        for found in _records(segment.handle):
            if found.kind == MARK:
                self.mark = max(self.mark, found.number)
            else:
                segment.last = max(segment.last, found.number)
        self.last = max(self.last, self.mark, segment.last)

    def _take_up_copies(self) -> None:
        """What a renumbering left behind: to be kept if it came to its mark, else of no use."""
        for path in sorted(self._folder.glob("*.new")):
            handle = os.open(path, os.O_RDONLY)
            first = read_record(handle, 0)
            os.close(handle)
            name = path.with_suffix(".spool")
            if first is not None and first.number <= self.mark and not name.exists():
                self._scan(path.replace(name))
            else:
                path.unlink()
        self._segments = deque(sorted(self._segments, key=lambda each: each.path.stem))

    def _join_short_ones(self) -> None:
        """See rule 8. Cut off half way it leaves readings twice, which is the same as once."""
        short = self._short_ones()
        if len(short) < SHORT_ONES:
            return
        with suppress(OSError):  # else the next life does it
            copy = self._create(self._segments[-1], ".spool")
            self._segments.append(copy)
            try:
                self._fill(copy, ((each, 0) for each in short))
                os.fsync(copy.handle)
                sync_folder(self._folder)
            except OSError:
                self._delete(copy)
                raise
            for each in short:
                self._delete(each)

    def _short_ones(self) -> list[SpoolSegment]:
        """The last segments, as many as together are no longer than one may be."""
        found, size = [], 0
        for segment in reversed(self._segments):
            size += segment.size
            if size > self._bytes_max // SEGMENTS_PER_SPOOL:
                break
            found.append(segment)
        return found[::-1]

    def _fill(self, segment: SpoolSegment, places: Iterable[tuple[SpoolSegment, int]]) -> None:
        """Begin a segment: with the mark, and what is not acknowledged of these places."""
        segment.write(pack_record(MARK, self.mark))
        for number, payload in self._after_mark(places):
            segment.write(pack_record(READING, number, payload))
            segment.last = number

    def _waiting(self) -> Iterator[tuple[ReadingNumber, bytes]]:
        """Everything that is not acknowledged."""
        return self._after_mark((segment, 0) for segment in self._segments)

    def _after_mark(
        self, places: Iterable[tuple[SpoolSegment, int]]
    ) -> Iterator[tuple[ReadingNumber, bytes]]:
        """What is not acknowledged in these segments from these offsets on, each reading once."""
        last = self.mark
        for segment, offset in places:
            for found in _records(segment.handle, offset):
                if found.kind == READING and found.number > last:
                    last = found.number
                    yield found.number, found.payload

    def _append_copy(self, copies: list[SpoolSegment], data: bytes, number: ReadingNumber) -> None:
        full_segment = self._bytes_max // SEGMENTS_PER_SPOOL
        if not copies or copies[-1].size + len(data) > full_segment:
            self._begin_copy(copies, number.boot)
        copies[-1].write(data)
        copies[-1].last = number

    def _begin_copy(self, copies: list[SpoolSegment], boot: int) -> None:
        latest = copies[-1] if copies else self._segments[-1] if self._segments else None
        copies.append(self._create(latest, ".new"))
        copies[-1].write(pack_record(MARK, ReadingNumber(boot, 0)))

    def _keep(self, copies: list[SpoolSegment]) -> None:
        """Make the copies durable, then the last one's name, with which they replace the rest."""
        for copy in copies:
            os.fsync(copy.handle)
        sync_folder(self._folder)
        last = copies[-1]
        last.path = last.path.replace(last.path.with_suffix(".spool"))
        sync_folder(self._folder)

    def _discard(self, copies: list[SpoolSegment]) -> None:
        """Take a renumbering back, whatever of it is on the disk: see `_begin`."""
        for copy in copies:
            os.close(copy.handle)
            self._unwanted += [copy.path.with_suffix(each) for each in (".new", ".spool")]
        with suppress(OSError):
            self._delete_unwanted()

    def _delete_unwanted(self) -> None:
        for path in self._unwanted:
            path.unlink(missing_ok=True)
        if self._unwanted:
            sync_folder(self._folder)
        self._unwanted.clear()

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
            self._settle_if_room()
            self._delete(oldest)

    def _settle_if_room(self) -> None:
        """Before anything is deleted; but on a full disk, deleting is the only way out."""
        try:
            self.settle()
        except SpoolError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise

    def _commit(self) -> None:
        active = self._write(pack_record(MARK, self.mark))
        try:
            os.fdatasync(active.handle)
        except OSError as error:
            self._end_in_doubt(active)
            raise self._error(error) from error
        active.synced, active.own = active.size, True  # its copies are the better ones now
        self._doubtful.clear()
        self._marked = self.mark
        self.unsynced = 0

    def _end_in_doubt(self, active: SpoolSegment) -> None:
        """Nobody knows what became of its last pages: nothing more goes there."""
        self._active = None
        if active.own:
            self._doubtful.append(active)
        else:
            with suppress(SpoolError):
                self._delete(active)  # nothing but copies, which would pile up

    def _roll(self) -> None:
        """End the active segment; the next append begins another."""
        if self._active is not None:
            self.sync()
            self._active = None

    def _write(self, data: bytes) -> SpoolSegment:
        try:
            active = self._active or self._begin()
            active.write(data)
        except OSError as error:
            self._abandon()
            raise self._error(error) from error
        return active

    def _begin(self) -> SpoolSegment:
        self._delete_unwanted()  # or the next life could take it for the truth
        segment = self._create(self._segments[-1] if self._segments else None, ".spool")
        self._segments.append(segment)
        self._active = segment
        if self._reading_at[0] is None:
            self._reading_at = (segment, 0)
        sync_folder(self._folder)
        self._fill(segment, ((each, each.synced) for each in self._doubtful))
        return segment

    def _create(self, after: SpoolSegment | None, suffix: str) -> SpoolSegment:
        index = int(after.path.stem) + 1 if after else 1
        path = self._folder / f"{index:08d}{suffix}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND
        return SpoolSegment(path=path, handle=os.open(path, flags, 0o600))

    def _error(self, error: OSError) -> SpoolError:
        return SpoolError(
            error.errno,
            f"spool {self._folder} cannot be used: {error.strerror}; "
            "make room on the disk, mount it writable, or replace it",
        )

    def _abandon(self) -> None:
        """After a failed write: cut what is half written, never write to that segment again."""
        active, self._active = self._active, None
        if active is not None:
            try:
                os.ftruncate(active.handle, active.size)
            except OSError:
                active.size = os.fstat(active.handle).st_size  # its checksum tells it is torn
            self._end_in_doubt(active)

    def _after(self, segment: SpoolSegment) -> SpoolSegment | None:
        place = self._segments.index(segment) + 1
        return self._segments[place] if place < len(self._segments) else None

    def _done(self) -> list[SpoolSegment]:
        """The segments of which everything is acknowledged."""
        return [s for s in self._segments if s.last <= self.mark and s is not self._active]

    def _delete_done(self) -> None:
        for segment in self._done():
            self._delete(segment)

    def _delete(self, segment: SpoolSegment) -> None:
        try:
            segment.path.unlink(missing_ok=True)
        except OSError as error:
            raise self._error(error) from error
        if self._reading_at[0] is segment:
            self._reading_at = (self._after(segment), 0)
        self._segments.remove(segment)
        if segment in self._doubtful:
            self._doubtful.remove(segment)
        os.close(segment.handle)


def pack_record(kind: int, number: ReadingNumber, payload: bytes = b"") -> bytes:
    """The bytes of one record."""
    rest = HEADER.pack(0, len(payload), kind, *number)[4:] + payload
    return zlib.crc32(rest).to_bytes(4, "little") + rest


def read_record(handle: int, offset: int) -> SpoolRecord | None:
    """The record at this offset, or None where the file ends or is no longer to be trusted."""
    header = os.pread(handle, HEADER.size, offset)
    if len(header) < HEADER.size:
        return None
    crc, length, kind, boot, seq = HEADER.unpack(header)
    if length > PAYLOAD_BYTES_MAX:
        return None
    payload = os.pread(handle, length, offset + HEADER.size)
    if zlib.crc32(payload, zlib.crc32(header[4:])) != crc:
        return None
    return SpoolRecord(kind, ReadingNumber(boot, seq), payload, offset + HEADER.size + length)


def _records(handle: int, offset: int = 0) -> Iterator[SpoolRecord]:
    while (found := read_record(handle, offset)) is not None:
        yield found
        offset = found.end
