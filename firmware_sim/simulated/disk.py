"""A disk in memory that breaks every promise `Disk` does not make.

The model, which is harsher than ext4 on a good card:

1. What is written goes to a page cache. Until the file is synced, each 512-byte sector of it may
   reach the medium or not, in any combination, in any of the versions it had, or spoilt.
2. A file that was never synced may be found with size 0.
3. Until the names are synced, any subset of the creates, replaces and removes may have happened.
4. Any operation can be made to fail. A failed write may have written a part. A failed sync may have
   brought some sectors to the medium, and **forgets** that the others were ever written.
5. The power can be cut at any operation; `crash(rng)` is the disk as it may look afterwards.
6. The folder can be `away`: files that are open can be written and synced, and `sync` says that
   nobody will find them.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from edge_opid.store.errors import StoreError

SECTOR = 512


class PowerCut(Exception):  # noqa: N818 (nobody's error)
    """The power is gone: no operation of this disk will ever return again."""


@dataclass(eq=False)
class File:
    """What a reader sees (`cache`), what the medium holds, and the writes between the two."""

    cache: bytearray
    medium: bytearray = field(default_factory=bytearray)
    dirty: list[tuple[int, bytes]] = field(default_factory=list)

    def write(self, offset: int, data: bytes) -> None:
        """Into the cache; the medium may get it later."""
        self.cache[offset : offset + len(data)] = data
        self.dirty.append((offset, data))

    def land(self, rng: Random, how: str, *, spoil: bool = False) -> None:
        """Bring some of the dirty sectors to the medium: `none`, `all`, or a `mix`."""
        if len(self.medium) < len(self.cache) and (how == "all" or rng.random() < 0.5):
            self.medium.extend(bytes(len(self.cache) - len(self.medium)))
        if how == "all" and not spoil:  # as mostly: no need to look at each sector
            for offset, data in self.dirty:
                self._put(offset, data)
            self.dirty.clear()
            return
        for sector, versions in self._dirty_sectors().items():
            count = {"none": 0, "all": len(versions)}.get(how, rng.randint(0, len(versions)))
            for start, piece in versions[:count]:
                self._put(start, piece)
            if spoil and rng.random() < 0.3:
                self._put(sector * SECTOR, rng.randbytes(SECTOR))
        self.dirty.clear()

    def after_power_cut(self, rng: Random, *, spoil: bool) -> File:
        """The file as it may be found afterwards."""
        after = File(self.cache, bytearray(self.medium), list(self.dirty))
        after.land(rng, rng.choice(("none", "all", "mix", "mix")), spoil=spoil)
        after.cache = bytearray(after.medium)
        return after

    def _dirty_sectors(self) -> dict[int, list[tuple[int, bytes]]]:
        sectors: dict[int, list[tuple[int, bytes]]] = {}
        for offset, data in self.dirty:
            end = offset + len(data)
            for sector in range(offset // SECTOR, -(-end // SECTOR)):
                start, stop = max(offset, sector * SECTOR), min(end, (sector + 1) * SECTOR)
                piece = data[start - offset : stop - offset]
                sectors.setdefault(sector, []).append((start, piece))
        return sectors

    def _put(self, start: int, data: bytes) -> None:
        stop = min(start + len(data), len(self.medium))
        if start < stop:
            self.medium[start:stop] = data[: stop - start]


@dataclass(frozen=True)
class Renaming:
    """One change of the names: the file loses the name it had, and gets another, or none."""

    file: File
    name: str | None

    def apply(self, names: dict[str, File]) -> dict[str, File]:
        """The names afterwards."""
        names = {name: file for name, file in names.items() if file is not self.file}
        return names if self.name is None else {**names, self.name: self.file}


class TornDisk:
    """The `Disk` protocol in memory.

    `counts` has every operation, `step` the number of those that change something. `fail(operation,
    name, step)` may give an errno; `lies(operation, name)` makes a sync do nothing.
    """

    def __init__(self, seed: int = 0) -> None:
        self.rng = Random(seed)
        self.files: dict[str, File] = {}
        self.durable: dict[str, File] = {}
        self.renamings: list[Renaming] = []
        self.counts: Counter[str] = Counter()
        self.step = 0
        self.cut_at: int | None = None
        self.dead = False
        self.away = False  # moved, unmounted or deleted, while whoever has it open writes on
        self.capacity = 2**40
        self.fail: Callable[[str, str, int], int | None] = lambda _operation, _name, _step: None
        self.lies: Callable[[str, str], bool] = lambda _operation, _name: False
        self.unreadable: set[str] = set()

    # --- the protocol ------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Every name, as this process sees them."""
        self._begin("names", "")
        return list(self.files)

    def size(self, name: str) -> int:
        """As this process sees it."""
        self._begin("size", name)
        return len(self._file(name).cache)

    def read(self, name: str, offset: int, size: int) -> bytes:
        """From the cache; `EIO` where the medium is said to be unreadable."""
        self._begin("read", name)
        if name in self.unreadable:
            raise _error(errno.EIO, name)
        return bytes(self._file(name).cache[offset : offset + size])

    def create(self, name: str, size: int) -> None:
        """A file of zeros, whose name may not survive."""
        self._begin("create", name, changes=True)
        if name in self.files:
            raise _error(errno.EEXIST, name)
        if self.used() + size > self.capacity:
            raise _error(errno.ENOSPC, name)
        self._rename(File(bytearray(size)), name)
        self._cut_here()

    def write(self, name: str, offset: int, data: bytes) -> None:
        """Into the cache, where the power may be cut right after."""
        file = self._file(name)
        assert offset + len(data) <= len(file.cache), f"{name}: the write ends behind the file"
        try:
            self._begin("write", name, changes=True)
        except OSError:
            file.write(offset, bytes(data[: self.rng.randint(0, len(data))]))
            raise
        file.write(offset, bytes(data))
        self._cut_here()

    def sync(self, name: str) -> None:
        """All of the file to the medium, unless the power goes first."""
        file = self._file(name)
        try:
            self._begin("sync", name, changes=True)
        except OSError:
            file.land(self.rng, self.rng.choice(("none", "all", "mix")))
            raise
        self._cut_here()
        if not self.lies("sync", name):
            file.land(self.rng, "all")
        self._check_there()

    def replace(self, old: str, new: str) -> None:
        """Two changes of names: neither is durable yet."""
        self._begin("replace", old, changes=True)
        file = self._file(old)
        if new in self.files:
            self._rename(self.files[new], None)
        self._rename(file, new)
        self._cut_here()

    def remove(self, name: str) -> None:
        """Gone for this process; after a power cut it may be back."""
        self._begin("remove", name, changes=True)
        self._rename(self._file(name), None)
        self._cut_here()

    def sync_names(self) -> None:
        """All changes of names to the medium, unless the power goes first."""
        self._begin("sync_names", "", changes=True)
        self._cut_here()
        if not self.lies("sync_names", ""):
            self.durable = dict(self.files)
            self.renamings.clear()
        self._check_there()

    # --- what others do to it ----------------------------------------------------------------

    def crash(self, rng: Random, *, spoil: bool = False) -> TornDisk:
        """A disk as this one may look after a power cut now; this one stays as it is."""
        after = TornDisk(rng.randrange(2**32))
        names, chance = dict(self.durable), rng.choice((0.0, 0.5, 0.8, 1.0))
        for renaming in self.renamings:
            if rng.random() < chance:
                names = renaming.apply(names)
        for name, file in names.items():
            after.files[name] = file.after_power_cut(rng, spoil=spoil)
        after.durable = dict(after.files)
        after.away = self.away
        return after

    def flip(self, name: str, bit: int) -> None:
        """Change one bit of a file, on the medium and in the cache."""
        file = self.files[name]
        file.cache[bit // 8] ^= 1 << bit % 8
        file.medium = bytearray(file.cache)

    def used(self) -> int:
        """How many bytes the files take."""
        return sum(len(file.cache) for file in self.files.values())

    def copied(self) -> TornDisk:
        """Its files as a process sees them, on another disk."""
        made = TornDisk(self.rng.randrange(2**32))
        for name, file in self.files.items():
            made.files[name] = File(bytearray(file.cache), bytearray(file.cache))
        made.durable = dict(made.files)
        return made

    # --- inside ------------------------------------------------------------------------------

    def _file(self, name: str) -> File:
        if name not in self.files:
            raise _error(errno.ENOENT, name)
        return self.files[name]

    def _begin(self, operation: str, name: str, *, changes: bool = False) -> None:
        self.counts[operation] += 1
        self.step += changes
        if self.dead:
            raise PowerCut
        if code := self.fail(operation, name, self.step):
            raise _error(code, name)

    def _check_there(self) -> None:
        if self.away:
            raise StoreError("state-gone", "the folder is not the one that was opened")

    def _cut_here(self) -> None:
        if self.step == self.cut_at:
            self.dead = True
            raise PowerCut

    def _rename(self, file: File, name: str | None) -> None:
        renaming = Renaming(file, name)
        self.files = renaming.apply(self.files)
        self.renamings.append(renaming)


def _error(code: int, name: str) -> OSError:
    return OSError(code, os.strerror(code), name)
