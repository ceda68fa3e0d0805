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

What the world reads (`READABLE`) may also be JSON, with the same keys: a `{` is no beginning of a
msgpack map, so both can travel on one topic.

>>> to_json(SensorReturned("attic-temp", 1_700_000_000_000))
b'{"v": 1, "kind": "sensor-returned", "sensor": "attic-temp", "at_ms": 1700000000000}'
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import msgpack  # type: ignore[import-untyped]  # ships no types

from edge_opid.errors import WireError, shown
from edge_opid.wire.documents import Introduction, SummaryMessage
from edge_opid.wire.limits import LIMITS
from edge_opid.wire.messages import (
    SCHEMA_VERSION,
    Ack,
    Asked,
    Confirmed,
    Example,
    InstanceId,
    Label,
    Message,
    Prediction,
    Reading,
    Status,
    Undo,
)
from edge_opid.wire.reader import Reader, pack
from edge_opid.wire.schema import (
    Blob,
    Checked,
    Field,
    Maybe,
    NestedField,
    Scalar,
    Table,
    slots_of,
)
from edge_opid.wire.sensors import (
    ScaleMeasured,
    SensorDeployed,
    SensorRemeasured,
    SensorRetired,
    SensorReturned,
    SensorSilent,
)
from edge_opid.wire.topics import Channel
from edge_opid.wire.usual_reading import Frames, read_usual

M = TypeVar("M", bound=Message)

# What may arrive where. `desired` is not here: its bytes are a signed envelope, opened first.
MESSAGES_ON: dict[Channel, tuple[type[Message], ...]] = {
    Channel.READING: (Reading,),
    Channel.LABEL: (Label, Undo),
    Channel.ACK: (Ack,),
    Channel.PREDICTION: (Prediction,),
    Channel.ASKED: (Asked,),
    Channel.STATUS: (Status,),
    Channel.EVENT: (
        SensorRetired,
        SensorSilent,
        SensorReturned,
        SensorDeployed,
        SensorRemeasured,
        ScaleMeasured,
        Introduction,
        Example,
    ),
    Channel.SUMMARY: (SummaryMessage,),
    Channel.CONFIRMED: (Confirmed,),
}
READABLE: frozenset[type[Message]] = frozenset(
    {Prediction, Asked, Status, SensorRetired, SensorSilent, SensorReturned, SensorDeployed}
    | {SensorRemeasured, ScaleMeasured}
)
"""What people and their tools read or write, and so may be JSON. Introductions, examples, summaries
and all else that only machines exchange is msgpack."""
REPEATED: tuple[type[Message], ...] = (Example, SummaryMessage, ScaleMeasured, SensorDeployed)
"""What a node repeats until the gateway has confirmed it: it is said once, and stands nowhere else.
Silent sensors are in every status, and an introduction is repeated until an order comes."""
JSON_ROOM = 2  # times the bytes of msgpack: digits, quotes and blanks


def encode(message: Message) -> bytes:
    """The bytes of `message`: a msgpack map that begins with its schema version and its kind."""
    payload = pack(_plain(message))
    _check_size(len(payload), message.bytes_max, message.kind)
    return payload


def decode(payload: bytes, *expected: type[M]) -> M:
    """The message in `payload`, which must be one of the `expected` kinds."""
    by_kind, names, at_most = _kinds(expected)
    if payload[:1] == b"{" and not READABLE.isdisjoint(expected):
        payload = _json_as_msgpack(payload, by_kind, names, JSON_ROOM * at_most)
    if len(payload) > at_most:
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


def to_json(message: Message) -> bytes:
    """A readable message for those who do not speak msgpack: Home Assistant, Node-RED, people."""
    payload = _JSON.encode(_plain(message)).encode()
    _check_size(len(payload), JSON_ROOM * message.bytes_max, message.kind)
    return payload


