"""The gateway's durable state: records in, records out, in one database.

1. `save` is one transaction: every record of it is stored, or none. A record replaces the one with
   the same key.
2. What `save` has returned from survives `kill -9` and a power cut.
3. Exactly one process is the leader and saves (`claim`); others may read, and submit commands.
4. Nothing is read that is not what was saved: a damaged row is an error that names it.
5. Raw readings are not kept: `forget_examples` when a change is closed.

One thread at a time uses a store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, bindparam, delete, func, select

from gateway.registry import (
    ChangeRecord,
    ChangeState,
    ExampleRecord,
    FitRecord,
    ForgottenRecord,
    LayoutRecord,
    NodeKey,
    Record,
    SummaryRecord,
)
from gateway.registry.fleet import StoredFleet
from gateway.store import commands, queries
from gateway.store.commands import CommandRecord
from gateway.store.database import Database
from gateway.store.errors import LeaderError, RecordError
from gateway.store.leader import begin_epoch, check_epoch, lock_for
from gateway.store.migrations import MIGRATIONS, Migration, migrate
from gateway.store.rows import key_of, row_of
from gateway.store.tables import CHANGES, EXAMPLES, SUMMARIES, TABLES

SUMMARIES_KEPT = 4
"""Layout versions of a node whose statistics are kept: more were never needed for a change."""


class FleetStore:
    """What the gateway must not forget.

    >>> from gateway.registry import NodeRecord
    >>> with FleetStore.open("sqlite://") as store:  # in memory: a file is sqlite:///gateway.sqlite
    ...     store.claim()
    ...     store.save([NodeRecord(site="street", node="north", group="air", gate=0.5)])
    ...     store.fleet().nodes[0].group, store.fleet().next_change
    ('air', 1)
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = lock_for(database)
        self._epoch: int | None = None  # None: not the leader, and never was

    @classmethod
    def open(cls, url: str, migrations: Sequence[Migration] = MIGRATIONS) -> FleetStore:
        """Connect, and bring the schema to the newest version."""
        database = Database(url)
        try:
            migrate(database, migrations)
        except BaseException:
            database.close()
            raise
        return cls(database)

    def __enter__(self) -> FleetStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connection, and of the database if we were its leader."""
        self._lock.release()
        self._epoch = None
        self._database.close()

    def claim(self) -> None:
        """Become the one leader, until `close` or death; again, where we are it no more."""
        if self.is_leader():
            return
        with self._locked("claiming the database") as connection:
            self._epoch = begin_epoch(connection)

    def is_leader(self) -> bool:
        """Whether nobody can have taken over. If not: `claim` again, and read everything anew."""
        return self._epoch is not None and self._lock.is_held()

    def reclaim(self) -> bool:
        """Take a lost lock again: the server was restarted, or somebody deleted the file.

        True if it had to be taken. A `LeaderError` where another has it, or has had it since: what
        we remember may be out of date, and only a new start reads it anew.
        """
        if self._epoch is None or self._lock.is_held():
            return False
        with self._locked("claiming the database again") as connection:
            check_epoch(connection, self._database.name, self._epoch)
        return True

    @contextmanager
    def _locked(self, doing: str) -> Iterator[Connection]:
        """Take the lock and write; the lock is let go of where that fails."""
        name = self._database.name
        if not self._lock.take():
            served = f"{name} is being served by {self._lock.holder()}"
            raise LeaderError(f"{served}: stop it, or use another database")
        try:
            with self._database.writing(doing) as connection:
                yield connection
        except BaseException:
            self._lock.release()
            raise

    def has_leader(self) -> bool:
        """Whether a gateway serves this database now; asking takes nothing from it."""
        return self._lock.is_taken()

    def save(self, records: Iterable[Record], outcomes: Mapping[int, str] | None = None) -> None:
        """Store these records, all or none. Of two with the same key the later one counts.

        `outcomes` settles commands by id in the same transaction, see `settle`: what an operator
        was told is done is stored. A `ForgottenRecord` first deletes what is there of its node.
        """
        every = list(records)
        forgotten = [record for record in every if isinstance(record, ForgottenRecord)]
        groups = _grouped(record for record in every if not isinstance(record, ForgottenRecord))
        if not every and not outcomes:
            return
        count = sum(map(len, groups.values()))
        with self._leading(f"saving {count} records") as connection:
            for node in forgotten:
                _forget(connection, node)
            for kind, rows in groups.items():
                connection.execute(self._database.upsert(TABLES[kind]), rows)
            if SummaryRecord in groups:
                _drop_old_summaries(connection, groups[SummaryRecord])
            if outcomes:
                commands.settle(connection, outcomes)

    def fleet(self) -> StoredFleet:
        """What a gateway needs to go on where it stood."""
        with self._database.reading("reading the fleet") as connection:
            return queries.fleet(connection)

    def summaries(self, keys: Iterable[NodeKey]) -> list[SummaryRecord]:
        """The summaries of these (site, node)."""
        with self._database.reading("reading summaries") as connection:
            return queries.by_keys(connection, SummaryRecord, ("site", "node"), keys)

    def layouts(self, keys: Iterable[tuple[str, str, int]]) -> list[LayoutRecord]:
        """The layouts of these (site, node, version)."""
        with self._database.reading("reading layouts") as connection:
            return queries.by_keys(connection, LayoutRecord, LayoutRecord.KEY, keys)

    def members(self, change: int) -> list[LayoutRecord]:
        """The layouts that nodes were given in this change."""
        with self._database.reading(f"reading the members of change {change}") as connection:
            return queries.of_change(connection, LayoutRecord, change)

    def changes(self, limit: int) -> list[ChangeRecord]:
        """The last changes, the newest first."""
        with self._database.reading("reading changes") as connection:
            return queries.newest_changes(connection, limit)

    def change(self, number: int) -> ChangeRecord | None:
        """One change, however old; None where it never was."""
        with self._database.reading(f"reading change {number}") as connection:
            return queries.one_change(connection, number)

    def fits(self, change: int) -> list[FitRecord]:
        """The fits of a change, the smallest batch first."""
        with self._database.reading(f"reading the fits of change {change}") as connection:
            return queries.of_change(connection, FitRecord, change)

    def examples(self, change: int) -> list[ExampleRecord]:
        """The labelled instances of a change, in the order of arrival."""
        with self._database.reading(f"reading the examples of change {change}") as connection:
            found = queries.of_change(connection, ExampleRecord, change)
        return sorted(found, key=lambda example: example.place)

    def forget_examples(self, change: int) -> None:
        """Delete the labelled instances of a change: it is closed."""
        with self._leading(f"forgetting the examples of change {change}") as connection:
            connection.execute(delete(EXAMPLES).where(EXAMPLES.c.change == change))

    def forget_closed(self) -> None:
        """Delete the labelled instances of every closed change: we died before we could."""
        closed = select(CHANGES.c.id).where(CHANGES.c.state == str(ChangeState.CLOSED))
        with self._leading("forgetting the examples of closed changes") as connection:
            connection.execute(delete(EXAMPLES).where(EXAMPLES.c.change.in_(closed)))

    def row_counts(self, key: NodeKey) -> dict[str, int]:
        """How many rows there are of a node, by table: what goes when it is forgotten."""
        with self._database.reading(f"counting what is known of {'/'.join(key)}") as connection:
            return {
                table.name: connection.execute(
                    select(func.count()).select_from(table).where(*_of_node(table, key))
                ).scalar_one()
                for table in TABLES.values()
                if "node" in table.c
            }

    def submit(self, site: str, node: str, payload: bytes, at_ms: int) -> int:
        """Leave a command for the running gateway; returns the id to ask `command` for."""
        with self._database.writing("submitting a command") as connection:
            return commands.submit(
                connection, CommandRecord(id=0, site=site, node=node, payload=payload, at_ms=at_ms)
            )

    def commands(self) -> list[CommandRecord]:
        """The open commands, by id."""
        with self._database.reading("reading the open commands") as connection:
            return commands.open_commands(connection)

    def command(self, number: int) -> CommandRecord | None:
        """One command with its outcome; None where it never was, or is long forgotten."""
        with self._database.reading(f"reading command {number}") as connection:
            return commands.find(connection, number)

    def settle(self, number: int, outcome: str) -> None:
        """Say how an open command ended: `done`, or the sentence why not. The first word counts."""
        self.save((), {number: outcome})

    @contextmanager
    def _leading(self, doing: str) -> Iterator[Connection]:
        """A transaction that writes, and fails if a newer leader has taken over from us."""
        with self._database.writing(doing) as connection:
            if self._epoch is not None:
                check_epoch(connection, self._database.name, self._epoch)
            yield connection


def _grouped(records: Iterable[Record]) -> dict[type[Any], list[dict[str, Any]]]:
    """Rows by class, in the order of `TABLES`, which has the changes before their examples."""
    newest: dict[type[Any], dict[tuple[Any, ...], Record]] = {kind: {} for kind in TABLES}
    for record in records:
        if type(record) not in TABLES:
            known = ", ".join(kind.__name__ for kind in TABLES)
            raise RecordError(f"a {type(record).__name__} cannot be saved: give one of {known}")
        newest[type(record)][key_of(record)] = record
    return {kind: [row_of(each) for each in some.values()] for kind, some in newest.items() if some}


def _forget(connection: Connection, record: ForgottenRecord) -> None:
    """Every row that has the node in its key. Changes and fits are the group's, and stay."""
    for table in TABLES.values():
        if "node" in table.c:
            connection.execute(delete(table).where(*_of_node(table, (record.site, record.node))))


def _of_node(table: Table, key: NodeKey) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return table.c.site == key[0], table.c.node == key[1]


def _drop_old_summaries(connection: Connection, rows: list[dict[str, Any]]) -> None:
    """Of each node that a summary came from, keep the newest layout versions only."""
    site, node, version = SUMMARIES.c.site, SUMMARIES.c.node, SUMMARIES.c.layout_version
    this = site == bindparam("its_site"), node == bindparam("its_node")
    nth = select(version).where(*this).order_by(version.desc()).offset(SUMMARIES_KEPT).limit(1)
    nodes = {(row["site"], row["node"]) for row in rows}
    connection.execute(
        delete(SUMMARIES).where(*this, version <= nth.scalar_subquery()),
        [{"its_site": a_site, "its_node": a_node} for a_site, a_node in sorted(nodes)],
    )
