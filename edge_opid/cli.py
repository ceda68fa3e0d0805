"""`opid-node`: run a node, check its configuration, ask how it is, take its weights out.

Two settings must stand in the environment before the first library is loaded: one BLAS thread
(more only cost memory on matrices this small), and one malloc arena (glibc reads that at the start
of the process and never again). The unit file sets both; without it, `run` starts itself once more,
in the same process, with both set.

Exit codes: 0 all is well; 1 it is not (the disk, the broker, no running node); 2 the command or the
configuration is at fault.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edge_opid import log
from edge_opid.config.node import ForeignConfig, NodeConfig, SensorConfig
from edge_opid.config.service import ServiceConfig, load_config
from edge_opid.errors import ConfigError, OpidError
from edge_opid.layout import Layout, Sensor
from edge_opid.link.options import MqttOptions, read_credentials, tls_context
from edge_opid.models.matrix import ModelError
from edge_opid.node.node import Node
from edge_opid.service.status_file import read_status
from edge_opid.service.systemd import Systemd
from edge_opid.store.whole_file import write_whole

CONFIG = Path("/etc/opid-node/node.toml")
EARLY = {"OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
STALE_S = 30.0  # ten times as old as a status file gets


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; the exit code."""
    parser = argparse.ArgumentParser(prog="opid-node", description="A node that keeps learning.")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    for verb, (does, words) in VERBS.items():
        each = verbs.add_parser(verb, help=words, description=words)
        each.set_defaults(action=does)
        if verb == "export":
            each.add_argument("out", type=Path, metavar="OUT.npz")
        if verb == "status":
            each.add_argument("--json", action="store_true", help="as the node wrote it")
        each.add_argument("file", type=Path, nargs="?", default=CONFIG, metavar="FILE")
    given = parser.parse_args(arguments)
    action: Callable[[ServiceConfig, argparse.Namespace], int] = given.action
    try:
        return action(load_config(given.file, os.environ), given)
    except (OpidError, OSError) as error:
        sys.stderr.write(f"opid-node: {error}\n")
        return 2 if isinstance(error, ConfigError) else 1


# --- run ------------------------------------------------------------------------------------------