def encode_as(form: str, message: Message) -> bytes:
    r"""The bytes in the form a node was told to speak: what is not readable is msgpack anyway.

    >>> encode_as("json", Status.last_will(2, 7, 0))[:24], encode_as("json", Ack(1, 2))[:3]
    (b'{"v": 1, "kind": "status', b'\x84\xa1v')
    """
    return to_json(message) if form == "json" and type(message) in READABLE else encode(message)


def encode_prediction(
    form: str,
    instance: InstanceId,
    time_ms: int,
    label: str,
    classes: tuple[str, ...],
    said: Sequence[float],
    versions: tuple[int, int],
    predictor: str,
    confidence: float,
) -> bytes:
    """The bytes of a `Prediction` made of what was checked when it came: those of `encode_as`.

    `said` are the scores of the `classes`, `versions` those of the model and of the layout. For
    what happens at every reading; scores that are not finite go the way of all messages, and are
    refused there.
    """
    finite = math.isfinite(sum(said))
    if finite and form == "json":
        number = instance.source, instance.boot, instance.seq, time_ms
        text = _prediction_form(classes) % (
            *number,
            _quoted(label),
            *said,
            *versions,
            predictor,
            confidence,
        )
        return text.encode()
    scores = dict(zip(classes, said, strict=True))
    if not finite:
        return encode_as(
            form,
            Prediction(
                instance=instance,
                time_ms=time_ms,
                label=label,
                scores=scores,
                model_version=versions[0],
                layout_version=versions[1],
                predictor=predictor,
                confidence=confidence,
            ),
        )
    plain = {"source": instance.source, "boot": instance.boot, "seq": instance.seq}
    return pack(
        {
            "v": SCHEMA_VERSION,
            "kind": Prediction.kind,
            "instance": plain,
            "time_ms": time_ms,
            "label": label,
            "scores": scores,
            "model_version": versions[0],
            "layout_version": versions[1],
            "predictor": predictor,
            "confidence": confidence,
        }
    )


@lru_cache(maxsize=8)
def _prediction_form(classes: tuple[str, ...]) -> str:
    """A prediction of these classes as JSON, to be filled in.

    Ids and the names of predictors need no escape.
    """
    said = ", ".join([_quoted(name).replace("%", "%%") + ": %r" for name in classes])
    return (
        f'{{"v": {SCHEMA_VERSION}, "kind": "{Prediction.kind}", "instance": '
        '{"source": "%s", "boot": %d, "seq": %d}, "time_ms": %d, "label": %s, "scores": '
        f'{{{said}}}, "model_version": %d, "layout_version": %d, "predictor": "%s", '
        '"confidence": %r}'
    )


_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False)  # `json.dumps` makes one every time


_quoted = lru_cache(maxsize=256)(_JSON.encode)  # a node's classes


def _json_as_msgpack(
    payload: bytes, by_kind: Mapping[str, type[M]], names: str, at_most: int
) -> bytes:
    """The same message in msgpack, which is then checked as any other."""
    document = parse_json(payload, names, at_most)
    found = by_kind.get(str(document.get("kind")))
    if found is not None and found not in READABLE:
        raise WireError("format", f"a {found.kind} must be msgpack, got JSON")
    try:
        return pack(document)
    except (ValueError, OverflowError, RecursionError) as error:
        raise WireError("format", f"{names} cannot be: {shown(str(error))}") from None


def parse_json(payload: bytes, what: str, at_most: int) -> dict[str, Any]:
    """The JSON object in these bytes, each key once, all numbers finite; or a `WireError`.

    >>> parse_json(b'{"label": "damp"}', "label", 100)
    {'label': 'damp'}
    >>> parse_json(b'{"label": NaN}', "label", 100)
    Traceback (most recent call last):
    ...
    edge_opid.errors.WireError: label must be JSON: NaN is not a number
    """
    _check_size(len(payload), at_most, what)
    try:
        found = json.loads(
            payload.decode(), object_pairs_hook=_json_keys_once, parse_constant=_no_number
        )
    except RecursionError:
        raise WireError("nesting", f"{what} is nested too deeply") from None
    except ValueError as error:  # not UTF-8, not JSON, a key twice, thousands of digits
        raise WireError("format", f"{what} must be JSON: {shown_plain(error)}") from None
    if not isinstance(found, dict):
        raise WireError("type", f"{what} must be a JSON object, got a {type(found).__name__}")
    return found


