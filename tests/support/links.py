"""A link to a broker on the loopback interface, and what tests do with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from edge_opid.link import Delivery, LinkEvent, MqttOptions
from edge_opid.link.mqtt import MqttLink

WAIT_S = 10.0


@contextmanager
def link_to(port: int, **options: Any) -> Iterator[MqttLink]:
    """A started link that reconnects at once; it vanishes without a goodbye."""
    quick = {"client_id": "n1", "reconnect_first_s": 0.02, "reconnect_most_s": 0.1}
    link = MqttLink(MqttOptions(port=port, **{**quick, **options}))
    link.start()
    try:
        yield link
    finally:
        link.abort()


def take(link: MqttLink, count: int) -> list[Delivery]:
    """The next deliveries, each acknowledged."""
    taken: list[Delivery] = []
    deadline = time.monotonic() + WAIT_S
    while len(taken) < count:
        assert time.monotonic() < deadline, f"got {len(taken)} of {count}"
        delivery = link.poll(0.1)
        if delivery is not None:
            link.acknowledge(delivery)
            taken.append(delivery)
    return taken


def next_event(link: MqttLink, kind: type) -> LinkEvent:
    """The next event of this kind; others are passed over."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        event = link.poll_event()
        if isinstance(event, kind):
            return event
        if event is None:
            time.sleep(0.005)
    raise AssertionError(f"no {kind.__name__} in {WAIT_S} s")


def wait_until(true: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
    """Return as soon as it is true."""
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)
