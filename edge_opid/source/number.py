"""The number of a reading: which life of the sensor script, and which reading of that life."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import NamedTuple

FIRST_SEQ = 1  # so that "acknowledged up to 0" can mean "nothing of this boot yet"
BOOT_MAX = 2**32 - 1


class Number(NamedTuple):
    """A reading's name for ever, also when it is sent again after a restart. Ordered as sent.

    >>> Number(boot=7, seq=12) < Number(boot=8, seq=1)
    True
    """

    boot: int
    seq: int


NOTHING = Number(0, 0)  # below every number there is


def expected_after(last: Number, boot: int) -> Number:
    """The number that must go out next, given the last one and the boot of the next record.

    >>> expected_after(Number(7, 12), 7), expected_after(Number(7, 12), 8)
    (Number(boot=7, seq=13), Number(boot=8, seq=1))
    """
    return Number(boot, last.seq + 1 if last.boot == boot else FIRST_SEQ)


def new_boot(folder: Path, epoch_s: int, spooled: int = 0) -> int:
    """Count one more start of the script, on disk before anything is sent under it.

    The clock takes part: after a card was replaced or the folder wiped, a counter that began at 1
    again would repeat numbers the node has long acknowledged, and it would take every new reading
    for an old one. A Pi's clock may be wrong at start, so the counter never goes back either, nor
    behind the last boot found in the spool.
    """
    path = folder / "boot"
    boot = max(_read_boot(path) + 1, spooled + 1, min(epoch_s, BOOT_MAX - 2**20))
    text = f"{boot} {zlib.crc32(str(boot).encode()):08x}\n"
    replacement = folder / "boot.new"
    with replacement.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    replacement.replace(path)
    sync_folder(folder)
    return boot


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable; a file's own sync does not."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _read_boot(path: Path) -> int:
    try:
        text, check = path.read_text().split()
        return int(text) if zlib.crc32(text.encode()) == int(check, 16) else 0
    except (FileNotFoundError, ValueError):
        return 0  # a first start, or a torn file: the clock and the spool say how far we were
