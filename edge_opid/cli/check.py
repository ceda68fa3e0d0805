"""`check`: what a node with this configuration would do; every mistake is one sentence.

Where there is a state, it is compared with the file, as a start would. The state is only read: that
may be done beside the running node, and changes nothing.
"""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Iterator

from edge_opid.cli.output import print_lines
from edge_opid.cli.warnings import warnings
from edge_opid.config.node import ForeignConfig, NodeConfig, SensorConfig, TruthConfig
from edge_opid.config.service import ServiceConfig, load_config
from edge_opid.errors import ConfigError, OpidError
from edge_opid.layout import Layout, Sensor
from edge_opid.learner import GramLearner
from edge_opid.learner.settings import Settings
from edge_opid.link.options import MqttOptions, read_credentials
from edge_opid.link.tls import tls_context
from edge_opid.models.matrix import ModelError
from edge_opid.node.journal_records import JournalError
from edge_opid.node.node import Node
from edge_opid.node.state import NodeState


def check(given: Namespace) -> int:
    """Say what a node with this file would do; every mistake is one sentence and exit code 2."""
    config = load_config(given.file, os.environ)
    try:
        if config.broker.credentials is not None:
            read_credentials(config.broker.credentials)
        if config.broker.tls is not None:
            tls_context(config.broker.tls)
        lines = list(describe(config))
        state, told = _compared(config)
        lines += [*told, *_serves(config, state)]
        lines += [f"warning: {each}" for each in warnings(config.node, state)]
    except OpidError as error:
        raise ConfigError(f"{given.file.name}: {error}") from error
    print_lines(lines)
    return 0


# -- what the state says to it -----------------------------------------------------------------


def _compared(config: ServiceConfig) -> tuple[NodeState | None, list[str]]:
    """The state after a start, if there is one, and what the start would change."""
    from edge_opid.service.wiring import look_at_node  # noqa: PLC0415 - it brings paho along

    try:
        node = look_at_node(config)
    except JournalError:
        raise  # so would a start
    except (OpidError, OSError) as error:
        return None, [f"state: it cannot be compared: {error}"]
    if node is None:
        return None, ["state: none yet; the node will start from scratch"]
    plan = node.planned()  # a ConfigError says what a start would refuse
    node.start(round(time.time() * 1000))  # of this copy, in memory
    kept = node.state.local_models.learner.readings
    if not plan.sentences:
        lines = [f"state: a restart changes nothing; {kept:,} readings are kept"]
    else:
        lines = ["state: a restart would change:", *(f"  {each}" for each in plan.sentences)]
        lines.append(f"  {kept:,} readings are kept")
    return node.state, [*lines, *(f"  not used: {each}" for each in plan.ignored)]


def _serves(config: ServiceConfig, state: NodeState | None) -> Iterator[str]:
    """Whether the file that is to be served loads, and fits what the node would start with."""
    if config.serve_tflite is None:
        return
    from edge_opid.models.tflite import load_tflite  # noqa: PLC0415 - for those who have one

    try:
        model = load_tflite(config.serve_tflite)
    except ModelError as error:
        raise ConfigError(f"serve.tflite: {error}") from error
    yield f"serves {config.serve_tflite} through {model.runtime}"
    what, columns, classes = "above", _layout(config.node).columns, config.node.classes
    if state is not None:
        what, columns, classes = "of the state", state.columns, state.settings.classes
    if not columns:
        yield "  it waits for the end of the warm-up, which says what the columns are"
        return
    try:
        model.arranged(columns, classes)
        yield f"  it fits the sensors and classes {what}; the node's own predictors stand by"
    except ModelError as error:
        yield f"  it does not fit the sensors and classes {what}: {error}"


# -- what the file says ------------------------------------------------------------------------


def describe(config: ServiceConfig) -> Iterator[str]:
    """What a node with this configuration would do, line by line."""
    node = config.node
    layout = _layout(node)
    yield f"node {node.node} of site {node.site}: {layout.cost(len(node.classes))}"
    yield f"  classes {', '.join(node.classes)}; λ {node.lam:g}, ρ {node.rho:g}; gate {node.gate:g}"
    if node.learn_unlabelled:
        size = GramLearner.bytes_for(Settings(vanishing=0, surviving=layout.width, classes=1))
        yield f"  also learns from readings without labels: {size / 1000:.1f} kB"
    for sensor in node.sensors:
        yield f"  sensor {_sensor(sensor, node)}"
    yield f"  {_instances(node)}"
    yield f"  {_labels(node)}; publishes {node.format}"
    yield f"listens to {', '.join(Node(node).subscriptions())}"
    if node.homeassistant:
        yield from _homeassistant(node)
    for foreign in node.foreign:
        yield f"  foreign {_foreign(foreign)}"
    for truth in node.truth:
        yield f"  truth {_truth(truth)}"
    yield f"broker {_broker(config.broker)}"
    keys = len(config.gateway_keys)
    trusted = f"{keys} trusted key{'s' if keys > 1 else ''}" if keys else "none trusted"
    yield f"gateway: {trusted}"
    yield f"state in {config.state_folder}, at most 8 MiB of journal and two snapshots"
    if config.state_must_exist:
        yield "  it must exist: an empty or missing folder is refused"
    yield (
        f"  committed after {node.commit_records} records or {node.commit_s:g} s; a reading is "
        "acknowledged after its commit"
    )
    yield f"status file {config.status_file or 'none'}; log from level {config.log_level}"


def _homeassistant(node: NodeConfig) -> Iterator[str]:
    from edge_opid.homeassistant.documents import (  # noqa: PLC0415 - for those who ask for it
        birth_topic,
        config_topic,
        event_topic,
    )

    place = node.homeassistant_prefix, node.site, node.node
    yield (
        f"announces itself to Home Assistant on {config_topic(*place)}, which it also reads; "
        f"events on {event_topic(*place)}; again after {birth_topic(place[0])}"
    )


def _labels(node: NodeConfig) -> str:
    return (
        f"the last {node.recent} instances can be labelled, by number or by a time within "
        f"{node.label_tolerance_ms} ms"
    )


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
    plan += f"; replaces {sensor.replaces}" if sensor.replaces else ""
    return f"{sensor.id}{role}: {basis}; {unit}; {_times(sensor)}{plan}"


def _times(sensor: SensorConfig) -> str:
    rhythm = "its own rhythm"
    silent = rhythm if sensor.timeout_s is None else f"{sensor.timeout_s:g} s"
    hold_s = sensor.timeout_s if sensor.hold_s is None else sensor.hold_s
    held = "not held" if hold_s == 0 else "held as long"
    if hold_s and hold_s != sensor.timeout_s:
        held = f"held for {hold_s:g} s"
    return f"silent after {silent}, {held}"


def _instances(node: NodeConfig) -> str:
    if node.instances == "beat":
        return f"an instance every {node.every_s:g} s, of the values held then"
    if node.instances == "labels":
        return "an instance for every label, of the values held then"
    window = f"all readings within {node.window_ms} ms" if node.window_ms else "every reading"
    return f"an instance for {window}, with the values held of the other sensors"


def _truth(truth: TruthConfig) -> str:
    where = truth.field or "the payload"
    meant = ", ".join(f"{value} is {name}" for value, name in truth.values.items())
    span = f"for {truth.valid_s:g} s" if truth.valid_s else "at that moment"
    late = f", {truth.delay_s:g} s before" if truth.delay_s else ""
    return f"{truth.filter}, {where}: {meant or 'the value is the class'}; {span}{late}"


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
