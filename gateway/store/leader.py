"""One process leads a database and writes to it: two would give the same node different orders.

1. A lock that ends with its holder, however it ends. On SQLite it is the kernel's lock on a file
   beside the database; on PostgreSQL the server's, held by a session that does nothing else. A
   child forked from the holder does not keep it. Who lost it takes it again (`FleetStore.reclaim`).
2. An epoch in the database, one higher with every leader. Each transaction of a leader checks that
   its epoch is still the newest, so that one which lost its lock without noticing (PostgreSQL was
   restarted, somebody deleted the file) can write nothing once another has taken over.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection, create_engine, func, select, text, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from gateway.store.database import OWNERS_ALONE, Database
from gateway.store.errors import DatabaseError, LeaderError, database_errors
from gateway.store.migrations import ADVISORY, SERVING
from gateway.store.tables import LEADER

ENDING = ".lock"
"""Of the lock file's name, which is otherwise that of the database."""


@dataclass(frozen=True, slots=True)
class Leader:
    """Who holds the lock, in words, and since when as far as can be told."""

    process: str
    since_ms: int | None


class Lock(Protocol):
    """What only one process can hold."""

    def take(self) -> bool:
        """Whether we hold it now."""
        ...

    def is_held(self) -> bool:
        """Whether we still hold it."""
        ...

    def release(self) -> None:
        """Let others have it; harmless if we do not hold it."""
        ...

    def is_taken(self) -> bool:
        """Whether anybody holds it, ourselves included; looking takes nothing."""
        ...

    def holder(self) -> str:
        """Who has it, as far as can be told."""
        ...

    def since_ms(self) -> int | None:
        """When its holder took it, as far as can be told."""
        ...


def lock_for(database: Database) -> Lock:
    """The kind of lock that fits the database."""
    if database.dialect == "postgresql":
        return AdvisoryLock(database)
    if database.in_memory:
        return FreeLock()
    return FileLock(Path(f"{Path(str(database.url.database)).resolve()}{ENDING}"))


def begin_epoch(connection: Connection) -> int:
    """Begin the epoch of a new leader, this process; returns its number."""
    after = {"epoch": LEADER.c.epoch + 1, "host": socket.gethostname(), "pid": os.getpid()}
    connection.execute(update(LEADER).values(after))
    return int(connection.execute(select(LEADER.c.epoch)).scalar_one())


def check_epoch(connection: Connection, name: str, epoch: int) -> None:
    """Refuse to write for a leader that is not the newest; hold off a newer one until we are done.

    The row is locked until the transaction ends: whoever wants to take over waits for that.
    """
    found = connection.execute(select(LEADER).with_for_update(read=True)).mappings().one()
    if found["epoch"] != epoch:
        raise LeaderError(
            f"{name} was taken over by {process(found['pid'], found['host'])} (epoch "
            f"{found['epoch']}, this process had epoch {epoch}): stop one of them"
        )


def process(pid: object, host: str) -> str:
    """What a process is called in our sentences."""
    return f"process {pid} on {host!r}" if pid and host else "another process"


class FreeLock:
    """The lock of a database in memory, which nobody else can reach."""

    def take(self) -> bool:
        """Always."""
        return True

    def is_held(self) -> bool:
        """Always."""
        return True

    def is_taken(self) -> bool:
        """By ourselves, or not at all: nobody can tell."""
        return False

    def release(self) -> None:
        """There is nothing to let go of."""

    def holder(self) -> str:
        """It is never asked."""
        return "nobody"

    def since_ms(self) -> int | None:
        """It is never asked."""
        return None


