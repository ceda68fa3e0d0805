"""What was: the tables of the history, the questions about it, and how it stays small.

    minutes   an hour of a node by the minute, for 90 days; then it becomes a row of
    hours     an hour of a node, for two years. Both are by hour first: the newest hour, which is
              written all the time, lies together, and not in as many pages as there are nodes
    heard     when each node of a large site was last heard
    lives     a sensor came into a state: the last thousand of each node
    web_links one-time links that were used, until a day after they would have been over anyway

`tidy` moves and deletes a few hundred rows at a time, so that it never holds up a round for long.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Select,
    Table,
    Text,
    bindparam,
    delete,
    func,
    insert,
    select,
    tuple_,
)

from gateway.registry.heard import HeardRecord
from gateway.registry.history import (
    HOUR_MS,
    HOURS_KEPT_H,
    LIVES_KEPT,
    MINUTES_KEPT_H,
    HourRecord,
    LifeRecord,
    MinutesRecord,
)
from gateway.registry.records import NodeKey, NodeRecord
from gateway.store.column_types import Number, Real
from gateway.store.rows import record_of, row_of

METADATA = MetaData()
TIDIED_AT_ONCE = 500
LINKS_KEPT_MS = 86_400_000
"""A used link is remembered for longer than it was good: clocks are set, and looked at twice."""


def _hour_columns() -> list[Column[Any]]:
    key = (("site", Text), ("node", Text), ("hour", Number))
    return [
        *(Column(name, kind, nullable=False) for name, kind in key),
        Column("accuracy", Real, nullable=True),
        *(Column(name, Number, nullable=False) for name in ("readings", "learned", "refused")),
    ]


BY_HOUR = ("hour", "site", "node")
MINUTES = Table(
    "minutes",
    METADATA,
    *_hour_columns(),
    Column("minutes", LargeBinary, nullable=False),
    PrimaryKeyConstraint(*BY_HOUR),
    sqlite_with_rowid=False,
)
HOURS = Table(
    "hours",
    METADATA,
    *_hour_columns(),
    PrimaryKeyConstraint(*BY_HOUR),
    sqlite_with_rowid=False,
)
LIVES = Table(
    "lives",
    METADATA,
    *(Column(name, Text, primary_key=True) for name in ("site", "node", "sensor")),
    Column("at_ms", BigInteger, primary_key=True, autoincrement=False),
    Column("state", Text, primary_key=True),
    Column("role", Text, nullable=False),
    Column("replaces", Text, nullable=True),
    Column("reason", Text, nullable=False),
)
WEB_LINKS = Table(
    "web_links",
    METADATA,
    Column("nonce", Text, primary_key=True),
    Column("ends_ms", Number, nullable=False),
)
HEARD_METADATA = MetaData()
HEARD = Table(
    "heard",
    HEARD_METADATA,
    Column("site", Text, primary_key=True),
    Column("seconds", LargeBinary, nullable=False),
)
TABLES: dict[type[Any], Table] = {
    MinutesRecord: MINUTES,
    HourRecord: HOURS,
    LifeRecord: LIVES,
    HeardRecord: HEARD,
}


def with_times(connection: Connection, nodes: Iterable[NodeRecord]) -> tuple[NodeRecord, ...]:
    """These nodes, each heard when it was last, by its own row or by that of its site."""
    times: dict[NodeKey, int] = {}
    for row in connection.execute(select(HEARD)).mappings():
        times |= record_of(HeardRecord, HEARD, row).times()
    if not times:
        return tuple(nodes)
    return tuple(
        replace(node, seen_ms=times[node.key]) if times.get(node.key, 0) > node.seen_ms else node
        for node in nodes
    )


def minutes_since(
    connection: Connection, hour: int, site: str | None = None
) -> list[MinutesRecord]:
    """The hours from this one on of every node, or of every node of a site."""
    found = _of_site(select(MINUTES).where(MINUTES.c.hour >= hour), MINUTES, site)
    rows = connection.execute(found).mappings()
    return [record_of(MinutesRecord, MINUTES, row) for row in rows]


def minutes_of(connection: Connection, key: NodeKey, since_hour: int) -> list[MinutesRecord]:
    """A node's hours by the minute, in order."""
    found = select(MINUTES).where(*of_node(MINUTES, key, since_hour)).order_by(MINUTES.c.hour)
    rows = connection.execute(found).mappings()
    return [record_of(MinutesRecord, MINUTES, row) for row in rows]


def hours_of(connection: Connection, key: NodeKey, since_hour: int) -> list[HourRecord]:
    """A node's hours, in order: those of long ago, and those that are still kept by the minute."""
    found = []
    for table in (HOURS, MINUTES):
        chosen = select(table).where(*of_node(table, key, since_hour)).order_by(table.c.hour)
        names = [column for column in table.c if column.name != "minutes"]
        rows = connection.execute(chosen.with_only_columns(*names)).mappings()
        found += [record_of(HourRecord, table, row) for row in rows]
    return found


