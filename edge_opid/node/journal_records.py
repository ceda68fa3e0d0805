"""What a node writes to its store: the inputs that change it, and snapshots of its whole state.

A node's durable state is a fold over its inputs and nothing else: `inputs.apply` for each, in
order, gives the same bits whenever it is done. So everything that depends on the clock, the network
or chance is decided before, and what was decided is written down here with its time. A snapshot is
the state after some of them: plain values, and arrays to the bit.

Both carry `FORMAT`. What another format wrote is refused with a sentence, and nothing is changed.

Inputs are tuples, as much that is made for every reading: a frozen dataclass takes four times as
long to be made, which for a reading was more than learning from it. For the same reason they are
built by position in the one place where a reading is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgpack  # type: ignore[import-untyped]  # ships no types
import numpy as np

from edge_opid.errors import RefusedError
from edge_opid.wire import InstanceId, Reading, decode

FORMAT = 3
"""Of records and snapshots alike: raise it when either changes. See docs/decisions/0020."""
ARRAY = 1  # the only extension type, and only in files this node wrote itself


class JournalError(RefusedError, ValueError):
    """A record or a snapshot is not one of ours: another version wrote it."""

    def __init__(self, sentence: str) -> None:
        super().__init__("journal", sentence)


class Accepted(NamedTuple):
    """A reading passed every check: in sequence, within its rate, decodable.

    `now_ms` is the node's clock, `time_ms` the sender's. A reading without values stands for one
    that its sender has lost: it moves the sequence on, and nothing else.
    """

    now_ms: int
    source: str
    boot: int
    seq: int
    time_ms: int
    values: Mapping[str, float]
    label: str | None


class Labelled(NamedTuple):
    """The truth arrived: about an instance, a time, a stretch of time, or (with none) about now."""

    now_ms: int
    label: str
    instance: InstanceId | None = None
    time_ms: int | None = None
    from_ms: int | None = None
    until_ms: int | None = None


class Undone(NamedTuple):
    """A label was a mistake: that of an instance, a time or a stretch, or (with none) the last."""

    now_ms: int
    instance: InstanceId | None = None
    time_ms: int | None = None
    from_ms: int | None = None
    until_ms: int | None = None


class Closed(NamedTuple):
    """The time to wait for more values of the open instance is over."""

    now_ms: int


class Silenced(NamedTuple):
    """These sensors have been silent for longer than their timeouts, or are said to be gone."""

    now_ms: int
    sensors: tuple[str, ...]


class Returned(NamedTuple):
    """These sensors are said to be there again; they have not spoken yet."""

    now_ms: int
    sensors: tuple[str, ...]


class Ordered(NamedTuple):
    """The gateway's signed document was verified: its bytes, without the signature."""

    now_ms: int
    document: bytes


class Configured(NamedTuple):
    """These settings are in force from here on: the first record, and one for every change.

    `settings` is `NodeSettings.plain`. Classes are matched by name; `former` gives, for a class
    that was renamed, the name it had. `layout` is `NewLayout.plain`, or None where the sensors are
    those they were.
    """

    now_ms: int
    settings: Mapping[str, Any]
    former: Mapping[str, str]
    layout: Mapping[str, Any] | None


class Told(NamedTuple):
    """Somebody who knows it said what is so, from when until when (see `truth`)."""

    now_ms: int
    label: str
    from_ms: int
    until_ms: int


class Beat(NamedTuple):
    """It is time for an instance of what is held."""

    now_ms: int


class Remeasured(NamedTuple):
    """An operator wants a sensor's scale to be measured anew, by what it says from here on."""

    now_ms: int
    sensor: str


Input = (
    Accepted
    | Labelled
    | Closed
    | Silenced
    | Ordered
    | Configured
    | Told
    | Beat
    | Remeasured
    | Undone
    | Returned
)
KINDS: tuple[type[Input], ...] = (
    Accepted,
    Labelled,
    Closed,
    Silenced,
    Ordered,
    Configured,
    Told,
    Beat,
    Remeasured,
    Undone,
    Returned,
)
"""A record begins with 16 × `FORMAT` + the place of its kind here: append, never reorder."""
_NUMBERS = {kind: 16 * FORMAT + place for place, kind in enumerate(KINDS)}
AS_IT_CAME = 15
"""The place of a reading whose payload is in the record: beyond all kinds there will be."""
_AS_IT_CAME = 16 * FORMAT + AS_IT_CAME
_PACK = msgpack.Packer().pack  # `packb` makes a packer every time, which takes longer than packing


