"""What can be typed: every verb with its arguments, and which function does it."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from gateway.cli import changes, export, nodes, run, sensors
from gateway.cli.output import PROGRAM

CONFIG = Path("/etc/opid-gateway/gateway.toml")
WAIT_S = 120.0
CHANGE_MAX = 2**53 - 1
Verbs = Any
"""What argparse calls the holder of sub-commands; its class has no public name."""


def parser() -> ArgumentParser:
    """The whole command line."""
    whole = ArgumentParser(prog=PROGRAM, description="Sensor events in, signed weights out.")
    verbs = whole.add_subparsers(required=True, metavar="VERB")
    _gateway(verbs)
    sensor = _noun(verbs, "sensor", "list, retire and deploy sensors")
    _sensor_list(sensor)
    _sensor_retire(sensor)
    _sensor_deploy(sensor)
    _nodes(_noun(verbs, "node", "list, show and forget nodes"))
    _changes(_noun(verbs, "change", "list and show changes: candidates, scores, who has reported"))
    _export(verbs)
    return whole


def _noun(verbs: Verbs, name: str, words: str) -> Verbs:
    found = verbs.add_parser(name, help=words, description=words)
    return found.add_subparsers(required=True, metavar="VERB")


def _verb(verbs: Verbs, name: str, does: Callable[..., int], words: str) -> ArgumentParser:
    found: ArgumentParser = verbs.add_parser(name, help=words, description=words)
    found.set_defaults(action=does)
    return found


# --- run, check, init -----------------------------------------------------------------------------


def _gateway(verbs: Verbs) -> None:
    for name, does, words in (
        ("run", run.run, "serve until told to stop"),
        ("check", run.check, "validate a configuration and say what the gateway would do"),
    ):
        each = _verb(verbs, name, does, words)
        each.add_argument("config", type=Path, nargs="?", default=CONFIG, metavar="CONFIG")
    init = _verb(verbs, "init", run.init, "make keys, passwords and files of a new fleet")
    init.add_argument("folder", type=Path, metavar="FOLDER")
    init.add_argument("--site", required=True)
    init.add_argument("--group", required=True, help="nodes with the same task")
    for name, several, words in (
        ("class", "classes", "what nodes tell apart"),
        ("node", "nodes", "the id of a node"),
        ("source", "sources", "a sensor script with a password of its own"),
    ):
        init.add_argument(
            f"--{name}",
            action="append",
            default=[],
            dest=several,
            metavar=name.upper(),
            help=f"{words}; again for each",
        )
    init.add_argument("--broker-host", help="127.0.0.1, or what the folder says already")
    init.add_argument("--broker-port", type=int, help="1883, or what the folder says already")
    init.add_argument("--add-nodes", action="store_true", help="add to a folder that init has made")


# --- sensor ---------------------------------------------------------------------------------------


def _sensor_list(verbs: Verbs) -> None:
    each = _listing(verbs, "list", nodes.list_sensors, "every sensor, and where it is in its life")
    each.add_argument("--node", metavar="SITE/NODE", help="only of this node")


def _sensor_retire(verbs: Verbs) -> None:
    each = _verb(verbs, "retire", sensors.retire, "a sensor is gone for good")
    _which_sensor(each)
    each.add_argument("--reason", required=True, metavar="TEXT", help="one line, for the record")
    _wait(each)


def _sensor_deploy(verbs: Verbs) -> None:
    each = _verb(verbs, "deploy", sensors.deploy, "a sensor joins")
    _which_sensor(each)
    each.add_argument("--role", required=True, help="what it measures: the name of its column")
    known = each.add_argument_group(
        "what is known of it", "Without reference and scale its first readings decide both."
    )
    known.add_argument("--reference", type=float, help="a normal value")
    known.add_argument("--scale", type=float, help="how far from it is far")
    known.add_argument("--knots", type=float, nargs="+", help="of its hats, in scales")
    known.add_argument("--unit")
    known.add_argument("--timeout-s", type=float, help="silent for longer it counts as dead")
    known.add_argument("--replaces", metavar="SENSOR", help="take over the column of this one")
    known.add_argument(
        "--end-of-life", type=_date, metavar="DATE", help="when it will be retired: 2027-03-01"
    )
    _wait(each)


def _which_sensor(each: ArgumentParser) -> None:
    each.add_argument("config", type=Path, metavar="CONFIG")
    each.add_argument("node", metavar="SITE/NODE", help="NODE will do if no other site has it")
    each.add_argument("sensor", metavar="SENSOR")


def _wait(each: ArgumentParser) -> None:
    each.add_argument("--wait", action="store_true", help="until every node concerned has reported")
    _wait_s(each)


def _wait_s(each: ArgumentParser) -> None:
    words = f"the longest to wait (default {WAIT_S:g}); then the exit code is 3"
    each.add_argument("--wait-s", type=_seconds, default=WAIT_S, metavar="S", help=words)


# --- node, change, export -------------------------------------------------------------------------


def _listing(verbs: Verbs, name: str, does: Callable[..., int], words: str) -> ArgumentParser:
    each = _verb(verbs, name, does, words)
    each.add_argument("config", type=Path, metavar="CONFIG")
    each.add_argument("--json", action="store_true", help="for machines")
    return each


def _nodes(verbs: Verbs) -> None:
    _listing(verbs, "list", nodes.list_nodes, "every node, and what it last reported")
    show = _listing(verbs, "show", nodes.show_node, "all that is known of one node")
    show.add_argument("node", metavar="SITE/NODE")
    gone = _verb(verbs, "forget", nodes.forget, "delete all that is known of one node")
    gone.add_argument("config", type=Path, metavar="CONFIG")
    gone.add_argument("node", metavar="SITE/NODE", help="NODE will do if no other site has it")
    gone.add_argument("--yes", action="store_true", help="without it, only say what would go")
    _wait_s(gone)


def _changes(verbs: Verbs) -> None:
    every = _listing(verbs, "list", changes.list_changes, "the last changes, the newest first")
    every.add_argument("--limit", type=_number, default=20, metavar="N", help="default 20")
    show = _listing(verbs, "show", changes.show_change, "one change: its fits and its nodes")
    show.add_argument("change", type=_number, metavar="ID")
    show.add_argument("--follow", action="store_true", help="wait until its nodes have reported")
    _wait_s(show)


def _export(verbs: Verbs) -> None:
    each = _verb(verbs, "export", export.export, "write the weights that a change pushed to a file")
    each.add_argument("config", type=Path, metavar="CONFIG")
    each.add_argument("change", type=_number, metavar="CHANGE")
    each.add_argument("--out", type=Path, required=True, metavar="FILE")
    each.add_argument("--format", choices=("npz", "tflite"), default="npz")
    words = "of a .tflite file; int8 is a quarter of the bytes"
    each.add_argument("--weights", choices=("float32", "int8"), default="float32", help=words)


# --- values ---------------------------------------------------------------------------------------


def _number(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= CHANGE_MAX:
        raise ArgumentTypeError(f"must be a whole number from 1, got {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 86_400:  # false for NaN, too
        raise ArgumentTypeError(f"must be seconds from 0 to 86400, got {text!r}")
    return found


def _date(text: str) -> datetime:
    """A day or a moment; without a time zone it is the operator's."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError) as error:
        example = "2027-03-01 or 2027-03-01T12:00+01:00"
        raise ArgumentTypeError(f"must be a date like {example}, got {text!r}") from error
