"""The emulator's log of what was written to a disk, and the disks that a power cut could leave.

A disk promises that what was written before a *flush* is there after it, and nothing more: of what
was written since, any part may be there and any may be missing, in blocks of 4 KiB. QEMU's
`blklogwrites` writes the format of Linux's dm-log-writes: a header, and for each request an entry
(sector, sectors, flags, length of data; padded to a sector) and its data.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SECTOR = 512
BLOCK = 8 * SECTOR
MAGIC = 0x6A736677736872
SUPER = struct.Struct("<QQQI")
ENTRY = struct.Struct("<QQQQ")
FLUSH, FUA, DISCARD = 1, 2, 4


class LogError(ValueError):
    """The file is no log of writes."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request of the machine: a flush, or data for a place; `end` is where its entry ends."""

    at: int  # bytes from the beginning of the disk
    data: bytes
    is_flush: bool
    end: int


def requests(log: Path) -> Iterator[Request]:
    """Every whole request of a log, in order; what a killed emulator left half is left out."""
    raw = log.read_bytes()
    if len(raw) < SECTOR or SUPER.unpack_from(raw)[0] != MAGIC:
        raise LogError(f"{log} does not begin as a log of writes")
    size = SUPER.unpack_from(raw)[3]
    place = size
    while place + size <= len(raw):
        sector, sectors, flags, _ = ENTRY.unpack_from(raw, place)
        if not (sectors or flags):
            return  # never written
        place += size
        carried = 0 if flags & DISCARD else sectors * size
        if place + carried > len(raw):
            return
        data = raw[place : place + carried]
        place += carried
        if flags & FUA:
            raise LogError("a write that is durable by itself: this reader knows flushes only")
        if not flags & DISCARD:
            yield Request(sector * size, data, bool(flags & FLUSH), place)


class CrashedDisk:
    """A disk as power cuts at growing moments of its life could leave it."""

    def __init__(self, first: bytes, life: list[Request]) -> None:
        self._durable, self._life = bytearray(first), life
        self._flushed = 0  # requests that a flush has made durable

    def after(self, count: int, chance: random.Random) -> bytes:
        """Cut after so many requests. `count` must not go down from one call to the next."""
        last = max((n for n in range(self._flushed, count) if self._life[n].is_flush), default=None)
        if last is not None:
            for request in self._life[self._flushed : last + 1]:
                _write(self._durable, request.at, request.data)
            self._flushed = last + 1
        found = bytearray(self._durable)
        kept = chance.choice((0.0, 0.2, 0.5, 0.8, 1.0))
        for request in self._life[self._flushed : count]:
            for begin in range(0, len(request.data), BLOCK):
                if chance.random() < kept:
                    _write(found, request.at + begin, request.data[begin : begin + BLOCK])
        return bytes(found)


def _write(disk: bytearray, at: int, data: bytes) -> None:
    disk[at : at + len(data)] = data
