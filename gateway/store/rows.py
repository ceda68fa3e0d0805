"""From a record to a row and back: read off the annotations of its fields, once for all classes.

Whatever a column cannot hold to the bit is refused before anything is written (NaN, text with a
NUL, numbers beyond 64 bits), and alike for every database. A row is believed only after the same
checks: an SQL client, or a dying card, may have left anything in it.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import types
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from functools import cache, lru_cache, partial
from operator import attrgetter
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from sqlalchemy import RowMapping, Table

from edge_opid.wire.schema import Checked
from gateway.registry.records import key_of
from gateway.store.errors import DatabaseError, RecordError

INTEGER_END = 2**63
ALIKE_MAX = 2_048
"""Different lists of sensors that are remembered as they were read."""
AT_FAULT = (ValueError, TypeError, RecursionError)
"""What reading damaged JSON, or building a record from it, may raise."""


class ColumnCodec(NamedTuple):
    """How one kind of value is written down, and how it is read again."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]
    stay: Callable[[Sequence[Any]], bool] = lambda _: False
    """Whether all these values are certainly written down as they are; if not, `write` each."""


def row_of(record: Any) -> dict[str, Any]:
    """The row of a record, or a `RecordError` that names the column at fault.

    >>> from gateway.registry import NodeRecord
    >>> row_of(NodeRecord(site="street", node="north", group="air", gate=8.0))["group"]
    'air'
    """
    row = {}
    for name, codec in codecs_of(type(record)).items():
        try:
            row[name] = codec.write(getattr(record, name))
        except AT_FAULT as error:
            raise RecordError(f"{_place(record)}: {name} cannot be stored: {error}") from error
    return row