def accuracies_since(
    connection: Connection, hour: int
) -> dict[NodeKey, list[tuple[int, float | None]]]:
    """The accuracy of every node, hour by hour: for a table of all of them."""
    columns = MINUTES.c.site, MINUTES.c.node, MINUTES.c.hour, MINUTES.c.accuracy
    found: dict[NodeKey, list[tuple[int, float | None]]] = {}
    asked = select(*columns).where(MINUTES.c.hour >= hour).order_by(MINUTES.c.hour)
    for site, node, at, accuracy in connection.execute(asked):
        found.setdefault((site, node), []).append((at, accuracy))
    return found


def lives_of(connection: Connection, key: NodeKey) -> list[LifeRecord]:
    """What happened to a node's sensors, in order."""
    chosen = select(LIVES).where(*of_node(LIVES, key)).order_by(LIVES.c.at_ms)
    rows = connection.execute(chosen).mappings()
    return [record_of(LifeRecord, LIVES, row) for row in rows]


def drop_old_lives(connection: Connection, lives: Iterable[LifeRecord]) -> None:
    """Of each node that an event came from, keep the newest ones only."""
    site, node, at_ms = LIVES.c.site, LIVES.c.node, LIVES.c.at_ms
    this = site == bindparam("its_site"), node == bindparam("its_node")
    nth = select(at_ms).where(*this).order_by(at_ms.desc()).offset(LIVES_KEPT).limit(1)
    nodes = {(each.site, each.node) for each in lives}
    connection.execute(
        delete(LIVES).where(*this, at_ms <= nth.scalar_subquery()),
        [{"its_site": a_site, "its_node": a_node} for a_site, a_node in sorted(nodes)],
    )


def tidy(connection: Connection, now_ms: int, site: str | None = None) -> int:
    """Move some hours that are old enough, delete some that are too old; how many there were.

    So few at once that nobody waits; what is left is for the next time.
    """
    hour = now_ms // HOUR_MS
    old = _of_site(select(MINUTES).where(MINUTES.c.hour < hour - MINUTES_KEPT_H), MINUTES, site)
    rows = connection.execute(old.order_by(MINUTES.c.hour).limit(TIDIED_AT_ONCE)).mappings().all()
    if rows:
        records = [record_of(MinutesRecord, MINUTES, row) for row in rows]
        _delete(connection, HOURS, records)  # of a time when the clock was wrong
        connection.execute(insert(HOURS), [row_of(each.whole()) for each in records])
        _delete(connection, MINUTES, records)
    gone = _of_site(select(HOURS).where(HOURS.c.hour < hour - HOURS_KEPT_H), HOURS, site)
    over = connection.execute(gone.order_by(HOURS.c.hour).limit(TIDIED_AT_ONCE)).mappings().all()
    _delete(connection, HOURS, [record_of(HourRecord, HOURS, row) for row in over])
    return len(rows) + len(over)


def _delete(connection: Connection, table: Table, records: Iterable[HourRecord]) -> None:
    keys = [(each.site, each.node, each.hour) for each in records]
    columns = tuple_(table.c.site, table.c.node, table.c.hour)
    for start in range(0, len(keys), 300):  # three parameters each: an old SQLite takes 999
        connection.execute(delete(table).where(columns.in_(keys[start : start + 300])))


def use_link(connection: Connection, nonce: str, ends_ms: int, now_ms: int) -> bool:
    """Note that a one-time link is used; False where it was before."""
    connection.execute(delete(WEB_LINKS).where(WEB_LINKS.c.ends_ms <= now_ms - LINKS_KEPT_MS))
    this = select(WEB_LINKS.c.nonce).where(WEB_LINKS.c.nonce == nonce)
    if connection.execute(this).first() is not None:
        return False
    connection.execute(insert(WEB_LINKS).values(nonce=nonce, ends_ms=ends_ms))
    return True


def of_node(table: Table, key: NodeKey, since_hour: int = 0) -> tuple[ColumnElement[bool], ...]:
    """Which rows are a node's; of those by the hour, from this one on."""
    this = table.c.site == key[0], table.c.node == key[1]
    if "hour" not in table.c:
        return this
    return table.c.hour.in_(_hours_in(table, since_hour)), *this


def _hours_in(table: Table, since_hour: int) -> Select[Any]:
    """Every hour that a table has, found by as many steps through its index, not by reading it."""
    first = select(func.min(table.c.hour).label("hour")).where(table.c.hour >= since_hour)
    there = first.cte("there", recursive=True)
    following = select(func.min(table.c.hour)).where(table.c.hour > there.c.hour).scalar_subquery()
    there = there.union_all(select(following).where(there.c.hour.is_not(None)))
    return select(there.c.hour).where(there.c.hour.is_not(None))


def _of_site(found: Select[Any], table: Table, site: str | None) -> Select[Any]:
    return found if site is None else found.where(table.c.site == site)
