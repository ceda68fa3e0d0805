"""msgpack, one value at a time.

A decoder that builds whatever the bytes describe can be made to build 47 MB from 8 kB. This
reader looks at the type byte before it lets msgpack build anything, so only what the schema asks
for ever exists in memory; everything else is refused, or skipped without being built.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, TypeVar

import msgpack  # type: ignore[import-untyped]  # ships no types

from edge_opid.errors import WireError, shown
from edge_opid.wire.limits import LIMITS

T = TypeVar("T")
FOREIGN = (msgpack.OutOfData, ValueError, RecursionError)  # the last from its pure Python form


def _kind_of(first: int) -> str:
    """What a value is, by its first byte (the msgpack specification's table of formats)."""
    if first <= 0x7F or first >= 0xE0:
        return "int"
    if first <= 0xBF:
        return "map" if first <= 0x8F else "array" if first <= 0x9F else "text"
    named = ["nil", "reserved", "bool", "bool", *["bytes"] * 3, *["ext"] * 3, *["float"] * 2]
    named += [*["int"] * 8, *["ext"] * 5, *["text"] * 3, *["array"] * 2, *["map"] * 2]
    return named[first - 0xC0]


KINDS = tuple(_kind_of(first) for first in range(256))


def pack(value: object) -> bytes:
    """`value` as msgpack: maps in their own order, floats in 64 bits, bytes as bin.

    >>> pack({"seq": 1}).hex()
    '81a373657101'
    """
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed


class Reader:
    """A cursor over the bytes of one message. Whatever they are, it raises only WireError.

    >>> reader = Reader(pack([7, "ice"]))
    >>> reader.array_length("list", 2), reader.value("first", "int"), reader.value("then", "text")
    (2, 7, 'ice')
    >>> reader.finish("list")
    """

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        # Without read_size msgpack would allocate a buffer for the largest message each time.
        self._unpacker = msgpack.Unpacker(
            read_size=max(1, len(payload)),
            max_buffer_size=max(LIMITS.payload_bytes_max, len(payload)),
            strict_map_key=True,
            raw=False,
            max_array_len=LIMITS.payload_bytes_max,
            max_map_len=LIMITS.payload_bytes_max,
        )
        self._unpacker.feed(payload)
        self._tell: Callable[[], int] = self._unpacker.tell
        self._unpack: Callable[[], Any] = self._unpacker.unpack

    def kind(self, where: str) -> str:
        """What comes next, without reading it: int, float, text, map, ..."""
        position = self._tell()
        if position >= len(self._payload):
            raise WireError(
                "truncated", f"{where} is missing: the message ends after {position} bytes"
            )
        return KINDS[self._payload[position]]

    def value(self, where: str, *wanted: str) -> Any:
        """The next value, which must be of one of the `wanted` kinds; never an array or a map."""
        position = self._tell()
        # `_expect`, spelled out: this runs for every field that ever arrives
        if position >= len(self._payload) or KINDS[self._payload[position]] not in wanted:
            self._expect(where, wanted)
        return self._ask(where, self._unpack)

    def array_length(self, where: str, at_most: int) -> int:
        """Enter an array; the length it claims."""
        self._expect(where, ("array",))
        return self._bounded(where, self._ask(where, self._unpacker.read_array_header), at_most)

    def map_length(self, where: str, at_most: int) -> int:
        """Enter a map; the number of keys it claims."""
        self._expect(where, ("map",))
        return self._bounded(where, self._ask(where, self._unpacker.read_map_header), at_most)

    def new_key(self, where: str, seen: Container[str]) -> str:
        """The next key, which must be new: two readers could disagree on which one counts."""
        key: str = self.value(where, "text")
        if key in seen:
            raise self._duplicate(where, key)
        return key

    def flat_map(self, where: str, at_most: int, wanted: tuple[str, ...]) -> dict[str, Any]:
        """A whole map of scalars: `new_key` and `value` in one loop, for speed."""
        found: dict[str, Any] = {}
        kind, unpack = self.kind, self._unpack
        length = self.map_length(where, at_most)
        try:
            for _ in range(length):
                if kind(where) != "text":
                    self._expect(f"a key of {where}", ("text",))
                key = unpack()
                if key in found:
                    raise self._duplicate(where, key)
                if kind(where) not in wanted:
                    self._expect(f"{where}[{shown(key)}]", wanted)
                found[key] = unpack()
        except WireError:
            raise
        except FOREIGN as error:
            raise self._foreign(where, error) from None
        return found

    def skip(self, where: str) -> None:
        """Pass over the next value, however large it claims to be, building nothing."""
        self._ask(where, self._unpacker.skip)

    def finish(self, where: str) -> None:
        """Nothing may follow."""
        left = len(self._payload) - self._tell()
        if left:
            raise WireError("trailing", f"{where} must be the whole payload, {left} bytes follow")

    def _expect(self, where: str, wanted: tuple[str, ...]) -> None:
        kind = self.kind(where)
        if kind not in wanted:
            reason = "ext" if kind == "ext" else "type"
            raise WireError(reason, f"{where} must be {' or '.join(wanted)}, got {kind}")

    def _bounded(self, where: str, length: int, at_most: int) -> int:
        if length > at_most:
            raise WireError("length", f"{where} must have at most {at_most} items, got {length}")
        return length

    def _duplicate(self, where: str, key: str) -> WireError:
        return WireError("duplicate", f"{where} must name {shown(key)} once, got it twice")

    def _ask(self, where: str, action: Callable[[], T]) -> T:
        """Foreign errors become ours where they enter."""
        try:
            return action()
        except FOREIGN as error:
            raise self._foreign(where, error) from None

    def _foreign(self, where: str, error: Exception) -> WireError:
        if isinstance(error, msgpack.OutOfData):
            size = len(self._payload)
            return WireError("truncated", f"{where} goes on after the last of {size} bytes")
        if isinstance(error, msgpack.StackError | RecursionError):
            return WireError("nesting", f"{where} is nested deeper than msgpack follows")
        if isinstance(error, UnicodeDecodeError):
            return WireError("text", f"{where} must be UTF-8, got byte {error.start} wrong")
        detail = str(error) or "a byte that begins nothing"
        return WireError("format", f"{where} must be msgpack, got {detail}")
