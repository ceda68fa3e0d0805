"""The vocabulary that messages are written in: kinds of fields, and records made of them.

Each kind of `Field` knows three things: how to `check` a Python value, how to `read` one from
bytes, and its `plain` form, which msgpack can pack.

A record (`Checked`) is a frozen dataclass whose annotations carry a `Field`: a message names its
fields once, and the codec follows. It checks itself when it is built, whether by a program or from
bytes, so a message that exists is a message that is valid.

Three rules make room for the future: unknown keys are ignored, so that newer senders can talk to
older nodes; a field with a default may be missing; and it is not sent while it has its default,
so that adding one changes no byte of the messages that do not use it.
"""

# ruff: noqa: D102 - `Field` says once, for all kinds, what check, read and plain do
from __future__ import annotations

import dataclasses
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from types import NoneType
from typing import Annotated, Any, ClassVar, NamedTuple, get_args, get_origin, get_type_hints

from edge_opid.errors import WireError, shown
from edge_opid.wire.ids import as_ids, check_id
from edge_opid.wire.limits import LIMITS
from edge_opid.wire.reader import Reader


class Field(ABC):
    """The contract of every kind of field."""

    @abstractmethod
    def check(self, value: Any, where: str) -> None:
        """Raise a WireError that names `where`, unless `value` may stand there."""

    @abstractmethod
    def read(self, reader: Reader, where: str) -> Any:
        """The next value of the reader, of the right type; `check` comes when it is built in."""

    def plain(self, value: Any) -> Any:
        """`value` as msgpack can pack it."""
        return value

    def all_fit(self, values: Collection[Any]) -> bool:  # noqa: ARG002 - nothing is known here
        """Whether all of these certainly may stand there; if not, `check` says it of each."""
        return False

    def all_plain(self, values: Collection[Any]) -> Iterable[Any]:
        """`plain` of each."""
        return map(self.plain, values)


class Scalar(Field):
    """A field that is one value, of one of the msgpack `kinds`."""

    kinds: ClassVar[tuple[str, ...]]

    def read(self, reader: Reader, where: str) -> Any:
        return reader.value(where, *self.kinds)


_WHOLE = frozenset((int,))  # and no bool, which is another type


@dataclass(frozen=True)
class Whole(Scalar):
    """A whole number. True is not one, although Python says so.

    >>> Whole().check(True, "reading.seq")
    Traceback (most recent call last):
    ...
    edge_opid.errors.WireError: reading.seq must be a whole number, got True
    """

    kinds = ("int",)
    low: int = 0
    high: int = LIMITS.integer_max

    def check(self, value: Any, where: str) -> None:
        if type(value) is int and self.low <= value <= self.high:
            return
        if not isinstance(value, int) or isinstance(value, bool):
            raise WireError("type", f"{where} must be a whole number, got {shown(value)}")
        if not self.low <= value <= self.high:
            raise WireError(
                "range", f"{where} must be from {self.low} to {self.high}, got {shown(value)}"
            )

    def all_fit(self, values: Collection[Any]) -> bool:
        if not values or not _WHOLE.issuperset(map(type, values)):
            return False
        return bool(self.low <= min(values) and max(values) <= self.high)


_NUMBERS = frozenset((float, int))


@dataclass(frozen=True)
class NumberField(Scalar):
    """A finite number that float32 can hold; a whole number will do."""

    kinds = ("float", "int")
    low: float = -LIMITS.number_max
    high: ClassVar[float] = LIMITS.number_max

    def check(self, value: Any, where: str) -> None:
        if type(value) is not float and (
            type(value) is bool or not isinstance(value, (float, int))
        ):
            raise WireError("type", f"{where} must be a number, got {shown(value)}: send float(it)")
        if not -self.high <= value <= self.high:  # false for NaN, too
            raise WireError("nonfinite", f"{where} must be finite in float32, got {shown(value)}")
        if value < self.low:
            raise WireError("range", f"{where} must be at least {self.low}, got {value}")

    def plain(self, value: Any) -> Any:
        return float(value)

    def all_fit(self, values: Collection[Any]) -> bool:
        if not values or not _NUMBERS.issuperset(map(type, values)):
            return False
        try:
            size = math.hypot(*values)  # NaN or inf if one is, and no smaller than the largest
        except OverflowError:  # a whole number that no float can hold
            return False
        return size < self.high / 2 and (self.low <= -self.high or self.low <= min(values))

    def all_plain(self, values: Collection[Any]) -> Iterable[Any]:
        return map(float, values)


@dataclass(frozen=True)
class Flag(Scalar):
    """True or False, and nothing that merely looks like it."""

    kinds = ("bool",)

    def check(self, value: Any, where: str) -> None:
        if not isinstance(value, bool):
            raise WireError("type", f"{where} must be True or False, got {shown(value)}")


