"""The few things the store asks of a disk, and what it may believe about them.

The rules of a disk, which `RealDisk` gets from Linux and the tests' simulated disk breaks in every
way they leave open:

1. Names are plain (no folders). Every operation is done, or raises `OSError`.
2. What was written can be read back at once, but survives a power cut only after `sync` of that
   file returned. Until then any part of it may be there, missing, or spoilt.
3. If `sync` raises, what was written since the last one must be **written again**: the kernel
   reports a failed write-back once and then believes the page clean.
4. A name that was created, replaced or removed is so after a power cut only once `sync_names`
   returned; until then each of these may have happened or not, in any combination.
5. `replace` happens wholly or not at all.
6. A file or a folder that somebody has deleted, moved or unmounted can still be written and synced
   by whoever has it open, and nobody will ever find that again. So `sync` and `sync_names` raise
   `StoreError("state-gone")` where the name does not lead to what they have synced.
"""

from __future__ import annotations

from typing import Protocol


class Disk(Protocol):
    """One folder of files. The store does everything through these nine operations."""

    def names(self) -> list[str]:
        """The name of every file, in any order."""

    def size(self, name: str) -> int:
        """How many bytes the file has."""

    def create(self, name: str, size: int) -> None:
        """A new file of `size` zero bytes, its space reserved; `FileExistsError` if it exists."""

    def write(self, name: str, offset: int, data: bytes) -> None:
        """All of `data` at `offset`, inside the file's size."""

    def read(self, name: str, offset: int, size: int) -> bytes:
        """The `size` bytes at `offset`; fewer where the file ends."""

    def sync(self, name: str) -> None:
        """Everything written to the file so far survives a power cut, and so does its size."""

    def replace(self, old: str, new: str) -> None:
        """Give the file `old` the name `new`; a file that had that name is gone."""

    def remove(self, name: str) -> None:
        """The file is gone, and its space free."""

    def sync_names(self) -> None:
        """Every create, replace and remove so far survives a power cut."""