def run(config: ServiceConfig, _given: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT, then commit, say goodbye, and end."""
    if not EARLY.keys() <= os.environ.keys():
        os.execve(sys.executable, sys.orig_argv, {**EARLY, **os.environ})
    from edge_opid.service.wiring import open_loop  # noqa: PLC0415 - paho is for `run` alone

    log.set_up(config.log_level, os.environ)
    try:
        with open_loop(config, Systemd(os.environ)) as loop:
            for each in (signal.SIGTERM, signal.SIGINT):
                signal.signal(each, lambda *_: loop.stop())
            return loop.run()
    except (OpidError, OSError) as error:
        log.error("cannot go on", why=error)
    except Exception:  # noqa: BLE001 - the log must tell what systemd is about to restart
        log.error("died of a bug", trace=True)
    return 1


# --- check ----------------------------------------------------------------------------------------


def check(config: ServiceConfig, given: argparse.Namespace) -> int:
    """Say what a node with this file would do; every mistake is one sentence and exit code 2."""
    try:
        if config.broker.credentials is not None:
            read_credentials(config.broker.credentials)
        if config.broker.tls is not None:
            tls_context(config.broker.tls)
    except OpidError as error:
        raise ConfigError(f"{given.file.name}: {error}") from error
    _print([*describe(config), *_serves(config, given)])
    return 0


def _serves(config: ServiceConfig, given: argparse.Namespace) -> Iterator[str]:
    """Whether the file that is to be served loads, and fits the layout of this configuration."""
    if config.serve_tflite is None:
        return
    from edge_opid.models.tflite import load_tflite  # noqa: PLC0415 - for those who have one

    try:
        model = load_tflite(config.serve_tflite)
    except ModelError as error:
        raise ConfigError(f"{given.file.name}: serve.tflite: {error}") from error
    yield f"serves {config.serve_tflite} through {model.runtime}"
    try:
        model.arranged(_layout(config.node).columns, config.node.classes)
        yield "  it fits the sensors and classes above; the node's own predictors stand by"
    except ModelError as error:
        yield f"  it does not fit the sensors and classes above: {error}"


def describe(config: ServiceConfig) -> Iterator[str]:
    """What a node with this configuration would do, line by line."""
    node = config.node
    layout = _layout(node)
    yield f"node {node.node} of site {node.site}: {layout.cost(len(node.classes))}"
    yield f"  classes {', '.join(node.classes)}; λ {node.lam:g}, ρ {node.rho:g}"
    for sensor in node.sensors:
        yield f"  sensor {_sensor(sensor, node)}"
    yield f"listens to {', '.join(Node(node).subscriptions())}"
    for foreign in node.foreign:
        yield f"  foreign {_foreign(foreign)}"
    yield f"broker {_broker(config.broker)}"
    trusted = f"{len(config.gateway_keys)} trusted keys" if config.gateway_keys else "none trusted"
    yield f"gateway: {trusted}"
    yield f"state in {config.state_folder}, at most 8 MiB of journal and two snapshots"
    if config.state_must_exist:
        yield "  it must be there: an empty or missing folder is refused"
    yield (
        f"  committed after {node.commit_records} records or {node.commit_s:g} s; a reading is "
        "acknowledged after its commit"
    )
    yield f"status file {config.status_file or 'none'}; log from level {config.log_level}"


def _layout(node: NodeConfig) -> Layout:
    roles = {sensor.id: sensor.role for sensor in node.sensors}
    sensors = [
        Sensor(sensor.role, knots=tuple(range(sensor.knots)) if sensor.knots > 1 else ())
        for sensor in node.sensors
    ]
    return Layout(sensors, [roles[name] for name in node.vanishing], gate=node.gate)


def _sensor(sensor: SensorConfig, node: NodeConfig) -> str:
    role = "" if sensor.role == sensor.id else f" in the role {sensor.role}"
    basis = "linear" if sensor.knots == 1 else f"{sensor.knots} hats"
    unit = f"reference {sensor.reference}, scale {sensor.scale}"
    if sensor.reference is None:
        unit = f"reference and scale from the first {node.warmup_readings} readings"
    plan = "; planned to vanish" if sensor.id in node.vanishing else ""
    return f"{sensor.id}{role}: {basis}; {unit}; silent after {sensor.timeout_s:g} s{plan}"


def _foreign(foreign: ForeignConfig) -> str:
    parts = [
        f"{sensor} from {path or 'the payload'}" for path, sensor in foreign.topic.sensors.items()
    ]
    if foreign.label_field is not None:
        parts.append(f"label from {foreign.label_field}")
    return f"{foreign.filter} as source {foreign.source}: {', '.join(parts)}"


def _broker(options: MqttOptions) -> str:
    lock = "without TLS" if options.tls is None else f"TLS, trusting {options.tls.ca}"
    if options.tls is not None and options.tls.certificate is not None:
        lock += f", known by {options.tls.certificate}"
    user = f"password from {options.credentials}" if options.credentials else "no password"
    return f"{options.host}:{options.port} as client {options.client_id}; {lock}; {user}"


# --- status ---------------------------------------------------------------------------------------


def status(config: ServiceConfig, given: argparse.Namespace) -> int:
    """Say how the running node is: from the file it writes every few seconds."""
    path = config.status_file
    if path is None:
        raise ConfigError(f"{given.file.name}: state.status_file is missing: name one, and restart")
    try:
        found = read_status(path)
        age_s = time.time() - path.stat().st_mtime
    except (OSError, ValueError) as error:
        raise OpidError(f"no node has told how it is: {error}") from error
    fresh = bool(found.get("online")) and age_s < STALE_S
    _print([json.dumps(found)] if given.json else _told(found, age_s, fresh=fresh))
    return 0 if fresh else 1


def _told(found: dict[str, Any], age_s: float, *, fresh: bool) -> Iterator[str]:
    heading = "running" if fresh else "not running" if not found.get("online") else "stale"
    yield f"{heading}, {age_s:.0f} s ago"
    for key, value in found.items():
        if isinstance(value, dict):
            yield from (f"  {key} {name} {_number(each)}" for name, each in value.items())
        elif isinstance(value, list):
            yield from (f"  {key}: {each}" for each in value)
        else:
            yield f"  {key} {value}"


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# --- export ---------------------------------------------------------------------------------------


def export(config: ServiceConfig, given: argparse.Namespace) -> int:
    """Write the layout and the weights of a stopped node to a file that NumPy reads."""
    from edge_opid.service.wiring import open_node  # noqa: PLC0415 - it brings paho along

    with open_node(config) as (node, _, _):
        local_models = node.state.local_models
        W, W_survivors = local_models.learner.weights()
        held = node.state.pushed_models.parts().items()
        models = {f"{part}_{slot}": each for slot, parts in held for part, each in parts.items()}
    content: dict[str, Any] = {
        "layout": json.dumps(local_models.layout.to_dict()),
        "columns": local_models.layout.columns,
        "classes": config.node.classes,
        "W": W,
        "W_survivors": W_survivors,
        **models,
    }
    file = io.BytesIO()
    np.savez(file, **content)
    write_whole(given.out, file.getvalue())
    _print([f"{given.out}: {len(local_models.layout.columns)} columns; {', '.join(content)}"])
    return 0


VERBS = {
    "run": (run, "serve until told to stop"),
    "check": (check, "validate a configuration and say what the node would do"),
    "status": (status, "say how the running node is"),
    "export": (export, "write layout and weights of a stopped node"),
}


def _print(lines: Iterator[str] | Sequence[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
