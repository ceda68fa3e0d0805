"""Messages to bytes and back. Nothing else in the package packs or unpacks.

The rules, in order: not too large → a map → of this schema version → of a kind that is expected
here → every key once → every value of its type → none missing → finite, in range, in shape. The
first one that is broken becomes a WireError with the `reason` to count it by; no bytes whatsoever
cause any other exception. Unknown keys are ignored, so that newer senders can talk to older nodes.

>>> payload = encode(Ack(boot=3, seq=12))
>>> len(payload), decode(payload, Ack)
(24, Ack(boot=3, seq=12, newest=0))
>>> decode(payload[:-1], Ack)
Traceback (most recent call last):
...
edge_opid.errors.WireError: ack.seq is missing: the message ends after 23 bytes

There are two ways to the same message. The careful one looks at every value before it is built, and
takes most of the time of a reading to do so. A few kilobytes of nothing but maps, text and numbers
cannot be made to build much, so the quick one lets msgpack build them at once, and the message then
checks itself as always. Whatever is unusual is left to the careful one: the quick one refuses
nothing, and takes nothing that the other would refuse.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

import msgpack  # type: ignore[import-untyped]  # ships no types

from edge_opid.errors import WireError, shown
from edge_opid.wire.documents import Introduction, SummaryMessage
from edge_opid.wire.limits import LIMITS
from edge_opid.wire.messages import Ack, Example, Label, Message, Prediction, Reading, Status
from edge_opid.wire.reader import Reader, pack
from edge_opid.wire.schema import Blob, Checked, Field, Maybe, NestedField, Scalar, Table, slots_of
from edge_opid.wire.sensors import SensorDeployed, SensorRetired, SensorReturned, SensorSilent
from edge_opid.wire.topics import Channel

SCHEMA_VERSION = 1
M = TypeVar("M", bound=Message)

# What may arrive where. `desired` is not here: its bytes are a signed envelope, opened first.
MESSAGES_ON: dict[Channel, tuple[type[Message], ...]] = {
    Channel.READING: (Reading,),
    Channel.LABEL: (Label,),
    Channel.ACK: (Ack,),
    Channel.PREDICTION: (Prediction,),
    Channel.STATUS: (Status,),
    Channel.EVENT: (
        SensorRetired,
        SensorSilent,
        SensorReturned,
        SensorDeployed,
        Introduction,
        Example,
    ),
    Channel.SUMMARY: (SummaryMessage,),
}


def encode(message: Message) -> bytes:
    """The bytes of `message`: a msgpack map that begins with its schema version and its kind."""
    payload = pack(_plain(message))
    _check_size(len(payload), message.bytes_max, message.kind)
    return payload


def decode(payload: bytes, *expected: type[M]) -> M:
    """The message in `payload`, which must be one of the `expected` kinds."""
    by_kind, names, at_most = _kinds(expected)
    _check_size(len(payload), at_most, names)
    usual: M | None = read_quickly(payload, by_kind)
    return read_carefully(payload, by_kind, names) if usual is None else usual


@lru_cache(maxsize=64)
def _kinds(expected: tuple[type[M], ...]) -> tuple[dict[str, type[M]], str, int]:
    """The expected messages by kind, what an error calls them, and the size of the largest."""
    by_kind = {each.kind: each for each in expected}
    return by_kind, " or ".join(by_kind), max(each.bytes_max for each in expected)


def decode_on(channel: Channel, payload: bytes) -> Message:
    """The message that arrived on a topic of `channel`; `desired` must be opened, not decoded.

    >>> decode_on(Channel.ACK, encode(Ack(boot=1, seq=2)))
    Ack(boot=1, seq=2, newest=0)
    """
    expected = MESSAGES_ON.get(channel)
    if expected is None:
        raise WireError(
            "signature",
            f"a payload on {channel.value!r} must be verified before it is decoded, got "
            f"{len(payload)} bytes: use envelope.open_desired",
        )
    return decode(payload, *expected)


def to_json(prediction: Prediction) -> bytes:
    """A prediction for those who do not speak msgpack: dashboards, Node-RED, Home Assistant."""
    text = json.dumps(_plain(prediction), ensure_ascii=False, allow_nan=False)
    return text.encode()


def _plain(message: Message) -> dict[str, Any]:
    return {"v": SCHEMA_VERSION, "kind": message.kind, **message.plain()}


def _check_size(size: int, at_most: int, what: str) -> None:
    if size > at_most:
        raise WireError("size", f"{what} must have at most {at_most} bytes, got {size}")


# -- the careful way -----------------------------------------------------------------------------


def read_carefully(payload: bytes, by_kind: Mapping[str, type[M]], names: str) -> M:
    """The message, value by value; or what is wrong with it."""
    kind = _kind_in(payload, names)
    if kind not in by_kind:
        raise WireError("kind", f"the message must be a {names}, got {shown(kind)}")
    found = by_kind[kind]
    _check_size(len(payload), found.bytes_max, found.kind)
    reader = Reader(payload)
    message: M = NestedField(found).read(reader, found.kind)
    reader.finish(found.kind)
    return message


def _kind_in(payload: bytes, names: str) -> str:
    """What the map calls itself, once its schema version is known to be ours.

    Our own senders put both keys first; others may not, so the rest is skipped, not built.
    """
    reader = Reader(payload)
    header: dict[str, Any] = {}
    for _ in range(reader.map_length(names, LIMITS.map_keys_max)):
        key: str = reader.value(f"a key of {names}", "text")
        if key == "v":
            header[key] = reader.value(f"{names}.v", "int")
        elif key == "kind":
            header[key] = reader.value(f"{names}.kind", "text")
        else:
            reader.skip(names)
        if len(header) == 2:
            break
    for key in ("v", "kind"):
        if key not in header:
            raise WireError("missing", f"{names}.{key} must be given, got {sorted(header)}")
    if header["v"] != SCHEMA_VERSION:
        raise WireError(
            "schema",
            f"schema version must be {SCHEMA_VERSION}, got {header['v']}: update the older side",
        )
    kind: str = header["kind"]
    return kind


# -- the quick way -------------------------------------------------------------------------------

QUICK_BYTES_MAX = 4_096  # of which 0.7 MB can be made, by maps in maps; 150 values are less
_OWN: dict[type[Checked], dict[str, type[Checked]] | None] = {}


def read_quickly(payload: bytes, by_kind: Mapping[str, type[Checked]]) -> Any:
    """The message in `payload`; None where the careful way must have a look at it."""
    if len(payload) > QUICK_BYTES_MAX:
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
        version, record = found.pop("v"), by_kind[found.pop("kind")]
        ours = type(version) is int and version == SCHEMA_VERSION
        return _built(record, found) if ours else None
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
        if isinstance(field, NestedField):
            inner[slot.name] = field.record
        elif isinstance(field, Blob) or not isinstance(field, (Scalar, Table)):
            return None
    return inner
