"""What nodes say they obey: how far it is believed, and when it shows that we remember too little.

A version is saved before it is published, so no node can have obeyed more than we remember, unless
our memory is an older one (a database restored from a backup), or the node is wrong, or somebody
else speaks in its name: a status is not signed. So

1. up to `CATCH_UP` versions more than we ever issued are believed, for a backup explains them, and
   said; a higher one is refused, said, and changes nothing;
2. what was believed wrongly is undone by the node's own next word: an order that is too far ahead
   of the version it reports is given again, within its reach (`is_beyond_reach`, `next_version`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from edge_opid.wire import LIMITS, SensorDescription, Status
from gateway.registry.fleet import Fleet
from gateway.registry.lifecycle import EventError
from gateway.registry.records import NodeKey

CATCH_UP = 1_024
"""Orders that a restored backup may lack: three a day for a year."""


def note_status(fleet: Fleet, key: NodeKey, status: Status, payload: bytes, now_ms: int) -> None:
    """Note what a known node says of itself: news is a record, that it is still here can wait."""
    node = fleet.nodes[key]
    known = node.online, node.reported_version, node.reported_layout, node.reported_model
    said = status.online, status.version, status.layout_version, status.model_version
    if said != known or node.seen_ms > now_ms:  # a clock that was wrong must not outlive it
        news = replace(
            node,
            online=status.online,
            reported_version=status.version,
            reported_layout=status.layout_version,
            reported_model=status.model_version,
            seen_ms=now_ms,
            status=payload,
        )
        fleet.put(news)
    fleet.note_heard(key, status, payload, now_ms)


def check_reach(fleet: Fleet, key: NodeKey, version: int, layout_version: int, at_ms: int) -> None:
    """Refuse versions that we never issued, beyond those that a restored backup would lack."""
    if key not in fleet.nodes:
        orders = layouts = LIMITS.integer_max // 2  # whoever ordered it, half are left to us
    else:
        orders = fleet.issued(key) + CATCH_UP
        layouts = fleet.layouts[key].version + CATCH_UP
    if version <= orders and layout_version <= layouts:
        return
    for what, said, most in (("order", version, orders), ("layout", layout_version, layouts)):
        if said > most:
            sentence = (
                f"{'/'.join(key)} reports {what} {said}, and {most} is the highest that is "
                "believed: is it really this node? If so, forget it (node forget)"
            )
            if key in fleet.nodes:  # the doubts of strangers would fill the book
                fleet.doubt(key, "version", sentence, at_ms)
            raise EventError("far-version", sentence)


def next_version(fleet: Fleet, key: NodeKey) -> int:
    """Above the last order and what the node obeys; never further ahead than it would follow."""
    order, reported = fleet.orders.get(key), fleet.nodes[key].reported_version
    above = max(reported, order.version if order else 0) + 1
    return min(above, reported + LIMITS.version_step_max)


def is_as_ordered(fleet: Fleet, key: NodeKey, version: int, layout_version: int) -> bool:
    """Whether a known node has obeyed just the order in force, with its newest layout.

    As after every order. There is nothing to doubt then: whoever is that far is neither out of
    reach, nor ahead of us, nor ordered beyond its reach.
    """
    order = fleet.orders.get(key)
    return (
        order is not None
        and version == order.version
        and layout_version == order.layout_version == fleet.layouts[key].version
    )


def is_beyond_reach(fleet: Fleet, key: NodeKey, version: int) -> bool:
    """Whether a node that obeys this version would refuse the order in force as too far ahead."""
    order = fleet.orders.get(key)
    return order is not None and order.version > version + LIMITS.version_step_max


def is_ahead(
    fleet: Fleet,
    key: NodeKey,
    version: int,
    layout_version: int,
    sensors: Collection[SensorDescription] | None = None,
) -> bool:
    """Whether the node has obeyed what we do not remember ordering.

    An order of the same version with another layout, or a layout of the same version with other
    sensors, is such a thing: we have given the number out a second time.
    """
    order, layout = fleet.orders.get(key), fleet.layouts[key]
    if order is None:
        return False
    if version > order.version or layout_version > layout.version:
        return True
    if version == order.version and layout_version != order.layout_version:
        return True
    same_number = layout_version == layout.version and sensors is not None
    return same_number and set(sensors or ()) != set(layout.sensors)


def renumber_layout(fleet: Fleet, key: NodeKey, layout_version: int, now_ms: int) -> None:
    """Our newest layout, above the one that the node has."""
    layout = fleet.layouts[key]
    if layout_version >= layout.version:
        fleet.put(replace(layout, version=layout_version + 1, at_ms=now_ms))


CLAIM_PER_S, CLAIM_AT_ONCE = 1_000, 10_000
"""Readings that no node learns in a second: twenty sources at their usual limit; and how many it
may have learned when the clock has not moved."""


def check_summary(
    fleet: Fleet, key: NodeKey, layout_version: int, readings: int, now_ms: int
) -> None:
    """Refuse statistics of a layout nobody was told: they would push out the few that are kept.

    And of more readings, labelled or not, than the node can have sent since its last summary: the
    clock is ours.
    What it says first is believed here, and bounded where it is pooled.
    """
    if key not in fleet.nodes:
        raise EventError("not-introduced", f"node {'/'.join(key)} has not introduced itself yet")
    told = fleet.layouts[key].version
    if layout_version > told:
        sentence = f"{'/'.join(key)} summarises layout {layout_version}, but was given {told}"
        raise EventError("layout", sentence)
    before, at_ms = fleet.claims.get(key, (readings, now_ms))
    most = before + CLAIM_AT_ONCE + CLAIM_PER_S * max(0, now_ms - at_ms) // 1000
    if readings > most:
        raise EventError(
            "claim",
            f"{'/'.join(key)} summarises {readings} readings, but can have sent at most {most} "
            f"since its last summary of {before}",
        )
    fleet.claims[key] = readings, now_ms
