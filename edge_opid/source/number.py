"""The number of a reading: which life of the sensor script, and which reading of that life.

A life's boot must be higher than any before it under the same name, and no other life's: the node
takes a lower boot for an old one, and a boot it knows for a copy. No counter alone can see to that:
the card may be new, the folder wiped. Nor can the clock: a Pi may start in 1970 until it hears of
the time, or have lived a week in 2040. So a boot is

    max(seconds since 1970 * 2²⁰, last boot + 1) + a random number below 2²⁰

where the last boot is the highest of the folder's counter, of the spool, and of what the node has
said to know. It rises within a folder, follows the clock across folders, follows the node where the
clock is wrong, and two cards that start in the same second of 1970 do not share one, but for one
time in a million. The year 2106 reaches half of what the wire can carry (2⁵³).
"""

from __future__ import annotations

import secrets
import zlib
from pathlib import Path
from typing import NamedTuple

from edge_opid.store.whole_file import write_whole

FIRST_SEQ = 1  # so that "acknowledged up to 0" can mean "nothing of this boot yet"
CHANCE = 2**20
EPOCH_S_MAX = 2**32 - 1  # a clock beyond 2106 is wrong, and must not use the numbers up


class ReadingNumber(NamedTuple):
    """A reading's name for ever, also when it is sent again after a restart. Ordered as sent.

    >>> ReadingNumber(boot=7, seq=12) < ReadingNumber(boot=8, seq=1)
    True
    """

    boot: int
    seq: int


NOTHING = ReadingNumber(0, 0)  # below every number there is


def expected_after(last: ReadingNumber, boot: int) -> ReadingNumber:
    """The number that must go out next, given the last one and the boot of the next record.

    >>> expected_after(ReadingNumber(7, 12), 7), expected_after(ReadingNumber(7, 12), 8)
    (ReadingNumber(boot=7, seq=13), ReadingNumber(boot=8, seq=1))
    """
    return ReadingNumber(boot, last.seq + 1 if last.boot == boot else FIRST_SEQ)


def boot_above(last: int, epoch_s: int, chance: int) -> int:
    """The boot after `last`; `chance` is a random number below `CHANCE`.

    >>> boot_above(0, epoch_s=12, chance=34) == 12 * 2**20 + 34
    True
    >>> boot_above(2**52, epoch_s=12, chance=34) == 2**52 + 35
    True
    """
    return max(min(max(epoch_s, 0), EPOCH_S_MAX) * CHANCE, last + 1) + chance


def new_boot(folder: Path, epoch_s: int, known: int = 0) -> int:
    """Take a boot above `known` and the folder's last; on disk before anything is sent under it."""
    path = folder / "boot"
    boot = boot_above(max(_read_boot(path), known), epoch_s, secrets.randbelow(CHANCE))
    text = f"{boot} {zlib.crc32(str(boot).encode()):08x}\n"
    write_whole(path, text.encode(), mode=0o600)
    return boot


def _read_boot(path: Path) -> int:
    try:
        text, check = path.read_text().split()
        return int(text) if zlib.crc32(text.encode()) == int(check, 16) else 0
    except (FileNotFoundError, ValueError):
        return 0  # a first start, or a torn file: the clock and the spool say how far we were
