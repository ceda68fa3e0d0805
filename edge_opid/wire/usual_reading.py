"""Readings as our own senders write them: what was the same last time is compared, not read.

A source's readings differ in their number, their time, their values and their label. What stands
between these is the same each time: keys, names of sensors, and the bytes that say how long a
number is. A `Frame` is all that stands between, taken from a reading that was read in full. If a
payload has the same bytes in the same places, its numbers are where they were last time.

>>> from edge_opid.wire.codec import encode
>>> frames, first = Frames(), Reading(3, 200, 1_700_000_000_000, {"temp": 21.5}, "dry")
>>> frames.read(encode(first))  # the first of its kind
>>> frames.keep(encode(first), first)
>>> frames.read(encode(Reading(3, 201, 1_700_000_001_000, {"temp": 21.0}, "wet")))
Reading(boot=3, seq=201, time_ms=1700000001000, values={'temp': 21.0}, label='wet')
"""

from __future__ import annotations

from functools import lru_cache
from math import hypot
from struct import Struct, calcsize
from typing import Any, NamedTuple

import msgpack  # type: ignore[import-untyped]  # ships no types

from edge_opid.wire.ids import as_ids
from edge_opid.wire.limits import LIMITS
from edge_opid.wire.messages import SCHEMA_VERSION, Reading
from edge_opid.wire.reader import pack
from edge_opid.wire.schema import NumberField, fits_text

KEYS = ("v", "kind", "boot", "seq", "time_ms", "values", "label")
INTEGER_MAX = LIMITS.integer_max
SIZE_MAX = LIMITS.number_max / 2
LABEL_CHARS_MAX = 64
FRAMES_MAX = 32
"""Sources, times the lengths of their labels; with 160 sensors a frame has some 30 kB."""
FLOAT = b"\xcb"
WHOLE = {b"\xcc": "B", b"\xcd": "H", b"\xce": "I", b"\xcf": "Q"}
"""Whole numbers as `struct` calls them, by the byte before them; those below 128 have none."""
BOOT = len(pack({"v": SCHEMA_VERSION, "kind": Reading.kind, "boot": 0})) - 1
SMALL_ENDS = BOOT + 1 + len(pack("seq") + FLOAT)
ENDS = {first: SMALL_ENDS + calcsize(kind) for first, kind in WHOLE.items()}
"""Where the boot begins, and where the byte before the number ends, by how the boot is written."""
_NUMBER = NumberField()


def read_usual(pairs: Any) -> Reading | None:
    """The reading in a map that came as pairs, each field looked at where it stands; or None."""
    if type(pairs) is not tuple or not 6 <= len(pairs) <= 7:
        return None
    keys, found = zip(*pairs, strict=True)
    if keys != KEYS[: len(keys)]:
        return None
    version, kind, boot, seq, time_ms, table, *rest = found
    if type(table) is not tuple or not 0 < len(table) <= LIMITS.sensors_max:
        return None
    names, values = zip(*table, strict=True)
    ids, label = as_ids(names), rest[0] if rest else None
    if (
        ids is not None
        and type(version) is type(boot) is type(seq) is type(time_ms) is int
        and version == SCHEMA_VERSION
        and kind == Reading.kind
        and 0 <= boot <= INTEGER_MAX
        and 1 <= seq <= INTEGER_MAX
        and 0 <= time_ms <= INTEGER_MAX
        and _is_label(label)
        and _NUMBER.all_fit(values)
    ):
        return Reading.unchecked(boot, seq, time_ms, dict(zip(ids, values, strict=True)), label)
    return None


def _is_label(label: Any) -> bool:
    return label is None or (
        type(label) is str and len(label) <= LABEL_CHARS_MAX and fits_text(label)
    )


@lru_cache(maxsize=64)  # a node's classes
def _label_in(tail: bytes) -> str | None:
    """The label that ends a reading; a ValueError where it is not as usual."""
    label: str | None = msgpack.unpackb(
        tail, max_map_len=0, max_array_len=0, max_bin_len=0, max_ext_len=0
    )
    if not _is_label(label):
        raise ValueError("no usual label")
    return label


