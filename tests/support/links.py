"""A link to a broker on the loopback interface, and what tests do with it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from edge_opid.link import Delivery, Link, LinkEvent, MqttOptions
from edge_opid.link.background import BackgroundLink
from firmware_sim.live.processes import WAIT_S, wait_until

__all__ = ["WAIT_S", "link_to", "next_event", "take", "visitor", "wait_until"]


@contextmanager
def link_to(port: int, **options: Any) -> Iterator[BackgroundLink]:
    """A started link that reconnects at once; it vanishes without a goodbye."""
    quick = {"client_id": "n1", "reconnect_first_s": 0.02, "reconnect_most_s": 0.1}
    link = BackgroundLink(MqttOptions(port=port, **{**quick, **options}))
    link.start()
    try:
        yield link
    finally:
        link.abort()


@contextmanager
def visitor(port: int, *filters: str, client_id: str = "tester") -> Iterator[BackgroundLink]:
    """A link that is connected, hears these filters, and disconnects."""
    link = BackgroundLink(MqttOptions(client_id=client_id, port=port, persistent=False))
    link.subscribe(filters)
    link.start()
    link.wait_connected(WAIT_S)
    try:
        yield link
    finally:
        link.stop()


def take(link: Link, count: int, *, acknowledge: bool = True) -> list[Delivery]:
    """The next deliveries, in the order they came, each acknowledged unless said otherwise."""
    taken: list[Delivery] = []
    deadline = time.monotonic() + WAIT_S
    while len(taken) < count:
        assert time.monotonic() < deadline, f"got {len(taken)} of {count}"
        delivery = link.poll(0.1)
        if delivery is not None:
            if acknowledge:
                link.acknowledge(delivery)
            taken.append(delivery)
    return taken


def next_event(link: BackgroundLink, kind: type | tuple[type, ...]) -> LinkEvent:
    """The next event of this kind; others are passed over."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        event = link.poll_event()
        if isinstance(event, kind):
            return event
        if event is None:
            time.sleep(0.005)
    raise AssertionError(f"no {kind} in {WAIT_S} s")
