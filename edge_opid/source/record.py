"""One record of the spool: a reading, or a mark that says how far the node has acknowledged.

`crc32 | length | kind | boot | seq | payload`, little-endian; the checksum covers all that follows
it, so that a torn or rotten record is never taken for a whole one.
"""

from __future__ import annotations

import os
import struct
import zlib
from typing import NamedTuple

from edge_opid.source.number import ReadingNumber

HEADER = struct.Struct("<IIBQQ")
PAYLOAD_BYTES_MAX = 2**20  # far beyond any reading; a larger length is a rotten one
READING, MARK = 1, 2


class SpoolRecord(NamedTuple):
    """What was written, and where the next record begins."""

    kind: int
    number: ReadingNumber
    payload: bytes
    end: int


def pack(kind: int, number: ReadingNumber, payload: bytes = b"") -> bytes:
    """The bytes of one record."""
    rest = HEADER.pack(0, len(payload), kind, *number)[4:] + payload
    return zlib.crc32(rest).to_bytes(4, "little") + rest


def read(handle: int, offset: int) -> SpoolRecord | None:
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
