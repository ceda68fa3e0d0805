"""`watch`: what reaches the running node, what it becomes, and what is refused and why; live."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from edge_opid.config.service import load_config
from edge_opid.errors import ConfigError, OpidError
from edge_opid.service.watching import socket_path
from edge_opid.wire import Filter

LINE_BYTES_MAX = 1 << 20  # far beyond any line: what sends more is no node


def watch(given: Namespace) -> int:
    """Print a line for each message until Ctrl-C, or for so many seconds or messages."""
    config = load_config(given.config, os.environ)
    if config.status_file is None:
        raise ConfigError(
            f"{given.config.name}: state.status_file is missing: a node is watched through a "
            "socket next to it; set it and restart"
        )
    wanted = None if given.topic is None else Filter(given.topic)
    shown = 0
    with suppress(KeyboardInterrupt), connected(socket_path(config.status_file)) as node:
        for line in lines_of(node, given.seconds, _say_welcome):
            if wanted is not None and not (line["topic"] and wanted.matches(line["topic"])):
                continue
            sys.stdout.write(told(line))
            sys.stdout.flush()
            shown += 1
            if shown == given.count:
                break
    return 0


def _say_welcome() -> None:
    sys.stderr.write("opid-node: watching; Ctrl-C ends it\n")
    sys.stderr.flush()


def connected(path: Path) -> socket.socket:
    """A connection to the running node whose socket this is."""
    node = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        node.connect(str(path))
    except OSError as error:
        node.close()
        who = " as its user or as root" if isinstance(error, PermissionError) else ""
        raise OpidError(
            f"no node can be watched at {path} ({error.strerror or error}): start it, or run this"
            f"{who or ' where it runs'}; `opid-node status` says how it is"
        ) from error
    return node


def lines_of(
    node: socket.socket, seconds: float | None, on_welcome: Callable[[], None]
) -> Iterator[dict[str, Any]]:
    """What the node tells, until it stops or the time is over; from the welcome on, all of it."""
    until = None if seconds is None else time.monotonic() + seconds
    rest = b""
    while until is None or time.monotonic() < until:
        node.settimeout(None if until is None else max(0.01, until - time.monotonic()))
        try:
            data = node.recv(65_536)
        except TimeoutError:
            return
        if not data or len(rest) > LINE_BYTES_MAX:
            sys.stderr.write("opid-node: the node has stopped, or has too many watchers\n")
            return
        *lines, rest = (rest + data).split(b"\n")
        for each in map(json.loads, lines):
            if "welcome" in each:
                on_welcome()
            else:
                yield each


def told(line: dict[str, Any]) -> str:
    r"""A message, what it became, and what was refused of it.

    >>> print(told({"at_ms": 0, "topic": "z/attic", "first": "21", "became": [], "noted": [
    ...     {"reason": "rate-limited", "why": "too fast", "do": "Send more slowly."}]})[9:], end="")
    z/attic 21
             rate-limited: too fast (Send more slowly.)
    """
    when = time.strftime("%H:%M:%S", time.localtime(line["at_ms"] / 1000))
    what = f"{line['topic']} {line['first']}" if line["topic"] else "time passes"
    below = [f"became {each}" for each in line["became"]]
    if learned := line.get("learned", 0):
        below.append("learned one instance" if learned == 1 else f"learned {learned} instances")
    below += [
        f"{each['reason']}: {each['why']}" + (f" ({each['do']})" if each["do"] else "")
        for each in line["noted"]
    ]
    if line.get("lost_before"):
        below.append(
            f"{line['lost_before']} lines before this one were lost: this terminal is too slow"
        )
    if line["topic"] and not below:
        below = ["accepted; no effect yet"]
    return "".join(f"{each}\n" for each in (f"{when} {what}", *(f"         {b}" for b in below)))
