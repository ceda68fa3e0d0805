"""`sensor list`, `node list`, `node show`, `node forget`: what is known of nodes and their sensors.

What a node last said is in its record; what it should be is in its newest layout and its order.
Where the two differ, an order is under way, or the node is away.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from edge_opid.wire import Status, WireError, decode
from gateway.cli.context import CommandContext, OperatorError, all_keys, find_node, open_context
from gateway.cli.output import NOTHING, Terminal, moment, names, number, percent
from gateway.cli.sensors import now_ms, rehearse_open
from gateway.cli.wait import Deadline, submit, wait_for_outcome
from gateway.decisions.timekeeping import own_key
from gateway.registry import DoubtRecord, NodeKey, NodeRecord, SensorRecord
from gateway.registry.fleet import Fleet
from gateway.registry.overlap import takeover_sentence
from gateway.registry.text import listed
from gateway.store import FORGET

Facts = dict[str, Any]


def list_sensors(given: Namespace, screen: Terminal) -> int:
    """Every sensor of the fleet, or of one node, the retired ones included."""
    with open_context(given.config) as context:
        fleet, together = context.fleet(), context.config.policy.overlap_readings
    keys = all_keys(fleet) if given.node is None else [find_node(fleet, given.node)]
    found = [sensor_facts(fleet, each, together) for key in keys for each in sensors_of(fleet, key)]
    if given.json:
        screen.json(found)
    else:
        where = ("node", *SENSOR_HEADINGS)
        screen.table(where, ([f"{s['site']}/{s['node']}", *sensor_row(s)] for s in found))
    return 0


def list_nodes(given: Namespace, screen: Terminal) -> int:
    """Every node, also those that are configured and have never spoken."""
    with open_context(given.config) as context:
        fleet = context.fleet()
    found = [node_facts(fleet, key) for key in all_keys(fleet)]
    if given.json:
        screen.json(found)
    else:
        screen.table(NODE_HEADINGS, map(node_row, found))
    for site in ("", *sorted({group.site for group in fleet.groups.values()})):
        for doubt in doubts_about(fleet, own_key(site)):
            screen.remark(doubt.sentence)
    return 0


def show_node(given: Namespace, screen: Terminal) -> int:
    """All that is known of one node."""
    with open_context(given.config) as context:
        fleet, together = context.fleet(), context.config.policy.overlap_readings
    facts = full_node_facts(fleet, find_node(fleet, given.node), together)
    if given.json:
        screen.json(facts)
        return 0
    screen.facts(_told(facts))
    screen.lines([""])
    screen.table(SENSOR_HEADINGS, map(sensor_row, facts["sensors"]))
    return 0


def full_node_facts(fleet: Fleet, key: NodeKey, together: int) -> Facts:
    """A node with its counters and its sensors, as JSON has it."""
    if key not in fleet.nodes:
        raise OperatorError(f"node {'/'.join(key)} has not introduced itself yet: is it running?")
    facts = node_facts(fleet, key)
    facts["counts"] = dict(last_status(fleet.nodes[key]).counts)
    facts["sensors"] = [sensor_facts(fleet, each, together) for each in sensors_of(fleet, key)]
    return facts


# -- sensors ---------------------------------------------------------------------------------------

SENSOR_HEADINGS = (
    "sensor", "state", "role", "reference", "scale", "hats", "since", "end of life", "why"
)  # fmt: skip


def sensors_of(fleet: Fleet, key: NodeKey) -> list[SensorRecord]:
    """The sensors of a node, by role, those with a column before those without."""
    found = fleet.sensors.get(key, {}).values()
    return sorted(found, key=lambda each: (each.state == "retired", each.role, each.id))


def sensor_facts(fleet: Fleet, sensor: SensorRecord, together: int) -> Facts:
    """A sensor as JSON has it; `together` is how long an overlap should be."""
    facts = asdict(sensor)
    del facts["announced_ms"]  # the gateway's own, to tell copies of an announcement by
    waits = takeover_sentence(fleet, sensor, together)
    own = {"state": str(sensor.state), "knots": list(sensor.knots)}
    return {**facts, **own, "reason": waits or sensor.reason}


def sensor_row(facts: Facts) -> list[str]:
    """A sensor as a line of a table."""
    unit = f" {facts['unit']}" if facts["unit"] and facts["reference"] is not None else ""
    return [
        facts["id"],
        facts["state"],
        facts["role"],
        number(facts["reference"]) + unit,
        number(facts["scale"]),
        str(len(facts["knots"]) or NOTHING),
        moment(facts["since_ms"]),
        moment(facts["end_of_life_ms"]),
        facts["reason"],
    ]


# -- nodes -----------------------------------------------------------------------------------------

NODE_HEADINGS = (
    "node", "group", "online", "layout", "order", "model", "trouble", "heard"
)  # fmt: skip


def node_facts(fleet: Fleet, key: NodeKey) -> Facts:
    """A node as JSON has it; 0 is the version before any, and None is not known."""
    node, layout, order = fleet.nodes.get(key), fleet.layouts.get(key), fleet.orders.get(key)
    group = fleet.group_of(key)
    status = last_status(node)
    return {
        "site": key[0],
        "node": key[1],
        "group": node.group if node else group.id if group else None,
        "introduced": node is not None,
        "online": node is not None and node.online,
        "heard_ms": node.seen_ms if node else None,
        "layout": layout.version if layout else 0,
        "reported_layout": node.reported_layout if node else 0,
        "order": order.version if order else 0,
        "reported_order": node.reported_version if node else 0,
        "model": node.reported_model if node else 0,
        "change": layout.change or None if layout else None,
        "accuracy": dict(status.accuracy),
        "degraded": list(status.degraded),
        "doubts": [each.sentence for each in doubts_about(fleet, key)],
    }


def doubts_about(fleet: Fleet, key: NodeKey) -> list[DoubtRecord]:
    """What was said in the node's name and not believed, the newest first."""
    found = [each for each in fleet.doubts.values() if (each.site, each.node) == key]
    return sorted((each for each in found if each.sentence), key=lambda each: -each.at_ms)


