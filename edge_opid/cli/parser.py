"""What can be typed: every verb with its arguments.

The verb `check` is the function `check` of the module `edge_opid.cli.check`, and so on. A module is
loaded when its verb was typed: a node runs for years in 64 MB, and needs none but `run`.
"""

from __future__ import annotations

import sys
from argparse import Action, ArgumentParser, ArgumentTypeError, Namespace
from importlib import import_module
from pathlib import Path
from typing import Any

from edge_opid.cli import PROGRAM

CONFIG = Path("/etc/opid-node/node.toml")
WHICH = f"the configuration (default {CONFIG})"
Verbs = Any
"""What argparse calls the holder of sub-commands; its class has no public name."""


def parser() -> ArgumentParser:
    """The whole command line."""
    whole = ArgumentParser(
        prog=PROGRAM,
        description="Classify readings, learn from labels, and keep working when sensors fail.",
    )
    add_version(whole)
    verbs = whole.add_subparsers(required=True, metavar="VERB")
    run = _verb(verbs, "run", "run the node until it is stopped")
    faster = "how fast the node's clock runs, to rehearse with recorded data; 1 is real time"
    run.add_argument("--speed", type=_speed, default=1.0, metavar="TIMES", help=faster)
    _file(run)
    _file(_verb(verbs, "check", "check a configuration and print what the node would do"))
    status = _verb(verbs, "status", "show how the running node is doing")
    status.add_argument("--json", action="store_true", help="print the status file as JSON")
    _file(status)
    _watch(verbs)
    _label(_verb(verbs, "label", "give the running node a label"))
    export = _verb(verbs, "export", "write the layout and weights of a stopped node to a file")
    export.add_argument("out", type=Path, metavar="OUT.npz", help="the file to write")
    _file(export)
    words = "measure a sensor's scale again from its next values (node must be stopped)"
    remeasure = _verb(verbs, "remeasure", words)
    remeasure.add_argument("sensor", metavar="SENSOR", help="the sensor's id")
    _file(remeasure)
    _copies(verbs)
    _discover(_verb(verbs, "discover", "listen to a broker and propose sensors for its devices"))
    _init(
        _verb(
            verbs, "init", "create the user, folders, systemd unit and a first node.toml (as root)"
        )
    )
    _file(_verb(verbs, "selftest", "test this machine: arithmetic, speed, memory, SD card, clock"))
    _classes(_verb(verbs, "classes", "rename or remove a class of a stopped node"))
    return whole


def _copies(verbs: Verbs) -> None:
    backup = _verb(verbs, "backup", "write the state of a stopped node to a file")
    backup.add_argument("out", type=Path, metavar="OUT.tar.gz", help="the file to write")
    _file(backup)
    restore = _verb(verbs, "restore", "restore the state of a stopped node from a backup")
    restore.add_argument(
        "archive", type=Path, metavar="BACKUP.tar.gz", help="a file written by `backup`"
    )
    _file(restore)


def _discover(each: ArgumentParser) -> None:
    _file(each)
    _broker(each, 30.0)
    words = "listen to these topics only; repeat for each"
    each.add_argument("--filter", action="append", dest="filters", metavar="FILTER", help=words)


def _init(each: ArgumentParser) -> None:
    each.add_argument(
        "--site",
        default="home",
        help="the site, the first part of the node's address (default: home)",
    )
    each.add_argument("--node", help="the node's id (default: this machine's name)")
    words = "a class to tell apart; repeat for each"
    each.add_argument("--class", action="append", dest="classes", metavar="CLASS", help=words)
    _broker(each, 10.0)
    each.add_argument("--user", default="opid-node", help="the user the node runs as")
    each.add_argument(
        "--dry-run", action="store_true", help="print what would be done, but do nothing"
    )
    words = "write below this folder instead of /, for the image of another machine"
    each.add_argument("--root", type=Path, default=Path("/"), metavar="DIR", help=words)


