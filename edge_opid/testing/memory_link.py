"""A link to a `MemoryBroker`: the same promises as MQTT, in one process and without a thread."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Unpack

from edge_opid.link.contract import (
    Connected,
    Delivery,
    Disconnected,
    LinkError,
    LinkEvent,
)
from edge_opid.link.queues import Mailbox, Outbox
from edge_opid.testing.memory_broker import MemoryBroker, Session
from edge_opid.testing.unthreaded import SessionSettings, UnthreadedLink
from edge_opid.wire.topics import check_filter

__all__ = ["MemoryBroker", "MemoryLink"]


class MemoryLink(UnthreadedLink):
    """A `Link` for tests and simulators. It never waits and never reads a clock.

    It connects, and connects again, when it is polled while the broker is up.

    >>> broker = MemoryBroker()
    >>> node, sensor = MemoryLink(broker, "node"), MemoryLink(broker, "sensor")
    >>> node.start(); node.subscribe(["reading/+"]); sensor.start()
    >>> sensor.publish("reading/attic", b"21.3")
    True
    >>> delivery = node.poll()
    >>> delivery.topic, delivery.payload
    ('reading/attic', b'21.3')
    >>> node.acknowledge(delivery)
    >>> node.counters.acknowledged
    1
    """

    def __init__(
        self,
        broker: MemoryBroker,
        client_id: str,
        *,
        outbox_messages_max: int = 1_024,
        **session: Unpack[SessionSettings],
    ) -> None:
        super().__init__(Outbox(outbox_messages_max, bytes_max=2**30), **session)
        self._broker = broker
        self._client_id = client_id
        self._session: Session | None = None
        self._events = Mailbox(1, 1)

    @property
    def connected(self) -> bool:
        """Whether the broker holds a session for us right now."""
        return self._session is not None

    def start(self) -> None:
        """Connect, if the broker is up."""
        self._running = True
        self._connect()

    def check(self) -> None:
        """There is no thread that could end."""

    def wait_connected(self, timeout_s: float) -> None:
        """Connect now or raise: in memory there is nothing to wait for."""
        self._connect()
        if not self.connected:
            raise LinkError(
                f"memory broker is down; client {self._client_id!r} waited {timeout_s} s: "
                "call restart() on the broker"
            )

    def subscribe(self, filters: Iterable[str], qos: int = 1) -> None:
        """Ask for these filters now and at every later connection."""
        for filter_ in filters:
            self._filters[check_filter(filter_)] = qos
            if self._session is not None:
                self._broker.subscribe(self._session, filter_, qos)

    def unsubscribe(self, filters: Iterable[str]) -> None:
        """Stop asking for these filters."""
        for filter_ in filters:
            self._filters.pop(filter_, None)
            if self._session is not None:
                self._session.subscriptions.pop(filter_, None)

    def poll(self, timeout_s: float | None = 0.0) -> Delivery | None:  # noqa: ARG002 - never waits
        """The next delivery, or None at once."""
        self._connect()
        taken = self._session.take_message() if self._session is not None else None
        return None if taken is None else self._received(*taken)

    def _confirm(self, packet_id: int) -> None:
        if self._session is not None:
            self._session.inflight.pop(packet_id)
            self.counters.acknowledged += 1

    def poll_event(self) -> LinkEvent | None:
        """The next thing that happened to the connection, or None."""
        return self._events.take_event()

    def stop(self, drain_s: float = 5.0) -> int:  # noqa: ARG002 - never waits
        """Say goodbye; returns how many messages stayed unsent."""
        if self._running:
            self._running = False
            if self._session is not None:
                self._broker.goodbye(self._client_id)
                self._lose("stopped")
        return len(self._outbox)

    def abort(self) -> None:
        """Vanish: the broker publishes the will and keeps the session."""
        self._running = False
        self._broker.drop(self._client_id, "aborted")

    def _connect(self) -> None:
        if not self._running or self.connected or not self._broker.up:
            return
        fresh = Session(
            persistent=self._persistent,
            inflight_max=self._inflight_max,
            will=self._will,
            on_lost=self._lose,
        )
        self._session, present = self._broker.connect(self._client_id, fresh)
        self._order.begin_connection()
        self.counters.connections += 1
        self._events.put_event(Connected(present, "memory"))
        for filter_, qos in self._filters.items():
            self._broker.subscribe(self._session, filter_, qos)
        self._flush()

    def _flush(self) -> None:
        while self.connected and (message := self._outbox.take_next(window=1)) is not None:
            self._outbox.release(message)
            self.counters.published += 1
            self._broker.publish(message)

    def _lose(self, reason: str) -> None:
        self._session = None
        self._order.begin_connection()
        self._events.put_event(Disconnected(reason))
