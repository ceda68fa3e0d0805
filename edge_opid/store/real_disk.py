"""The one file that touches the file system: a `Disk` on a folder of Linux.

1. One process at a time: the folder is locked while the disk is open, and the kernel lets go of
   the lock however the process ends.
2. The folder, when made, is itself synced into its parent; it and its files are the owner's alone
   (0700 and 0600), whatever the umask.
3. Files stay open between a write and its sync, so that a failed write-back is reported to us.
4. A disk that has become read-only can still be read, and is asked again at the next write.
5. A `create` that fails leaves no file behind, so the space it took is free again.
6. What was synced counts only if the next process would find it: the path must lead to the folder
   that is open, and the name in it to the file that is open. A disk that was unmounted and is
   mounted again, or a folder that was moved and is back, passes again by itself.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from types import TracebackType

from edge_opid.store.errors import StoreError

_NO_FALLOCATE = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)  # some network file systems


class RealDisk:
    r"""The files of one folder, which is made when it is missing.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, RealDisk(folder) as disk:
    ...     disk.create("state", 8)
    ...     disk.write("state", 2, b"opid")
    ...     disk.sync("state")
    ...     disk.sync_names()
    ...     disk.names(), disk.read("state", 0, 100)
    (['state'], b'\x00\x00opid\x00\x00')
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        _make_folder(self.folder)
        self._folder_fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        self._open: dict[str, int] = {}
        self._read_only: set[str] = set()
        self._lock()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._folder_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.close()
            raise StoreError(
                "locked",
                f"folder {self.folder}: another process has it open; stop that one first, or "
                "give this node a folder of its own",
                error.errno,
            ) from error

    def names(self) -> list[str]:
        """Plain files only: a `lost+found` is none of ours."""
        with os.scandir(self._folder_fd) as entries:
            return [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]

    def size(self, name: str) -> int:
        """Asked of the open file, so that a rename by somebody else cannot mislead us."""
        return os.fstat(self._fd(name)).st_size

    def create(self, name: str, size: int) -> None:
        """Space is reserved now, so that a full disk shows here and not in a commit."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        fd = os.open(name, flags, 0o600, dir_fd=self._folder_fd)
        try:
            os.fchmod(fd, 0o600)
            if os.geteuid() == 0:  # `sudo opid-node classes …`: the service has to write it
                owner = os.fstat(self._folder_fd)
                os.fchown(fd, owner.st_uid, owner.st_gid)
            _reserve(fd, size)
        except OSError:
            os.close(fd)
            os.unlink(name, dir_fd=self._folder_fd)
            raise
        self._open[name] = fd

    def write(self, name: str, offset: int, data: bytes) -> None:
        """The kernel may take a part; go on until it has all, or says why not."""
        fd, rest = self._fd(name, writing=True), memoryview(data)
        while rest:
            taken = os.pwrite(fd, rest, offset)
            if not taken:
                raise OSError(errno.EIO, os.strerror(errno.EIO), name)
            rest, offset = rest[taken:], offset + taken

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Until `size` bytes are there, or the file ends."""
        fd, parts = self._fd(name), []
        while size:
            part = os.pread(fd, size, offset)
            if not part:
                break
            parts.append(part)
            size, offset = size - len(part), offset + len(part)
        return b"".join(parts)

    def sync(self, name: str) -> None:
        """Data and size, not the times: `fdatasync` spares the card one more write."""
        os.fdatasync(self._fd(name))
        self._check_folder()
        self._check_file(name)

    def replace(self, old: str, new: str) -> None:
        """Both names change their meaning, so neither stays open."""
        self._close_file(old)
        self._close_file(new)
        os.rename(old, new, src_dir_fd=self._folder_fd, dst_dir_fd=self._folder_fd)

    def remove(self, name: str) -> None:
        """An open file would keep its space."""
        self._close_file(name)
        os.unlink(name, dir_fd=self._folder_fd)

    def sync_names(self) -> None:
        """A folder is a file, too."""
        os.fsync(self._folder_fd)
        self._check_folder()

    def close(self) -> None:
        """Let go of the files and the lock; twice is fine."""
        for name in list(self._open):
            self._close_file(name)
        if self._folder_fd >= 0:
            os.close(self._folder_fd)
            self._folder_fd = -1

    def __enter__(self) -> RealDisk:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _check_folder(self) -> None:
        try:
            there = self.folder.stat()
        except (FileNotFoundError, NotADirectoryError):
            there = None
        if there is None or not os.path.samestat(there, os.fstat(self._folder_fd)):
            raise self._gone("is not the one that was opened")

    def _check_file(self, name: str) -> None:
        try:
            there = os.stat(name, dir_fd=self._folder_fd, follow_symlinks=False)
        except FileNotFoundError:
            there = None
        if there is None or not os.path.samestat(there, os.fstat(self._fd(name))):
            raise self._gone(f"has lost {name}, or has another in its place")

    def _gone(self, complaint: str) -> StoreError:
        return StoreError(
            "state-gone",
            f"folder {self.folder} {complaint}: it was deleted, moved or unmounted. Put it back or "
            "mount it again, and nothing is lost; or restart, to go on with what is there now",
        )

    def _fd(self, name: str, *, writing: bool = False) -> int:
        if writing and name in self._read_only:
            self._close_file(name)  # the disk may take writes again by now
        if name not in self._open:
            self._open[name] = self._open_file(name, writing=writing)
        return self._open[name]

    def _open_file(self, name: str, *, writing: bool) -> int:
        try:
            return os.open(name, os.O_RDWR | os.O_NOFOLLOW, dir_fd=self._folder_fd)
        except OSError as error:
            if writing or error.errno not in (errno.EROFS, errno.EACCES):
                raise
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=self._folder_fd)
        self._read_only.add(name)
        return fd

    def _close_file(self, name: str) -> None:
        self._read_only.discard(name)
        fd = self._open.pop(name, None)
        if fd is not None:
            os.close(fd)


class FolderToRead(RealDisk):
    """The files of a folder that is there, only to be read: nothing is made, locked or written.

    Another process may be writing meanwhile: look at `names` before and after, and once more if
    they differ.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._open, self._read_only = {}, set()
        self._folder_fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)

    def _refuse(self, *_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self.folder))

    create = write = sync = replace = remove = sync_names = _refuse  # type: ignore[assignment]

    def _open_file(self, name: str, *, writing: bool) -> int:  # noqa: ARG002
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=self._folder_fd)


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir()
    folder.chmod(0o700)
    parent = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


def _reserve(fd: int, size: int) -> None:
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        if error.errno not in _NO_FALLOCATE:
            raise
        os.ftruncate(fd, size)
