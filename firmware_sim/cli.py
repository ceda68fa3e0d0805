"""`opid-sim`: play scenarios, on simulated time or with real processes, and soak many seeds.

Exit codes: 0 done; 1 a promise was broken, or a process failed; 2 a mistake in the command or the
scenario; 130 interrupted, after everything that was started has ended.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices: before NumPy is imported

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from edge_opid.cli.parser import add_version
from edge_opid.errors import ConfigError, OpidError
from firmware_sim.scenario.checks import check_scenario
from firmware_sim.scenario.play import run_live, run_simulated
from firmware_sim.scenario.scenario import Scenario, load_scenario, shipped

INTERRUPTED = 130  # as the shell calls it


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    words = "Play scenarios, on simulated time or with real processes, and test many seeds."
    whole = argparse.ArgumentParser(prog="opid-sim", description=words)
    add_version(whole)
    verbs = whole.add_subparsers(required=True, metavar="VERB")
    for verb, (does, words, add_options) in VERBS.items():
        each = verbs.add_parser(verb, help=words, description=words)
        each.set_defaults(action=does)
        add_options(each)
    return whole


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; the exit code."""
    given = parser().parse_args(arguments)
    action: Callable[[argparse.Namespace], int] = given.action
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does: in order
    try:
        return action(given)
    except (OpidError, OSError) as error:
        sys.stderr.write(f"opid-sim: {error}\n")
        return 2 if isinstance(error, ConfigError | ValueError) else 1
    except KeyboardInterrupt:
        sys.stderr.write("opid-sim: interrupted; everything that was started has ended\n")
        return INTERRUPTED


# --- list -----------------------------------------------------------------------------------------


def list_scenarios(_given: argparse.Namespace) -> int:
    """Print every scenario that comes with the simulator."""
    width = max(map(len, shipped()))
    for name in shipped():
        found = load_scenario(name)
        size = f"{found.nodes} nodes, {found.readings} readings each"
        sys.stdout.write(f"{name:{width}}  {found.about} ({size})\n")
    return 0


# --- run ------------------------------------------------------------------------------------------


def run(given: argparse.Namespace) -> int:
    """Play a scenario, on simulated time or with real processes, and write its report."""
    scenario = _chosen(given)
    if given.live or given.broker:
        return run_live(scenario, given.seed, given.broker, given.out, sys.stdout, given.web)
    return run_simulated(scenario, given.seed, given.out, sys.stdout)


def _chosen(given: argparse.Namespace) -> Scenario:
    """The scenario with what the command line changes about it."""
    found = load_scenario(given.scenario, given.nodes)
    if given.readings is not None:
        found = found.shortened(given.readings)
    if given.speed is not None:
        found = replace(found, speed=given.speed)
    check_scenario(found)
    return found


def _run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenario", help="one of `opid-sim list`, or a TOML file")
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same readings")
    parser.add_argument("--nodes", type=int, help="number of nodes, instead of the scenario's")
    parser.add_argument("--readings", type=int, help="play the same story in this many readings")
    parser.add_argument("--live", action="store_true", help="start real processes and a broker")
    parser.add_argument("--broker", help="mqtt://HOST to use your own; embedded for one in Python")
    parser.add_argument("--speed", type=float, help="with --live: readings per second and node")
    words = "with --live: show the gateway on this port (default 8470), the curves on the next"
    parser.add_argument("--web", type=int, nargs="?", const=8470, metavar="PORT", help=words)
    parser.add_argument("--out", type=Path, default=Path("out"), help="the folder for the report")


# --- soak -----------------------------------------------------------------------------------------


def soak_seeds(given: argparse.Namespace) -> int:
    """Run many seeds, each with its own faults; 1 if a promise was broken."""
    from firmware_sim.chaos.soak import soak  # noqa: PLC0415 - the gateway is slow to load

    return soak(given.seeds, given.workers or os.cpu_count() or 1, None, None)


def _soak_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seeds", type=_seeds, default=range(10_000), help="how many, or FIRST:END"
    )
    parser.add_argument("--workers", type=int, help="processes (default: one for each core)")


def _seeds(text: str) -> range:
    first, colon, end = text.partition(":")
    return range(int(first), int(end)) if colon else range(int(first))


def _no_options(_: argparse.ArgumentParser) -> None:
    pass


VERBS = {
    "list": (list_scenarios, "list the scenarios", _no_options),
    "run": (run, "play a scenario", _run_options),
    "soak": (
        soak_seeds,
        "run many seeds with faults: nothing may be lost or applied twice",
        _soak_options,
    ),
}
