"""A table of PostgreSQL, or a hypertable of TimescaleDB, through psycopg.

A part is a stretch of time, read by a cursor of the server a few thousand rows at a time, ordered
by all of its columns: the same rows come in the same order however often it is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from edge_opid.archive.tables import arrow
from gateway.archive.mapping import ArchiveMapping
from gateway.archive.sources import Archive, SourceError

PART_ROWS = 2**18
BATCH_ROWS = 2**14


@dataclass(frozen=True)
class TablePart:
    """The rows of a table from one moment up to another, in whatever unit its times are."""

    url: str
    table: str
    columns: tuple[str, ...]
    time: str
    start: Any
    end: Any
    """None: to the end."""
    rows: int

    def __repr__(self) -> str:
        return f"TablePart({self.table!r}, {self.start!r}, {self.end!r})"  # the URL has a password

    def batches(self) -> Iterator[Any]:
        """The rows, ordered."""
        pa = arrow()
        statement, values = self._query()
        with _connected(self.url) as connection, connection.cursor(name="opid_archive") as cursor:
            cursor.execute(statement, values)
            while rows := cursor.fetchmany(BATCH_ROWS):
                arrays = [pa.array(values) for values in zip(*rows, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, names=list(self.columns))

    def _query(self) -> tuple[sql.Composed, list[Any]]:
        names = sql.SQL(", ").join(map(sql.Identifier, self.columns))
        bounds, values = sql.SQL("{} >= %s").format(sql.Identifier(self.time)), [self.start]
        if self.end is not None:
            bounds += sql.SQL(" AND {} < %s").format(sql.Identifier(self.time))
            values.append(self.end)
        statement = sql.SQL("SELECT {} FROM {} WHERE {} ORDER BY {}").format(
            names, _named(self.table), bounds, names
        )
        return statement, values


def open_table(address: str, mapping: ArchiveMapping) -> Archive:
    """The table that the mapping names, in stretches of equal length."""
    if not mapping.table or not mapping.time:
        lacking = "table" if not mapping.table else "time"
        raise SourceError(f"a database needs a {lacking}: say --{lacking}, or put it into the file")
    url = address.replace("postgresql+psycopg://", "postgresql://", 1)
    words = [each for each in (mapping.node, mapping.label) if each]
    columns = (mapping.time, *words, *mapping.columns)
    with _connected(url) as connection:
        _check_columns(connection, mapping.table, columns)
        time = sql.Identifier(mapping.time)
        row = connection.execute(
            sql.SQL("SELECT min({0}), max({0}), count({0}) FROM {1}").format(
                time, _named(mapping.table)
            )
        ).fetchone()
    assert row is not None
    first, last, count = row
    if not count:
        raise SourceError(f"table {mapping.table} has no rows with a {mapping.time}")
    edges = _edges(first, last, -(-count // PART_ROWS))
    parts = [
        TablePart(url, mapping.table, columns, mapping.time, start, end, count // len(edges))
        for start, end in zip(edges, [*edges[1:], None], strict=True)
    ]
    identity = [f"{mapping.table} {first} {last} {count}"]
    return Archive(kind="PostgreSQL", parts=parts, mapping=mapping, identity=identity)


def _edges(first: Any, last: Any, count: int) -> list[Any]:
    """Where each part begins; the last one has no end.

    >>> _edges(0, 100, 4)
    [0, 25.0, 50.0, 75.0]
    """
    step = (last - first) / count
    return [first, *(first + step * number for number in range(1, count))]


def _check_columns(connection: psycopg.Connection[Any], table: str, columns: Sequence[str]) -> None:
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    statement = sql.SQL("SELECT {} FROM {} LIMIT 0").format(names, _named(table))
    try:
        connection.execute(statement)
    except psycopg.errors.ProgrammingError as error:
        raise SourceError(f"table {table} cannot be read: {error.diag.message_primary}") from error


def _named(table: str) -> sql.Identifier:
    return sql.Identifier(*table.split("."))


def _connected(url: str) -> psycopg.Connection[Any]:
    try:
        return psycopg.connect(url)
    except psycopg.OperationalError as error:
        raise SourceError(f"the database does not answer: {error}") from error
