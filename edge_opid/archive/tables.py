"""What an archive may be: a dict of arrays, or anything that hands out an Arrow stream.

DuckDB, Polars, pandas, pyarrow, ADBC and a Flight reader all have `__arrow_c_stream__`; pyarrow
reads it, and is imported only when such a table is given.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_opid.archive.sums import UNKNOWN, UNLABELLED
from edge_opid.errors import MismatchError, missing_extra

Codes = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which columns of a table are used, and what for."""

    sensors: Mapping[str, str]
    """The table's column of each sensor."""
    label: str | None
    classes: tuple[str, ...]
    labels: Mapping[str, str]
    """What the table calls a class, where that is another name: theirs → ours."""

    def class_numbers(self, names: Sequence[Any]) -> Codes:
        """The class of each of these names; None is a reading without a label."""
        places = {name: place for place, name in enumerate(self.classes)}
        found = [
            UNLABELLED
            if name is None
            else places.get(self.labels.get(str(name), str(name)), UNKNOWN)
            for name in names
        ]
        return np.array(found, np.int64)

    def check(self, there: Sequence[str]) -> None:
        """Refuse a table that lacks one of them."""
        asked = [*self.sensors.values(), *([self.label] if self.label else [])]
        for name in asked:
            if name not in there:
                raise MismatchError(f"the table has no column {name!r}; it has {list(there)}")


Block = tuple[dict[str, NDArray[Any]], Codes]
"""An array a sensor, and the class of each reading."""


def blocks(table: Any, wanted: Wanted) -> Iterator[Block]:
    """The table, some rows at a time."""
    if isinstance(table, Mapping):
        yield from _of_arrays(table, wanted)
    elif hasattr(table, "__arrow_c_stream__"):
        yield from _of_arrow(table, wanted)
    else:
        raise MismatchError(
            f"a table must be a dict of arrays or speak Arrow, got {type(table).__name__}"
        )


# -- arrays ----------------------------------------------------------------------------------------


def _of_arrays(table: Mapping[str, Any], wanted: Wanted) -> Iterator[Block]:
    wanted.check(list(table))
    columns = {name: _numbers(table[theirs], theirs) for name, theirs in wanted.sensors.items()}
    lengths = {theirs: len(table[theirs]) for theirs in wanted.sensors.values()}
    if wanted.label is not None:
        lengths[wanted.label] = len(table[wanted.label])
    if len(set(lengths.values())) > 1:
        raise MismatchError(f"columns must be equally long, got {lengths}")
    n = next(iter(lengths.values()), 0)
    yield columns, _classes_of(table[wanted.label], wanted) if wanted.label else _none(n)


def _numbers(values: Any, name: str) -> NDArray[Any]:
    """Numbers as they are; None becomes NaN."""
    array = np.asarray(values)
    if array.dtype.kind in "fiub":
        return array
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise MismatchError(f"column {name!r} must hold numbers: {error}") from error


def _classes_of(labels: Any, wanted: Wanted) -> Codes:
    plain = [None if _is_missing(each) else each for each in np.asarray(labels, object).tolist()]
    kinds = list(dict.fromkeys(plain))
    numbers = dict(zip(kinds, wanted.class_numbers(kinds).tolist(), strict=True))
    return np.array([numbers[each] for each in plain], np.int64)


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _none(n: int) -> Codes:
    return np.full(n, UNLABELLED, np.int64)


# -- Arrow -----------------------------------------------------------------------------------------


def arrow() -> Any:
    """The pyarrow module, or a sentence that says how to get it."""
    try:
        import pyarrow  # noqa: PLC0415 - only for tables that speak Arrow, never on a node
    except ModuleNotFoundError as error:
        raise MismatchError(missing_extra(error, "archive")) from error
    return pyarrow


def _of_arrow(table: Any, wanted: Wanted) -> Iterator[Block]:
    reader = arrow().RecordBatchReader.from_stream(table)
    wanted.check(reader.schema.names)
    for batch in reader:
        yield batch_block(batch, wanted)


def batch_block(batch: Any, wanted: Wanted) -> Block:
    """A record batch of Arrow as arrays."""
    columns = {name: batch_numbers(batch, theirs) for name, theirs in wanted.sensors.items()}
    if wanted.label is None:
        return columns, _none(len(batch))
    names, codes = encoded(batch.column(wanted.label))
    return columns, wanted.class_numbers([*names, None])[codes]


def batch_numbers(batch: Any, name: str) -> NDArray[Any]:
    """A column of numbers, without a copy where Arrow has none missing; missing ones are NaN."""
    pa = arrow()
    column = batch.column(name)
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        try:
            column = column.cast(pa.float64())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise MismatchError(
                f"column {name!r} must hold numbers, got {column.type}: {error}"
            ) from error
    found: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return found


def encoded(column: Any) -> tuple[list[Any], NDArray[np.int64]]:
    """The kinds of values in a column of Arrow, and of each row which; missing is the last, −1."""
    pa = arrow()
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    places = column.indices.cast(pa.int64())
    if places.null_count:
        places = places.fill_null(-1)
    return column.dictionary.to_pylist(), places.to_numpy(zero_copy_only=False)
