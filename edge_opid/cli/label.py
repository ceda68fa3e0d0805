"""`label`: tell the running node what is so, was so, or was not so after all.

Through the socket that `watch` uses: it needs no account at the broker, and takes nobody's session
away. What became of the label is printed.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from datetime import datetime, timedelta

from edge_opid.cli.watch import connected, lines_of, told
from edge_opid.config.service import ServiceConfig, load_config
from edge_opid.errors import ConfigError, OpidError, SettingError
from edge_opid.service.watching import socket_path
from edge_opid.tally import first_bytes
from edge_opid.wire import Channel, Label, NodeTopics, Undo
from edge_opid.wire.labels import label_json, millis_of, parse_instance

ANSWER_S = 10.0  # a node looks twice a second
NUMBER = re.compile(r"[0-9]{1,16}(\.[0-9]+)?")
TIMES = ("%H:%M", "%H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M")


def label(given: Namespace) -> int:
    """Send it, and say what became of it; 1 where nothing was learned or taken back."""
    config = load_config(given.config, os.environ)
    if config.status_file is None:
        raise ConfigError(
            f"{given.config.name}: state.status_file is missing: labels reach the node through a "
            "socket next to it; set it and restart"
        )
    said = meant(given, config, time.time)
    topic = str(NodeTopics(config.node.site, config.node.node).to(Channel.LABEL))
    payload = label_json(said)
    with connected(socket_path(config.status_file)) as node:
        for line in lines_of(node, ANSWER_S, on_welcome=lambda: _send(node, payload)):
            if line["topic"] != topic or line["first"] != first_bytes(payload):
                continue
            sys.stdout.write(told(line))
            done = line["learned"] or any(each["reason"] == "unlearned" for each in line["noted"])
            return 0 if done else 1
    raise OpidError(f"the node did not answer within {ANSWER_S:g} s: `opid-node status` says why")


def _send(node: socket.socket, payload: bytes) -> None:
    node.sendall(payload + b"\n")


def meant(given: Namespace, config: ServiceConfig, now_s: Callable[[], float]) -> Label | Undo:
    """The label that was typed."""
    if given.undo == (given.label is not None):
        raise SettingError("CLASS", "give a class, or --undo")
    if given.label is not None and given.label not in config.node.classes:
        known = ", ".join(config.node.classes)
        raise SettingError("CLASS", f"{given.label!r} is not one of this node's classes: {known}")
    instance = None if given.instance is None else parse_instance(given.instance)
    at_ms = typed_millis(given.at, "--at", now_s)
    from_ms, until_ms = typed_stretch((given.begin, "--from"), (given.until, "--until"), now_s)
    if given.undo:
        return Undo(instance, at_ms, from_ms, until_ms)
    return Label(given.label, instance, at_ms, from_ms, until_ms)


def typed_millis(text: str | None, option: str, now_s: Callable[[], float]) -> int | None:
    """A time as people type it, in the time zone of this machine unless it says another.

    >>> typed_millis("2026-11-17T14:05+01:00", "--at", time.time)
    1794920700000
    >>> typed_millis("7.5", "--at", time.time)
    7500
    """
    if text is None:
        return None
    if NUMBER.fullmatch(text):  # since 1970
        return millis_of(float(text), option)
    try:
        return _millis_of_moment(text, now_s)
    except (ValueError, OverflowError):  # no time at all, or of the year 0 or 10000 in UTC
        raise SettingError(
            option, f"must be like 14:05 or 2026-11-17 14:05, got {text!r}"
        ) from None


def typed_stretch(
    begin: tuple[str | None, str], until: tuple[str | None, str], now_s: Callable[[], float]
) -> tuple[int | None, int | None]:
    """From when until when, each with the name of its option.

    Hours without a date are of the last such stretch that is over: at half past three, 14:00 to
    16:00 was yesterday, and in the morning 22:00 to 06:00 was last night.
    """
    until_ms = typed_millis(*until, now_s)
    ended_s = now_s() if until_ms is None else until_ms / 1000
    return typed_millis(*begin, lambda: ended_s), until_ms


def _millis_of_moment(text: str, now_s: Callable[[], float]) -> int:
    found = _parsed(text)
    if found.year == 1900:  # the last such hour: today's, or yesterday's if that is still to come
        now = datetime.fromtimestamp(now_s()).astimezone()
        found = found.replace(year=now.year, month=now.month, day=now.day)
        found = found - timedelta(days=1) if found.astimezone() > now else found
    return round(1000 * found.timestamp())


def _parsed(text: str) -> datetime:
    for form in TIMES:
        try:
            return datetime.strptime(text, form)
        except ValueError:
            continue
    return datetime.fromisoformat(text)
