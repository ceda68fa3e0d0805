"""A TOML file, and perhaps a few environment variables, become a checked `ServiceConfig`.

The rules, in order; the first one that is broken becomes a `ConfigError` that names the file, the
line and the key:

1. The file is TOML.
2. `OPID_<SECTION>_<KEY>` in the environment replaces a key of a section (`OPID_BROKER_HOST`,
   `OPID_NODE_NODE`); its value is written as in the file, text without quotes. A variable that
   begins with a section but names no key of it is refused like any other mistake.
3. Every section and every key is known, every value of its type, nothing needed is missing.
4. The values make sense (`NodeConfig`, and the broker's in `config.broker`).

Secrets are in neither place: `broker.credentials` and `broker.tls_key` name files. A relative path
is relative to the file's folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edge_opid.config.broker import BROKER, LOG, broker_options, log_level
from edge_opid.config.node import ForeignConfig, NodeConfig, SensorConfig, TruthConfig
from edge_opid.config.schema import Document, Shape, Table, read_text
from edge_opid.config.schema import kinds_of as _kinds
from edge_opid.errors import SettingError, shown
from edge_opid.link.options import MqttOptions

KEY_HEX_CHARS = 64  # an Ed25519 verify key


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """Everything `opid-node` is told."""

    node: NodeConfig
    broker: MqttOptions
    state_folder: Path
    state_must_exist: bool = False  # refuse to begin anew: the folder is on a disk to be mounted
    gateway_keys: tuple[str, ...] = ()  # hex; empty: this node obeys no gateway
    status_file: Path | None = None
    log_level: str = "info"
    serve_tflite: Path | None = None  # a predictor to serve while it fits
    prediction_qos: int = 1  # 0: a prediction may be lost with the connection, and costs less


ELSEWHERE = (
    "sensors",
    "foreign",
    "truth",
    "asks_per_hour",
    "homeassistant",
    "homeassistant_prefix",
)
"""What of a node's configuration has sections of its own."""
SECTIONS: dict[str, dict[str, str]] = {
    "node": {
        **_kinds(NodeConfig, *ELSEWHERE),
        "prediction_qos": "int",
    },
    "asking": {"per_hour": "float"},
    "homeassistant": {"discovery": "bool", "prefix": "str"},
    "broker": BROKER,
    "state": {"folder": "str", "must_exist": "bool", "status_file": "str"},
    "gateway": {"keys": "tuple[str, ...]"},
    "serve": {"tflite": "str"},
    "log": LOG,
}
LISTS: dict[str, type] = {"sensors": SensorConfig, "foreign": ForeignConfig, "truth": TruthConfig}
NEEDED = ("node.site", "node.node", "node.classes", "state.folder")
SHAPE = Shape(sections=SECTIONS, lists=LISTS, needed=NEEDED)


def load_config(path: Path, environment: Mapping[str, str]) -> ServiceConfig:
    """Read the file, apply the environment, check everything."""
    return parse_config(read_text(path), environment, path)


def parse_config(
    text: str, environment: Mapping[str, str], path: Path = Path("node.toml")
) -> ServiceConfig:
    r"""The configuration in `text`, which stands in `path`.

    >>> parse_config('[node]\nsite = "farm"\ngaet = 8.0', {}, Path("n.toml"))
    Traceback (most recent call last):
    ...
    edge_opid.errors.ConfigError: n.toml, line 3: node.gaet is not a key; did you mean gate?
    """
    document = Document.parse(text, path)
    with document.blaming():
        document.override(environment, SHAPE)
        return _build(SHAPE.check(document.tables), path.parent)


def _build(found: Table, folder: Path) -> ServiceConfig:
    sensors = tuple(SensorConfig(**table) for table in found.get("sensors", []))
    foreign = tuple(ForeignConfig(**table) for table in found.get("foreign", []))
    truth = tuple(TruthConfig(**table) for table in found.get("truth", []))
    asks_per_hour = found.get("asking", {}).get("per_hour", 0.0)
    prediction_qos = found["node"].pop("prediction_qos", 1)
    if prediction_qos not in (0, 1):
        raise SettingError("node.prediction_qos", f"must be 0 or 1, got {prediction_qos}")
    homeassistant = found.get("homeassistant", {})
    node = NodeConfig(
        **found["node"],
        sensors=sensors,
        foreign=foreign,
        truth=truth,
        asks_per_hour=asks_per_hour,
        homeassistant=homeassistant.get("discovery", False),
        homeassistant_prefix=homeassistant.get("prefix", "homeassistant"),
    )
    state = found["state"]
    status_file = state.get("status_file")
    tflite = found.get("serve", {}).get("tflite")
    keys = found.get("gateway", {}).get("keys", ())
    for key in keys:
        if not re.fullmatch(f"[0-9a-f]{{{KEY_HEX_CHARS}}}", key):
            complaint = f"must be Ed25519 keys, {KEY_HEX_CHARS} hex digits each, got {shown(key)}"
            raise SettingError("gateway.keys", complaint)
    return ServiceConfig(
        node=node,
        broker=broker_options(found, f"opid-{node.site}-{node.node}", folder),
        state_folder=folder / state["folder"],
        state_must_exist=state.get("must_exist", False),
        gateway_keys=keys,
        status_file=None if status_file is None else folder / status_file,
        log_level=log_level(found),
        serve_tflite=None if tflite is None else folder / tflite,
        prediction_qos=prediction_qos,
    )
