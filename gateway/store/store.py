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

from sqlalchemy import Connection, bindparam, delete, func, select

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
from gateway.registry.archives import ArchiveRecord
from gateway.registry.fleet import StoredFleet
from gateway.registry.history import HourRecord, LifeRecord, MinutesRecord
from gateway.sites.census import Member
from gateway.store import archives, commands, history, queries
from gateway.store.commands import CommandRecord
from gateway.store.database import Database
from gateway.store.errors import LeaderError, RecordError
from gateway.store.leader import Leader, begin_epoch, check_epoch, lock_for
from gateway.store.migrations import MIGRATIONS, Migration, migrate
from gateway.store.rows import rows_of
from gateway.store.sites import NOW_MS, SiteRow, end_tenures, read_members, read_sites
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
            end_tenures(connection)

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

    def leader(self) -> Leader | None:
        """Who serves this database now, and since when; None where nobody does."""
        if not self._lock.is_taken():
            return None
        return Leader(self._lock.holder(), self._lock.since_ms())

    def has_leader(self) -> bool:
        """Whether a gateway serves this database now; asking takes nothing from it."""
        return self._lock.is_taken()

    def membership(self) -> tuple[list[Member], list[SiteRow]]:
        """The gateways that share the sites, and who holds which; nothing where nobody shares."""
        with self._database.reading("reading who serves which site") as connection:
            return read_members(connection), read_sites(connection)

    def database_ms(self) -> int:
        """What time it is by the clock of the database, which all gateways share."""
        with self._database.reading("asking for the time") as connection:
            return int(connection.execute(select(NOW_MS)).scalar_one())

    def save(self, records: Iterable[Record], outcomes: Mapping[int, str] | None = None) -> None:
        """Store these records, all or none. Of two with the same key the later one counts.

        `outcomes` settles commands by id in the same transaction, see `settle`: what an operator
        was told is done is stored. A `ForgottenRecord` first deletes what is there of its node.
        """
        groups = _grouped(records)
        if not groups and not outcomes:
            return
        forgotten = groups.pop(ForgottenRecord, ())
        rows = {kind: rows_of(groups[kind]) for kind in TABLES if kind in groups}
        count = sum(map(len, rows.values()))
        with self._leading(f"saving {count} records") as connection:
            for node in forgotten:
                _forget(connection, node)
            for kind, some in rows.items():  # as `TABLES` has them: changes before their examples
                self._database.upsert(connection, TABLES[kind], some)
            if SummaryRecord in groups:
                _drop_old_summaries(connection, groups[SummaryRecord])
            if LifeRecord in groups:
                history.drop_old_lives(connection, groups[LifeRecord])
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
                    select(func.count()).select_from(table).where(*history.of_node(table, key))
                ).scalar_one()
                for table in TABLES.values()
                if "node" in table.c
            }

    # -- what was ------------------------------------------------------------------------------

    def minutes_since(self, hour: int) -> list[MinutesRecord]:
        """Every node's hours from this one on, by the minute."""
        with self._database.reading("reading the last hours") as connection:
            return history.minutes_since(connection, hour)

    def minutes_of(self, key: NodeKey, since_hour: int) -> list[MinutesRecord]:
        """A node's hours by the minute, in order: 90 days at most."""
        with self._database.reading(f"reading the minutes of {'/'.join(key)}") as connection:
            return history.minutes_of(connection, key, since_hour)

    def hours_of(self, key: NodeKey, since_hour: int) -> list[HourRecord]:
        """A node's hours, in order: two years at most."""
        with self._database.reading(f"reading the hours of {'/'.join(key)}") as connection:
            return history.hours_of(connection, key, since_hour)

    def accuracies_since(self, hour: int) -> dict[NodeKey, list[tuple[int, float | None]]]:
        """The accuracy of every node, hour by hour, in order."""
        with self._database.reading("reading accuracies") as connection:
            return history.accuracies_since(connection, hour)

    def lives_of(self, key: NodeKey) -> list[LifeRecord]:
        """What happened to a node's sensors, in order: the last thousand events."""
        with self._database.reading(f"reading the lives of {'/'.join(key)}") as connection:
            return history.lives_of(connection, key)

    def layout_changes(self, key: NodeKey) -> list[tuple[int, int, int]]:
        """Version, moment and change of every layout that a node was given, in order."""
        with self._database.reading(f"reading the layouts of {'/'.join(key)}") as connection:
            return queries.layout_changes(connection, key)

    def tidy_history(self, now_ms: int) -> int:
        """Thin out some of what is old; how many rows there were, 0: none."""
        with self._leading("tidying the history") as connection:
            return history.tidy(connection, now_ms)

    def use_link(self, nonce: str, ends_ms: int, now_ms: int) -> bool:
        """Note that a one-time link of the pages is used; False where it was before."""
        with self._database.writing("using a link") as connection:
            return history.use_link(connection, nonce, ends_ms, now_ms)

    # -- archives ------------------------------------------------------------------------------

    def archives(self, group: str | None = None) -> list[ArchiveRecord]:
        """What archives taught this group, or all groups."""
        with self._database.reading("reading archives") as connection:
            return archives.of_group(connection, group)

    def replace_archive(self, group: str, archive: str, records: Sequence[ArchiveRecord]) -> int:
        """Keep these instead of what there is of this archive; how many those were."""
        with self._database.writing(f"keeping archive {archive}") as connection:
            return archives.replace(connection, group, archive, records)

    # -- commands ------------------------------------------------------------------------------

    def submit(self, site: str, node: str, payload: bytes, at_ms: int) -> int:
        """Leave a command for the running gateway; returns the id to ask `command` for."""
        with self._database.writing("submitting a command") as connection:
            return commands.submit(
                connection, CommandRecord(id=0, site=site, node=node, payload=payload, at_ms=at_ms)
            )

    def withdraw(self, site: str, node: str, numbers: Iterable[int], after_ms: int) -> int:
        """Delete those of these open labels that are due after this; how many there were."""
        with self._database.writing("withdrawing labels") as connection:
            return commands.withdraw(connection, site, node, numbers, after_ms)

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


def _grouped(records: Iterable[Record]) -> dict[type[Any], list[Any]]:
    """Records by class, each class in the order given: a later row replaces an earlier one."""
    found: dict[type[Any], list[Any]] = {}
    for record in records:
        found.setdefault(type(record), []).append(record)
    for kind in found:
        if kind not in TABLES and kind is not ForgottenRecord:
            known = ", ".join(each.__name__ for each in TABLES)
            raise RecordError(f"a {kind.__name__} cannot be saved: give one of {known}")
    return found


def _forget(connection: Connection, record: ForgottenRecord) -> None:
    """Every row that has the node in its key. Changes and fits are the group's, and stay."""
    for table in TABLES.values():
        if "node" in table.c:
            key = record.site, record.node
            connection.execute(delete(table).where(*history.of_node(table, key)))


def _drop_old_summaries(connection: Connection, summaries: Iterable[SummaryRecord]) -> None:
    """Of each node that a summary came from, keep the newest layout versions only."""
    site, node, version = SUMMARIES.c.site, SUMMARIES.c.node, SUMMARIES.c.layout_version
    this = site == bindparam("its_site"), node == bindparam("its_node")
    nth = select(version).where(*this).order_by(version.desc()).offset(SUMMARIES_KEPT).limit(1)
    nodes = {(each.site, each.node) for each in summaries}
    connection.execute(
        delete(SUMMARIES).where(*this, version <= nth.scalar_subquery()),
        [{"its_site": a_site, "its_node": a_node} for a_site, a_node in sorted(nodes)],
    )
