"""Which gateway holds which site, in tables; and the session by which one says that it is alive.

    sites    a row a site: its number, its epoch, and the member that holds it ('' for nobody)
    members  a row a gateway: who it is, what it is configured for, and how often it has beaten

1. A site is taken by one UPDATE that names the holder and the epoch we saw: of two gateways that
   want it one succeeds. Every taking begins another epoch.
2. Each transaction of a gateway that serves a site checks the site's epoch and locks its row until
   it ends (`check_site`): whoever wants to take the site waits for that, and after it the former
   holder can write nothing more.
3. Before the sites of a dead member are taken, its sessions are ended: a frozen one keeps no lock.
4. All members share the lock that a gateway alone with the database would hold: the two kinds
   exclude each other.

SQLite has the tables, empty: one process leads such a database (`leader.py`).
"""

from __future__ import annotations

import json
import os
import socket
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, create_engine, delete, func, insert, select, text, update
from sqlalchemy.dialects import postgresql
from sqlalchemy.pool import NullPool

from gateway.sites.census import Member
from gateway.store.database import Database, with_settings
from gateway.store.errors import DatabaseError, LeaderError, database_errors
from gateway.store.leader import HELD, begin_epoch
from gateway.store.migrations import ADVISORY, JOINING, SERVING
from gateway.store.site_tables import MEMBERS, SITES

NOW_MS = text("CAST(1000 * extract(epoch FROM clock_timestamp()) AS bigint)")
"""Of the database's clock: for people, nobody decides by it."""
END_SESSIONS = text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE application_name = :name AND datname = current_database()"
)
CHANGES_APART = 10_000
"""The changes of site 17 have numbers that end in 0017: no two sites ever take the same one."""


def session_name(member: str) -> str:
    """What PostgreSQL calls the sessions of a member; it keeps 63 characters.

    >>> session_name("pi4-811-0a1b2c3d")
    'opid-gateway-0a1b2c3d'
    """
    return f"opid-gateway-{member.rpartition('-')[2]}"


@dataclass(frozen=True, slots=True)
class Tenure:
    """The right to write for a site, until somebody begins the next epoch."""

    site: str
    number: int
    epoch: int
    member: str = ""

    @property
    def sessions(self) -> str:
        """What PostgreSQL calls the sessions by which this member writes: see `bury`."""
        return session_name(self.member)

    def next_change(self, highest: int) -> int:
        """The first number above all that were ever given which is this site's to give.

        >>> Tenure("street", 17, 1).next_change(0), Tenure("street", 17, 1).next_change(30_017)
        (17, 40017)
        """
        return highest + 1 + (self.number - highest - 1) % CHANGES_APART


@dataclass(frozen=True, slots=True)
class SiteRow:
    """A site as the table has it."""

    site: str
    number: int
    epoch: int
    member: str


def check_site(connection: Connection, name: str, tenure: Tenure) -> None:
    """Refuse to write for a site that is another's by now; hold that one off until we are done."""
    this = select(SITES).where(SITES.c.site == tenure.site).with_for_update(read=True)
    row = connection.execute(this).mappings().first()
    if row is None or row["epoch"] != tenure.epoch:
        found = "gone" if row is None else f"in epoch {row['epoch']}"
        raise LeaderError(
            f"site {tenure.site!r} of {name} is {found}, and this process held it in epoch "
            f"{tenure.epoch}: another gateway serves it"
        )


def end_tenures(connection: Connection) -> None:
    """Whoever holds a site holds it no more: one process leads the whole database from now on."""
    connection.execute(update(SITES).values(epoch=SITES.c.epoch + 1, member=""))


def read_members(connection: Connection) -> list[Member]:
    """Every row, living or not."""
    rows = connection.execute(select(MEMBERS).order_by(MEMBERS.c.name)).mappings()
    return [_member(row) for row in rows]


def read_sites(connection: Connection) -> list[SiteRow]:
    """Every site that a gateway was ever configured for, by name."""
    rows = connection.execute(select(SITES).order_by(SITES.c.site)).mappings()
    return [SiteRow(row["site"], row["number"], row["epoch"], row["member"]) for row in rows]


def _member(row: Any) -> Member:
    try:
        sites = tuple(map(str, json.loads(row["sites"])))
    except (TypeError, ValueError) as error:
        raise DatabaseError(
            f"table members, row name={row['name']!r}: sites cannot be read: {error}; delete the "
            "row, and restart that gateway",
            transient=False,
        ) from error
    return Member(**{**row, "sites": sites})


