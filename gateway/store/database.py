"""One database, SQLite or PostgreSQL, behind two kinds of transaction: reading and writing.

1. A transaction that reads sees one moment of the database, however long it takes.
2. A transaction that writes is all or nothing, and durable when it returns: SQLite keeps a
   write-ahead log and syncs it at every commit (`synchronous=FULL`: with `NORMAL` a power cut
   takes the last transactions with it).
3. Whoever finds a lock waits `LOCK_WAIT_S` and then gets a `DatabaseError` that is transient.
4. A connection that died is replaced at the next transaction.

5. SQLite's files are their owner's alone: whoever can read one can also lock it.

Nobody else here knows which of the two it is, except `leader.py`.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sqlalchemy import URL, Connection, Engine, Table, create_engine, event, make_url
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import StaticPool

from edge_opid import log
from edge_opid.errors import SettingError
from gateway.store.errors import DatabaseError, database_errors

OWNERS_ALONE = 0o600
FAMILY = ("", "-wal", "-shm")
"""What SQLite appends to the name of a database."""
LOCK_WAIT_S = 5
LOCK_WAITS_S = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 1.0, 1.0, 1.0)
EXAMPLES = "sqlite:///gateway.sqlite or postgresql://user@host/database"
PRAGMAS = (
    f"busy_timeout = {LOCK_WAIT_S * 1000}",  # first: the next one may have to wait
    "journal_mode = WAL",
    "synchronous = FULL",
    "foreign_keys = ON",
)
POSTGRESQL_OPTIONS = {
    "application_name": "opid-gateway",
    "connect_timeout": "10",
    # A host that lost its power, or a cut cable, says no goodbye: both ends notice within some ten
    # seconds, and the server then lets go of the locks, so that another gateway can take over.
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
    "options": f"-c lock_timeout={LOCK_WAIT_S}s -c tcp_keepalives_idle=5 "
    "-c tcp_keepalives_interval=2 -c tcp_keepalives_count=3 -c tcp_user_timeout=10000",
}


def parse_url(text: str, key: str = "gateway.database") -> URL:
    """The address of a database with the driver we use, or a `SettingError` about `key`.

    Of what was given, no error shows more than the kind of database: there may be a password in it.

    >>> parse_url("postgresql://opid@pi4/fleet").drivername
    'postgresql+psycopg'
    >>> parse_url("mysql://opid:secret@pi4/fleet")
    Traceback (most recent call last):
    ...
    edge_opid.errors.SettingError: gateway.database must be an sqlite or postgresql URL, got 'mysql'
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise SettingError(key, f"must be like {EXAMPLES}, got no URL") from None
    if url.drivername in ("postgresql", "postgresql+psycopg"):
        return url.set(drivername="postgresql+psycopg")  # SQLAlchemy's default is the old driver
    if url.drivername not in ("sqlite", "sqlite+pysqlite"):
        raise SettingError(key, f"must be an sqlite or postgresql URL, got {url.drivername!r}")
    if str(url.database).startswith("file:"):  # has no file name to put a lock beside
        raise SettingError(key, "must name a file, such as sqlite:///gateway.sqlite, not a URI")
    return url


def with_settings(url: URL, settings: Mapping[str, object]) -> URL:
    """The address with more settings for our sessions there; the last word counts."""
    given = "".join(f" -c {name}={value}" for name, value in settings.items())
    return url.update_query_dict({"options": f"{url.query.get('options', '')}{given}".strip()})


