"""What real processes read: configurations of a gateway and its nodes, with a key of theirs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from nacl.signing import SigningKey

from edge_opid.config.node import NodeConfig, SensorConfig
from firmware_sim.live.broker import Broker
from firmware_sim.scenario.script import Script
from gateway.policy import Policy

GROUP = "fleet"
STATUS = 'status_file = "status.json"\n'


def write_gateway(
    folder: Path, site: str, script: Script, broker: Broker, policy: Policy, key: SigningKey
) -> Path:
    """`gateway.toml` in a folder of its own, and the key beside it."""
    folder.mkdir()
    secret = folder / "gateway.key"
    secret.touch(mode=0o600)
    secret.write_text(key.encode().hex())
    settings = "".join(f"{name} = {_toml(value)}\n" for name, value in _settings(policy))
    path = folder / "gateway.toml"
    path.write_text(
        f'[gateway]\ndatabase = "sqlite:///gateway.sqlite"\nkey = "gateway.key"\n{settings}\n'
        f"{broker.toml()}\n[[groups]]\nid = {_toml(GROUP)}\nsite = {_toml(site)}\n"
        f"classes = {_toml(script.classes)}\nnodes = {_toml(script.nodes)}\n"
    )
    return path


def write_node(folder: Path, config: NodeConfig, broker: Broker, key: SigningKey) -> Path:
    """`node.toml` in a folder of its own."""
    folder.mkdir()
    skipped = ("sensors", "foreign")
    settings = [(name, value) for name, value in _settings(config) if name not in skipped]
    node = "".join(f"{name} = {_toml(value)}\n" for name, value in settings)
    keys = f"[gateway]\nkeys = [{_toml(key.verify_key.encode().hex())}]\n"
    sensors = "".join(_sensor(sensor) for sensor in config.sensors)
    path = folder / "node.toml"
    state = f'[state]\nfolder = "state"\n{STATUS}'
    path.write_text(f"[node]\n{node}\n{broker.toml()}\n{state}\n{keys}\n{sensors}")
    return path


def _sensor(sensor: SensorConfig) -> str:
    lines = "".join(f"{name} = {_toml(value)}\n" for name, value in _settings(sensor))
    return f"[[sensors]]\n{lines}\n"


def _settings(given: NodeConfig | SensorConfig | Policy) -> Iterable[tuple[str, object]]:
    """Every setting that is there; None stands for one that is not."""
    pairs = ((each.name, getattr(given, each.name)) for each in fields(given))
    return [(name, value) for name, value in pairs if value is not None]


def _toml(value: object) -> str:
    """Texts, numbers and lists of texts are written alike in TOML and JSON.

    >>> _toml(("a", "b")), _toml(0.5)
    ('["a", "b"]', '0.5')
    """
    return json.dumps(value, ensure_ascii=False)
