"""A node's state as bytes for the store, and back: plain values, and arrays to the bit."""

from __future__ import annotations

from typing import Any

import msgpack  # type: ignore[import-untyped]  # ships no types
import numpy as np

from edge_opid.node.journal_records import JournalError

FORMAT = 1
ARRAY = 1  # the only extension type, and only in files this node wrote itself


def pack_state(state: dict[str, Any]) -> bytes:
    """The bytes of a state made of maps, lists, numbers, text, bytes and arrays."""
    return bytes(msgpack.packb({"format": FORMAT, "state": state}, default=_array))


def unpack_state(data: bytes) -> dict[str, Any]:
    """What `pack_state` was given.

    >>> unpack_state(pack_state({"v": np.arange(3.0)}))
    {'v': array([0., 1., 2.])}
    """
    try:
        saved = msgpack.unpackb(data, ext_hook=_restored, strict_map_key=False)
        found = saved["format"]
    except (ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
        raise JournalError(f"a snapshot of {len(data)} bytes cannot be read: {error}") from error
    if found != FORMAT:
        raise JournalError(f"snapshot format must be {FORMAT}, got {found}: update edge-opid")
    state: dict[str, Any] = saved["state"]
    return state


def _array(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        kind = value.dtype.newbyteorder("<")
        header = [kind.str, list(value.shape), value.astype(kind).tobytes()]
        return msgpack.ExtType(ARRAY, msgpack.packb(header))
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no place in a state")


def _restored(code: int, data: bytes) -> Any:
    if code != ARRAY:
        raise JournalError(f"extension type {code} in a snapshot: only {ARRAY} is ours")
    kind, shape, content = msgpack.unpackb(data)
    array = np.frombuffer(content, kind).reshape(shape)
    return array.astype(array.dtype.newbyteorder("="))
