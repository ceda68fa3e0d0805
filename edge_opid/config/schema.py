r"""A TOML file and the environment, against the description of what may stand in them.

What the loaders of all programs have in common: which sections and keys there are (`Shape`), and
one file as it was read (`Document`), which knows the line that each key stands in. What is wrong
becomes a `SettingError`, which names the key; `Document.blaming` adds the file and the line, or the
variable.

>>> shape = Shape(sections={"log": {"level": "str"}}, lists={})
>>> document = Document.parse("[log]\nlevel = 3", Path("node.toml"))
>>> with document.blaming():
...     shape.check(document.tables)
Traceback (most recent call last):
...
edge_opid.errors.ConfigError: node.toml, line 2: log.level must be text in quotes, got 3
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

from edge_opid.errors import ConfigError, SettingError, WireError, shown
from edge_opid.wire.ids import check_id
from edge_opid.wire.limits import LIMITS
from edge_opid.wire.messages import UNKNOWN

DURATION_S_MAX = 36_525 * 86_400.0  # a century: as good as for ever, and exact in milliseconds
Table = dict[str, Any]
_WORDS = {
    "str": "text in quotes",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "tuple[str, ...]": "a list of texts",
    "Mapping[str, str]": "a table of texts",
    "Mapping[str, str] | str": "a table of texts, or one text",
}


def kinds_of(settings: type, *without: str) -> dict[str, str]:
    """Each key and its annotation, so that a setting is written down once."""
    return {each.name: str(each.type) for each in fields(settings) if each.name not in without}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a file may hold: `sections` of keys and their types, and `lists` of one class each.

    `needed` keys must be there. A `secret` value is never quoted, not even when it is wrong.
    """

    sections: Mapping[str, Mapping[str, str]]
    lists: Mapping[str, type]
    needed: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()

    def check(self, tables: Table) -> Table:
        """Every value of its type, under its key, and nothing else."""
        found: Table = {}
        for section, content in tables.items():
            if section in self.sections:
                found[section] = self._table(content, self.sections[section], section)
            elif section in self.lists:
                found[section] = self._list(content, section)
            else:
                raise SettingError(
                    section, _unknown(section, [*self.sections, *self.lists], "section")
                )
        for key in self.needed:
            section, name = key.split(".")
            if name not in found.get(section, {}):
                raise SettingError(key, f"is missing: add {name} = … under [{section}]")
        return found

    def typed(self, value: Any, kind: str, key: str) -> Any:
        """`value` as its annotation says: lists as tuples, whole numbers as floats if need be.

        TOML knows infinity, NaN, and whole numbers of any length; no setting of ours can be one.
        """
        kind = kind.removesuffix(" | None")
        texts = isinstance(value, list) and all(isinstance(each, str) for each in value)
        table = isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
        number = isinstance(value, int | float) and not isinstance(value, bool)
        fits = {
            "str": isinstance(value, str),
            "int": number and isinstance(value, int),
            "float": number,
            "bool": isinstance(value, bool),
            "tuple[str, ...]": texts,
            "Mapping[str, str]": table,
            "Mapping[str, str] | str": table or isinstance(value, str),
        }
        if not fits[kind]:
            raise SettingError(key, f"must be {_WORDS[kind]}, got {self._quoted(value, key)}")
        if number and not _ordinary(value):
            raise SettingError(key, f"must be an ordinary number, got {shown(value)}")
        if kind == "float":
            return float(value)
        return tuple(value) if texts else value

    def _list(self, content: Any, section: str) -> list[Table]:
        if not isinstance(content, list) or not all(isinstance(each, dict) for each in content):
            raise SettingError(section, f"must be written as [[{section}]], one for each")
        kinds = kinds_of(self.lists[section])
        needed = [
            each.name
            for each in fields(self.lists[section])
            if each.default is MISSING and each.default_factory is MISSING
        ]
        checked = []
        for index, table in enumerate(content):
            checked.append(self._table(table, kinds, f"{section}[{index}]"))
            for name in needed:
                if name not in table:
                    raise SettingError(f"{section}[{index}].{name}", "is missing")
        return checked

    def _table(self, content: Any, kinds: Mapping[str, str], where: str) -> Table:
        if not isinstance(content, dict):
            quoted = self._quoted(content, where)
            raise SettingError(where, f"must be a section, [{where}], got {quoted}")
        for name in content:
            if name not in kinds:
                raise SettingError(f"{where}.{name}", _unknown(name, kinds))
        return {
            name: self.typed(value, kinds[name], f"{where}.{name}")
            for name, value in content.items()
        }

    def _quoted(self, value: Any, key: str) -> str:
        """The value as the error may show it; a section may hold a secret, too."""
        secret = any(each == key or each.startswith(f"{key}.") for each in self.secret)
        return f"{type(value).__name__} (not shown: it may be secret)" if secret else shown(value)


