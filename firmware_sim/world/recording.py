"""A world that somebody has measured: named columns from an `.npz` or a CSV file.

Only columns that are asked for are read as numbers, so that a file may have others (a station's
name, a remark). An empty cell and NaN mean that the sensor said nothing. Anything else that is not
a finite number is an error that names the line.
"""

from __future__ import annotations

import csv
import math
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from edge_opid.errors import shown
from firmware_sim.world.chance import Array
from firmware_sim.world.errors import RecordingError

DAMAGE = (OSError, EOFError, BadZipFile, zlib.error, UnicodeDecodeError, csv.Error)
NOTHING = ("", "nan", "null", "none", "na")  # how files write that there is no value


class Recording:
    """The columns of one file, by name; each row is one moment.

    >>> recording = Recording("attic.csv", {"temp": ["21.5", ""], "state": ["fresh", "stale"]})
    >>> recording.numbers("temp").tolist(), recording.texts("state")
    ([21.5, nan], ('fresh', 'stale'))
    >>> recording.numbers("state")
    Traceback (most recent call last):
    firmware_sim.world.errors.RecordingError: attic.csv, row 1: column 'state' must be a number, \
got 'fresh': leave the cell empty where there is no value
    """

    def __init__(
        self,
        name: str,
        columns: Mapping[str, Sequence[Any]],
        lines: Sequence[int] | None = None,
    ) -> None:
        """`lines`: where each row stands in a text file, for errors."""
        self.name, self._columns, self._lines = name, columns, lines
        lengths = {column: len(cells) for column, cells in columns.items()}
        if len(set(lengths.values())) != 1 or not all(lengths.values()):
            raise RecordingError(f"{name} must have columns of one length, above 0, got {lengths}")
        self.rows = next(iter(lengths.values()))

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self._columns)

    def numbers(self, column: str) -> Array:
        """A column as numbers, NaN where there is no value."""
        return np.array([self._number(c, column, row) for row, c in enumerate(self._cells(column))])

    def texts(self, column: str) -> tuple[str | None, ...]:
        """A column as words, None where the cell is empty; 1.0 is the word '1'."""
        return tuple(_word(cell) for cell in self._cells(column))

    def seconds(self, column: str) -> Array:
        """A column of times in seconds: numbers as they are, dates (ISO 8601, UTC) from 1970."""
        found = [self._second(cell, column, row) for row, cell in enumerate(self._cells(column))]
        return np.array(found)

    def where(self, row: int) -> str:
        """How errors call a row."""
        place = f"row {row + 1}" if self._lines is None else f"line {self._lines[row]}"
        return f"{self.name}, {place}"

    def _cells(self, column: str) -> Sequence[Any]:
        if column not in self._columns:
            raise RecordingError(
                f"{self.name} has no column {shown(column)}; it has {list(self._columns)}"
            )
        return self._columns[column]

    def _number(self, cell: Any, column: str, row: int) -> float:
        if isinstance(cell, str) and cell.strip().lower() in NOTHING:
            return math.nan
        try:
            value = float(cell)
        except (TypeError, ValueError):
            value = math.inf
        if math.isinf(value):
            raise RecordingError(
                f"{self.where(row)}: column {column!r} must be a number, got {shown(cell)}: "
                "leave the cell empty where there is no value"
            )
        return value

    def _second(self, cell: Any, column: str, row: int) -> float:
        try:
            dated = isinstance(cell, str) and "-" in cell[1:]  # and not a negative number
            moment = datetime.fromisoformat(cell.strip()) if dated else None
        except ValueError:
            moment = None
        if moment is not None:
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        value = self._number(cell, column, row)
        if math.isnan(value):
            raise RecordingError(f"{self.where(row)}: column {column!r} must be a time, got none")
        return value


def read_recording(
    path: str | Path, *, values: str = "X", names: str = "feature_names"
) -> Recording:
    """The recording in a file, by its suffix: `.npz` or `.csv`.

    A CSV file has its columns' names in its first line. An `.npz` has a two-dimensional array
    called `values`, its columns' names in `names` (without them they are x0, x1, …), and every
    one-dimensional array with as many rows is a column, too: the labels, the times.
    """
    path = Path(path)
    readers = {".npz": lambda: _read_npz(path, values, names), ".csv": lambda: _read_csv(path)}
    if path.suffix.lower() not in readers:
        raise RecordingError(f"{path} must be a file of {sorted(readers)}, got {path.suffix!r}")
    try:
        return readers[path.suffix.lower()]()
    except DAMAGE as error:
        raise RecordingError(f"cannot read {path}: {error}") from error


def _read_csv(path: Path) -> Recording:
    with path.open(newline="", encoding="utf-8-sig") as file:  # -sig: spreadsheets write a mark
        reader = csv.reader(file)
        header = [name.strip() for name in next(reader, [])]
        if not header or len(set(header)) != len(header):
            raise RecordingError(f"{path.name}, line 1 must be names that differ, got {header}")
        rows, lines = [], []
        for row in reader:
            if not row:
                continue  # an empty line, as at the end of many files
            if len(row) != len(header):
                raise RecordingError(
                    f"{path.name}, line {reader.line_num} must have {len(header)} cells as the "
                    f"first line has, got {len(row)}"
                )
            rows.append(row)
            lines.append(reader.line_num)
    columns = {name: [row[place] for row in rows] for place, name in enumerate(header)}
    return Recording(path.name, columns, lines)


def _read_npz(path: Path, values: str, names: str) -> Recording:
    arrays = _arrays(path)
    if values not in arrays or arrays[values].ndim != 2:
        shapes = {name: array.shape for name, array in arrays.items()}
        raise RecordingError(
            f"{path.name} needs a two-dimensional array {values!r}; it has {shapes}"
        )
    table = arrays.pop(values)
    named = [str(name) for name in arrays.pop(names, [f"x{k}" for k in range(table.shape[1])])]
    if len(named) != table.shape[1] or len(set(named)) != len(named):
        raise RecordingError(
            f"{path.name}: {names} must be {table.shape[1]} names that differ, one for each "
            f"column of {values}, got {len(named)}: {shown(named)}"
        )
    beside = {
        name: array.tolist()
        for name, array in arrays.items()
        if array.shape == table.shape[:1] and name not in named
    }
    return Recording(path.name, {**dict(zip(named, table.T.tolist(), strict=True)), **beside})


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    with path.open("rb") as file:  # np.load forgets to close what it cannot read
        try:
            saved = np.load(file, allow_pickle=False)
            arrays = dict(saved) if isinstance(saved, Mapping) else {}
        except ValueError as error:  # objects: NumPy would have to run code from the file
            raise RecordingError(f"{path.name} must hold plain arrays only: {error}") from error
    return arrays


def _word(cell: Any) -> str | None:
    if isinstance(cell, float) and math.isfinite(cell) and cell == int(cell):
        cell = int(cell)
    text = str(cell).strip()
    return None if text.lower() in NOTHING else text
