"""`discover`: listen to a broker for a while, and propose what a node could use of it.

The result is TOML to append to a `node.toml`; what the configuration has already is left out.
"""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from edge_opid.cli.output import print_lines
from edge_opid.cli.parser import CONFIG
from edge_opid.config.service import ServiceConfig, load_config
from edge_opid.discovery.heard import Heard
from edge_opid.discovery.proposal import Known, Proposal, propose, toml_lines
from edge_opid.errors import ConfigError
from edge_opid.link.contract import LinkError, SubscriptionRefused
from edge_opid.link.options import MqttOptions, TlsFiles
from edge_opid.service.status_file import read_status

FRESH_S = 30.0  # ten times as old as the status file of a running node gets
PAYLOAD_BYTES_MAX = 8 * 2**20  # zigbee2mqtt describes all devices of a large house in one message


def discover(given: Namespace) -> int:
    """Print proposals for everything that was heard; 1 where there was nothing."""
    named = given.file != CONFIG or os.access(CONFIG, os.R_OK)
    config = load_config(given.file, os.environ) if named else None
    options = _broker(given, config)
    proposal = propose(listen(options, given.filters or ["#"], given.seconds), known_of(config))
    print_lines([told(proposal, options, given.seconds), "", *toml_lines(proposal)])
    if not proposal.heard.topics:
        where = f"{options.host}:{options.port}"
        sys.stderr.write(
            f"opid-node: nothing was heard from {where} in {given.seconds:g} s: does anything "
            "publish there, and may this account read it?\n"
        )
        return 1
    return 0


def told(proposal: Proposal, options: MqttOptions, seconds: float) -> str:
    """One line about the whole, as a comment."""
    where = f"{options.host}:{options.port}"
    count = f"{_some(proposal.sensors, 'sensor')} on {_some(len(proposal.topics), 'topic')}"
    rest = f", {_some(len(proposal.unmapped), 'value')} not mapped" if proposal.unmapped else ""
    return (
        f"# Heard from {where} in {seconds:g} s: {count}{rest}. Delete what does not belong here."
    )


def _some(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def known_of(config: ServiceConfig | None) -> Known:
    """What a configuration has already."""
    if config is None:
        return Known()
    names = {name for each in config.node.sensors for name in (each.id, each.role)}
    topics = {each.filter for each in config.node.foreign}
    topics |= {each.filter for each in config.node.truth}
    return Known(
        names=frozenset(names),
        sensors=len(config.node.sensors),
        topics=frozenset(topics),
        classes=tuple(config.node.classes),
    )


def _broker(given: Namespace, config: ServiceConfig | None) -> MqttOptions:
    """The broker that was named, or the configuration's; as nobody who is connected already."""
    if given.host is not None or config is None:
        return options_for(given)
    options = config.broker
    if given.credentials is not None:
        options = replace(options, credentials=given.credentials)
    elif options.credentials is not None and _is_running(config.status_file):
        raise ConfigError(
            f"the node of {given.file} is running, and the broker might disconnect it: stop it, "
            "or give --credentials of another account"
        )
    return _listening(options)


def options_for(given: Namespace) -> MqttOptions:
    """The broker that the command line names."""
    tls = None if given.tls_ca is None else TlsFiles(given.tls_ca)
    port = given.port or (1883 if tls is None else 8883)
    host = given.host or "127.0.0.1"
    options = MqttOptions(client_id="-", host=host, port=port, credentials=given.credentials)
    return _listening(replace(options, tls=tls))


def _listening(options: MqttOptions) -> MqttOptions:
    """A session that ends with us, and room for what devices say of themselves."""
    return replace(
        options,
        client_id=f"opid-discover-{os.getpid()}",
        persistent=False,
        session_expiry_s=0,
        payload_bytes_max=PAYLOAD_BYTES_MAX,
        inbox_bytes_max=4 * PAYLOAD_BYTES_MAX,
    )


def _is_running(status_file: Path | None) -> bool:
    if status_file is None:
        return False
    try:
        age_s = time.time() - status_file.stat().st_mtime
        return bool(read_status(status_file).get("running", True)) and age_s < FRESH_S
    except (OSError, ValueError):
        return False


def listen(options: MqttOptions, filters: Iterable[str], seconds: float) -> Heard:
    """Everything these filters bring within so many seconds."""
    from edge_opid.link.mqtt import MqttLink  # noqa: PLC0415 - paho only where it is used

    heard, link = Heard(), MqttLink(options)
    link.start()
    try:
        link.wait_connected(options.connect_timeout_s + 1)
        link.subscribe(filters, qos=0)
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            link.check()
            delivery = link.poll(min(left, 0.5))
            if delivery is not None:
                heard.add(
                    delivery.topic,
                    delivery.payload,
                    retained=delivery.retain,
                    at_s=time.monotonic(),
                )
            _refuse_refusals(link.poll_event())
    finally:
        link.stop(0.5)
    return heard


def _refuse_refusals(event: object) -> None:
    if isinstance(event, SubscriptionRefused):
        raise LinkError(
            f"the broker refuses {event.filter!r} ({event.reason}): give a --filter that this "
            "account may read"
        )