class Database:
    """An engine for each kind of transaction, over one pool of one connection."""

    def __init__(self, text: str, settings: Mapping[str, str] = MappingProxyType({})) -> None:
        self.url = parse_url(text)
        self.dialect = self.url.get_backend_name()
        if self.dialect == "postgresql":
            missing = POSTGRESQL_OPTIONS.keys() - self.url.query
            self.url = self.url.update_query_dict({key: POSTGRESQL_OPTIONS[key] for key in missing})
            self.url = with_settings(self.url, settings)
        self.in_memory = self.dialect == "sqlite" and self.url.database in (None, "", ":memory:")
        self.name = _shown(self.url, self.in_memory)
        self._engine = _sqlite(self) if self.dialect == "sqlite" else _postgresql(self)
        self._upserts: dict[str, str] = {}
        options = OPTIONS[self.dialect]
        self._reading = self._engine.execution_options(**options["reading"])
        self._writing = self._engine.execution_options(**options["writing"])

    @contextmanager
    def reading(self, doing: str) -> Iterator[Connection]:
        """A transaction that sees one moment, and changes nothing."""
        with self._renewed(doing), self._reading.connect() as connection:
            yield connection

    @contextmanager
    def writing(self, doing: str) -> Iterator[Connection]:
        """A transaction that is durable when the block ends, or has not happened if it raises."""
        with self._renewed(doing), self._writing.begin() as connection:
            yield connection

    @contextmanager
    def _renewed(self, doing: str) -> Iterator[None]:
        """Errors in our words; what looked damaged is looked at by another connection next time."""
        try:
            with database_errors(self.name, doing):
                yield
        except DatabaseError as error:
            if error.unsure and not self.in_memory:
                self._engine.dispose()
            raise

    def upsert(self, connection: Connection, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
        """Rows as `rows_of` has them; each replaces the one with the same key.

        INSERT … ON CONFLICT DO UPDATE, compiled once and handed to the driver with all rows: to
        have SQLAlchemy look at every value of every row takes longer than SQLite does.
        """
        if table.name not in self._upserts:
            self._upserts[table.name] = self._compiled_upsert(table)
        statement = self._upserts[table.name]
        if self.dialect == "sqlite":  # by place; psycopg by name
            connection.exec_driver_sql(statement, list(rows))
        else:
            names = [column.name for column in table.c]
            named = [dict(zip(names, row, strict=True)) for row in rows]
            connection.exec_driver_sql(statement, named)

    def _compiled_upsert(self, table: Table) -> str:
        insert = sqlite.insert if self.dialect == "sqlite" else postgresql.insert
        statement = insert(table)
        rest = {
            each.name: statement.excluded[each.name] for each in table.c if not each.primary_key
        }
        upsert = statement.on_conflict_do_update(index_elements=table.primary_key, set_=rest)
        return str(upsert.compile(dialect=self._engine.dialect))

    def close(self) -> None:
        """Let go of the connection."""
        self._engine.dispose()


def _shown(url: URL, in_memory: bool) -> str:
    """What people call it: a file by its path, a server's without password and options."""
    if url.get_backend_name() == "sqlite":
        return "the database in memory" if in_memory else str(url.database)
    return url.set(drivername="postgresql", query={}).render_as_string(hide_password=True)


OPTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "sqlite": {"reading": {"begin": "BEGIN"}, "writing": {"begin": "BEGIN IMMEDIATE"}},
    "postgresql": {
        "reading": {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True},
        "writing": {"isolation_level": "READ COMMITTED"},
    },
}


def _sqlite(database: Database) -> Engine:
    if database.in_memory:  # it lives and dies with its one connection, whichever thread asks
        one = {"poolclass": StaticPool, "connect_args": {"check_same_thread": False}}
        engine = create_engine(database.url, **one)
    else:
        engine = create_engine(database.url, pool_size=1, max_overflow=0)

        @event.listens_for(engine, "do_connect")
        def close_to_others(*_: object) -> None:
            make_private(Path(str(database.url.database)))

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None  # Python would begin too late, after the first SELECT
        try:
            _set_pragmas(connection)
        except BaseException:
            connection.close()  # the pool does not have it yet
            raise

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))

    return engine


def make_private(path: Path) -> None:
    """Make the database's file if there is none, and let nobody but its owner in.

    SQLite would make it as the umask says; it gives its write-ahead log the mode of the database.
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


def _set_pragmas(connection: sqlite3.Connection) -> None:
    """For the change to a write-ahead log SQLite does not wait by itself: so we do."""
    for wait_s in (*LOCK_WAITS_S, None):
        try:
            for pragma in PRAGMAS:
                connection.execute(f"PRAGMA {pragma}").close()
            return
        except sqlite3.OperationalError as error:
            if wait_s is None or error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            time.sleep(wait_s)


def _postgresql(database: Database) -> Engine:
    try:
        return create_engine(database.url, pool_size=1, max_overflow=0, pool_pre_ping=True)
    except ImportError as error:
        advice = "pip install 'edge-opid[gateway]'"
        complaint = f"{database.name} needs psycopg ({error}): {advice}"
        raise SettingError("gateway.database", complaint) from error
