"""The inputs that change a node, and their bytes in the journal.

A node's durable state is a fold over these and nothing else: `state.apply(input)` for each, in
order, gives the same bits whenever it is done. So everything that depends on the clock, the network
or chance is decided before, and what was decided is written down here with its time.

They are tuples, as much that is made for every reading: a frozen dataclass takes four times as long
to be made, which for a reading was more than learning from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgpack  # type: ignore[import-untyped]  # ships no types

from edge_opid.errors import RefusedError
from edge_opid.wire import InstanceId


class JournalError(RefusedError, ValueError):
    """A record of the journal is not one of ours: another version wrote it."""

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
    """The truth about a recent instance arrived."""

    now_ms: int
    label: str
    instance: InstanceId | None
    time_ms: int | None


class Closed(NamedTuple):
    """The time to wait for more values of the open instance is over."""

    now_ms: int


class Silenced(NamedTuple):
    """These sensors have been silent for longer than their timeouts."""

    now_ms: int
    sensors: tuple[str, ...]


class Ordered(NamedTuple):
    """The gateway's signed document was verified: its bytes, without the signature."""

    now_ms: int
    document: bytes


Input = Accepted | Labelled | Closed | Silenced | Ordered
KINDS: tuple[type[Input], ...] = (Accepted, Labelled, Closed, Silenced, Ordered)
"""The number of a kind in the journal is its place here: append, never reorder."""


def pack(change: Input) -> bytes:
    """The record of an input.

    >>> record = pack(Accepted(5, "attic", 1, 2, 4, {"t": 21.5}, None))
    >>> unpack(record)
    Accepted(now_ms=5, source='attic', boot=1, seq=2, time_ms=4, values={'t': 21.5}, label=None)
    """
    return bytes(msgpack.packb([KINDS.index(type(change)), *change], default=_plain))


def _plain(value: Any) -> Any:
    """What msgpack does not know: the number of an instance, or a mapping that is no dict."""
    if isinstance(value, InstanceId):
        return value.source, value.boot, value.seq
    return dict(value)


def unpack(record: bytes) -> Input:
    """The input that `pack` wrote down."""
    try:
        number, *values = msgpack.unpackb(record)
        kind = KINDS[number]
        if kind is Labelled and values[2] is not None:
            values[2] = InstanceId(*values[2])
        if kind is Silenced:
            values[1] = tuple(values[1])
        change: Input = kind(*values)
        return change
    except (ValueError, TypeError, IndexError, msgpack.UnpackException) as error:
        raise JournalError(
            f"a journal record of {len(record)} bytes cannot be read: {error}"
        ) from error
