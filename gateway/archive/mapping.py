"""What the columns of an archive are: a small TOML file, or options of the command line.

label = "state"           # the column of the classes' names
node = "device"           # which node a row is of
time = "measured_at"

[columns]                 # the archive's column = the role it is here
temperature = "temp"

[labels]                  # what the archive calls a class = what the group calls it
"1" = "busy"

[sensors.temp]            # only where the group does not know the role, or in another unit
reference = 68.0
scale = 9.0
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from edge_opid.config.schema import Document, check_name, check_within, read_text
from edge_opid.errors import SettingError, shown

WORDS = ("label", "node", "time", "table")
SENSOR_KEYS = ("reference", "scale", "knots")
EVERY_S = 60.0


@dataclass(frozen=True, kw_only=True)
class GivenSensor:
    """What the operator says of a role; what is None is found out."""

    reference: float | None = None
    scale: float | None = None
    knots: tuple[float, ...] | int | None = None
    """Their places in scales, or how many: then the archive's first rows place them."""


@dataclass(frozen=True, kw_only=True)
class ArchiveMapping:
    """Which column of an archive is what."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """The archive's columns, or Home Assistant's entities, and the role each is."""
    label: str | None = None
    node: str | None = None
    time: str | None = None
    table: str | None = None
    """Of a database: table, or schema.table."""
    labels: Mapping[str, str] = field(default_factory=dict)
    sensors: Mapping[str, GivenSensor] = field(default_factory=dict)
    every_s: float = EVERY_S
    """Of Home Assistant's recorder: an instance each so many seconds."""

    @property
    def by_role(self) -> dict[str, str]:
        """The archive's column of each role."""
        return {role: column for column, role in self.columns.items()}

    def check(self, classes: tuple[str, ...]) -> ArchiveMapping:
        """Refuse what cannot be meant, by key."""
        if not self.columns:
            raise SettingError("columns", "are missing: say which column has which role")
        for column, role in self.columns.items():
            check_name(role, f"columns.{column}")
        if len(self.by_role) < len(self.columns):
            twice = sorted(self.columns.values())
            raise SettingError("columns", f"must give each role once, got {twice}")
        check_within(self.every_s, "every_s", 1, 86_400)
        for role, given in self.sensors.items():
            _check_sensor(role, given, self.by_role)
        for theirs, ours in self.labels.items():
            if ours not in classes:
                names = ", ".join(classes)
                raise SettingError(f"labels.{theirs}", f"must be one of {names}, got {shown(ours)}")
        return self

    def with_options(self, **given: Any) -> ArchiveMapping:
        """The same with what the command line says instead, where it says something."""
        said = {name: value for name, value in given.items() if value}
        columns = {**self.columns, **said.pop("columns", {})}
        return replace(self, columns=columns, **said)


def _check_sensor(role: str, given: GivenSensor, roles: Mapping[str, str]) -> None:
    key = f"sensors.{role}"
    if role not in roles:
        raise SettingError(key, f"is not a column: the roles are {', '.join(sorted(roles))}")
    if (given.reference is None) != (given.scale is None):
        raise SettingError(key, "needs both reference and scale, or neither")
    if given.scale is not None and not given.scale > 0:
        raise SettingError(f"{key}.scale", f"must be above 0, got {given.scale:g}")
    if isinstance(given.knots, int):
        check_within(given.knots, f"{key}.knots", 1, 32)


def read_mapping(path: Path) -> ArchiveMapping:
    """The mapping in a file; a mistake is named with file, line and key."""
    document = Document.parse(read_text(path), path)
    with document.blaming():
        return _mapping(document.tables)


def _mapping(tables: dict[str, Any]) -> ArchiveMapping:
    known = [each.name for each in fields(ArchiveMapping)]
    for key in tables:
        if key not in known:
            raise SettingError(key, f"is not a key; there are {', '.join(known)}")
    found: dict[str, Any] = {}
    for key in WORDS:
        if key in tables:
            found[key] = _text(tables[key], key)
    for key in ("columns", "labels"):
        table = _table(tables.get(key, {}), key)
        found[key] = {name: _text(value, f"{key}.{name}") for name, value in table.items()}
    if "every_s" in tables:
        found["every_s"] = _number(tables["every_s"], "every_s")
    sensors = _table(tables.get("sensors", {}), "sensors")
    found["sensors"] = {role: _sensor(each, f"sensors.{role}") for role, each in sensors.items()}
    return ArchiveMapping(**found)


def _sensor(given: Any, key: str) -> GivenSensor:
    table = _table(given, key)
    for name in table:
        if name not in SENSOR_KEYS:
            raise SettingError(f"{key}.{name}", f"is not a key; there are {', '.join(SENSOR_KEYS)}")
    numbers: dict[str, Any] = {
        name: _number(table[name], f"{key}.{name}") for name in SENSOR_KEYS[:2] if name in table
    }
    knots = table.get("knots")
    if isinstance(knots, list):
        knots = tuple(_number(each, f"{key}.knots") for each in knots)
    elif knots is not None and (isinstance(knots, bool) or not isinstance(knots, int)):
        raise SettingError(f"{key}.knots", f"must be a list or a whole number, got {shown(knots)}")
    return GivenSensor(**numbers, knots=knots)


def _table(value: Any, key: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SettingError(key, f"must be a section, [{key}], got {shown(value)}")
    return value


def _text(value: Any, key: str) -> str:
    if not isinstance(value, str) or not value:
        raise SettingError(key, f"must be text in quotes, got {shown(value)}")
    return value


def _number(value: Any, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise SettingError(key, f"must be a number, got {shown(value)}")
    return float(value)
