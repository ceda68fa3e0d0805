"""From a dataclass to its fields: what lets a message be written down once.

A record is a frozen dataclass whose annotations carry a `Field`. It checks itself when it is
built, whether by a program or from bytes, so a message that exists is a message that is valid.

Three rules make room for the future: unknown keys are ignored, so that newer senders can talk to
older nodes; a field with a default may be missing; and it is not sent while it has its default,
so that adding one changes no byte of the messages that do not use it.
"""

# ruff: noqa: D102 - `Field` says once, for all kinds, what check, read and plain do
from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from types import NoneType
from typing import Annotated, Any, ClassVar, NamedTuple, get_args, get_origin, get_type_hints

from edge_opid.wire.errors import WireError, shown
from edge_opid.wire.fields import Field, Maybe
from edge_opid.wire.limits import LIMITS
from edge_opid.wire.packing import Reader


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


def _field_for(hint: Any) -> Field:
    if get_origin(hint) is Annotated:
        found = [each for each in hint.__metadata__ if isinstance(each, Field)]
        return found[0]
    if NoneType in get_args(hint):
        return Maybe(_field_for(get_args(hint)[0]))
    return Record(hint)


@dataclasses.dataclass(frozen=True)
class Record(Field):
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
