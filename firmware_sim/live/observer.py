"""Somebody who listens: a client of a broker that keeps what it hears, for whoever asks later."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple, Self

from edge_opid.link.background import BackgroundLink
from edge_opid.link.options import MqttOptions
from edge_opid.wire import Channel, Topic, WireError, decode
from firmware_sim.live.processes import WAIT_S

HEARD_MAX = 100_000  # messages of a channel; the oldest go


class Heard(NamedTuple):
    """One message, and where it was said."""

    topic: Topic
    payload: bytes


class Observer:
    """A thread takes what arrives; `heard` has it by channel, in the order it came.

    `with Observer(options, filters) as ear:` is connected, and hears nothing that was said before
    but what the broker retains. It may speak, too: `ear.link.publish(topic, payload)`.
    """

    def __init__(self, options: MqttOptions, filters: Iterable[str]) -> None:
        self.heard: dict[Channel, deque[Heard]] = {c: deque(maxlen=HEARD_MAX) for c in Channel}
        self.link = BackgroundLink(options)
        self.link.subscribe(filters)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)

    def __enter__(self) -> Self:
        self.link.start()
        try:
            self.link.wait_connected(WAIT_S)
        except BaseException:
            self.link.stop()
            raise
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.link.stop()
        self._thread.join(WAIT_S)

    def all(self, channel: Channel, *kinds: type) -> list[Any]:
        """The messages of one channel so far, in the order they came."""
        return [decode(each.payload, *kinds) for each in list(self.heard[channel])]

    def last(self, channel: Channel, *kinds: type) -> Any:
        """The latest message of one channel, or None."""
        heard = self.heard[channel]
        return decode(heard[-1].payload, *kinds) if heard else None

    def _run(self) -> None:
        while not self._over.is_set():
            delivery = self.link.poll(0.1)
            if delivery is not None:
                self._hear(delivery.topic, delivery.payload)
                self.link.acknowledge(delivery)

    def _hear(self, topic: str, payload: bytes) -> None:
        try:
            parsed = Topic.parse(topic)
        except WireError:
            return  # somebody else's, on a broker that is not ours
        self.heard[parsed.channel].append(Heard(parsed, payload))
