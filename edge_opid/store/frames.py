"""The bytes of the journal, and how bytes that are not ours any more are told from those that are.

1. A segment begins with a header page: its number, the index of its first record, a random nonce,
   its geometry, a checksum.
2. Each commit is one **frame**: a header and every record of the group, on pages of its own,
   filled up with zeros. A frame is read whole or not at all.
3. A frame's checksum covers the identity of its segment (number and nonce), its own header and
   its records. So the bytes of a recycled segment's former life never look valid; neither does a
   frame that somebody sends us inside a record, for the nonce never leaves the node.
4. A frame says the index of its first record. It was written only after everything before that
   index had been synced: a valid frame proves that what is missing before it was lost later.

All numbers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

from edge_opid.store.errors import StoreError

FORMAT = 1
_SEGMENT_MAGIC = b"OPIDJRNL"
_SEGMENT = struct.Struct("<8sIQQ8sIQ")  # magic, format, number, first, nonce, page, segment bytes
_CRC = struct.Struct("<I")
SEGMENT_HEADER_BYTES = _SEGMENT.size + _CRC.size

_FRAME_MAGIC = b"frm1"
_FRAME = struct.Struct("<4s8sQII")  # magic, nonce, first index, number of records, bytes of them
FRAME_HEADER_BYTES = _FRAME.size + _CRC.size
_LENGTH = struct.Struct("<I")
RECORD_HEADER_BYTES = _LENGTH.size


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentHeader:
    """Who a segment is: what its header page says.

    >>> header = SegmentHeader(number=3, first=120, nonce=b"12345678", page=512, size=8192)
    >>> SegmentHeader.decode(header.encode()) == header
    True
    >>> SegmentHeader.decode(header.encode().replace(b"5", b"6")) is None
    True
    """

    number: int
    first: int
    nonce: bytes
    page: int
    size: int

    def encode(self) -> bytes:
        """The header, filled up to a page."""
        body = _SEGMENT.pack(
            _SEGMENT_MAGIC, FORMAT, self.number, self.first, self.nonce, self.page, self.size
        )
        return (body + _CRC.pack(crc32(body))).ljust(self.page, b"\0")

    @classmethod
    def decode(cls, data: bytes) -> SegmentHeader | None:
        """None if the bytes are not a whole header; `StoreError` if they are of another format."""
        body, crc = data[: _SEGMENT.size], data[_SEGMENT.size : SEGMENT_HEADER_BYTES]
        if len(crc) < _CRC.size or _CRC.unpack(crc)[0] != crc32(body):
            return None
        magic, version, number, first, nonce, page, size = _SEGMENT.unpack(body)
        if magic != _SEGMENT_MAGIC:
            return None
        if version != FORMAT:
            raise StoreError(
                "version",
                f"journal segment {number}: format {version}, this version reads {FORMAT}: "
                "run the version that wrote it, or move the folder aside",
            )
        return cls(number=number, first=first, nonce=nonce, page=page, size=size)

    @property
    def identity(self) -> int:
        """Where the checksum of each of its frames begins."""
        return crc32(self.number.to_bytes(8, "little") + self.nonce)


@dataclass(frozen=True, slots=True)
class FrameHeader:
    """What a frame says of itself, to be believed only when its records pass `decode_records`."""

    first: int
    count: int
    length: int
    crc: int

    @property
    def end(self) -> int:
        """The index after its last record."""
        return self.first + self.count


def payload_bytes(records: Sequence[bytes]) -> int:
    """How many bytes the records take in a frame.

    >>> payload_bytes([b"abc", b""])
    11
    """
    return sum(map(len, records)) + RECORD_HEADER_BYTES * len(records)


def padded(size: int, page: int) -> int:
    """`size` rounded up to whole pages.

    >>> padded(513, 512), padded(512, 512)
    (1024, 512)
    """
    return -(-size // page) * page


def encode_frame(segment: SegmentHeader, first: int, records: Sequence[bytes]) -> bytes:
    """One commit: header, records, zeros up to the page.

    >>> segment = SegmentHeader(3, 120, b"12345678", page=64, size=640)
    >>> frame = encode_frame(segment, 120, [b"cold", b"warm"])
    >>> header = decode_frame_header(segment, frame)
    >>> len(frame), header.first, header.end
    (64, 120, 122)
    >>> decode_records(segment, frame[:FRAME_HEADER_BYTES], frame[FRAME_HEADER_BYTES:])
    [b'cold', b'warm']
    """
    payload = b"".join(part for r in records for part in (_LENGTH.pack(len(r)), r))
    head = _FRAME.pack(_FRAME_MAGIC, segment.nonce, first, len(records), len(payload))
    crc = crc32(payload, crc32(head, segment.identity))
    size = FRAME_HEADER_BYTES + len(payload)
    return b"".join((head, _CRC.pack(crc), payload, bytes(padded(size, segment.page) - size)))


def decode_frame_header(segment: SegmentHeader, data: bytes) -> FrameHeader | None:
    """None unless the bytes begin like a frame of this very segment."""
    if len(data) < FRAME_HEADER_BYTES:
        return None
    magic, nonce, first, count, length = _FRAME.unpack_from(data)
    if magic != _FRAME_MAGIC or nonce != segment.nonce:
        return None
    return FrameHeader(first, count, length, _CRC.unpack_from(data, _FRAME.size)[0])


def decode_records(segment: SegmentHeader, head: bytes, payload: bytes) -> list[bytes] | None:
    """The records of a frame, or None if a single bit of header or records is not as written."""
    header = decode_frame_header(segment, head)
    if header is None or len(payload) < header.length:
        return None
    payload = payload[: header.length]
    if crc32(payload, crc32(head[: _FRAME.size], segment.identity)) != header.crc:
        return None
    records, position = [], 0
    while position < header.length:
        (length,) = _LENGTH.unpack_from(payload, position)
        position += RECORD_HEADER_BYTES + length
        records.append(payload[position - length : position])
    return records


def resembles_frame(segment: SegmentHeader, first: int, data: bytes) -> bool:
    """Whether a commit of record `first` was begun here, though its frame is not valid.

    One spoilt field may not hide it, so two of magic, nonce and index are enough. The rest of a
    former life shares the magic at most.

    >>> segment = SegmentHeader(3, 120, b"12345678", page=64, size=640)
    >>> frame = encode_frame(segment, 120, [b"cold", b"warm"])
    >>> resembles_frame(segment, 120, b"F" + frame[1:]), resembles_frame(segment, 120, bytes(64))
    (True, False)
    """
    if len(data) < FRAME_HEADER_BYTES:
        return False
    magic, nonce, index, _, _ = _FRAME.unpack_from(data)
    return [magic == _FRAME_MAGIC, nonce == segment.nonce, index == first].count(True) >= 2
