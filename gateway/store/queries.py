"""The questions the gateway asks of its database, each within a transaction that reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from sqlalchemy import Connection, Select, and_, func, or_, select, tuple_

from gateway.registry import (
    ChangeRecord,
    ChangeState,
    DoubtRecord,
    IssuedRecord,
    LayoutRecord,
    NodeKey,
    NodeRecord,
    OrderRecord,
    SensorRecord,
)
from gateway.registry.fleet import ExampleNumber, StoredFleet
from gateway.store import history
from gateway.store.rows import INTEGER_END, in_order, record_of
from gateway.store.tables import CHANGES, EXAMPLES, LAYOUTS, TABLES

Kind = TypeVar("Kind")

KEYS_AT_ONCE = 300
"""Keys in one statement: three parameters each, and an SQLite before 3.32 takes 999 of them."""


def fleet(connection: Connection) -> StoredFleet:
    """Everything but the bulk: examples, summaries, fits and history are read when needed."""
    newest = _newest_layouts()
    owners = select(newest.subquery().c.change)
    current = or_(CHANGES.c.state == str(ChangeState.GATHERING), CHANGES.c.id.in_(owners))
    return StoredFleet(
        nodes=history.with_times(connection, _found(connection, NodeRecord)),
        sensors=_found(connection, SensorRecord),
        layouts=_found(connection, LayoutRecord, newest),
        orders=_found(connection, OrderRecord),
        changes=_found(connection, ChangeRecord, select(CHANGES).where(current)),
        examples=_batches(connection),
        next_change=highest_change(connection) + 1,
        doubts=_found(connection, DoubtRecord),
        issued=_found(connection, IssuedRecord),
    )


def highest_change(connection: Connection) -> int:
    """The highest number that a change has; 0 before any."""
    return connection.execute(select(func.max(CHANGES.c.id))).scalar_one() or 0


def fleet_of_site(connection: Connection, site: str, groups: Iterable[str]) -> StoredFleet:
    """The same of one site, whose groups these are."""
    newest = _newest_layouts().where(LAYOUTS.c.site == site)
    owners = select(newest.subquery().c.change)
    gathering = CHANGES.c.state == str(ChangeState.GATHERING), CHANGES.c.group.in_(list(groups))
    current = or_(and_(*gathering), CHANGES.c.id.in_(owners))

    def here(kind: type[Kind]) -> tuple[Kind, ...]:
        return _found(connection, kind, select(TABLES[kind]).where(TABLES[kind].c.site == site))

    return StoredFleet(
        nodes=history.with_times(connection, here(NodeRecord)),
        sensors=here(SensorRecord),
        layouts=_found(connection, LayoutRecord, newest),
        orders=here(OrderRecord),
        changes=_found(connection, ChangeRecord, select(CHANGES).where(current)),
        doubts=here(DoubtRecord),
        issued=here(IssuedRecord),
        site=site,
    )


def by_keys(
    connection: Connection, kind: type[Kind], names: tuple[str, ...], keys: Iterable[Any]
) -> list[Kind]:
    """The records whose columns `names` are one of `keys`; what is unknown is left out."""
    table = TABLES[kind]
    columns = tuple_(*(table.c[name] for name in names))
    wanted = list(dict.fromkeys(keys))
    found: list[Any] = []
    for start in range(0, len(wanted), KEYS_AT_ONCE):
        some = columns.in_(wanted[start : start + KEYS_AT_ONCE])
        found += connection.execute(select(table).where(some)).mappings()
    return in_order(kind, table, found)


def of_change(connection: Connection, kind: type[Kind], change: int) -> list[Kind]:
    """Every record of this class that belongs to a change, by key."""
    table = TABLES[kind]
    return list(_found(connection, kind, select(table).where(table.c.change == change)))


def newest_changes(connection: Connection, limit: int) -> list[ChangeRecord]:
    """The last changes, the newest first."""
    statement = select(CHANGES).order_by(CHANGES.c.id.desc()).limit(max(limit, 0))
    rows = connection.execute(statement).mappings()
    return [record_of(ChangeRecord, CHANGES, row) for row in rows]


def one_change(connection: Connection, number: int) -> ChangeRecord | None:
    """The change with this number."""
    if number >= INTEGER_END:  # no database would even look for it
        return None
    found = _found(connection, ChangeRecord, select(CHANGES).where(CHANGES.c.id == number))
    return found[0] if found else None


def layout_changes(connection: Connection, key: NodeKey) -> list[tuple[int, int, int]]:
    """Version, moment and change of every layout of a node, in order."""
    columns = LAYOUTS.c.version, LAYOUTS.c.at_ms, LAYOUTS.c.change
    this = LAYOUTS.c.site == key[0], LAYOUTS.c.node == key[1]
    found = connection.execute(select(*columns).where(*this).order_by(LAYOUTS.c.version))
    return [(version, at_ms, change) for version, at_ms, change in found]


def _newest_layouts() -> Select[Any]:
    key = LAYOUTS.c.site, LAYOUTS.c.node
    highest = select(*key, func.max(LAYOUTS.c.version).label("version")).group_by(*key).subquery()
    names = ("site", "node", "version")
    return select(LAYOUTS).where(*(LAYOUTS.c[name] == highest.c[name] for name in names))


def _batches(connection: Connection) -> dict[int, list[ExampleNumber]]:
    """Which instances each change has, in the order of arrival, without their values."""
    names = ("site", "node", "source", "boot", "seq")
    columns = (EXAMPLES.c[name] for name in names)
    found: dict[int, list[ExampleNumber]] = {}
    for change, *number in connection.execute(
        select(EXAMPLES.c.change, *columns).order_by(EXAMPLES.c.change, EXAMPLES.c.place)
    ):
        found.setdefault(change, []).append(tuple(number))
    return found


def _found(
    connection: Connection, kind: type[Kind], statement: Select[Any] | None = None
) -> tuple[Kind, ...]:
    table = TABLES[kind]
    chosen = select(table) if statement is None else statement
    return tuple(in_order(kind, table, connection.execute(chosen).mappings()))
