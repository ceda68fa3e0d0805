"""`status`: whether a gateway serves this database, who, since when; then the fleet in figures.

All this is read from the database and its lock: the gateway itself is not asked, so that one that
hangs can be told from one that is gone. Where `gateway.status_file` names a file, what the running
gateway has written there of itself stands below: its connection, and what it refused.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edge_opid.cli.status import STALE_S, heading, noted_lines
from edge_opid.service.status_file import read_status
from gateway.cli.context import CommandContext, OperatorError, all_keys, open_context
from gateway.cli.output import Terminal, moment, names
from gateway.registry import ChangeState
from gateway.registry.fleet import Fleet
from gateway.registry.text import listed

Facts = dict[str, Any]
CHANGES_MAX = 1_000  # open ones are among the newest


def status(given: Namespace, screen: Terminal) -> int:
    """Say how the gateway and its fleet are; 1 where none is running, or it is not connected."""
    try:
        with open_context(given.config) as context:
            facts = status_facts(context)
    except OperatorError as error:  # no database: no gateway has run yet
        facts = {"running": False, "why": str(error)}
    if given.json:
        screen.json(facts)
    else:
        screen.lines(_told(facts))
    own = facts.get("own") or {}
    return 0 if facts["running"] and own.get("connected", True) else 1


def status_facts(context: CommandContext, fleet: Fleet | None = None) -> Facts:
    """The gateway and its fleet as JSON has them; the fleet may have been read already."""
    fleet, leader = fleet or context.fleet(), context.store.leader()
    unsettled = [each for each in context.store.changes(CHANGES_MAX) if _is_open(each.state)]
    return {
        "running": leader is not None,
        "holder": leader.process if leader else None,
        "since_ms": leader.since_ms if leader else None,
        "own": _own(context.config.status_file) if leader else None,
        "database": context.config.database_shown,
        "fits": str(context.config.fits),
        "nodes": _nodes(fleet),
        "offline": _away(fleet),
        "sensors": _sensors(fleet),
        "open_changes": [each.id for each in unsettled],
        "unreported_orders": _unreported(fleet),
        "open_commands": len(context.store.commands()),
        "heard_ms": max((each.seen_ms for each in fleet.nodes.values()), default=0) or None,
        "doubts": sorted(each.sentence for each in fleet.doubts.values() if each.sentence),
    }


def _own(path: Path | None) -> Facts | None:
    """What the running gateway wrote of itself a moment ago."""
    try:
        if path is None or time.time() - path.stat().st_mtime > STALE_S:
            return None
        return read_status(path)
    except (OSError, ValueError):
        return None


def _is_open(state: object) -> bool:
    return state != ChangeState.CLOSED


def _nodes(fleet: Fleet) -> dict[str, int]:
    """How many nodes are online, offline, and never came."""
    found = Counter(online=0, offline=0, never=0)
    for key in all_keys(fleet):
        node = fleet.nodes.get(key)
        found["never" if node is None else "online" if node.online else "offline"] += 1
    return dict(found)


def _away(fleet: Fleet) -> list[str]:
    return sorted("/".join(key) for key, node in fleet.nodes.items() if not node.online)


def _sensors(fleet: Fleet) -> dict[str, int]:
    every = (each for sensors in fleet.sensors.values() for each in sensors.values())
    return dict(sorted(Counter(str(each.state) for each in every).items()))


def _unreported(fleet: Fleet) -> int:
    return sum(
        key in fleet.nodes and fleet.nodes[key].reported_version < order.version
        for key, order in fleet.orders.items()
    )


def _told(facts: Facts) -> Iterator[str]:
    if "why" in facts:
        yield f"not running: {facts['why']}"
        return
    if facts["running"]:
        yield f"running: {facts['holder']}, since {moment(facts['since_ms'])}"
    else:
        yield f"not running: no gateway serves {facts['database']}"
    own, now_s = facts["own"] or {}, time.time()
    if not own.get("connected", True):
        yield f"  {heading(own, 0.0, now_s)}"
    yield f"  database {facts['database']}"
    yield f"  fits run {facts['fits']}"
    nodes = facts["nodes"]
    yield f"  nodes: {', '.join(f'{count} {how}' for how, count in nodes.items())}"
    if facts["offline"]:
        yield f"    offline: {listed(facts['offline'])}"
    sensors = (f"{count} {state}" for state, count in facts["sensors"].items())
    yield f"  sensors: {names(sensors)}"
    yield f"  open changes: {names(map(str, facts['open_changes']))}"
    yield f"  orders that nodes have not reported: {facts['unreported_orders']}"
    yield f"  commands waiting for a gateway: {facts['open_commands']}"
    yield f"  last message from a node: {moment(facts['heard_ms'])}"
    yield from (f"  doubted: {each}" for each in facts["doubts"])
    yield from noted_lines(own.get("noted", {}), now_s)
