"""What has arrived and nobody has asked for yet: deliveries and events, bounded, across threads."""

from __future__ import annotations

import threading
from collections import deque

from edge_opid.link.contract import Delivery, LinkEvent

EVENTS_MAX = 64  # a connection that flaps unwatched; the last 64 changes tell the story


class Mailbox:
    """Deliveries and events from the network's thread to the one that polls.

    Its bounds are a number and a sum of bytes. `full` tells the network's thread to stop reading:
    TCP then holds the broker back, and nothing is lost. Should nobody poll for as long as the
    keep-alive allows, the connection ends, and what was not acknowledged comes again with the
    next. The lock is shared with whatever else must change in the same instant.
    """

    def __init__(self, messages_max: int, bytes_max: int, lock: threading.Condition) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._changed = lock
        self._deliveries: deque[Delivery] = deque()
        self._bytes = 0
        self._events: deque[LinkEvent] = deque(maxlen=EVENTS_MAX)
        self._events_seen = 0  # counts arrivals, so that a waiting `take` notices one

    @property
    def full(self) -> bool:
        """Whether the network's thread should stop reading until somebody polls."""
        return len(self._deliveries) >= self._messages_max or self._bytes >= self._bytes_max

    def put(self, delivery: Delivery) -> None:
        """Add a delivery. The caller holds the lock."""
        self._deliveries.append(delivery)
        self._bytes += len(delivery.payload)
        self._changed.notify_all()

    def put_event(self, event: LinkEvent) -> None:
        """Add an event; of more than 64 unread ones the oldest goes."""
        with self._changed:
            self._events.append(event)
            self._events_seen += 1
            self._changed.notify_all()

    def take(self, timeout_s: float) -> Delivery | None:
        """The oldest delivery; None after the timeout or when an event came in meanwhile."""
        with self._changed:
            seen = self._events_seen
            self._changed.wait_for(lambda: self._deliveries or self._events_seen != seen, timeout_s)
            if not self._deliveries:
                return None
            delivery = self._deliveries.popleft()
            self._bytes -= len(delivery.payload)
            return delivery

    def take_event(self) -> LinkEvent | None:
        """The oldest event, or None."""
        with self._changed:
            return self._events.popleft() if self._events else None

    def discard_unacknowledged(self) -> int:
        """Forget what the broker will send again (QoS 1); returns how many that were."""
        with self._changed:
            kept = [delivery for delivery in self._deliveries if delivery.receipt is None]
            gone = len(self._deliveries) - len(kept)
            self._deliveries = deque(kept)
            self._bytes = sum(len(delivery.payload) for delivery in kept)
            return gone
