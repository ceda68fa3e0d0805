"""`status`: how the running node is, from the file it writes every few seconds."""

from __future__ import annotations

import json
import os
import socket
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edge_opid.cli.output import print_lines
from edge_opid.config.service import load_config
from edge_opid.errors import ConfigError, OpidError, sentence_of
from edge_opid.service.status_file import read_status
from edge_opid.service.watching import socket_path

STALE_S = 30.0  # ten times as old as a status file gets


def status(given: Namespace) -> int:
    """Say how the running node is: from the file it writes every few seconds."""
    config = load_config(given.file, os.environ)
    path = config.status_file
    if path is None:
        raise ConfigError(f"{given.file.name}: state.status_file is missing: set it and restart")
    try:
        found = read_status(path)
        age_s = time.time() - path.stat().st_mtime
    except FileNotFoundError:
        raise OpidError(f"there is no status: {path} does not exist; start the node") from None
    except (OSError, ValueError) as error:
        raise OpidError(f"there is no status: {sentence_of(error)}") from error
    gone = age_s >= STALE_S or _is_deaf(socket_path(path))
    well = found.get("running", True) and not gone and found.get("connected", True)
    told = _told({**found, "gone": gone}, age_s, time.time())
    print_lines([json.dumps(found)] if given.json else told)
    return 0 if well else 1


def _is_deaf(path: Path) -> bool:
    """Whether nobody listens at the socket that a process has left behind: it was killed."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knock:
        knock.setblocking(False)
        try:
            knock.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:  # it is busy, not ours to open, or never had one: nothing is known
            return False
    return False


def _told(found: dict[str, Any], age_s: float, now_s: float) -> Iterator[str]:
    yield heading(found, age_s, now_s)
    del found["gone"]
    for each in found.pop("not_heard", []):
        yield f"  the broker refuses the subscription to {each}: give this user read access to it"
    yield from noted_lines(found.pop("noted", {}), now_s)
    for key, value in found.items():
        if isinstance(value, dict):
            yield from (f"  {key} {name} {_number(each)}" for name, each in value.items())
        elif isinstance(value, list):
            yield from (f"  {key}: {each}" for each in value)
        elif value is not None and value != "":
            yield f"  {key} {value}"


def heading(found: dict[str, Any], age_s: float, now_s: float) -> str:
    """What matters most, first: stopped, gone without a word, not connected; or else running.

    >>> heading({"running": False}, 185.0, now_s=0.0)
    'stopped 3 min ago'
    >>> heading({"running": True, "connected": True}, -3600.0, now_s=0.0)  # the clock was set back
    'running, 0 s ago'
    >>> heading({"running": True, "connected": False, "not_connected_since_ms": 0, "broker":
    ...     "broker pi:1883", "not_connected": "connection refused"}, 1.0, now_s=90.0)
    'not connected to broker pi:1883 for 90 s: connection refused'
    """
    if not found.get("running", True):
        return f"stopped {_ago(age_s)} ago"
    if age_s >= STALE_S or found.get("gone", False):
        return (
            f"not running: process {found.get('pid')} last wrote {_ago(age_s)} ago and did not "
            "shut down cleanly; its log says why"
        )
    if not found.get("connected", True):
        since_s = now_s - float(found.get("not_connected_since_ms") or 0) / 1000
        where, why = found.get("broker", "the broker"), found.get("not_connected", "")
        return f"not connected to {where} for {_ago(since_s)}: {why}"
    return f"running, {_ago(age_s)} ago"


def noted_lines(noted: dict[str, dict[str, Any]], now_s: float) -> Iterator[str]:
    """Everything that was refused, dropped or is worth knowing, the latest first."""
    for name, each in sorted(noted.items(), key=lambda item: -int(item[1].get("at_ms", 0))):
        when = f", last {_ago(now_s - each['at_ms'] / 1000)} ago" if "at_ms" in each else ""
        where = f" on {each['topic']} ({each['first']})" if each.get("topic") else ""
        yield f"  {name}: {_times(each['count'])}{when}{where}: {each['why']}"
        if each.get("do"):
            yield f"    {each['do']}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _ago(seconds: float) -> str:
    """A time span in one word and its unit.

    >>> _ago(12.3), _ago(600), _ago(7_300), _ago(200_000)
    ('12 s', '10 min', '2 h', '2 days')
    """
    for most, unit_s, unit in ((120, 1, "s"), (7_200, 60, "min"), (172_800, 3_600, "h")):
        if seconds < most:
            return f"{max(0.0, seconds) / unit_s:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
