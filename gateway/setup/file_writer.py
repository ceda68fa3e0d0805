"""Files that are written whole or not at all, and never over another.

A crash half way may leave a file `name.new`, which nobody reads and the next attempt replaces; what
has its real name is complete and on the disk.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from edge_opid.errors import RefusedError
from edge_opid.store.whole_file import sync_folder, write_whole

SECRET, PUBLIC = 0o600, 0o644


class FolderError(RefusedError, ValueError):
    """The folder of a fleet, or what was asked of it, is at fault. Nothing was overwritten."""

    def __init__(self, sentence: str) -> None:
        super().__init__("folder", sentence)


class FileWriter:
    """Writes below one folder, and remembers what."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written: list[Path] = []

    def has(self, name: PurePosixPath | str) -> bool:
        """Whether there is such a file, or anything else of that name."""
        return os.path.lexists(self.folder / name)

    def read(self, name: PurePosixPath | str) -> str:
        """The text of a file; empty where there is none yet."""
        path = self.folder / name
        try:
            return path.read_text("utf-8") if self.has(name) else ""
        except (OSError, UnicodeDecodeError) as error:
            raise FolderError(f"{path} cannot be read: {error}") from error

    def write_new(self, name: PurePosixPath | str, text: str, mode: int) -> None:
        """A new file, unless there is one."""
        if not self.has(name):
            self._put(self.folder / name, text, mode, None)

    def rewrite(self, name: PurePosixPath | str, text: str, mode: int) -> None:
        """The file with another text, its mode and owner kept; or a new one; or, equal, as it is.

        Its owner may be the broker, who could not read a file of ours.
        """
        path = self.folder / name
        if not self.has(name):
            self._put(path, text, mode, None)
        elif self.read(name) != text:
            self._put(path, text, path.stat().st_mode & 0o777, path.stat())

    def remove(self, name: str) -> None:
        """A file that has served its purpose."""
        (self.folder / name).unlink()
        sync_folder(self.folder)

    def discard(self, name: PurePosixPath | str) -> None:
        """A file that nobody may use again, if it is here."""
        path = self.folder / name
        if self.has(name):
            path.unlink()
            sync_folder(path.parent)

    def _put(self, path: Path, text: str, mode: int, owner: os.stat_result | None) -> None:
        self._make_folder(path.parent)
        foreign = owner is not None and (owner.st_uid, owner.st_gid) != (os.getuid(), os.getgid())
        whose = (owner.st_uid, owner.st_gid) if owner is not None and foreign else None
        write_whole(path, text.encode(), mode=mode, owner=whose)
        self.written.append(path)

    def _make_folder(self, folder: Path) -> None:
        """The folder, open to all: a broker has to enter it, and each file guards itself."""
        if not folder.is_dir():
            self._make_folder(folder.parent)
            folder.mkdir()
            sync_folder(folder.parent)


@contextmanager
def open_writer(folder: Path) -> Iterator[FileWriter]:
    """A writer that is alone in the folder; what the system refuses is one sentence."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield FileWriter(folder)
        finally:
            os.close(handle)
    except BlockingIOError as error:
        raise FolderError(f"{folder} is being written by another process: wait for it") from error
    except OSError as error:
        raise FolderError(f"{folder} cannot be written: {error}") from error
