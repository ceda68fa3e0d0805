"""What real processes read: configurations of a gateway and its nodes, with a key of theirs."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from nacl.signing import SigningKey

from edge_opid.config.node import NodeConfig, SensorConfig
from firmware_sim.live.broker import Broker
from firmware_sim.live.toml import toml_table
from firmware_sim.scenario.script import Script
from gateway.policy import Policy

GROUP = "fleet"


def write_gateway(
    folder: Path,
    site: str,
    script: Script,
    broker: Broker,
    policy: Policy,
    key: SigningKey,
    web_port: int | None = None,
) -> Path:
    """`gateway.toml` in a folder of its own, and the key beside it."""
    folder.mkdir()
    secret = folder / "gateway.key"
    secret.touch(mode=0o600)
    secret.write_text(key.encode().hex())
    own = {"database": "sqlite:///gateway.sqlite", "key": secret.name, **_settings(policy)}
    members = {"classes": script.classes, "nodes": script.nodes}
    path = folder / "gateway.toml"
    path.write_text(
        toml_table("gateway", own)
        + broker.toml()
        + ("" if web_port is None else toml_table("web", port=web_port))
        + toml_table("[groups]", members, id=GROUP, site=site)
    )
    return path


def write_node(folder: Path, config: NodeConfig, broker: Broker, key: SigningKey) -> Path:
    """`node.toml` in a folder of its own."""
    folder.mkdir()
    elsewhere = (  # these have sections of their own
        "sensors",
        "foreign",
        "truth",
        "asks_per_hour",
        "homeassistant",
        "homeassistant_prefix",
    )
    own = {name: value for name, value in _settings(config).items() if name not in elsewhere}
    path = folder / "node.toml"
    path.write_text(
        toml_table("node", own)
        + broker.toml()
        + toml_table("asking", per_hour=config.asks_per_hour)
        + toml_table("state", folder="state", status_file="status.json")
        + toml_table("gateway", keys=[key.verify_key.encode().hex()])
        + "".join(toml_table("[sensors]", _settings(sensor)) for sensor in config.sensors)
    )
    return path


def _settings(given: NodeConfig | SensorConfig | Policy) -> dict[str, object]:
    """Every setting by its name; None stands for one that is not there."""
    return {each.name: getattr(given, each.name) for each in fields(given)}
