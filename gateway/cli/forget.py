"""`node forget`: say what goes, and only with `--yes` leave the command for the gateway."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator

from gateway.cli.context import CommandContext, OperatorError, find_node, open_desk
from gateway.cli.output import Terminal
from gateway.cli.sensors import now_ms, rehearse_open
from gateway.cli.wait import DONE, Patience, outcome_of
from gateway.registry import NodeKey
from gateway.registry.fleet import Fleet
from gateway.registry.text import listed
from gateway.store import FORGET

WORDS = {
    "sensors": ("sensor", "sensors"),
    "layouts": ("layout", "layouts"),
    "orders": ("order", "orders"),
    "summaries": ("summary", "summaries"),
    "examples": ("labelled instance", "labelled instances"),
}


def forget(given: Namespace, screen: Terminal) -> int:
    """Everything of one node goes; the others, and the changes it was in, stay."""
    with open_desk(given.config) as desk:
        fleet = desk.fleet()
        rehearse_open(desk, fleet)
        key = find_node(fleet, given.node)
        if key not in fleet.nodes:
            raise OperatorError(f"nothing is known of node {'/'.join(key)}: nothing can go")
        screen.lines(what_goes(desk, fleet, key))
        if not given.yes:
            raise OperatorError("nothing was changed: say --yes to have it forgotten")
        served = desk.store.has_leader()  # first: what fails must not leave a command behind
        number = desk.store.submit(*key, FORGET, now_ms())
        if not served:
            screen.remark(
                f"no gateway serves {desk.config.database_shown}: command {number} waits for it"
            )
            return 0
        return _settled(desk, screen, number, Patience(given.wait_s))


def what_goes(desk: CommandContext, fleet: Fleet, key: NodeKey) -> Iterator[str]:
    """Line by line."""
    where, counted = "/".join(key), desk.store.census(key)
    what = ", ".join(f"{counted[t]} {words[counted[t] != 1]}" for t, words in WORDS.items())
    yield f"{where}: {what} go"
    yield f"{where}: its sensors are {listed(sorted(fleet.sensors[key]))}"
    yield f"{where}: changes it was in, and their fits, stay: they are its group's"
    group = fleet.group_of(key)
    if group is not None:
        yield f"{where}: group {group.id} still expects it: it may introduce itself again"


def _settled(desk: CommandContext, screen: Terminal, number: int, patience: Patience) -> int:
    outcome = outcome_of(desk.store, number, patience)
    if not outcome:
        screen.remark(f"command {number} is still open after {patience.seconds:g} s")
        return 3
    if outcome != DONE:
        screen.remark(outcome)
        return 2
    screen.lines(["done"])
    return 0