def rows_of(records: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The rows of records of one class, without names, in the order of its columns.

    A wave saves thousands of them, of plain text and numbers: each column is looked at as a whole,
    and value by value only where something in it is unusual.

    >>> from gateway.registry import IssuedRecord
    >>> rows_of([IssuedRecord("street", "north", 7), IssuedRecord("street", "south", 3)])
    [('street', 'north', 7), ('street', 'south', 3)]
    """
    kind: Any = type(records[0])  # which mypy does not know to be hashable
    fields, codecs = _fields_of(kind)
    columns = zip(*map(fields, records), strict=True)
    try:
        written = [
            column if codec.stay(column) else map(codec.write, column)
            for codec, column in zip(codecs, columns, strict=True)
        ]
        return list(zip(*written, strict=True))
    except AT_FAULT:
        for record in records:
            row_of(record)  # says which column of which it was
        raise


def record_of(kind: type[Any], table: Table, row: RowMapping) -> Any:
    """The record of a row, or a `DatabaseError` that names table, key and column."""
    found = {}
    for name, codec in codecs_of(kind).items():
        try:
            found[name] = codec.read(row[name])
        except AT_FAULT as error:
            key = ", ".join(f"{part}={row[part]!r}" for part in kind.KEY)
            raise DatabaseError(
                f"table {table.name}, row {key}: {name} cannot be read: {error}; restore the "
                "database from a copy, or delete the row",
                transient=False,
            ) from error
    return kind(**found)


def in_order(kind: type[Any], table: Table, rows: Iterable[RowMapping]) -> list[Any]:
    """The records of these rows by key: databases do not agree on the order of text."""
    return sorted((record_of(kind, table, row) for row in rows), key=key_of)


_CODECS: dict[type[Any], dict[str, ColumnCodec]] = {}  # found once for each class, then remembered


def codecs_of(kind: type[Any]) -> dict[str, ColumnCodec]:
    """How each field of a class of records lies in its column."""
    if kind not in _CODECS:
        hints = get_type_hints(kind)
        names = (each.name for each in dataclasses.fields(kind))
        _CODECS[kind] = {name: column_codec(hints[name]) for name in names}
    return _CODECS[kind]


@cache
def _fields_of(kind: type[Any]) -> tuple[Callable[[Any], tuple[Any, ...]], list[ColumnCodec]]:
    codecs = codecs_of(kind)
    return attrgetter(*codecs), list(codecs.values())


def column_codec(hint: Any) -> ColumnCodec:
    """The codec of a field in its column: as it is, where SQL has a type for it, else as JSON."""
    if get_origin(hint) in (Union, types.UnionType):
        return _maybe(column_codec(get_args(hint)[0]))
    if hint in COLUMN_CODECS:
        return COLUMN_CODECS[hint]
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return ColumnCodec(lambda value: str(hint(value)), hint)
    codec = json_codec(hint)

    def read(text: Any) -> Any:
        return codec.read(json.loads(_text(text)))

    if _is_unchangeable(hint):  # nodes that are alike have the same sensors, word for word
        read = lru_cache(maxsize=ALIKE_MAX)(read)
    return ColumnCodec(lambda value: json.dumps(codec.write(value), separators=(",", ":")), read)


def _is_unchangeable(hint: Any) -> bool:
    """Whether it is a tuple of records of the wire, which one reader may share with others."""
    inner = get_args(hint)[:1]
    return (
        get_origin(hint) is tuple and isinstance(inner[0], type) and issubclass(inner[0], Checked)
    )


def json_codec(hint: Any) -> ColumnCodec:
    """The codec of a value within JSON; a float comes back to the same bits."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _maybe(json_codec(inner[0]))
    if origin is tuple:
        return _tuple(json_codec(inner[0]))
    if origin is dict:
        return _dict(json_codec(inner[1]))
    if isinstance(hint, type) and issubclass(hint, Checked):
        return _described(hint)
    return JSON_CODECS[hint]


def _maybe(codec: ColumnCodec) -> ColumnCodec:
    return ColumnCodec(
        lambda value: None if value is None else codec.write(value),
        lambda value: None if value is None else codec.read(value),
    )


def _tuple(item: ColumnCodec) -> ColumnCodec:
    return ColumnCodec(
        lambda values: [item.write(each) for each in _an(tuple, values)],
        lambda plain: tuple(item.read(each) for each in _an(list, plain)),
    )


def _dict(item: ColumnCodec) -> ColumnCodec:
    return ColumnCodec(
        lambda values: {_text(key): item.write(each) for key, each in _an(dict, values).items()},
        lambda plain: {key: item.read(each) for key, each in _an(dict, plain).items()},
    )


def _described(kind: type[Checked]) -> ColumnCodec:
    """A record of the wire: it writes itself, and checks itself when it is built again."""
    codecs = {
        name: json_codec(hint) for name, hint in get_type_hints(kind).items() if name != "kind"
    }

    def read(plain: Any) -> Any:
        known = {name: each for name, each in _an(dict, plain).items() if name in codecs}
        return kind(**{name: codecs[name].read(each) for name, each in known.items()})

    return ColumnCodec(lambda value: _an(kind, value).plain(), read)


def _an(kind: type[Any], value: Any) -> Any:
    if type(value) is kind:  # as nearly always
        return value
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        raise TypeError(f"must be {kind.__name__}, got {type(value).__name__}")
    return value


def _text(value: Any) -> str:
    return str(_an(str, value))


def _plain_text(value: Any) -> str:
    text = _text(value)
    if "\0" in text:
        raise ValueError(f"must be text without NUL, got {text[:80]!r}")
    text.encode()  # half of a surrogate pair is no character: UnicodeEncodeError says which
    return text


def _whole(value: Any) -> int:
    number = int(_an(int, value))
    if not -INTEGER_END <= number < INTEGER_END:
        raise ValueError(f"must fit into 64 bits, got {number}")
    return number


def _real(value: Any) -> float:
    number = float(value if type(value) is int else _an(float, value))
    if math.isnan(number):
        raise ValueError("must be a number, got nan")
    return number


def _blob(value: Any) -> bytes:
    return bytes(_an(bytes, value))


def _flag(value: Any) -> bool:
    return bool(_an(bool, value))


def _base64(value: Any) -> str:
    return base64.b64encode(_blob(value)).decode()


def _from_base64(value: Any) -> bytes:
    return base64.b64decode(_text(value), validate=True)


def _anything(value: Any) -> Any:
    return value


def _all(kind: type[Any], values: Sequence[Any]) -> bool:
    return set(map(type, values)) == {kind}


def _all_plain_text(values: Sequence[Any]) -> bool:
    if not _all(str, values):
        return False
    text = "".join(values)
    return "\0" not in text and text.isascii()


def _all_whole(values: Sequence[Any]) -> bool:
    return _all(int, values) and min(values) >= -INTEGER_END and max(values) < INTEGER_END


def _all_real(values: Sequence[Any]) -> bool:
    return _all(float, values) and not math.isnan(sum(values))


_NUMBERS: dict[Any, ColumnCodec] = {
    int: ColumnCodec(_whole, _whole, _all_whole),
    float: ColumnCodec(_real, _real, _all_real),
    bool: ColumnCodec(_flag, _flag, partial(_all, bool)),
}
COLUMN_CODECS = {
    **_NUMBERS,
    str: ColumnCodec(_plain_text, _plain_text, _all_plain_text),
    bytes: ColumnCodec(_blob, _blob, partial(_all, bytes)),
}
JSON_CODECS = {
    **_NUMBERS,
    str: ColumnCodec(_text, _text),  # JSON can escape what a column cannot hold
    bytes: ColumnCodec(_base64, _from_base64),
    Any: ColumnCodec(_anything, _anything),
}


def _place(record: Any) -> str:
    key = ", ".join(f"{name}={getattr(record, name)!r}" for name in record.KEY)
    return f"{type(record).__name__}({key})"