@dataclass(frozen=True)
class Identifier(Scalar):
    """An id, as in `edge_opid.wire.ids`."""

    kinds = ("text",)

    def check(self, value: Any, where: str) -> None:
        check_id(value, where)

    def all_fit(self, values: Collection[Any]) -> bool:
        return as_ids(tuple(values)) is not None


@dataclass(frozen=True)
class Text(Scalar):
    """Words for people: a class, a unit, a reason. One line, so that no log can be forged."""

    kinds = ("text",)
    pattern: str = r".+"

    def check(self, value: Any, where: str) -> None:
        if (
            type(value) is str
            and len(value) <= LIMITS.text_bytes_max
            and fits_text(value, self.pattern)
        ):
            return
        if not isinstance(value, str):
            raise WireError("type", f"{where} must be text, got {shown(value)}")
        if not value.isprintable() or not re.fullmatch(self.pattern, value):
            raise WireError(
                "text",
                f"{where} must be one printable line like {self.pattern}, got {shown(value)}",
            )
        size = len(value.encode())
        if size > LIMITS.text_bytes_max:
            raise WireError(
                "length", f"{where} must have at most {LIMITS.text_bytes_max} bytes, got {size}"
            )


@lru_cache(maxsize=256)  # a node's classes, in every reading and every prediction
def fits_text(text: str, pattern: str = r".+") -> bool:
    """Whether a text is as `Text` wants it."""
    printable = text.isprintable() and re.fullmatch(pattern, text) is not None
    return printable and len(text.encode()) <= LIMITS.text_bytes_max


@dataclass(frozen=True)
class Blob(Scalar):
    """Raw bytes; the message that holds them checks their length against its shape."""

    kinds = ("bytes",)

    def check(self, value: Any, where: str) -> None:
        if not isinstance(value, bytes):
            raise WireError("type", f"{where} must be bytes, got {shown(value)}")


@dataclass(frozen=True)
class Maybe(Field):
    """A field that may be None."""

    field: Field

    def check(self, value: Any, where: str) -> None:
        if value is not None:
            self.field.check(value, where)

    def read(self, reader: Reader, where: str) -> Any:
        nothing = reader.kind(where) == "nil"
        return reader.value(where, "nil") if nothing else self.field.read(reader, where)

    def plain(self, value: Any) -> Any:
        return None if value is None else self.field.plain(value)


@dataclass(frozen=True)
class Many(Field):
    """A tuple of a bounded length, all of one kind."""

    field: Field
    at_most: int

    def check(self, value: Any, where: str) -> None:
        if not isinstance(value, tuple):
            raise WireError("type", f"{where} must be a tuple, got {shown(value)}")
        check_length(value, self.at_most, where)
        for position, item in enumerate(value):
            self.field.check(item, f"{where}[{position}]")

    def read(self, reader: Reader, where: str) -> Any:
        length = reader.array_length(where, self.at_most)
        return tuple(self.field.read(reader, f"{where}[{each}]") for each in range(length))

    def plain(self, value: Any) -> Any:
        return [self.field.plain(item) for item in value]


@dataclass(frozen=True)
class Table(Field):
    """A mapping of a bounded length, whose keys come once each."""

    key: Field
    field: Field
    at_most: int

    def check(self, value: Any, where: str) -> None:
        if type(value) is not dict and not isinstance(value, Mapping):  # the second takes longer
            raise WireError("type", f"{where} must be a mapping, got {shown(value)}")
        check_length(value, self.at_most, where)
        if self.key.all_fit(value) and self.field.all_fit(value.values()):
            return
        key_where = f"a key of {where}"
        for key, item in value.items():
            self.key.check(key, key_where)
            try:
                self.field.check(item, where)
            except WireError:  # once more, to say which: its name for every value would cost more
                self.field.check(item, f"{where}.{key}")
                raise

    def read(self, reader: Reader, where: str) -> Any:
        if isinstance(self.field, Scalar):
            return reader.flat_map(where, self.at_most, self.field.kinds)
        table: dict[str, Any] = {}
        for _ in range(reader.map_length(where, self.at_most)):
            key = reader.new_key(where, table)
            try:
                table[key] = self.field.read(reader, where)
            except WireError as error:  # the key is quoted only where it is needed
                raise WireError(error.reason, f"{error} (at key {shown(key)})") from None
        return table

    def plain(self, value: Any) -> Any:
        return dict(zip(value, self.field.all_plain(value.values()), strict=True))


def check_length(items: Any, at_most: int, where: str) -> None:
    """A container within its limit, whoever built it."""
    if len(items) > at_most:
        raise WireError("length", f"{where} must have at most {at_most} items, got {len(items)}")