@dataclass(slots=True)
class Document:
    """One file as it was read, and which of its keys an environment variable has replaced."""

    text: str
    path: Path
    tables: Table
    variables: dict[str, str] = field(default_factory=dict)  # key → where it came from

    @classmethod
    def parse(cls, text: str, path: Path) -> Document:
        """The tables in `text`, which stands in `path`."""
        try:
            return cls(text, path, tomllib.loads(text))
        except (ValueError, RecursionError) as error:  # bad syntax; thousands of digits or brackets
            raise ConfigError(f"{path.name} is not TOML: {error}") from error

    def override(self, environment: Mapping[str, str], shape: Shape) -> None:
        """Replace what `OPID_<SECTION>_<KEY>` names; a key that is none is a mistake."""
        for variable in sorted(environment):
            prefix, _, rest = variable.partition("_")
            section, _, name = rest.lower().partition("_")
            if prefix != "OPID" or section not in shape.sections:
                continue
            key = f"{section}.{name}"
            self.variables[key] = f"environment variable {variable}"
            kind = shape.sections[section].get(name)
            if kind is None:
                raise SettingError(key, _unknown(name, shape.sections[section]))
            table = self.tables.setdefault(section, {})
            if isinstance(table, dict):
                table[name] = _from_text(environment[variable], kind, key)

    @contextmanager
    def blaming(self) -> Iterator[None]:
        """A mistake within gets its place in front: the variable, or the file and the line."""
        try:
            yield
        except SettingError as error:
            where = self.variables.get(error.key) or place(self.text, error.key, self.path)
            raise ConfigError(f"{where}: {error}", error.key) from error


def read_text(path: Path) -> str:
    """The text of a configuration file, or one sentence."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error


def _from_text(value: str, kind: str, key: str) -> Any:
    if kind == "str":
        return value
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError) as error:
        raise SettingError(key, f"must be {_WORDS[kind]}, got {shown(value)}") from error


def _ordinary(value: float) -> bool:
    if isinstance(value, int):
        return abs(value) <= LIMITS.integer_max
    return math.isfinite(value)


def _unknown(name: str, known: Any, what: str = "key") -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only a mistake should pay for it

    near = get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    return f"is not a {what}; {hint}"


def check_name(value: object, key: str) -> None:
    """An id, as topics may hold it."""
    try:
        check_id(value, key)
    except WireError as error:
        raise SettingError(key, str(error).removeprefix(f"{key} ")) from error


def check_within(value: float, key: str, low: float, high: float) -> None:
    """A number from `low` to `high`."""
    if not low <= value <= high:  # false for NaN, too
        raise SettingError(key, f"must be from {low:g} to {high:g}, got {value}")


def check_unique(names: Iterable[str], key: str, what: str = "") -> None:
    """No name twice; the error has the key of the second one, where it has a place of its own."""
    seen: set[str] = set()
    for number, name in enumerate(names):
        if name in seen:
            where = f"{key}[{number}].{what}" if what else key
            raise SettingError(where, f"must differ from the others, got {name!r} twice")
        seen.add(name)


def check_classes(classes: Iterable[str], key: str) -> None:
    """No class twice, and none called what a node says before it has learned anything."""
    names = list(classes)
    check_unique(names, key)
    if UNKNOWN in names:
        raise SettingError(
            key,
            f"must not have {UNKNOWN!r} among them: a node says that until it has learned "
            "something; use another word",
        )


_HEADER = re.compile(r"\s*\[\[?\s*([^\]]+?)\s*\]")
_KEY = re.compile(r"(.*?)(?:\[(\d+)\])?(?:\.(.+))?", re.DOTALL)  # matches any text


def place(text: str, key: str, path: Path) -> str:
    """The file, and the line if the key or its section stands in it."""
    number = line_of(text, key)
    return path.name if number is None else f"{path.name}, line {number}"


def line_of(text: str, key: str) -> int | None:
    r"""The line of a key, or of its section, which a TOML parser does not tell; None: nowhere.

    >>> text = '[node]\nsite = "farm"\n[[sensors]]\nid = "t1"\n[[sensors]]\nid = "t1"'
    >>> line_of(text, "sensors[1].id"), line_of(text, "node.rho"), line_of(text, "log.level")
    (6, 1, None)
    >>> line_of('[[groups]]\nid = "air"\nnodes = ["n1", "N2"]', "groups[0].nodes[1]")
    3
    """
    within = re.sub(r"\[\d+\]$", "", key) if "." in key else key  # an item stands in its list
    section, wanted, name = _KEY.fullmatch(within).groups()  # type: ignore[union-attr]
    quoted = re.compile(rf"""\s*["']?{re.escape(name or section)}["']?\s*[=.]""")
    header_line, place, inside = None, -1, not name
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            title = header[1].replace('"', "")
            place += title == section
            here = wanted is None or place == int(wanted)
            inside = here and title == section
            if here and title == f"{section}.{name}":
                return number
            if inside and header_line is None:
                header_line = number
        elif inside and quoted.match(line):
            return number
    return header_line
