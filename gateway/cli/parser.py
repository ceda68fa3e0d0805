"""What can be typed: every verb with its arguments, and which function does it."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from edge_opid.cli.parser import add_version
from gateway.cli import (
    accounts,
    archives,
    backup,
    broker,
    changes,
    export,
    init,
    keys,
    labels,
    members,
    nodes,
    run,
    sensors,
    status,
    web,
)
from gateway.cli.output import PROGRAM

CONFIG = Path("/etc/opid-gateway/gateway.toml")
WAIT_S = 120.0
FILE = "the gateway's configuration"
CHANGE_MAX = 2**53 - 1
Verbs = Any
"""What argparse calls the holder of sub-commands; its class has no public name."""


def parser() -> ArgumentParser:
    """The whole command line."""
    whole = ArgumentParser(
        prog=PROGRAM,
        description="Manage a fleet of nodes: fit new sensors, send signed weights.",
    )
    add_version(whole)
    verbs = whole.add_subparsers(required=True, metavar="VERB")
    _gateway(verbs)
    sensor = _noun(verbs, "sensor", "list, retire, remeasure and deploy sensors")
    _sensor_list(sensor)
    _sensor_retire(sensor)
    _sensor_remeasure(sensor)
    _sensor_deploy(sensor)
    _nodes(_noun(verbs, "node", "list, show and forget nodes"))
    _changes(_noun(verbs, "change", "list changes of sensors, and show one: fits, scores, nodes"))
    _labels(_noun(verbs, "label", "import labels from a file"))
    _broker(_noun(verbs, "broker", "check whether a broker has what is needed"))
    _export(verbs)
    _archives(verbs)
    _upkeep(verbs)
    return whole


def _noun(verbs: Verbs, name: str, words: str) -> Verbs:
    found = verbs.add_parser(name, help=words, description=words)
    return found.add_subparsers(required=True, metavar="VERB")


def _verb(verbs: Verbs, name: str, does: Callable[..., int], words: str) -> ArgumentParser:
    found: ArgumentParser = verbs.add_parser(name, help=words, description=words)
    found.set_defaults(action=does)
    return found


def _labels(verbs: Verbs) -> None:
    words = "send the labels in a CSV file to their nodes"
    each = _verb(verbs, "import", labels.import_labels, words)
    each.add_argument(
        "file",
        type=Path,
        metavar="FILE.csv",
        help="columns: node, label, and time (or from and until)",
    )
    each.add_argument("config", type=Path, nargs="?", default=CONFIG, metavar="CONFIG", help=FILE)
    words = "how long to wait until all are sent; 0: do not wait"
    each.add_argument("--wait-s", type=_seconds, default=WAIT_S, metavar="SECONDS", help=words)


def _broker(verbs: Verbs) -> None:
    words = "test whether a broker, or every address of a cluster, has what is needed"
    each = _verb(verbs, "check", broker.check_broker, words)
    each.add_argument(
        "url", nargs="+", metavar="URL", help="mqtt://HOST[:PORT], mqtts://HOST[:PORT]"
    )
    words = "a file of two lines, user and password, mode 600"
    each.add_argument("--credentials", type=Path, metavar="FILE", help=words)
    words = "the certificate of the authority, for mqtts"
    each.add_argument("--tls-ca", type=Path, metavar="FILE", help=words)
    words = "a command that restarts the broker; without it, restarts are not tested"
    each.add_argument("--restart", metavar="COMMAND", help=words)
    words = "start all topics with this; the user must be able to read and write them"
    each.add_argument("--prefix", default="opid-check", metavar="TOPIC", help=words)
    words = "the longest to wait for one message (default 10)"
    each.add_argument("--wait-s", type=_seconds, default=10.0, metavar="S", help=words)
    each.add_argument("--json", action="store_true", help="print JSON, for programs")


# --- run, check, init -----------------------------------------------------------------------------


def _gateway(verbs: Verbs) -> None:
    for name, does, words in (
        ("run", run.run, "run the gateway until it is stopped"),
        ("check", run.check, "check a configuration and print what the gateway would do"),
    ):
        each = _verb(verbs, name, does, words)
        each.add_argument(
            "config", type=Path, nargs="?", default=CONFIG, metavar="CONFIG", help=FILE
        )
        if name == "run":
            each.add_argument("--web", action="store_true", help="also serve the web pages")
    _web(verbs)
    words = "show whether a gateway is running, and how the fleet is doing"
    each = _verb(verbs, "status", status.status, words)
    each.add_argument("config", type=Path, nargs="?", default=CONFIG, metavar="CONFIG", help=FILE)
    each.add_argument("--json", action="store_true", help="print JSON, for programs")
    words = "show which gateway serves which sites"
    each = _verb(verbs, "members", members.members, words)
    each.add_argument("config", type=Path, nargs="?", default=CONFIG, metavar="CONFIG", help=FILE)
    each.add_argument("--json", action="store_true", help="print JSON, for programs")
    _init(_verb(verbs, "init", init.init, "create the keys, passwords and files of a new fleet"))


def _web(verbs: Verbs) -> None:
    each = _verb(
        verbs, "web", web.web, "serve the web pages: give labels, look at the fleet, operate it"
    )
    each.add_argument("config", type=Path, nargs="?", default=CONFIG, metavar="CONFIG", help=FILE)
    each.add_argument("--port", type=_port, help="the port to use instead of web.port")
    each.add_argument("--until-eof", action="store_true", help=SUPPRESS)
    words = "print a link to the web pages that works once"
    each = _verb(verbs, "web-link", web.web_link, words)
    each.add_argument("config", type=Path, nargs="?", default=CONFIG, metavar="CONFIG", help=FILE)
    each.add_argument("--node", metavar="SITE/NODE", help="for this node only")
    each.add_argument("--operate", action="store_true", help="allow everything, not only labels")
    each.add_argument(
        "--metrics", action="store_true", help="print the bearer token for Prometheus instead"
    )
    words = "https if the pages are behind a proxy with a certificate"
    each.add_argument("--scheme", choices=("http", "https"), default="http", help=words)


def _init(each: ArgumentParser) -> None:
    each.add_argument("folder", type=Path, metavar="FOLDER", help="the folder to create")
    each.add_argument("--site", help="the site; needed for a new group")
    each.add_argument("--group", required=True, help="the group: nodes with the same task")
    for name, several, words in (
        ("class", "classes", "a class that nodes tell apart"),
        ("node", "nodes", "the id of a node"),
        ("source", "sources", "a sensor script with a password of its own"),
        (
            "foreign",
            "foreign",
            "topics of other devices that nodes may read, such as zigbee2mqtt/#",
        ),
    ):
        each.add_argument(
            f"--{name}",
            action="append",
            default=[],
            dest=several,
            metavar=name.upper(),
            help=f"{words}; repeat for each",
        )
    words = "announce nodes to Home Assistant, and create an account for it"
    each.add_argument("--homeassistant", action="store_true", help=words)
    each.add_argument("--broker-host", help="default: 127.0.0.1, or as in the folder")
    each.add_argument("--broker-port", type=int, help="default: 1883, or as in the folder")
    words = "the mosquitto.conf of a shared broker: write one that also serves this fleet"
    each.add_argument("--beside", type=Path, metavar="FILE", help=words)
    words = "the site's own broker, bridged to the central one: see docs/brokers.md"
    each.add_argument("--site-broker", metavar="HOST[:PORT]", help=words)
    words = (
        "default: gateway.sqlite in the folder, or in /var/lib/opid-gateway if the folder is "
        "below /etc"
    )
    each.add_argument("--database", metavar="URL", help=words)
    words = "the user the gateway runs as, who owns the keys (default opid-gateway)"
    each.add_argument("--user", default="opid-gateway", help=words)
    each.add_argument("--add-nodes", action="store_true", help="add to a folder created by init")


# --- sensor ---------------------------------------------------------------------------------------


def _sensor_list(verbs: Verbs) -> None:
    each = _listing(verbs, "list", nodes.list_sensors, "list every sensor and its state")
    each.add_argument("--node", metavar="SITE/NODE", help="only this node's sensors")


def _sensor_retire(verbs: Verbs) -> None:
    each = _verb(verbs, "retire", sensors.retire, "remove a sensor for good")
    _which_sensor(each)
    each.add_argument("--reason", required=True, metavar="TEXT", help="one line, for the record")
    _wait(each)


def _sensor_remeasure(verbs: Verbs) -> None:
    words = "measure a sensor's reference and scale again; what was learned is kept"
    each = _verb(verbs, "remeasure", sensors.remeasure, words)
    _which_sensor(each)
    _wait(each)


def _sensor_deploy(verbs: Verbs) -> None:
    each = _verb(verbs, "deploy", sensors.deploy, "add a sensor, or replace one")
    _which_sensor(each)
    each.add_argument("--role", required=True, help="what it measures; also the name of its column")
    known = each.add_argument_group(
        "what is known about it", "Without reference and scale, its first readings decide both."
    )
    known.add_argument("--reference", type=float, help="a normal value")
    known.add_argument("--scale", type=float, help="a usual distance from the reference")
    known.add_argument(
        "--knots",
        type=float,
        nargs="+",
        help="where its curve may bend, in scales from the reference",
    )
    known.add_argument("--unit", help="shown to people; nothing is converted")
    silent = "it counts as silent after this long (default: learned from how often it reports)"
    known.add_argument("--timeout-s", type=float, help=silent)
    known.add_argument("--replaces", metavar="SENSOR", help="take over this sensor's column")
    known.add_argument(
        "--end-of-life",
        type=_date,
        metavar="DATE",
        help="when it will be retired, such as 2027-03-01",
    )
    _wait(each)


def _which_sensor(each: ArgumentParser) -> None:
    each.add_argument("config", type=Path, metavar="CONFIG", help=FILE)
    each.add_argument("node", metavar="SITE/NODE", help="or just NODE, if no other site has it")
    each.add_argument("sensor", metavar="SENSOR", help="the sensor's id")


def _wait(each: ArgumentParser) -> None:
    each.add_argument(
        "--wait", action="store_true", help="wait until every affected node has reported"
    )
    _wait_s(each)


def _wait_s(each: ArgumentParser) -> None:
    words = f"the longest to wait (default {WAIT_S:g}); then the exit code is 3"
    each.add_argument("--wait-s", type=_seconds, default=WAIT_S, metavar="S", help=words)


# --- node, change, export -------------------------------------------------------------------------


def _listing(verbs: Verbs, name: str, does: Callable[..., int], words: str) -> ArgumentParser:
    each = _verb(verbs, name, does, words)
    each.add_argument("config", type=Path, metavar="CONFIG", help=FILE)
    each.add_argument("--json", action="store_true", help="print JSON, for programs")
    return each


def _nodes(verbs: Verbs) -> None:
    _listing(verbs, "list", nodes.list_nodes, "list every node, and what it last reported")
    show = _listing(verbs, "show", nodes.show_node, "show everything known about a node")
    show.add_argument("node", metavar="SITE/NODE", help="or just NODE, if no other site has it")
    gone = _verb(verbs, "forget", nodes.forget, "delete everything known about a node")
    gone.add_argument("config", type=Path, metavar="CONFIG", help=FILE)
    gone.add_argument("node", metavar="SITE/NODE", help="or just NODE, if no other site has it")
    gone.add_argument(
        "--yes", action="store_true", help="do it; without this, only print what would be deleted"
    )
    _wait_s(gone)


def _changes(verbs: Verbs) -> None:
    every = _listing(verbs, "list", changes.list_changes, "list the last changes, newest first")
    every.add_argument("--limit", type=_number, default=20, metavar="N", help="default 20")
    show = _listing(verbs, "show", changes.show_change, "show one change: its fits and its nodes")
    show.add_argument(
        "change", type=_number, metavar="ID", help="its number, as `change list` shows it"
    )
    show.add_argument("--follow", action="store_true", help="wait until its nodes have reported")
    _wait_s(show)


def _export(verbs: Verbs) -> None:
    each = _verb(verbs, "export", export.export, "write the weights of a change to a file")
    each.add_argument("config", type=Path, metavar="CONFIG", help=FILE)
    each.add_argument(
        "change", type=_number, metavar="CHANGE", help="its number, as `change list` shows it"
    )
    each.add_argument("--out", type=Path, required=True, metavar="FILE", help="the file to write")
    words = "npz for NumPy, tflite for TFLite (default npz)"
    each.add_argument("--format", choices=("npz", "tflite"), default="npz", help=words)
    words = "for a .tflite file; int8 takes a quarter of the space"
    each.add_argument("--weights", choices=("float32", "int8"), default="float32", help=words)


# --- backfill, archive ----------------------------------------------------------------------------


def _archives(verbs: Verbs) -> None:
    words = "let a group learn from an archive: Parquet, PostgreSQL, Home Assistant's recorder"
    each = _verb(verbs, "backfill", archives.backfill, words)
    each.add_argument("config", type=Path, metavar="CONFIG", help=FILE)
    each.add_argument("group", metavar="GROUP", help="the group that learns")
    words = "Parquet files or folders, s3://…, postgresql://…, or home-assistant_v2.db"
    each.add_argument("source", nargs="+", metavar="SOURCE", help=words)
    each.add_argument("--name", default="archive", help="a name for the archive (default archive)")
    _what_is_what(each.add_argument_group("what is what in it"))
    where = each.add_argument_group("how it is learned")
    words = "worker processes (default: one for each core of this machine)"
    where.add_argument("--workers", type=_number, metavar="N", help=words)
    words = "use a Dask cluster whose workers reach the archive at the same address"
    where.add_argument("--dask", metavar="tcp://HOST:PORT", help=words)
    words = "where to keep the checkpoint from which an interrupted run resumes"
    where.add_argument("--checkpoint", type=Path, metavar="FOLDER", help=words)
    where.add_argument("--dry-run", action="store_true", help="only print what would be learned")
    words = "send no weights to nodes now; the next change uses the archive"
    where.add_argument("--store-only", action="store_true", help=words)
    noun = _noun(verbs, "archive", "list and forget the archives a group has learned from")
    _listing(noun, "list", archives.list_archives, "list every archive, its nodes and sensors")
    gone = _verb(noun, "forget", archives.forget_archive, "stop using an archive")
    gone.add_argument("config", type=Path, metavar="CONFIG", help=FILE)
    gone.add_argument("group", metavar="GROUP", help="the group that learned from it")
    gone.add_argument("name", metavar="NAME", help="its name, as `archive list` shows it")


def _what_is_what(what: Any) -> None:
    words = "a TOML file with all of this: see docs/archive.md"
    what.add_argument("--mapping", type=Path, metavar="FILE.toml", help=words)
    for name, kind, words in (
        ("columns", "COLUMN=ROLE", "a column, or an entity of Home Assistant, and its role"),
        ("labels", "THEIRS=CLASS", "what the archive calls a class of the group"),
    ):
        what.add_argument(
            f"--{name}",
            type=_pair,
            nargs="+",
            action="extend",
            default=[],
            metavar=kind,
            help=words,
        )
    what.add_argument("--label", metavar="COLUMN", help="the column with the classes")
    what.add_argument("--node", metavar="COLUMN", help="the column with the node")
    what.add_argument(
        "--time",
        metavar="COLUMN",
        help="the column with the time: a timestamp, or seconds since 1970",
    )
    what.add_argument("--table", metavar="TABLE", help="the table, in a database")
    words = "for Home Assistant: seconds between two instances (default 60)"
    what.add_argument("--every-s", type=_seconds, metavar="S", help=words)
    for name in ("since", "until"):
        words = f"only rows {'from' if name == 'since' else 'before'} this moment"
        what.add_argument(f"--{name}", type=_moment_ms, metavar="DATE", help=words)


# --- key, account, backup, restore ----------------------------------------------------------------


def _upkeep(verbs: Verbs) -> None:
    key = _noun(verbs, "key", "show, create and use signing keys")
    for name, does, words in (
        ("show", keys.show, "show the public key that nodes must trust"),
        ("new", keys.new, "create the next key; the current one stays in use"),
        ("use", keys.use, "sign with the next key, once the gateway is restarted"),
    ):
        _verb(key, name, does, words).add_argument("config", type=Path, metavar="CONFIG", help=FILE)
    account = _noun(verbs, "account", "renew and remove accounts at the broker")
    for name, does, words in (
        ("renew", accounts.renew, "give an account a new password"),
        ("remove", accounts.remove, "remove an account and those of its sensors"),
    ):
        each = _verb(account, name, does, words)
        each.add_argument("folder", type=Path, metavar="FOLDER", help="the folder created by init")
        each.add_argument(
            "name",
            metavar="NAME",
            help="gateway, operator, web, homeassistant, SITE.NODE[.SOURCE], bridge-SITE",
        )
    for name, does, words, file in (
        (
            "backup",
            backup.backup,
            "copy the database to a file, while the gateway runs",
            "the file to write",
        ),
        (
            "restore",
            backup.restore,
            "restore the database from a backup",
            "a file written by `backup`",
        ),
    ):
        each = _verb(verbs, name, does, words)
        each.add_argument("config", type=Path, metavar="CONFIG", help=FILE)
        each.add_argument("file", type=Path, metavar="FILE", help=file)


# --- values ---------------------------------------------------------------------------------------


def _number(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= CHANGE_MAX:
        raise ArgumentTypeError(f"must be a whole number from 1, got {text!r}")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65_536:
        raise ArgumentTypeError(f"must be from 1 to 65535, got {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 86_400:  # false for NaN, too
        raise ArgumentTypeError(f"must be seconds from 0 to 86400, got {text!r}")
    return found


def _pair(text: str) -> tuple[str, str]:
    try:
        return archives.pair(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error


def _moment_ms(text: str) -> int:
    return int(_date(text).timestamp() * 1000)


def _date(text: str) -> datetime:
    """A day or a moment; without a time zone it is the operator's."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError) as error:
        example = "2027-03-01 or 2027-03-01T12:00+01:00"
        raise ArgumentTypeError(f"must be a date like {example}, got {text!r}") from error
