"""The common case, quickly: a small message just as our own senders write it.

The rules of `codec` are those of `packing.Reader`, which looks at every value before it is built,
and takes most of the time of a reading to do so. A few kilobytes of nothing but maps, text and
numbers cannot be made to build much, so here msgpack builds them at once, and the message then
checks itself as always. Whatever is unusual is left to the reader, which takes it or says what is
wrong: nothing is refused here, and nothing is taken that the reader would refuse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgpack  # type: ignore[import-untyped]  # ships no types

from edge_opid.wire.fields import Blob, Field, Maybe, Scalar, Table
from edge_opid.wire.limits import LIMITS
from edge_opid.wire.records import Checked, Record, slots_of

BYTES_MAX = 4_096  # of which 0.7 MB can be made, by maps in maps; 150 values are less
_OWN: dict[type[Checked], dict[str, type[Checked]] | None] = {}


def quick(payload: bytes, version: int, by_kind: Mapping[str, type[Checked]]) -> Any:
    """The message in `payload`; None if the reader must have a look at it."""
    if len(payload) > BYTES_MAX:
        return None
    try:
        found = msgpack.unpackb(
            payload,
            object_pairs_hook=_each_key_once,
            max_map_len=LIMITS.map_keys_max,
            max_array_len=0,
            max_bin_len=0,
            max_ext_len=0,
        )
        schema, record = found.pop("v"), by_kind[found.pop("kind")]
        return _built(record, found) if type(schema) is int and schema == version else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, msgpack.OutOfData):
        return None  # of which many are ours: a WireError is a ValueError


def _each_key_once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    listed = list(pairs)  # msgpack's pure Python form gives a generator
    found = dict(listed)
    if len(found) != len(listed):
        raise ValueError("a key comes twice")
    return found


def _built(record: type[Checked], found: dict[str, Any]) -> Checked | None:
    """The record of these fields; a key too many or too few is a TypeError."""
    inner = _OWN[record] if record in _OWN else _OWN.setdefault(record, _inner_records(record))
    if inner is None:
        return None
    for name, kind in inner.items():
        if found.get(name) is not None:
            found[name] = _built(kind, found[name])
    return record(**found)


def _inner_records(record: type[Checked]) -> dict[str, type[Checked]] | None:
    """Which fields are records themselves; None where bytes or arrays are among them."""
    inner = {}
    for slot in slots_of(record).values():
        field: Field = slot.field.field if isinstance(slot.field, Maybe) else slot.field
        if isinstance(field, Record):
            inner[slot.name] = field.record
        elif isinstance(field, Blob) or not isinstance(field, (Scalar, Table)):
            return None
    return inner
