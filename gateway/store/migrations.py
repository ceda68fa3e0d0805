"""From any older schema to the newest one, step by step, in one transaction.

`MIGRATIONS[0]` makes version `FIRST` in an empty database, each later step the next version. What
lies in a database of before `FIRST` (signed orders, summaries) nodes would not understand any more:
it is refused, and stays as it is. Whoever changes `tables.py`

1. copies the table as it is today to `first_tables`, from which `first_schema` (or the step that
   made it) creates it ever after: a step never changes once it has been released;
2. adds a step that alters what is there, in plain SQL, keeping the rows.

Several processes may open an old database at one instant: one of them migrates, the others wait.
If a step fails, the database is as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import (
    Column,
    Connection,
    Integer,
    MetaData,
    Table,
    func,
    insert,
    inspect,
    select,
    text,
    update,
)

from gateway.store import archives, first_tables, history, site_tables
from gateway.store.database import Database
from gateway.store.errors import StoreVersionError
from gateway.store.tables import LEADER, METADATA

Migration = Callable[[Connection], None]

ADVISORY = 0x6F706964
"""The first half of the keys of our advisory locks in PostgreSQL: `opid`."""
MIGRATING, SERVING, JOINING = 1, 2, 3
"""The second half: what the lock is for."""

VERSION = Table("schema_version", MetaData(), Column("version", Integer, nullable=False))


FIRST = 4
"""The version of the first release."""


def first_schema(connection: Connection) -> None:
    """Version 4: every table, and no leader yet."""
    first_tables.METADATA.create_all(connection)
    altered = first_tables.METADATA.tables
    unaltered = [table for name, table in METADATA.tables.items() if name not in altered]
    METADATA.create_all(connection, unaltered)
    connection.execute(insert(LEADER).values(id=1, epoch=0, host="", pid=0))


def add_history(connection: Connection) -> None:
    """Version 5: what was, by the minute and by the hour, and sensors' lives."""
    history.METADATA.create_all(connection)


def add_archives(connection: Connection) -> None:
    """Version 6: what operators' archives taught each group."""
    archives.METADATA.create_all(connection)


def add_heard(connection: Connection) -> None:
    """Version 7: when each node of a large site was last heard."""
    history.HEARD_METADATA.create_all(connection)


def add_sites(connection: Connection) -> None:
    """Version 8: who holds which site."""
    site_tables.METADATA.create_all(connection)


def add_agreement(connection: Connection) -> None:
    """Version 9: how often a node's model answers the same with a new sensor as with the old."""
    for column in ("judged", "agreed"):
        connection.execute(
            text(f"ALTER TABLE sensors ADD COLUMN {column} BIGINT DEFAULT 0 NOT NULL")
        )


MIGRATIONS: tuple[Migration, ...] = (
    first_schema,
    add_history,
    add_archives,
    add_heard,
    add_sites,
    add_agreement,
)


def migrate(database: Database, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Bring the database to the newest version; one of an unknown version stays as it is."""
    newest = FIRST + len(migrations) - 1
    with database.reading("reading the version of the schema") as connection:
        if _version(connection, database.name, newest) == newest:
            return  # as nearly always: no need to wait for whoever is writing
    with database.writing(f"migrating to version {newest}") as connection:
        if database.dialect == "postgresql":  # SQLite's writers wait for each other anyway
            connection.execute(select(func.pg_advisory_xact_lock(ADVISORY, MIGRATING)))
        version = _version(connection, database.name, newest)
        if version == 0:
            VERSION.create(connection, checkfirst=True)
            connection.execute(insert(VERSION).values(version=0))
        for step in migrations[version - FIRST + 1 if version else 0 :]:
            step(connection)
        connection.execute(update(VERSION).values(version=newest))


def _version(connection: Connection, name: str, newest: int) -> int:
    if not inspect(connection).has_table(VERSION.name):
        return 0
    found = connection.execute(select(VERSION.c.version)).scalar_one()
    if found < FIRST:
        raise StoreVersionError(
            f"{name} has schema version {found}, from before the first release, and this program "
            f"knows versions from {FIRST}: use another database, and each node introduces itself "
            "again"
        )
    if found > newest:
        raise StoreVersionError(
            f"{name} has schema version {found}, but this program knows versions up to {newest}: "
            "install the newer program again, or use another database"
        )
    return int(found)
