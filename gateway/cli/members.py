"""`members`: the gateways of one database, and which sites each of them serves.

Read from the database: a gateway that hangs, or was cut off, is seen by its last heartbeat.
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from gateway.cli.context import CommandContext, open_context
from gateway.cli.output import Terminal, moment, names
from gateway.sites.census import DEAD_LEASES

Facts = dict[str, Any]
HEADINGS = ("gateway", "since", "last heartbeat", "sites")


def members(given: Namespace, screen: Terminal) -> int:
    """Who serves what; 1 where a site of the configuration is served by nobody."""
    with open_context(given.config) as context:
        facts = member_facts(context)
    if given.json:
        screen.json(facts)
    else:
        screen.table(HEADINGS, map(row_of, facts["members"]))
        if facts["unserved"]:
            screen.remark(f"sites without a gateway: {names(facts['unserved'])}")
    return 1 if facts["unserved"] else 0


def member_facts(context: CommandContext) -> Facts:
    """The gateways with their sites, and the sites that nobody serves, as JSON has them."""
    store, sites = context.store, context.config.sites
    if not context.config.is_shared:
        leader = store.leader()
        if leader is None:
            return {"members": [], "unserved": list(sites)}
        alone = _facts(leader.process, leader.since_ms, None, list(sites))
        return {"members": [alone], "unserved": []}
    found, rows = store.membership()
    now_ms = store.database_ms()
    held: dict[str, list[str]] = {}
    for row in rows:
        held.setdefault(row.member, []).append(row.site)
    living = [
        _facts(each.process, each.since_ms, now_ms - each.seen_ms, held.get(each.name, []))
        | {"name": each.name, "key": each.key, "lease_s": each.lease_s}
        for each in found
        if now_ms - each.seen_ms <= 1000 * DEAD_LEASES * each.lease_s
    ]
    served = {site for each in living for site in each["sites"]}
    return {"members": living, "unserved": [site for site in sites if site not in served]}


def _facts(process: str, since_ms: int | None, silent_ms: int | None, sites: list[str]) -> Facts:
    return {"process": process, "since_ms": since_ms, "silent_ms": silent_ms, "sites": sites}


def heartbeat_words(facts: Facts) -> str:
    """When a gateway was last heard of; nothing of one that is alone, and has no heartbeat."""
    silent_ms = facts["silent_ms"]
    return "" if silent_ms is None else f"{silent_ms / 1000:.1f} s ago"


def row_of(facts: Facts) -> tuple[str, ...]:
    """A gateway's line of the table."""
    sites = names(facts["sites"]) if facts["sites"] else "none: on standby"
    return facts["process"], moment(facts["since_ms"]), heartbeat_words(facts), sites
