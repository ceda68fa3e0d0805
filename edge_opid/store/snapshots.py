"""Snapshots: the whole state as bytes, and the index of the first journal record it lacks.

1. A snapshot is written to a temporary name and synced, then renamed, then the names are synced:
   under its own name it is whole, or was spoilt later.
2. Its digest (BLAKE2b) covers the index and every byte of the state.
3. The last two are kept. One that fails its digest is quarantined, and the one before it is used,
   with the longer journal that follows it.
4. So the journal must reach back to the **older** of the two: a segment may be recycled only when
   both snapshots cover all its records. While there is one snapshot only, falling back means
   beginning at record 0, and no segment may go.
5. An unfinished snapshot takes no space: what failed is removed at once, or at the next try.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from edge_opid.blake2 import blake2b
from edge_opid.store.disk import Disk
from edge_opid.store.errors import Note, StoreError
from edge_opid.store.files import SNAPSHOT_TMP, Cleanup, file_name, next_number, numbers, quarantine
from edge_opid.store.frames import FORMAT
from edge_opid.store.limits import StoreLimits
from edge_opid.store.segment import read_or_nothing

KEPT = 2
_MAGIC = b"OPIDSNAP"
_HEAD = struct.Struct("<8sIQQQ")  # magic, format, serial, index, bytes of the state
_DIGEST_BYTES = 32
_STATE_AT = _HEAD.size + _DIGEST_BYTES


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot on the disk: which file it is, and the index it covers up to."""

    serial: int
    index: int

    @property
    def name(self) -> str:
        """The file's name."""
        return file_name("snapshot", self.serial)


class Snapshots:
    """Open the snapshots: `kept` are the good ones, oldest first."""

    def __init__(self, disk: Disk, limits: StoreLimits, chores: Cleanup) -> None:
        self._disk, self._limits, self._chores = disk, limits, chores
        self.kept: list[Snapshot] = []
        self.notes: list[Note] = []
        self._state: bytes | None = None
        names = disk.names()
        self._next_serial = next_number(names, "snapshot")
        if SNAPSHOT_TMP in names:
            chores.add(partial(disk.remove, SNAPSHOT_TMP))
        for serial in reversed(numbers(names, "snapshot")):
            self._examine(serial)

    def take_state(self) -> bytes | None:
        """The state in the newest good snapshot; handed over once, so that no copy stays here."""
        state, self._state = self._state, None
        return state

    @property
    def index(self) -> int:
        """The index which the newest snapshot covers: replay begins there."""
        return self.kept[-1].index if self.kept else 0

    @property
    def floor(self) -> int:
        """The index before which no journal is needed, whichever snapshot is used: see rule 4."""
        return self.kept[-KEPT].index if len(self.kept) >= KEPT else 0

    def write(self, state: bytes, index: int) -> None:
        """Make a snapshot durable. On `OSError` the older ones still count; call it again."""
        snapshot = Snapshot(self._next_serial, index)
        if SNAPSHOT_TMP in self._disk.names():
            self._disk.remove(SNAPSHOT_TMP)
        try:
            self._write_file(state, snapshot)
            self._disk.replace(SNAPSHOT_TMP, snapshot.name)
        except OSError:
            with suppress(OSError):
                self._disk.remove(SNAPSHOT_TMP)
            raise
        self._next_serial += 1
        self.kept.append(snapshot)
        self._disk.sync_names()
        while len(self.kept) > KEPT:
            self._chores.add(partial(self._disk.remove, self.kept.pop(0).name))

    def _write_file(self, state: bytes, snapshot: Snapshot) -> None:
        head = _HEAD.pack(_MAGIC, FORMAT, snapshot.serial, snapshot.index, len(state))
        self._disk.create(SNAPSHOT_TMP, _STATE_AT + len(state))
        self._disk.write(SNAPSHOT_TMP, 0, head + _digest(head, state))
        self._disk.write(SNAPSHOT_TMP, _STATE_AT, state)
        self._disk.sync(SNAPSHOT_TMP)

    def _examine(self, serial: int) -> None:
        name = file_name("snapshot", serial)
        if len(self.kept) == KEPT:
            self._chores.add(partial(self._disk.remove, name))
            return
        head = read_or_nothing(self._disk, name, 0, _STATE_AT)
        state = read_or_nothing(self._disk, name, _STATE_AT, self._disk.size(name))
        snapshot = _verified(name, head, state)
        if snapshot is None or snapshot.serial != serial:
            quarantine(self._disk, self._chores, name, self._limits.quarantined_max)
            sentence = f"{name}: its digest is wrong; an older state and its journal are used"
            self.notes.append(Note("quarantined", name, sentence))
            return
        if not self.kept:
            self._state = state
        self.kept.insert(0, snapshot)


def _digest(head: bytes, state: bytes) -> bytes:
    digest = blake2b(head, digest_size=_DIGEST_BYTES)
    digest.update(state)
    return digest.digest()


def _verified(name: str, head: bytes, state: bytes) -> Snapshot | None:
    """What a snapshot says it is, or None if a single bit is not as written."""
    head, digest = head[: _HEAD.size], head[_HEAD.size :]
    if digest != _digest(head, state):
        return None
    magic, version, serial, index, _ = _HEAD.unpack(head)
    if magic != _MAGIC or version != FORMAT:
        raise StoreError(
            "version",
            f"{name}: format {version}, this version reads {FORMAT}: run the version that wrote "
            "it, or move the folder aside",
        )
    return Snapshot(serial, index)
