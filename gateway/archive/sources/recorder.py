"""Home Assistant's recorder: the SQLite file `home-assistant_v2.db`, read and never written.

A state holds until the next one, so an instance is made each minute (`every_s`) of the last state
of every entity; `unavailable` and `unknown` end a value. The recorder keeps states for ten days,
unless told otherwise, and hourly means for ever: what is older than the oldest state is learned
from those, an instance an hour, without labels, for a class has no mean.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_opid.archive.tables import arrow
from gateway.archive.mapping import ArchiveMapping
from gateway.archive.sources import Archive, SourceError

TIME = "time"
PART_S = 30 * 86_400.0
HOUR_S = 3_600.0
SWITCHED = {"on": 1.0, "off": 0.0, "open": 1.0, "closed": 0.0, "home": 1.0, "not_home": 0.0}
NOTHING = ("unavailable", "unknown", "", "none")
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class StatesPart:
    """Instances from one moment up to another, each of the states that held then."""

    path: str
    entities: tuple[str, ...]
    label: str | None
    start_s: float
    rows: int
    every_s: float

    def batches(self) -> Iterator[Any]:
        """One batch."""
        grid = np.arange(self.rows, dtype=np.float64)
        at: Numbers = np.asarray(self.start_s + self.every_s * grid, np.float64)
        with _opened(self.path) as connection:
            columns = {each: self._held(connection, each, at) for each in self.entities}
            labels = None if self.label is None else self._labels(connection, at)
        yield _batch(at, columns, self.label, labels)

    def _held(self, connection: sqlite3.Connection, entity: str, at: Numbers) -> Numbers:
        times, states = self._states(connection, entity)
        values = np.array([_value(state) for state in states], np.float64)
        places = np.searchsorted(times, at, side="right") - 1
        return np.append(values, np.nan)[places]  # −1, before the first one, is the NaN

    def _labels(self, connection: sqlite3.Connection, at: Numbers) -> list[str | None]:
        assert self.label is not None
        times, states = self._states(connection, self.label)
        said = [None if str(each).lower() in NOTHING else str(each) for each in states]
        places = np.searchsorted(times, at, side="right") - 1
        return [said[place] if place >= 0 else None for place in places.tolist()]

    def _states(self, connection: sqlite3.Connection, entity: str) -> tuple[Numbers, list[Any]]:
        """Those of this stretch, and the last one before it."""
        number = _metadata(connection, entity)
        end_s = self.start_s + self.every_s * self.rows
        columns = "SELECT last_updated_ts, state FROM states WHERE metadata_id = ?"
        before = connection.execute(
            f"{columns} AND last_updated_ts < ? "
            "ORDER BY last_updated_ts DESC, state_id DESC LIMIT 1",
            (number, self.start_s),
        ).fetchall()
        within = connection.execute(
            f"{columns} AND last_updated_ts >= ? AND last_updated_ts < ? "
            "ORDER BY last_updated_ts, state_id",
            (number, self.start_s, end_s),
        ).fetchall()
        rows = [*before, *within]
        return np.array([row[0] for row in rows], np.float64), [row[1] for row in rows]


@dataclass(frozen=True)
class MeansPart:
    """Hourly means from one moment up to another."""

    path: str
    entities: tuple[str, ...]
    label: str | None
    start_s: float
    end_s: float

    @property
    def rows(self) -> int:
        """At most one an hour."""
        return int((self.end_s - self.start_s) / HOUR_S) + 1

    def batches(self) -> Iterator[Any]:
        """One batch, of the hours that have a mean."""
        with _opened(self.path) as connection:
            found = {each: self._means(connection, each) for each in self.entities}
        at = np.array(sorted({hour for means in found.values() for hour in means}), np.float64)
        columns = {
            each: np.array([means.get(hour, np.nan) for hour in at.tolist()], np.float64)
            for each, means in found.items()
        }
        yield _batch(at, columns, self.label, None)

    def _means(self, connection: sqlite3.Connection, entity: str) -> dict[float, float]:
        return dict(
            connection.execute(
                "SELECT start_ts, mean FROM statistics JOIN statistics_meta "
                "ON statistics.metadata_id = statistics_meta.id WHERE statistic_id = ? "
                "AND mean IS NOT NULL AND start_ts >= ? AND start_ts < ? ORDER BY start_ts",
                (entity, self.start_s, self.end_s),
            )
        )


def open_recorder(path: Path, mapping: ArchiveMapping) -> Archive:
    """The states and the long-term statistics of these entities."""
    if mapping.node:
        raise SourceError("a Home Assistant recorder has no nodes: its columns are entities")
    entities, name = tuple(mapping.columns), str(path.absolute())
    with _opened(name) as connection:
        _check_entities(connection, [*entities, *([mapping.label] if mapping.label else [])])
        first, last = _span(connection, entities)
        oldest = _oldest_mean(connection, entities)
    parts: list[StatesPart | MeansPart] = []
    if oldest is not None and (first is None or oldest < first):
        until = first if first is not None else np.inf
        newest = _newest_mean(name, entities, until)
        start = oldest
        while start <= newest:
            end = min(start + 12 * PART_S, until)
            parts.append(MeansPart(name, entities, mapping.label, start, end))
            start += 12 * PART_S
    if first is not None and last is not None:
        count = int((last - first) / mapping.every_s) + 1
        each = int(PART_S / mapping.every_s)
        for start_row in range(0, count, each):
            start = first + mapping.every_s * start_row
            rows = min(each, count - start_row)
            parts.append(StatesPart(name, entities, mapping.label, start, rows, mapping.every_s))
    if not parts:
        raise SourceError(f"{path} has no states and no statistics of these entities")
    status = path.stat()
    identity = [f"{name} {status.st_size} {status.st_mtime_ns} {first} {last} {oldest}"]
    timed = replace(mapping, time=TIME)
    return Archive(kind="Home Assistant's recorder", parts=parts, mapping=timed, identity=identity)


def _batch(
    at: Numbers, columns: Mapping[str, Numbers], label: str | None, labels: list[str | None] | None
) -> Any:
    pa = arrow()
    arrays = {name: pa.array(values) for name, values in columns.items()}
    if label is not None:
        arrays[label] = pa.array(labels if labels is not None else [None] * len(at), pa.string())
    arrays[TIME] = pa.array(at)
    return pa.RecordBatch.from_pydict(arrays)


def _value(state: Any) -> float:
    """A state as a number; NaN where it says nothing.

    >>> _value("21.5"), _value("on"), _value("unavailable")
    (21.5, 1.0, nan)
    """
    text = str(state).strip().lower()
    if text in SWITCHED:
        return SWITCHED[text]
    try:
        return float(text)
    except ValueError:
        return np.nan


def _opened(path: str) -> Any:
    """The file, to read alone: Home Assistant may be running."""
    return closing(sqlite3.connect(f"{Path(path).as_uri()}?mode=ro", uri=True))


def _metadata(connection: sqlite3.Connection, entity: str) -> int | None:
    row = connection.execute(
        "SELECT metadata_id FROM states_meta WHERE entity_id = ?", (entity,)
    ).fetchone()
    return None if row is None else int(row[0])


def _check_entities(connection: sqlite3.Connection, entities: list[str]) -> None:
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    for table in ("states", "states_meta", "statistics", "statistics_meta"):
        if table not in tables:
            raise SourceError(
                f"this SQLite file is not a recorder's: it has no table {table} (Home Assistant "
                "from 2023.4 on has it)"
            )
    for entity in entities:
        known = connection.execute(
            "SELECT 1 FROM statistics_meta WHERE statistic_id = ?", (entity,)
        ).fetchone()
        if _metadata(connection, entity) is None and known is None:
            raise SourceError(f"the recorder has no entity {entity!r}")


def _span(
    connection: sqlite3.Connection, entities: tuple[str, ...]
) -> tuple[float | None, float | None]:
    marks = ", ".join("?" * len(entities))
    first, last = connection.execute(
        "SELECT min(last_updated_ts), max(last_updated_ts) FROM states JOIN states_meta "
        f"ON states.metadata_id = states_meta.metadata_id WHERE states_meta.entity_id IN ({marks})",
        entities,
    ).fetchone()
    return first, last


def _oldest_mean(connection: sqlite3.Connection, entities: tuple[str, ...]) -> float | None:
    return _of_means(connection, "min", entities, np.inf)


def _newest_mean(path: str, entities: tuple[str, ...], until: float) -> float:
    with _opened(path) as connection:
        found = _of_means(connection, "max", entities, until)
    return -np.inf if found is None else found


def _of_means(
    connection: sqlite3.Connection, which: str, entities: tuple[str, ...], until: float
) -> float | None:
    marks = ", ".join("?" * len(entities))
    row = connection.execute(
        f"SELECT {which}(start_ts) FROM statistics JOIN statistics_meta "
        "ON statistics.metadata_id = statistics_meta.id WHERE mean IS NOT NULL "
        f"AND start_ts < ? AND statistic_id IN ({marks})",
        (min(until, 1e15), *entities),
    ).fetchone()
    return None if row[0] is None else float(row[0])
