"""`change list`, `change show`: what became of each change, which fits it had, who has reported.

A node is a member of a change while its newest layout is of it; later it has moved on, and what
counts is whether it ever took the layout of this change.
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from gateway.cli.context import CommandContext, OperatorError, open_context
from gateway.cli.output import NOTHING, Terminal, moment, names, percent
from gateway.cli.wait import Deadline, wait_for_reports, wave_of, what_is_late
from gateway.registry import ChangeRecord, FitRecord, LayoutRecord
from gateway.registry.fleet import Fleet

Facts = dict[str, Any]
HEADINGS = "change", "group", "state", "opened", "removed", "added", "batch", "pushed", "reported"


def list_changes(given: Namespace, screen: Terminal) -> int:
    """The last changes, the newest first."""
    with open_context(given.config) as context:
        fleet = context.fleet()
        found = [change_facts(context, fleet, each) for each in context.store.changes(given.limit)]
    if given.json:
        screen.json(found)
    else:
        screen.table(HEADINGS, map(_row, found))
    return 0


def show_change(given: Namespace, screen: Terminal) -> int:
    """One change in full; with `--follow` once all of its nodes have reported."""
    with open_context(given.config) as context:
        change = find_change(context, given.change)
        late = ""
        if given.follow:
            late = _follow(context, change, screen, Deadline(given.wait_s))
        facts = full_facts(context, find_change(context, change.id))
    if given.json:
        screen.json(facts)
    else:
        _draw(facts, screen)
    if late:
        screen.remark(late)
    return 3 if late else 0


def find_change(context: CommandContext, number: int) -> ChangeRecord:
    """The change of this number, or what there is instead."""
    change = context.store.change(number)
    if change is None:
        last = [each.id for each in context.store.changes(1)]
        there = f"there are 1 to {last[0]}" if last else "there has been none yet"
        raise OperatorError(f"there is no change {number}: {there}")
    return change


def _follow(
    context: CommandContext, change: ChangeRecord, screen: Terminal, deadline: Deadline
) -> str:
    """Watch the wave of orders to those who are in the change; what is open when time is up."""

    def look() -> Any:
        fleet = context.fleet()
        return wave_of(fleet, fleet.members(change.id))

    with screen.bar(f"change {change.id}") as advance:
        return what_is_late(wait_for_reports(look, deadline, advance), deadline)


# -- what JSON has ---------------------------------------------------------------------------------


def change_facts(context: CommandContext, fleet: Fleet, change: ChangeRecord) -> Facts:
    """A change, without its fits; -1 where nothing was fitted or pushed yet."""
    members = member_facts(context, fleet, change)
    return {
        "id": change.id,
        "group": change.group,
        "state": str(change.state),
        "opened_ms": change.opened_ms,
        "closed_ms": change.closed_ms,
        "retired": list(change.retired),
        "arrived": list(change.arrived),
        "columns": list(change.columns),
        "batch": max(change.fitted, len(fleet.examples.get(change.id, ())), 0),
        "fitted": change.fitted,
        "pushed": change.pushed,
        "nodes": len(members),
        "reported": sum(each["reported"] for each in members),
    }


def full_facts(context: CommandContext, change: ChangeRecord) -> Facts:
    """A change with its fits and its members."""
    fleet = context.fleet()
    return {
        **change_facts(context, fleet, change),
        "fits": [fit_facts(fit) for fit in context.store.fits(change.id)],
        "members": member_facts(context, fleet, change),
    }


def fit_facts(fit: FitRecord) -> Facts:
    """A fit, without its weights."""
    return {
        "size": fit.size,
        "at_ms": fit.at_ms,
        "chosen": fit.chosen,
        "why": fit.why,
        "pushed": fit.pushed,
        "candidates": [dict(row) for row in fit.candidates],
        "pooled": list(fit.pooled),
        "refused": dict(fit.refused),
        "readings": fit.readings,
        "rounding_loss": fit.rounding_loss,
        "compact_loss": fit.compact_loss if fit.is_kernel else None,
    }


def member_facts(context: CommandContext, fleet: Fleet, change: ChangeRecord) -> list[Facts]:
    """Whoever was given a layout in this change, and whether it has reported.

    A node that came or was forgotten after the fleet was read is left out: look again.
    """
    last = {(each.site, each.node): each for each in context.store.members(change.id)}
    return [_member(fleet, layout) for key, layout in last.items() if key in fleet.nodes]


def _member(fleet: Fleet, layout: LayoutRecord) -> Facts:
    key = layout.site, layout.node
    node, newest, order = fleet.nodes[key], fleet.layouts[key], fleet.orders.get(key)
    stays = newest.change == layout.change
    if stays:
        reported = order is not None and node.reported_version >= order.version
    else:
        reported = node.reported_layout >= layout.version
    return {
        "site": layout.site,
        "node": layout.node,
        "layout": layout.version,
        "online": node.online,
        "order": order.version if order and stays else None,
        "reported_order": node.reported_version,
        "reported": reported,
        "moved_on": None if stays else newest.change or None,
    }


# -- what people see -------------------------------------------------------------------------------


def _row(facts: Facts) -> list[str]:
    return [
        str(facts["id"]),
        facts["group"],
        facts["state"],
        moment(facts["opened_ms"]),
        names(facts["retired"]),
        names(facts["arrived"]),
        str(facts["batch"]),
        str(facts["pushed"]) if facts["pushed"] >= 0 else NOTHING,
        f"{facts['reported']} of {facts['nodes']}",
    ]


def _draw(facts: Facts, screen: Terminal) -> None:
    about = dict(zip(HEADINGS, _row(facts), strict=True))
    screen.facts([*about.items(), ("columns", names(facts["columns"]))])
    for fit in facts["fits"]:
        _draw_fit(fit, screen)
    screen.lines([""])
    screen.table(("member", "online", "layout", "order", "reported", "moved on"), _members(facts))


def _draw_fit(fit: Facts, screen: Terminal) -> None:
    sent = "pushed" if fit["pushed"] else "not pushed"
    screen.lines(
        [
            "",
            f"fit on {fit['size']} labelled instances, {moment(fit['at_ms'])}: {sent}",
            f"  {fit['why']}",
            f"  pooled {fit['readings']} readings of {names(fit['pooled'])}",
            *(f"  refused {node}: {why}" for node, why in fit["refused"].items()),
            *_price(fit["compact_loss"]),
        ]
    )
    if fit["candidates"]:
        rows = ((row["name"], percent(row["accuracy"])) for row in fit["candidates"])
        marked = ((f"* {name}" if name == fit["chosen"] else f"  {name}", a) for name, a in rows)
        screen.table(("  candidate", "right on held-out instances"), marked)


def _price(loss: float | None) -> list[str]:
    """What a kernel costs for being small enough to push; it may be nothing, or a lucky gain."""
    if loss is None:
        return []
    return [f"  on landmarks, as nodes have it, the kernel gives up {100 * loss:.1f} points"]


def _members(facts: Facts) -> list[list[str]]:
    return [
        [
            f"{each['site']}/{each['node']}",
            "yes" if each["online"] else "no",
            str(each["layout"]),
            str(each["order"] or NOTHING),
            "yes" if each["reported"] else f"no (has {each['reported_order']})",
            f"to {each['moved_on']}" if each["moved_on"] else NOTHING,
        ]
        for each in facts["members"]
    ]
