"""A file that is replaced in one step: whoever reads it finds the old one or the new one, whole.

It is written under the name `FILE.new` beside it, which must be a new file: a link that somebody
has laid out under that name is removed, never followed. What has the real name is then replaced,
not written into, so that a link there leads nobody astray either.
"""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(
    path: Path,
    data: bytes,
    *,
    mode: int | None = None,
    owner: tuple[int, int] | None = None,
    durable: bool = True,
) -> None:
    """Replace the file; a failure leaves it as it was, and no `.new` behind.

    `mode` is what the umask says where none is given, `owner` a user and a group. `durable` means
    that it survives a power cut from here on; what lives on a RAM disk need not.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "boot"
    ...     write_whole(path, b"7", mode=0o600)
    ...     path.read_bytes(), oct(path.stat().st_mode), len(list(Path(folder).iterdir()))
    (b'7', '0o100600', 1)
    """
    unfinished = path.with_name(f"{path.name}.new")
    unfinished.unlink(missing_ok=True)  # of an attempt that was cut off, or of somebody else
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(unfinished, flags, 0o666 if mode is None else 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            if owner is not None:
                os.fchown(handle, *owner)
            file.write(data)
            file.flush()
            if mode is not None:
                os.fchmod(handle, mode)
            if durable:
                os.fsync(handle)
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable; a file's own sync does not."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
