"""A TOML file, and perhaps a few environment variables, become a checked `ServiceConfig`.

The rules, in order; the first one that is broken becomes a `ConfigError` that names the file, the
line and the key:

1. The file is TOML.
2. `OPID_<SECTION>_<KEY>` in the environment replaces a key of a section (`OPID_BROKER_HOST`,
   `OPID_NODE_NODE`); its value is written as in the file, text without quotes. A variable that
   begins with a section but names no key of it is refused like any other mistake.
3. Every section and every key is known, every value of its type, nothing needed is missing.
4. The values make sense (`NodeConfig`, and the broker's below).

Secrets are in neither place: `broker.credentials` and `broker.tls_key` name files. A relative path
is relative to the file's folder.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from edge_opid.config_lines import place as place_in
from edge_opid.errors import OpidError
from edge_opid.link.options import MqttOptions, TlsFiles
from edge_opid.node.config import ForeignConfig, NodeConfig, NodeConfigError, SensorConfig
from edge_opid.wire.errors import shown

LEVELS = ("debug", "info", "warning", "error")
KEY_HEX_CHARS = 64  # an Ed25519 verify key
Table = dict[str, Any]


class ConfigError(OpidError, ValueError):
    """The configuration is at fault: where, which key, what it must be and what it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """Everything `opid-node` is told."""

    node: NodeConfig
    broker: MqttOptions
    state_folder: Path
    gateway_keys: tuple[str, ...] = ()  # hex; empty: this node obeys no gateway
    status_file: Path | None = None
    log_level: str = "info"


def _kinds(settings: type, *without: str) -> dict[str, str]:
    """Each key and its annotation, so that a setting is written down once."""
    return {each.name: str(each.type) for each in fields(settings) if each.name not in without}


SECTIONS: dict[str, dict[str, str]] = {
    "node": _kinds(NodeConfig, "sensors", "foreign"),
    "broker": {
        "host": "str",
        "port": "int",
        "client_id": "str",
        "credentials": "str",
        "tls_ca": "str",
        "tls_certificate": "str",
        "tls_key": "str",
        "keepalive_s": "int",
        "session_expiry_s": "int",
        "inflight_max": "int",
        "mqtt_5_first": "bool",
    },
    "state": {"folder": "str", "status_file": "str"},
    "gateway": {"keys": "tuple[str, ...]"},
    "log": {"level": "str"},
}
LISTS: dict[str, type] = {"sensors": SensorConfig, "foreign": ForeignConfig}
NEEDED = ("node.site", "node.node", "node.classes", "state.folder")
RANGES = {
    "broker.port": (1, 65_535),
    "broker.keepalive_s": (1, 65_535),
    "broker.session_expiry_s": (0, 2**32 - 1),
    "broker.inflight_max": (1, 65_535),
}


def load_config(path: Path, environment: Mapping[str, str]) -> ServiceConfig:
    """Read the file, apply the environment, check everything."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    return parse_config(text, environment, path)


def parse_config(
    text: str, environment: Mapping[str, str], path: Path = Path("node.toml")
) -> ServiceConfig:
    r"""The configuration in `text`, which stands in `path`.

    >>> parse_config('[node]\nsite = "farm"\ngaet = 8.0', {})
    Traceback (most recent call last):
    ...
    edge_opid.config.ConfigError: node.toml, line 3: node.gaet is not a key; did you mean gate?
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path.name} is not TOML: {error}") from error
    variables: dict[str, str] = {}
    try:
        _override(tables, environment, variables)
        return _build(_checked(tables), path.parent)
    except NodeConfigError as error:
        where = variables.get(error.key) or place_in(text, error.key, path)
        raise ConfigError(f"{where}: {error}") from error


# --- rule 2: the environment ----------------------------------------------------------------------


def _override(tables: Table, environment: Mapping[str, str], used: dict[str, str]) -> None:
    for variable in sorted(environment):
        prefix, _, rest = variable.partition("_")
        section, _, name = rest.lower().partition("_")
        if prefix != "OPID" or section not in SECTIONS:
            continue
        key = f"{section}.{name}"
        used[key] = f"environment variable {variable}"
        kind = SECTIONS[section].get(name)
        if kind is None:
            raise NodeConfigError(key, _unknown(name, SECTIONS[section]))
        table = tables.setdefault(section, {})
        if isinstance(table, dict):
            table[name] = _from_text(environment[variable], kind, key)


def _from_text(value: str, kind: str, key: str) -> Any:
    if kind == "str":
        return value
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError as error:
        raise NodeConfigError(key, f"must be {_WORDS[kind]}, got {shown(value)}") from error


# --- rule 3: keys and types -----------------------------------------------------------------------

_WORDS = {
    "str": "text in quotes",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "tuple[str, ...]": "a list of texts",
    "Mapping[str, str] | str": "a table of texts, or one text",
}


