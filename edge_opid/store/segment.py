"""One segment of the journal: a file of fixed size, its header page, then frames.

1. A segment is made under a `spare` name, its header synced, and only then named `journal-…`:
   so a journal file whose header is not whole was spoilt later.
2. A fresh file is filled with zeros once. Reserving space is not enough: the first write to a
   reserved page makes the file system write down that it is in use (measured on ext4, bytes
   reaching the disk per 4 KiB commit: reserved only 8,192, filled 4,239).
3. Frames begin at page boundaries. Where a page does not begin a valid frame, the next is tried.
4. A page that cannot be read at all (`EIO`) counts as spoilt.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edge_opid.store.disk import Disk
from edge_opid.store.files import file_name
from edge_opid.store.frames import (
    FRAME_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_frame_header,
    decode_records,
    encode_frame,
    padded,
    resembles_frame,
)

PIECE_BYTES = 65_536  # filling in pieces keeps a node's memory small
NO_END = 2**64  # no record has this index


@dataclass(frozen=True, slots=True)
class Frame:
    """One commit as it was read back: its records, and where the next one would begin."""

    first: int
    records: list[bytes]
    offset: int
    next_offset: int

    @property
    def end(self) -> int:
        """The index after its last record."""
        return self.first + len(self.records)


@dataclass(slots=True)
class Segment:
    """A segment in use. Records from index `until` on are another, newer segment's business.

    A `damaged` one is read, but not written to again, and quarantined where others are recycled.
    """

    header: SegmentHeader
    until: int = NO_END
    damaged: bool = False

    @property
    def name(self) -> str:
        """The file's name."""
        return file_name("journal", self.header.number)

    @property
    def first(self) -> int:
        """The index of its first record; everything before was durable when it was made."""
        return self.header.first

    def frames(self, disk: Disk) -> Iterator[Frame]:
        """Every valid frame that is still this segment's business, from the front."""
        offset = self.header.page
        while offset < self.header.size:
            frame = self._read_frame(disk, offset)
            if frame is not None and frame.first < self.until:
                yield frame
            offset = offset + self.header.page if frame is None else frame.next_offset

    def _read_frame(self, disk: Disk, offset: int) -> Frame | None:
        head = read_or_nothing(disk, self.name, offset, FRAME_HEADER_BYTES)
        header = decode_frame_header(self.header, head)
        if header is None or header.length > self.header.size:
            return None
        after = offset + FRAME_HEADER_BYTES
        payload = read_or_nothing(disk, self.name, after, header.length)
        records = decode_records(self.header, head, payload)
        if records is None:
            return None
        size = padded(FRAME_HEADER_BYTES + header.length, self.header.page)
        return Frame(header.first, records, offset, offset + size)

    def begun_at(self, disk: Disk, offset: int, index: int) -> bool:
        """Whether somebody began to write record `index` here, and did not finish."""
        data = read_or_nothing(disk, self.name, offset, FRAME_HEADER_BYTES)
        return resembles_frame(self.header, index, data)

    def room(self, offset: int, payload: int) -> bool:
        """Whether a frame of so many bytes of records fits at `offset`."""
        return offset + FRAME_HEADER_BYTES + payload <= self.header.size

    def write(self, disk: Disk, offset: int, first: int, records: Sequence[bytes]) -> int:
        """One frame, one sync; the offset of the next. After a failure, simply do it again."""
        frame = encode_frame(self.header, first, records)
        disk.write(self.name, offset, frame)
        disk.sync(self.name)
        return offset + len(frame)

    def write_last_again(self, disk: Disk) -> None:
        """Make the last group dirty again: after a failed sync the kernel believes it clean."""
        for last in deque(self.frames(disk), maxlen=1):
            disk.write(self.name, last.offset, encode_frame(self.header, last.first, last.records))


def read_header(disk: Disk, number: int) -> SegmentHeader | None:
    """The header of a journal file, or None if it is not whole, or not this file's."""
    data = read_or_nothing(disk, file_name("journal", number), 0, SEGMENT_HEADER_BYTES)
    header = SegmentHeader.decode(data)
    return header if header is not None and header.number == number else None


def read_or_nothing(disk: Disk, name: str, offset: int, size: int) -> bytes:
    """The bytes, or none where the medium has lost them."""
    try:
        return disk.read(name, offset, size)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return b""


def fill_with_zeros(disk: Disk, name: str, size: int) -> None:
    """Write every page once, so that later commits cost one page each."""
    zeros = bytes(PIECE_BYTES)
    for offset in range(0, size, PIECE_BYTES):
        disk.write(name, offset, zeros[: size - offset])


def copy_frames(disk: Disk, old: Segment, name: str, header: SegmentHeader) -> None:
    """Make the file `name` a segment with the good frames of `old`, at the same places."""
    disk.create(name, header.size)
    fill_with_zeros(disk, name, header.size)
    disk.write(name, 0, header.encode())
    for frame in old.frames(disk):
        disk.write(name, frame.offset, encode_frame(header, frame.first, frame.records))
    disk.sync(name)
