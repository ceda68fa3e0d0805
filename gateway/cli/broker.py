"""`broker check`: whether a broker, or a cluster of them, does what gateways and nodes need."""

from __future__ import annotations

import shlex
import subprocess
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from edge_opid.link.options import MqttOptions, TlsFiles
from gateway.broker_check import BrokerCheck, Finding, LackError
from gateway.cli.context import OperatorError
from gateway.cli.output import Terminal

RESTART_S = 60.0
PORTS = {"mqtt": 1883, "mqtts": 8883}
HEADINGS = ("property", "has it", "what was seen")


def check_broker(given: Namespace, screen: Terminal) -> int:
    """Try each property; 1 where one is lacking."""
    addresses = [address(url, given.credentials, given.tls_ca) for url in given.url]
    restart = partial(run_command, given.restart) if given.restart else None
    check = BrokerCheck(addresses, given.wait_s, restart, given.prefix)
    found = list(_shown(check.findings(), screen))
    if given.json:
        screen.json([asdict(each) for each in found])
    else:
        rows = ((each.name, each.outcome, each.seen) for each in found)
        screen.table(HEADINGS, rows)
    return 1 if any(each.is_lacking for each in found) else 0


def address(url: str, credentials: Path | None, ca: Path | None) -> MqttOptions:
    """The broker at this URL.

    >>> address("mqtt://10.0.0.5", None, None).port
    1883
    """
    try:
        parts = urlsplit(url)
        port = parts.port or PORTS.get(parts.scheme, 0)
    except ValueError:
        parts, port = urlsplit(""), 0
    if parts.scheme not in PORTS or not parts.hostname or parts.path.strip("/"):
        shown = url.rpartition("@")[2]  # without a password, if there is one
        raise OperatorError(f"a broker must be mqtt://HOST[:PORT] or mqtts://…, got {shown!r}")
    if parts.username is not None:
        raise OperatorError(
            "a password on the command line can be read by everybody: use --credentials FILE"
        )
    if parts.scheme == "mqtts" and ca is None:
        raise OperatorError(f"{url} needs --tls-ca FILE, the authority to trust")
    tls = None if parts.scheme == "mqtt" or ca is None else TlsFiles(ca)
    return MqttOptions(
        client_id="opid-check",
        host=parts.hostname,
        port=port,
        credentials=credentials,
        tls=tls,
    )


def run_command(command: str) -> None:
    """Run what restarts the broker, and wait for it."""
    try:
        done = subprocess.run(
            shlex.split(command), capture_output=True, text=True, timeout=RESTART_S, check=False
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise LackError(f"--restart {command!r}: {error}") from error
    if done.returncode:
        raise LackError(f"{command!r} ended with {done.returncode}: {done.stderr.strip()}")


def _shown(findings: Iterator[Finding], screen: Terminal) -> Iterator[Finding]:
    """Each finding, with the bar moved on."""
    with screen.bar("checking") as advance:
        for done, finding in enumerate(findings, 1):
            advance(done, 9)
            yield finding
