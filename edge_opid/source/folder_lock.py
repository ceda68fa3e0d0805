"""A spool's folder belongs to one script at a time; two would give two readings the same number.

A script that cron starts every few seconds may find the one before still waiting for its last
acknowledgement. Then the newcomer says that it is there, by holding a second lock, the other one
leaves at once, and the newcomer goes on with what it left in the spool.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

from edge_opid.source.spool import SpoolError
from edge_opid.store.whole_file import sync_folder

POLL_S = 0.02


class FolderLock:
    """Holds the folder from its making to `close`; `SpoolError` if another one keeps it.

    Nobody else may open the files: a shared lock, for which reading is enough, would keep us out.
    """

    def __init__(self, folder: Path, wait_s: float = 0.0) -> None:
        self._handles: list[int] = []
        try:
            self._lock = self._open(folder / "lock")
            self._queue = self._open(folder / "lock.next")
            self._take(time.monotonic() + wait_s)
            with suppress(PermissionError):  # a folder that was there already, in a hidden one
                sync_folder(folder.parent)
        except OSError as error:
            self.close()
            raise SpoolError(error.errno, f"spool {folder} {_complaint(error)}") from error

    def is_wanted(self) -> bool:
        """Whether another script waits for us to leave."""
        if not _locked(self._queue):
            return True
        fcntl.flock(self._queue, fcntl.LOCK_UN)
        return False

    def close(self) -> None:
        """Let the folder go."""
        for handle in self._handles:
            os.close(handle)
        self._handles.clear()

    def _open(self, path: Path) -> int:
        self._handles.append(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
        os.fchmod(self._handles[-1], 0o600)
        return self._handles[-1]

    def _take(self, deadline: float) -> None:
        while not _locked(self._lock):
            if time.monotonic() >= deadline:
                raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))
            _locked(self._queue)  # or a third one has it, which says the same
            time.sleep(POLL_S)
        fcntl.flock(self._queue, fcntl.LOCK_UN)


def _complaint(error: OSError) -> str:
    if isinstance(error, BlockingIOError):
        return "is in use by another script: give each script its own folder"
    return (
        f"cannot be locked: {error.strerror}; the folder and the files lock and lock.next in it "
        "must belong to the user who runs the script, on a disk that can be written"
    )


def _locked(handle: int) -> bool:
    """Lock the file, if nobody else has."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