class FileLock:
    """The kernel's lock on a file beside the database, which tells process and host."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None

    def take(self) -> bool:
        """Lock the file and write into it who we are. It is never deleted: that would be a race."""
        self.release()
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._fd = os.open(self.path, flags, OWNERS_ALONE)
            HELD.add(self._fd)
            self._keep_to_ourselves(self._fd)
            _lock(self._fd)
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)
        except OSError as error:
            self.release()
            if isinstance(error, DatabaseError):
                raise
            if isinstance(error, BlockingIOError):
                return False
            link = " (a symbolic link)" if error.errno == errno.ELOOP else ""
            sentence = (
                f"{self.path}: {error.strerror}{link}: it must be a file that this user may write"
            )
            raise DatabaseError(sentence, transient=error.errno == errno.ENOSPC) from error
        return True

    def _keep_to_ourselves(self, fd: int) -> None:
        """Whoever may open the file may lock it, and keep every gateway from starting."""
        owner, database = os.fstat(fd).st_uid, Path(str(self.path).removesuffix(ENDING))
        if owner not in (os.geteuid(), database.stat().st_uid):
            raise DatabaseError(
                f"{self.path} belongs to user {owner}, who could hold the lock forever: delete it",
                transient=False,
            )
        os.fchmod(fd, OWNERS_ALONE)

    def is_held(self) -> bool:
        """Whether the file that we locked is still the one that others would lock."""
        try:
            return self._fd is not None and os.path.samestat(os.fstat(self._fd), self.path.stat())
        except OSError:
            return False

    def is_taken(self) -> bool:
        """Ask for a share of the lock, which its holder would not let us have."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError as error:
            sentence = f"{self.path}: {error.strerror}: it must be a file that this user may read"
            raise DatabaseError(sentence, transient=False) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def release(self) -> None:
        """Closing the file lets go of the lock."""
        if self._fd is not None:
            HELD.discard(self._fd)
            os.close(self._fd)
            self._fd = None

    def holder(self) -> str:
        """What the file says. Between its locking and its writing that is nothing, or too old."""
        try:
            pid, _, host = self.path.read_text(errors="replace").strip().partition(" ")
        except OSError:
            return "another process"
        return process(pid, host)

    def since_ms(self) -> int | None:
        """When the file was written, which only its holder does."""
        try:
            return self.path.stat().st_mtime_ns // 1_000_000
        except OSError:
            return None


def _lock(fd: int) -> None:
    """Lock the file; somebody who only looks (`is_taken`) has a share of it for a moment."""
    for left in reversed(range(LOCK_TRIES)):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not left:
                raise
        time.sleep(LOCK_PAUSE_S)


LOCK_TRIES, LOCK_PAUSE_S = 5, 0.02
HELD: set[int] = set()
"""Files and sockets that hold a lock. A child forked from us must not keep it alive alone."""


def _close_in_child() -> None:
    for fd in HELD:
        os.close(fd)
    HELD.clear()


os.register_at_fork(after_in_child=_close_in_child)


HOLDERS = text(
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted "
    "AND CAST(classid AS bigint) = :us AND CAST(objid AS bigint) = :what "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


SINCE = text(
    "SELECT CAST(1000 * extract(epoch FROM min(backend_start)) AS bigint) FROM pg_stat_activity "
    "WHERE pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted "
    "AND CAST(classid AS bigint) = :us AND CAST(objid AS bigint) = :what "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))"
)


class AdvisoryLock:
    """PostgreSQL's lock of a session. Not for a pooler that shares sessions (pgbouncer)."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._engine = create_engine(database.url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        self._connection: Connection | None = None
        self._fd = -1

    def take(self) -> bool:
        """Open a session and lock; without success the session is closed again."""
        self.release()
        taken = False
        try:
            with database_errors(self._database.name, "claiming the database"):
                self._connection = self._engine.connect()
                self._fd = self._connection.connection.driver_connection.fileno()  # type: ignore[union-attr]
                HELD.add(self._fd)
                question = select(func.pg_try_advisory_lock(ADVISORY, SERVING))
                taken = bool(self._connection.execute(question).scalar_one())
        finally:
            if not taken:
                self.release()
        return taken

    def is_held(self) -> bool:
        """Whether the session is alive: with it the server would have dropped the lock."""
        if self._connection is None:
            return False
        try:
            self._connection.execute(select(1)).close()
            self._connection.rollback()
        except SQLAlchemyError:
            self.release()
            return False
        return True

    def is_taken(self) -> bool:
        """Look into the server's list of locks."""
        with self._database.reading("asking whether it is served") as connection:
            return bool(connection.execute(HOLDERS, {"us": ADVISORY, "what": SERVING}).scalar_one())

    def release(self) -> None:
        """Closing the session lets go of the lock."""
        HELD.discard(self._fd)
        if self._connection is not None:
            self._connection.invalidate()
            self._connection.close()
            self._connection = None

    def holder(self) -> str:
        """What the last leader wrote into the database."""
        try:
            with self._database.reading("asking who serves it") as connection:
                found = connection.execute(select(LEADER)).mappings().one()
        except DatabaseError:
            return "another process"
        return process(found["pid"], found["host"])

    def since_ms(self) -> int | None:
        """When the session began that holds the lock and does nothing else."""
        try:
            with self._database.reading("asking since when it is served") as connection:
                found = connection.execute(SINCE, {"us": ADVISORY, "what": SERVING}).scalar_one()
        except DatabaseError:
            return None
        return None if found is None else int(found)