def _broker(each: ArgumentParser, seconds: float) -> None:
    each.add_argument("--host", help="the broker's address (default: from FILE, or 127.0.0.1)")
    each.add_argument(
        "--port", type=int, help="the broker's port (default: 1883, or 8883 with --tls-ca)"
    )
    words = "a file of two lines, user and password, mode 600"
    each.add_argument("--credentials", type=Path, metavar="FILE", help=words)
    each.add_argument(
        "--tls-ca", type=Path, metavar="FILE", help="the certificate of the authority; turns on TLS"
    )
    words = f"how long to listen (default {seconds:g})"
    each.add_argument("--seconds", type=_seconds, default=seconds, metavar="S", help=words)


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 < found <= 3_600:  # false for NaN, too
        raise ArgumentTypeError(f"must be seconds up to 3600, got {text!r}")
    return found


def _classes(each: ArgumentParser) -> None:
    changes = each.add_subparsers(required=True, metavar="CHANGE")
    rename = changes.add_parser("rename", help="rename a class; everything learned is kept")
    rename.add_argument("old", metavar="OLD", help="the current name")
    rename.add_argument("new", metavar="NEW", help="the new name")
    remove = changes.add_parser("remove", help="forget a class; the others are kept")
    remove.add_argument("old", metavar="NAME", help="the class to forget")
    remove.set_defaults(new=None)
    _file(rename)
    _file(remove)


class ShowVersion(Action):
    """Prints the version and ends; it is looked up when somebody asks."""

    def __call__(self, parser: ArgumentParser, *_: object) -> None:
        """Print it."""
        from importlib.metadata import version  # noqa: PLC0415 - a node that runs needs none

        sys.stdout.write(f"{parser.prog} {version('edge-opid')}\n")
        parser.exit()


def add_version(parser: ArgumentParser) -> None:
    """Let a program say which version it is."""
    parser.add_argument("--version", action=ShowVersion, nargs=0, help="print the version and exit")


def _watch(verbs: Verbs) -> None:
    watch = _verb(verbs, "watch", "show each message that reaches the running node, and its effect")
    watch.add_argument("topic", nargs="?", metavar="TOPIC", help="only these topics; + and # match")
    watch.add_argument(
        "--seconds", type=float, help="stop after this many seconds (default: run until Ctrl-C)"
    )
    watch.add_argument("--count", type=int, help="stop after this many messages")
    _config(watch)


def _label(each: ArgumentParser) -> None:
    each.add_argument(
        "label",
        nargs="?",
        metavar="CLASS",
        help="the class that is true now, or at the time given below",
    )
    words = "it was true then (14:05, '2026-11-17 14:05', or ISO 8601 with an offset)"
    each.add_argument("--at", metavar="TIME", help=words)
    each.add_argument("--from", dest="begin", metavar="TIME", help="it was true from then on")
    each.add_argument("--until", metavar="TIME", help="and until then (default: now)")
    words = "it is true of the prediction with this number, which `watch` shows"
    each.add_argument("--instance", metavar="SOURCE/BOOT/SEQ", help=words)
    words = "take back the last label, or those of the time given"
    each.add_argument("--undo", action="store_true", help=words)
    _config(each)


def obey(given: Namespace) -> int:
    """Do what was typed; the exit code."""
    verb: str = given.verb
    code: int = getattr(import_module(f"edge_opid.cli.{verb}"), verb)(given)
    return code


def _verb(verbs: Verbs, name: str, words: str) -> ArgumentParser:
    found: ArgumentParser = verbs.add_parser(name, help=words, description=words)
    found.set_defaults(verb=name)
    return found


def _speed(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0.001 <= speed <= 100_000:
        raise ArgumentTypeError(f"must be a number from 0.001 to 100000, got {text!r}")
    return speed


def _file(verb: ArgumentParser) -> None:
    """The configuration it is about."""
    verb.add_argument("file", type=Path, nargs="?", default=CONFIG, metavar="FILE", help=WHICH)


def _config(verb: ArgumentParser) -> None:
    """The same for a verb that has something else to name."""
    verb.add_argument("--config", type=Path, default=CONFIG, metavar="FILE", help=WHICH)
