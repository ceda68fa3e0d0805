"""Files of the database that only their owner may open: whoever can read one can also lock it.

SQLite gives its write-ahead log the mode of the database, and would make the database as the umask
says. So the file is made before SQLite sees it, and what an earlier version left open is closed.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from edge_opid import log

OWNERS_ALONE = 0o600
FAMILY = ("", "-wal", "-shm")
"""What SQLite appends to the name of a database."""


def make_private(path: Path) -> None:
    """Make the database's file if there is none, and let nobody but its owner in.

    What cannot be made here SQLite cannot open either, and its error says so. Files of somebody
    else are left alone: root may look at a fleet without changing anything.
    """
    real = path.resolve()
    with suppress(OSError):  # it is there, or SQLite will say why not
        os.close(os.open(real, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, OWNERS_ALONE))
    for ending in FAMILY:
        _close_to_others(Path(f"{real}{ending}"))


def _close_to_others(path: Path) -> None:
    try:
        found = path.lstat()
    except OSError:
        return
    mode = stat.S_IMODE(found.st_mode)
    ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
    if ours and mode & (stat.S_IRWXG | stat.S_IRWXO):
        path.chmod(OWNERS_ALONE)
        log.warning("a file was open to others", path=path, mode=f"{mode:04o}", now="0600")