def _checked(tables: Table) -> Table:
    """Every value of its type, under its key, and nothing else."""
    found: Table = {}
    for section, content in tables.items():
        if section in SECTIONS:
            found[section] = _check_table(content, SECTIONS[section], section)
        elif section in LISTS:
            found[section] = _check_list(content, section)
        else:
            raise NodeConfigError(section, _unknown(section, [*SECTIONS, *LISTS], "section"))
    for key in NEEDED:
        section, name = key.split(".")
        if name not in found.get(section, {}):
            raise NodeConfigError(key, f"is missing: add {name} = … under [{section}]")
    return found


def _check_list(content: Any, section: str) -> list[Table]:
    if not isinstance(content, list) or not all(isinstance(each, dict) for each in content):
        raise NodeConfigError(section, f"must be written as [[{section}]], one for each")
    kinds = _kinds(LISTS[section])
    needed = [each.name for each in fields(LISTS[section]) if each.default is MISSING]
    checked = []
    for place, table in enumerate(content):
        checked.append(_check_table(table, kinds, f"{section}[{place}]"))
        for name in needed:
            if name not in table:
                raise NodeConfigError(f"{section}[{place}].{name}", "is missing")
    return checked


def _check_table(content: Any, kinds: Mapping[str, str], where: str) -> Table:
    if not isinstance(content, dict):
        raise NodeConfigError(where, f"must be a section, [{where}], got {shown(content)}")
    for name in content:
        if name not in kinds:
            raise NodeConfigError(f"{where}.{name}", _unknown(name, kinds))
    return {name: _typed(value, kinds[name], f"{where}.{name}") for name, value in content.items()}


def _typed(value: Any, kind: str, key: str) -> Any:
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
        "Mapping[str, str] | str": table or isinstance(value, str),
    }
    if not fits[kind]:
        raise NodeConfigError(key, f"must be {_WORDS[kind]}, got {shown(value)}")
    if kind == "float":
        return float(value)
    return tuple(value) if texts else value


def _unknown(name: str, known: Any, what: str = "key") -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only a mistake should pay for it

    near = get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    return f"is not a {what}; {hint}"


# --- rule 4: values -------------------------------------------------------------------------------


def _build(found: Table, folder: Path) -> ServiceConfig:
    sensors = tuple(SensorConfig(**table) for table in found.get("sensors", []))
    foreign = tuple(ForeignConfig(**table) for table in found.get("foreign", []))
    node = NodeConfig(**found["node"], sensors=sensors, foreign=foreign)
    state = found["state"]
    status_file = state.get("status_file")
    keys = found.get("gateway", {}).get("keys", ())
    for key in keys:
        if not re.fullmatch(f"[0-9a-f]{{{KEY_HEX_CHARS}}}", key):
            complaint = f"must be Ed25519 keys, {KEY_HEX_CHARS} hex digits each, got {shown(key)}"
            raise NodeConfigError("gateway.keys", complaint)
    level = found.get("log", {}).get("level", "info")
    if level not in LEVELS:
        raise NodeConfigError(
            "log.level", f"must be one of {', '.join(LEVELS)}, got {shown(level)}"
        )
    return ServiceConfig(
        node=node,
        broker=_broker(found.get("broker", {}), node, folder),
        state_folder=folder / state["folder"],
        gateway_keys=keys,
        status_file=None if status_file is None else folder / status_file,
        log_level=level,
    )


def _broker(given: Table, node: NodeConfig, folder: Path) -> MqttOptions:
    for key, (low, high) in RANGES.items():
        value = given.get(key.removeprefix("broker."), low)
        if not low <= value <= high:
            raise NodeConfigError(key, f"must be from {low} to {high}, got {value}")
    for name in ("host", "client_id"):
        if given.get(name, "-") == "":
            raise NodeConfigError(f"broker.{name}", "must not be empty")
    options = {name: value for name, value in given.items() if not name.startswith("tls_")}
    if "credentials" in options:
        options["credentials"] = folder / options["credentials"]
    tls = _tls(given, folder)
    options.setdefault("port", 1883 if tls is None else 8883)
    options.setdefault("client_id", f"opid-{node.site}-{node.node}")
    return MqttOptions(tls=tls, **options)


def _tls(given: Table, folder: Path) -> TlsFiles | None:
    paths = {name: folder / given[name] for name in given if name.startswith("tls_")}
    for name, needs in {"tls_certificate": "tls_ca", "tls_key": "tls_certificate"}.items():
        if name in paths and needs not in paths:
            raise NodeConfigError(f"broker.{name}", f"needs {needs} beside it")
    if not paths:
        return None
    return TlsFiles(paths["tls_ca"], paths.get("tls_certificate"), paths.get("tls_key"))
