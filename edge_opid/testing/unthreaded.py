"""What links without a thread share: they take and give when they are called, and never wait."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypedDict

from edge_opid.link.contract import Delivery, LinkCounters, Will
from edge_opid.link.queues import AckOrder, Outbox, Outgoing
from edge_opid.reasons import LinkReason
from edge_opid.wire.topics import check_topic


class SessionSettings(TypedDict, total=False):
    """What a link asks of its session with the broker."""

    will: Will | None
    persistent: bool
    inflight_max: int


class UnthreadedLink(ABC):
    """The half of a `Link` that knows queues and the order of acknowledgements, and no broker."""

    def __init__(
        self,
        outbox: Outbox,
        *,
        will: Will | None = None,
        persistent: bool = True,
        inflight_max: int = 256,
    ) -> None:
        self.counters = LinkCounters()
        self._will, self._persistent, self._inflight_max = will, persistent, inflight_max
        self._outbox, self._order = outbox, AckOrder()
        self._filters: dict[str, int] = {}
        self._running = False

    def publish(self, topic: str, payload: bytes, qos: int = 1, retain: bool = False) -> bool:
        """Queue a message, and send it as soon as there is a way."""
        message = Outgoing(check_topic(topic), payload, qos, retain)
        if not self._running:
            self.counters.refuse(LinkReason.UNSENT_NOT_RUNNING)
        elif not self._outbox.offer(message):
            self.counters.refuse(LinkReason.UNSENT_QUEUE_FULL)
        else:
            self._flush()
            return True
        return False

    def serve(self, wait_s: float = 0.0) -> None:
        """Send what is queued. There is nothing to wait for, and no connection to keep."""
        del wait_s
        self._flush()

    def acknowledge(self, delivery: Delivery) -> None:
        """The broker may forget this delivery, and all that waited for it to come first."""
        if delivery.receipt is None:
            return
        ready = self._order.acknowledge(delivery.receipt)
        if ready is None:
            self.counters.acks_stale += 1
            return
        for packet_id in ready:
            self._confirm(packet_id)

    def _received(self, packet_id: int, message: Outgoing) -> Delivery:
        """Count what the broker has sent; the receipt is for `acknowledge`."""
        self.counters.received += 1
        receipt = self._order.add(packet_id) if message.qos > 0 else None
        return Delivery(message.topic, message.payload, message.qos, message.retain, receipt)

    @abstractmethod
    def _flush(self) -> None:
        """Send what the queue has, as far as there is a way."""

    @abstractmethod
    def _confirm(self, packet_id: int) -> None:
        """Tell the broker that it may forget this one."""
