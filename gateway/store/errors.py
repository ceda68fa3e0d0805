"""What can go wrong with the gateway's database, and who is at fault.

The gateway's loop needs to know one thing of a failure: try again, or give up? `DatabaseError` says
it in `transient`. The other errors here are never cured by trying again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import exc

from edge_opid.errors import ConfigError, RefusedError


class StoreVersionError(ConfigError):
    """The database has a schema that this program does not know: a newer one, or one too old."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, "gateway.database")


class LeaderError(RefusedError):
    """Another process is the leader of this database, and we must not write to it."""

    def __init__(self, sentence: str) -> None:
        super().__init__("leader", sentence)


class RecordError(RefusedError, ValueError):
    """A record is at fault: it cannot be stored."""

    def __init__(self, sentence: str) -> None:
        super().__init__("record", sentence)


class DatabaseError(RefusedError, OSError):
    """The database is at fault: gone, locked, full, damaged, or not ours to use.

    `transient` is true where the same call may succeed later: the connection was lost, somebody
    holds a lock, the disk is full. Saving twice what was saved once is harmless. `unsure` is true
    where nobody can tell a database that is damaged, or gone, from a disk that failed to read it
    for a moment: whoever had it open before may try again, whoever opens it should not.

    >>> error = DatabaseError("saving 2 records: database is locked", transient=True)
    >>> error.transient, isinstance(error, OSError)
    (True, True)
    """

    def __init__(self, sentence: str, *, transient: bool, unsure: bool = False) -> None:
        super().__init__("database", sentence)
        self.transient, self.unsure = transient, unsure


AGAIN = "try again: what is saved twice is stored once"
CHECK = "nothing was stored: check the address, the rights and the health of the database"

SQLITE_TRANSIENT = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_IOERR,  # a card that stumbles; the write-ahead log keeps the file whole
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_PROTOCOL,  # several processes opened the write-ahead log at one instant
    }
)
SQLITE_UNSURE = frozenset(
    {
        sqlite3.SQLITE_CORRUPT,  # also after a page that could not be read
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,  # a card with errors is mounted so
    }
)
POSTGRESQL_TRANSIENT = (
    "08",  # the connection
    "40",  # a deadlock, or two transactions that cannot be put in an order
    "53",  # disk full, out of memory, too many connections
    "55P03",  # a lock was not to be had in time
    "57014",  # it took too long, as that of a heartbeat may not
    "57P",  # the server is shutting down, or starting
    "58",  # its disk
)


@contextmanager
def database_errors(name: str, doing: str) -> Iterator[None]:
    """Turn what SQLAlchemy raises into a `DatabaseError` that says where, and while doing what.

    >>> with database_errors("gateway.sqlite", "saving 2 records"):
    ...     raise exc.TimeoutError("the pool is empty")
    Traceback (most recent call last):
    ...
    gateway.store.errors.DatabaseError: gateway.sqlite: saving 2 records failed: the pool is \
empty; try again: what is saved twice is stored once
    """
    try:
        yield
    except exc.SQLAlchemyError as error:
        transient = is_transient(error)
        cause = getattr(error, "orig", None) or error
        words = " ".join(str(cause).split())  # PostgreSQL says it in several lines
        advice = AGAIN if transient else CHECK
        sentence = f"{name}: {doing} failed: {words}; {advice}"
        unsure = _sqlite_code(error) in SQLITE_UNSURE
        raise DatabaseError(sentence, transient=transient, unsure=unsure) from error


def is_transient(error: exc.SQLAlchemyError) -> bool:
    """Whether the same call may succeed later."""
    if not isinstance(error, exc.DBAPIError):
        return isinstance(error, exc.TimeoutError)
    if error.connection_invalidated:
        return True
    if isinstance(error.orig, sqlite3.Error):
        return _sqlite_code(error) in SQLITE_TRANSIENT
    state: str | None = getattr(error.orig, "sqlstate", None)
    if state is None:  # PostgreSQL was never reached, or stopped answering
        return isinstance(error, exc.OperationalError)
    return state.startswith(POSTGRESQL_TRANSIENT)


def _sqlite_code(error: exc.SQLAlchemyError) -> int:
    """What SQLite calls it, or -1; the higher bits tell kinds of the same."""
    code = getattr(getattr(error, "orig", None), "sqlite_errorcode", -1)
    return -1 if code < 0 else int(code) & 0xFF