class MemberSession:
    """One connection of one gateway to the tables: it beats, takes and gives up.

    It is not the one by which sites write: nothing there can hold up a heartbeat. What is lost with
    it (PostgreSQL was restarted) is made again by the next `beat`.
    """

    def __init__(self, database: Database, key: str, lease_s: float, sites: Sequence[str]) -> None:
        self.name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._key, self._lease_s, self._sites = key, lease_s, tuple(sites)
        self._database = database
        lease_ms = int(1000 * lease_s)
        # a heartbeat that takes longer than the lease is worth nothing; nor may a lock hold it up
        limits = {"statement_timeout": lease_ms, "lock_timeout": lease_ms // 4}
        url = with_settings(database.url, limits)
        self._engine = create_engine(
            url.update_query_dict({"tcp_user_timeout": str(lease_ms)}),
            poolclass=NullPool,
            isolation_level="READ COMMITTED",
        )
        self._connection: Connection | None = None
        self._fd = -1

    def beat(self) -> tuple[list[Member], list[SiteRow]]:
        """Say that we are alive; what the tables say then."""
        with self._transaction("saying that this gateway is alive") as connection:
            after = {"beat": MEMBERS.c.beat + 1, "seen_ms": NOW_MS}
            ours = MEMBERS.c.name == self.name
            if not connection.execute(update(MEMBERS).where(ours).values(after)).rowcount:
                self._join(connection)
            return read_members(connection), read_sites(connection)

    def take(self, row: SiteRow) -> Tenure | None:
        """Take a site that is as this row says; None where it is not any more."""
        with self._transaction(f"taking site {row.site!r}") as connection:
            this = SITES.c.site == row.site, SITES.c.epoch == row.epoch
            after = {"epoch": row.epoch + 1, "member": self.name}
            found = update(SITES).where(*this, SITES.c.member == row.member).values(after)
            if not connection.execute(found).rowcount:
                return None
            return Tenure(row.site, row.number, row.epoch + 1, self.name)

    def give(self, tenure: Tenure) -> None:
        """Nobody holds this site any more, unless somebody does already."""
        with self._transaction(f"giving up site {tenure.site!r}") as connection:
            this = SITES.c.site == tenure.site, SITES.c.epoch == tenure.epoch
            connection.execute(update(SITES).where(*this).values(member=""))

    def bury(self, names: Iterable[str]) -> None:
        """End the sessions of gateways that are dead, and delete their rows.

        One that was stopped within a transaction would keep its site's row locked for as long as it
        stands still: the server waits for the rest of what it was saying.
        """
        with self._transaction("ending the sessions of dead gateways") as connection:
            for name in sorted(names):
                connection.execute(END_SESSIONS, {"name": session_name(name)})
            connection.execute(delete(MEMBERS).where(MEMBERS.c.name.in_(sorted(names))))

    def leave(self) -> None:
        """Give up everything, and be a member no more."""
        with self._transaction("leaving") as connection:
            connection.execute(update(SITES).where(SITES.c.member == self.name).values(member=""))
            connection.execute(delete(MEMBERS).where(MEMBERS.c.name == self.name))

    def close(self) -> None:
        """Let go of the connection, and of our share of the lock."""
        HELD.discard(self._fd)
        if self._connection is not None:
            self._connection.invalidate()
            self._connection.close()
            self._connection = None

    # -- within --------------------------------------------------------------------------------

    def _join(self, connection: Connection) -> None:
        """Our row, and a row for every site that has none: numbers are given once."""
        connection.execute(select(func.pg_advisory_xact_lock(ADVISORY, JOINING)))
        begin_epoch(connection)  # whoever led the database alone, and lost it, writes nothing more
        row = {
            "name": self.name,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "key": self._key,
            "lease_s": self._lease_s,
            "sites": json.dumps(self._sites),
            "since_ms": NOW_MS,
            "seen_ms": NOW_MS,
            "beat": 1,
        }
        connection.execute(insert(MEMBERS).values(row))
        next_number = select(func.coalesce(func.max(SITES.c.number), 0) + 1).scalar_subquery()
        for site in self._sites:
            new = {"site": site, "number": next_number, "epoch": 0, "member": ""}
            connection.execute(postgresql.insert(SITES).values(new).on_conflict_do_nothing())
        if connection.execute(select(func.max(SITES.c.number))).scalar_one() >= CHANGES_APART:
            raise LeaderError(
                f"{self._database.name} has {CHANGES_APART} sites, more than changes can be "
                "numbered for: use another database for some of them"
            )

    @contextmanager
    def _transaction(self, doing: str) -> Iterator[Connection]:
        """All or nothing; what goes wrong ends the connection, and the next use makes another."""
        try:
            with database_errors(self._database.name, doing):
                connection = self._connected()
                with connection.begin():
                    yield connection
        except BaseException:
            self.close()
            raise

    def _connected(self) -> Connection:
        """The connection, with our share of the lock; a new one where the last was lost."""
        if self._connection is None:
            self._connection = self._engine.connect()
            self._fd = self._connection.connection.driver_connection.fileno()  # type: ignore[union-attr]
            HELD.add(self._fd)
            share = select(func.pg_try_advisory_lock_shared(ADVISORY, SERVING))
            with self._connection.begin():
                taken = self._connection.execute(share).scalar_one()
            if not taken:
                raise LeaderError(
                    f"{self._database.name} is being served by a gateway that does not share it: "
                    "stop that one first"
                )
        return self._connection