Id = Annotated[str, Identifier()]
Line = Annotated[str, Text()]
Yes = Annotated[bool, Flag()]
Count = Annotated[int, Whole()]
Ordinal = Annotated[int, Whole(low=1)]
Millis = Annotated[int, Whole()]
Real = Annotated[float, NumberField()]
NotNegative = Annotated[float, NumberField(low=0.0)]
Positive = Annotated[float, NumberField(low=LIMITS.positive_min)]
Bytes = Annotated[bytes, Blob()]
Names = Annotated[tuple[str, ...], Many(Identifier(), LIMITS.sensors_max)]


class Checked:
    """The base of every record: checks each field, then what only the whole can tell."""

    __slots__ = ()
    kind: ClassVar[str]

    def __post_init__(self) -> None:
        checks, values = _CHECKS.get(type(self)) or _checks_of(type(self))
        for (check, where), value in zip(checks, values(self), strict=False):
            check(value, where)
        self.check_together()

    def check_together(self) -> None:
        """Raise a WireError if the fields contradict each other."""

    def plain(self) -> dict[str, Any]:
        """The record as a map that msgpack can pack, in the order of the fields."""
        found = {}
        for name, field, required, default in slots_of(type(self)).values():
            value = getattr(self, name)
            if required or value != default:
                found[name] = field.plain(value)
        return found


class Slot(NamedTuple):
    """One field of a record."""

    name: str
    field: Field
    required: bool
    default: Any


_SLOTS: dict[type[Checked], dict[str, Slot]] = {}  # found once for each class, then remembered


def slots_of(record: type[Checked]) -> dict[str, Slot]:
    """The fields of a record by name, found in its annotations."""
    found = _SLOTS.get(record)
    if found is None:
        hints = get_type_hints(record, include_extras=True)
        members = dataclasses.fields(record)  # type: ignore[arg-type]  # every record is one
        found = {each.name: _slot(each, hints[each.name]) for each in members}
        _SLOTS[record] = found
    return found


def _slot(member: dataclasses.Field[Any], hint: Any) -> Slot:
    if member.default_factory is not dataclasses.MISSING:
        return Slot(member.name, _field_for(hint), False, member.default_factory())
    required = member.default is dataclasses.MISSING
    return Slot(member.name, _field_for(hint), required, member.default)


Check = Callable[[Any, str], None]
Values = Callable[[Any], tuple[Any, ...]]
_CHECKS: dict[type[Checked], tuple[list[tuple[Check, str]], Values]] = {}


def _checks_of(record: type[Checked]) -> tuple[list[tuple[Check, str]], Values]:
    """How each field is checked and what an error calls it, and the values in the same order.

    Made once for each class: this runs for every message that is sent or arrives.
    """
    slots = slots_of(record)
    checks: list[tuple[Check, str]] = [
        (slot.field.check, f"{record.kind}.{name}") for name, slot in slots.items()
    ]
    values: Values = attrgetter(*slots, "kind")  # two names at least, or it gives no tuple
    return _CHECKS.setdefault(record, (checks, values))


def setters_of(record: type[Checked]) -> list[Callable[[Any, Any], None]]:
    """How each field is set in a record that is frozen for everybody else.

    For records of every reading, whose parts were checked: to do so once more would take longer
    than to learn from it. A loop over the fields would, too, so those records have no such loop.
    """
    return [getattr(record, name).__set__ for name in slots_of(record)]


def _field_for(hint: Any) -> Field:
    if get_origin(hint) is Annotated:
        found = [each for each in hint.__metadata__ if isinstance(each, Field)]
        return found[0]
    if NoneType in get_args(hint):
        return Maybe(_field_for(get_args(hint)[0]))
    return NestedField(hint)


@dataclass(frozen=True)
class NestedField(Field):
    """A field that is itself a record; and, for the codec, a whole message."""

    record: type[Checked]

    def check(self, value: Any, where: str) -> None:
        if not isinstance(value, self.record):
            name = self.record.__name__
            raise WireError("type", f"{where} must be a {name}, got {shown(value)}")

    def read(self, reader: Reader, where: str) -> Any:
        known = slots_of(self.record)
        found: dict[str, Any] = {}
        seen: set[str] = set()
        for _ in range(reader.map_length(where, LIMITS.map_keys_max)):
            key = reader.new_key(where, seen)
            seen.add(key)
            if key in known:
                found[key] = known[key].field.read(reader, f"{where}.{key}")
            else:
                reader.skip(where)
        for slot in known.values():
            if slot.required and slot.name not in found:
                raise WireError(
                    "missing", f"{where}.{slot.name} must be given, got {sorted(found)}"
                )
        return self.record(**found)

    def plain(self, value: Any) -> Any:
        return value.plain()