class Frame(NamedTuple):
    """What the readings of one source have in common, and where their numbers are."""

    numbers: Struct
    """Takes the number, the time and the values, and skips what stands between."""
    mask: int
    """As long as all that comes before the label, with every bit set between the numbers."""
    between: int
    """What must stand there."""
    boot: int
    ids: tuple[str, ...]
    labelled: bool

    @classmethod
    def of(cls, payload: bytes, reading: Reading) -> Frame | None:
        """The frame of a reading that was read in full; None where its numbers have others.

        That is so with numbers below 128, which have no byte before them, and with values that are
        whole, or written in 32 bits.
        """
        labelled = payload[0] == 0x80 | len(KEYS)
        seq, time_ms = pack(reading.seq)[:1], pack(reading.time_ms)[:1]
        if seq not in WHOLE or time_ms not in WHOLE:
            return None
        head = {"v": SCHEMA_VERSION, "kind": Reading.kind, "boot": reading.boot}
        table = msgpack.Packer().pack_map_header(len(reading.values))
        names = [pack(name) + FLOAT for name in reading.values]
        between = (
            payload[:1] + pack(head)[1:] + pack("seq") + seq,
            pack("time_ms") + time_ms,
            pack("values") + table + names[0],
            *names[1:],
            *([pack("label")] if labelled else ()),
        )
        kinds = WHOLE[seq], WHOLE[time_ms], *"d" * len(names), *([""] if labelled else ())
        gaps = list(zip(between, kinds, map(calcsize, kinds), strict=True))
        frame = cls(
            Struct(">" + "".join(f"{len(text)}x{kind}" for text, kind, _ in gaps)),
            _as_int(b"".join(b"\xff" * len(text) + bytes(size) for text, _, size in gaps)),
            _as_int(b"".join(text + bytes(size) for text, _, size in gaps)),
            reading.boot,
            tuple(reading.values),
            labelled,
        )
        return frame if frame.read(payload) == reading else None

    def read(self, payload: bytes) -> Reading | None:
        """The reading, if it has this frame and nothing in it is out of range."""
        end = self.numbers.size
        if len(payload) < end or _as_int(payload[:end]) & self.mask != self.between:
            return None
        seq, time_ms, *values = self.numbers.unpack_from(payload)
        tail = payload[end:]
        if (
            1 <= seq <= INTEGER_MAX
            and time_ms <= INTEGER_MAX
            and hypot(*values) < SIZE_MAX  # not if one is NaN or infinite
            and (self.labelled or not tail)
        ):
            label = _label_in(tail) if self.labelled else None
            return Reading.unchecked(
                self.boot, seq, time_ms, dict(zip(self.ids, values, strict=True)), label
            )
        return None


def _as_int(some: bytes) -> int:
    """All bytes as one number: to mask and compare them takes three operations, however many."""
    return int.from_bytes(some, "little")


def _key(payload: bytes) -> tuple[int, bytes]:
    """What nearly always tells frames apart: the length, the boot, and how long the number is."""
    return len(payload), payload[: ENDS.get(payload[BOOT : BOOT + 1], SMALL_ENDS)]


class Frames:
    """The frames of the sources that were heard lately."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, bytes], Frame | None] = {}

    def read(self, payload: bytes) -> Reading | None:
        """The reading, if its frame is known; a ValueError where its label is not as usual."""
        frame = self._known.get(_key(payload))
        return frame.read(payload) if frame is not None else None

    def keep(self, payload: bytes, reading: Reading) -> None:
        """Remember the frame of a reading that was read in full, or that it has none."""
        key = _key(payload)
        if key not in self._known:
            if len(self._known) >= FRAMES_MAX:
                self._known.clear()  # so many sources at once are not usual
            self._known[key] = Frame.of(payload, reading)