def pack_record(change: Input) -> bytes:
    """The record of an input.

    >>> record = pack_record(Accepted(5, "attic", 1, 2, 4, {"t": 21.5}, None))
    >>> unpack_record(record)
    Accepted(now_ms=5, source='attic', boot=1, seq=2, time_ms=4, values={'t': 21.5}, label=None)
    """
    return bytes(msgpack.packb([_NUMBERS[type(change)], *change], default=_plain))


def pack_reading(now_ms: int, source: str, payload: bytes) -> bytes:
    """The record of a reading that was decoded, and accepted, from this payload: kept as it came.

    >>> from edge_opid.wire import encode
    >>> payload = encode(Reading(boot=1, seq=2, time_ms=4, values={"t": 21.5}))
    >>> unpack_record(pack_reading(5, "attic", payload))
    Accepted(now_ms=5, source='attic', boot=1, seq=2, time_ms=4, values={'t': 21.5}, label=None)
    """
    record: bytes = _PACK((_AS_IT_CAME, now_ms, source, payload))
    return record


def _reading_as_it_came(now_ms: int, source: str, payload: bytes) -> Accepted:
    reading = decode(payload, Reading)
    boot, seq, time_ms = reading.boot, reading.seq, reading.time_ms
    return Accepted(now_ms, source, boot, seq, time_ms, dict(reading.values), reading.label)


def _plain(value: Any) -> Any:
    """What msgpack does not know: the number of an instance, or a mapping that is no dict."""
    if isinstance(value, InstanceId):
        return value.source, value.boot, value.seq
    return dict(value)


def unpack_record(record: bytes) -> Input:
    """The input that `pack_record` or `pack_reading` wrote down."""
    try:
        number, *values = msgpack.unpackb(record)
        written, place = divmod(number, 16)
        _check_format("journal record", written or 1)  # in the first format it was the place alone
        if place == AS_IT_CAME:
            return _reading_as_it_came(*values)
        kind = KINDS[place]
        at = {Labelled: 2, Undone: 1}.get(kind)
        if at is not None and values[at] is not None:
            values[at] = InstanceId(*values[at])
        if kind in (Silenced, Returned):
            values[1] = tuple(values[1])
        change: Input = kind(*values)
        return change
    except JournalError:
        raise
    except (ValueError, TypeError, IndexError, msgpack.UnpackException) as error:
        raise JournalError(
            f"a journal record of {len(record)} bytes cannot be read: {error}"
        ) from error


def _check_format(what: str, written: int) -> None:
    """Say who wrote it, and what to do: to guess at another format would spoil the state."""
    if written == FORMAT:
        return
    age = "an older" if written < FORMAT else "a newer"
    raise JournalError(
        f"a {what} was written by {age} edge-opid (format {written}, this one reads {FORMAT}): run "
        "that version on this state, or move the state away to start from scratch; nothing was "
        "changed"
    )


def pack_state(state: dict[str, Any]) -> bytes:
    """The bytes of a state made of maps, lists, numbers, text, bytes and arrays.

    A function stands for what it returns, and is called when it is its turn: what it made is gone
    before the next one is.
    """
    return bytes(msgpack.packb({"format": FORMAT, "state": state}, default=_packable))


def unpack_state(data: bytes) -> dict[str, Any]:
    """What `pack_state` was given.

    >>> unpack_state(pack_state({"v": np.arange(3.0)}))
    {'v': array([0., 1., 2.])}
    """
    try:
        saved = msgpack.unpackb(data, ext_hook=_restored, strict_map_key=False)
        written, state = saved["format"], saved["state"]
    except (ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
        raise JournalError(f"a snapshot of {len(data)} bytes cannot be read: {error}") from error
    _check_format("snapshot", written)
    restored: dict[str, Any] = state
    return restored


def _packable(value: Any) -> Any:
    """What msgpack knows, in the place of what it does not."""
    if callable(value):
        return value()
    if isinstance(value, np.ndarray):
        kind = value.dtype.newbyteorder("<")
        header = [kind.str, list(value.shape), value.astype(kind).tobytes()]
        return msgpack.ExtType(ARRAY, msgpack.packb(header))
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a state cannot hold a {type(value).__name__}")


def _restored(code: int, data: bytes) -> Any:
    if code != ARRAY:
        raise JournalError(f"extension type {code} in a snapshot: only {ARRAY} is ours")
    kind, shape, content = msgpack.unpackb(data)
    array = np.frombuffer(content, kind).reshape(shape)
    return array.astype(array.dtype.newbyteorder("="))