def shown_plain(error: Exception) -> str:
    """An error's own words, on one line and not too long."""
    words = str(error)
    return words if len(words) <= 100 and words.isprintable() else shown(words)


def _json_keys_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return _each_key_once(tuple(pairs))


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is not a number")


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
            raise WireError("missing", f"{names}.{key} is missing, got {sorted(header)}")
    if header["v"] != SCHEMA_VERSION:
        raise WireError(
            "schema",
            f"schema version must be {SCHEMA_VERSION}, got {header['v']}: update the older side",
        )
    kind: str = header["kind"]
    return kind


# -- the quick way -------------------------------------------------------------------------------

QUICK_BYTES_MAX = LIMITS.small_payload_bytes_max  # of which 0.4 MB can be made, by maps in maps
_OWN: dict[type[Checked], _Shape | None] = {}
_FRAMES = Frames()


def read_quickly(payload: bytes, by_kind: Mapping[str, type[Checked]]) -> Any:
    """The message in `payload`; None where the careful way must have a look at it."""
    if len(payload) > QUICK_BYTES_MAX:
        return None
    try:
        if is_reading := Reading.kind in by_kind:
            usual = _FRAMES.read(payload)
            if usual is not None:
                return usual
        pairs = msgpack.unpackb(
            payload,
            object_pairs_hook=tuple,  # so that a key that comes twice is still there twice
            max_map_len=LIMITS.map_keys_max,
            max_array_len=0,
            max_bin_len=0,
            max_ext_len=0,
        )
        if is_reading and (usual := read_usual(pairs)) is not None:
            _FRAMES.keep(payload, usual)
            return usual
        found = _each_key_once(pairs)
        version, record = found.pop("v"), by_kind[found.pop("kind")]
        if type(version) is not int or version != SCHEMA_VERSION:
            return None
        return _built(record, found)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, msgpack.OutOfData):
        return None  # of which many are ours: a WireError is a ValueError


def _each_key_once(pairs: Any) -> dict[str, Any]:
    """The map that was read as a tuple of pairs."""
    if type(pairs) is dict:
        return pairs
    if type(pairs) is not tuple:
        raise TypeError("no map")  # an array is a list, and pairs are none
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key comes twice")
    return found


def _built(record: type[Checked], found: dict[str, Any]) -> Checked | None:
    """The record of these fields; a key too many or too few is a TypeError."""
    shape = _OWN[record] if record in _OWN else _OWN.setdefault(record, _shape_of(record))
    if shape is None or not shape.unusual.isdisjoint(found):
        return None
    for name, value in found.items():
        if type(value) is tuple:  # a map: a record of ours, or a table
            table = _each_key_once(value)
            found[name] = _built(shape.inner[name], table) if name in shape.inner else table
        elif name in shape.inner and value is not None:
            return None
    return record(**found)


class _Shape(NamedTuple):
    """What the quick way must know of a record."""

    inner: dict[str, type[Checked]]
    """Which fields are records themselves."""
    unusual: frozenset[str]
    """Those that may be missing, and are bytes or arrays: as the silent sensors of a status."""


def _shape_of(record: type[Checked]) -> _Shape | None:
    """None where bytes or arrays are always there."""
    inner, unusual = {}, set()
    for slot in slots_of(record).values():
        field: Field = slot.field.field if isinstance(slot.field, Maybe) else slot.field
        if isinstance(field, NestedField):
            inner[slot.name] = field.record
        elif isinstance(field, Blob) or not isinstance(field, (Scalar, Table)):
            if slot.required:
                return None
            unusual.add(slot.name)
    return _Shape(inner, frozenset(unusual))