def last_status(node: NodeRecord | None) -> Status:
    """What the node last said of itself; nothing yet, or nothing readable, is an empty status."""
    if node is not None and node.status:
        try:
            return decode(node.status, Status)
        except WireError:
            pass
    return Status(online=False, layout_version=0, model_version=0)


def node_row(facts: Facts) -> list[str]:
    """A node as a line of a table."""
    online = ("yes" if facts["online"] else "no") if facts["introduced"] else "never"
    return [
        f"{facts['site']}/{facts['node']}",
        facts["group"] or NOTHING,
        online,
        _reported(facts["layout"], facts["reported_layout"]),
        _reported(facts["order"], facts["reported_order"]),
        str(facts["model"] or NOTHING),
        names([*facts["degraded"], *(["doubted"] if facts["doubts"] else [])]),
        moment(facts["heard_ms"]),
    ]


def _told(facts: Facts) -> list[tuple[str, str]]:
    found = dict(zip(NODE_HEADINGS, node_row(facts), strict=True))
    accuracy = (f"{name} {percent(share)}" for name, share in facts["accuracy"].items())
    counts = (f"{name} {count}" for name, count in facts["counts"].items())
    change = str(facts["change"] or NOTHING)
    own = {"change": change, "accuracy": names(accuracy), "counts": names(counts)}
    doubts = [("doubted", each) for each in facts["doubts"]]
    return [*{**found, **own}.items(), *doubts]


def _reported(wanted: int, reported: int) -> str:
    """A version; where the node has another one, both.

    >>> _reported(3, 3), _reported(4, 3)
    ('3', '4 (has 3)')
    """
    return str(wanted) if wanted == reported else f"{wanted} (has {reported})"


# -- forgetting ------------------------------------------------------------------------------------

WORDS = {
    "sensors": ("sensor", "sensors"),
    "layouts": ("layout", "layouts"),
    "orders": ("order", "orders"),
    "summaries": ("summary", "summaries"),
    "examples": ("labelled instance", "labelled instances"),
}


def forget(given: Namespace, screen: Terminal) -> int:
    """Everything of one node goes; the others, and the changes it was in, stay."""
    with open_context(given.config) as context:
        fleet = context.fleet()
        rehearse_open(context, fleet)
        key = find_node(fleet, given.node)
        if key not in fleet.nodes:
            raise OperatorError(
                f"nothing is known about node {'/'.join(key)}: there is nothing to delete"
            )
        screen.lines(_what_goes(context, fleet, key))
        if not given.yes:
            raise OperatorError("nothing was changed: add --yes to forget it")
        number, served = submit(context, screen, key, FORGET, now_ms())
        if not served:
            return 0
        code = wait_for_outcome(context, screen, number, Deadline(given.wait_s))
        if not code:
            screen.lines(["done"])
        return code


def _what_goes(context: CommandContext, fleet: Fleet, key: NodeKey) -> Iterator[str]:
    """Line by line."""
    where, counted = "/".join(key), context.store.row_counts(key)
    what = ", ".join(f"{counted[t]} {words[counted[t] != 1]}" for t, words in WORDS.items())
    yield f"{where}: {what} will be deleted"
    yield f"{where}: its sensors are {listed(sorted(fleet.sensors[key]))}"
    yield f"{where}: the changes it took part in, and their fits, stay with its group"
    group = fleet.group_of(key)
    if group is not None:
        yield f"{where}: group {group.id} still lists it: it may introduce itself again"
