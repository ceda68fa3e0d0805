"""The three queues of a link, each bounded.

- `Mailbox`: what has arrived and nobody has polled for yet.
- `Outbox`: what `publish` took and the broker has not confirmed yet.
- `AckOrder`: what was polled and is not acknowledged yet. Acknowledgements leave in the order of
  arrival (MQTT-4.6.0-2), whatever order the work was finished in.

`ConfirmationWait` tells when the broker has owed the oldest message of the outbox for too long.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from edge_opid.link.contract import Delivery, LinkEvent, PublishRefused, Receipt

TURN_MOST_S = 1.0  # what took longer was no turn: the machine slept, and heard nothing
EVENTS_MAX = 64  # a connection that flaps unwatched; the last 64 changes tell the story
REFUSALS_MAX = 4_096  # as many as an outbox holds: who gave a message wants to hear of its refusal


class Mailbox:
    """Deliveries and events, from the network to whoever polls.

    Its bounds are a number and a sum of bytes. `full` says to stop reading: TCP then holds the
    broker back, and nothing is lost. Should nobody poll for as long as the keep-alive allows, the
    connection ends, and what was not acknowledged comes again with the next.
    """

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._deliveries: deque[Delivery] = deque()
        self._bytes = 0
        self._events: deque[LinkEvent] = deque()
        self._refusals = 0  # of these, those that are about a publication
        self.events_seen = 0
        """Counts arrivals, so that whoever waits for a delivery notices an event."""

    def __len__(self) -> int:
        return len(self._deliveries)

    @property
    def full(self) -> bool:
        """Whether to stop reading until somebody polls."""
        return len(self._deliveries) >= self._messages_max or self._bytes >= self._bytes_max

    def put(self, delivery: Delivery) -> None:
        """Add a delivery."""
        self._deliveries.append(delivery)
        self._bytes += len(delivery.payload)

    def put_event(self, event: LinkEvent) -> None:
        """Add an event; of more than 64 unread ones the oldest goes.

        Refused publications come by the hundred: they are bounded apart, and push nothing else out.
        """
        self._events.append(event)
        self.events_seen += 1
        refusal = isinstance(event, PublishRefused)
        self._refusals += refusal
        count = self._refusals if refusal else len(self._events) - self._refusals
        if count > (REFUSALS_MAX if refusal else EVENTS_MAX):
            alike = (e for e in self._events if isinstance(e, PublishRefused) == refusal)
            self._events.remove(next(alike))
            self._refusals -= refusal

    def take(self) -> Delivery | None:
        """The oldest delivery, or None."""
        if not self._deliveries:
            return None
        delivery = self._deliveries.popleft()
        self._bytes -= len(delivery.payload)
        return delivery

    def take_event(self) -> LinkEvent | None:
        """The oldest event, or None."""
        event = self._events.popleft() if self._events else None
        self._refusals -= isinstance(event, PublishRefused)
        return event

    def discard_unacknowledged(self) -> int:
        """Forget what the broker will send again (QoS 1); returns how many that were."""
        kept = [delivery for delivery in self._deliveries if delivery.receipt is None]
        gone = len(self._deliveries) - len(kept)
        self._deliveries = deque(kept)
        self._bytes = sum(len(delivery.payload) for delivery in kept)
        return gone


class Outgoing(NamedTuple):
    """One message on its way out."""

    topic: str
    payload: bytes
    qos: int
    retain: bool


class Outbox:
    r"""A line of messages that wait, and a window of those in flight.

    The bounds count both, so that a broker that confirms nothing cannot make us grow.

    >>> outbox = Outbox(messages_max=2, bytes_max=100)
    >>> [outbox.offer(Outgoing("t", bytes([n]), 1, False)) for n in range(3)]
    [True, True, False]
    >>> outbox.mark_sent(7, outbox.take_next(window=256), now_s=5.0)
    >>> outbox.owed_since_s
    5.0
    >>> outbox.requeue_sent()  # back to the head of the line
    1
    >>> outbox.take_next(window=256).payload
    b'\x00'
    """

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._line: deque[Outgoing] = deque()
        self._flying: dict[int, Outgoing] = {}  # packet id → message, in the order sent
        self._owed_since_s = 0.0  # since when the first of them has been the first

    def __len__(self) -> int:
        return len(self._line) + len(self._flying)

    def offer(self, message: Outgoing) -> bool:
        """Take the message, or refuse it because the bounds are reached."""
        size, count = len(message.payload), len(self._line) + len(self._flying)
        if count >= self._messages_max or self._bytes + size > self._bytes_max:
            return False
        self._line.append(message)
        self._bytes += size
        return True

    def take_next(self, window: int) -> Outgoing | None:
        """The message to send now, if the window has room. Follow with `mark_sent` or `release`."""
        if not self._line or len(self._flying) >= window:
            return None
        return self._line.popleft()

    def mark_sent(self, packet_id: int, message: Outgoing | None, now_s: float) -> None:
        """It is in flight under this packet id."""
        if message is not None:
            if not self._flying:
                self._owed_since_s = now_s
            self._flying[packet_id] = message

    def is_in_flight(self, packet_id: int) -> bool:
        """Whether this packet id is taken."""
        return packet_id in self._flying

    @property
    def owed_since_s(self) -> float | None:
        """Since when it has been the turn of the oldest message in flight to be confirmed.

        A broker confirms in the order sent. A window that moves slowly, over a poor network, starts
        this anew with each confirmation; one that was lost is passed over, and its time runs on.
        """
        return self._owed_since_s if self._flying else None

    def confirm(self, packet_id: int, now_s: float) -> Outgoing | None:
        """The broker has it: forget it, and return what it was."""
        if packet_id == next(iter(self._flying), None):
            self._owed_since_s = now_s
        message = self._flying.pop(packet_id, None)
        if message is not None:
            self.release(message)
        return message

    def release(self, message: Outgoing) -> None:
        """Give back the memory this message took."""
        self._bytes -= len(message.payload)

    def requeue_sent(self) -> int:
        """What was in flight may have been lost: send it again first, in the same order."""
        count = len(self._flying)
        self._line.extendleft(reversed(self._flying.values()))
        self._flying.clear()
        return count


class ConfirmationWait:
    """How long the broker has owed a confirmation, not counting when we could not hear it.

    >>> wait = ConfirmationWait()
    >>> wait.look(5.0, now_s=5.0), wait.look(5.0, now_s=5.5), wait.look(5.0, now_s=900.0)
    (0.0, 0.5, 1.5)
    >>> wait.look(900.5, now_s=901.0)  # it came: now it is another one that we wait for
    0.0
    """

    def __init__(self) -> None:
        self._owed_since_s: float | None = None  # which one we wait for
        self._waited_s = 0.0
        self._looked_s = 0.0

    def look(self, owed_since_s: float | None, now_s: float, *, hears: bool = True) -> float:
        """The wait until now. Look often: what lies between two looks counts as a turn at most."""
        passed_s, self._looked_s = now_s - self._looked_s, now_s
        if owed_since_s is None or owed_since_s != self._owed_since_s:
            self._owed_since_s, self._waited_s = owed_since_s, 0.0
        elif hears:
            self._waited_s += min(passed_s, TURN_MOST_S)
        return self._waited_s


class AckOrder:
    """Gives each arrival a receipt, and says which packet ids may be acknowledged now.

    It keeps one entry for each delivery that waits, which the broker's window bounds.

    >>> order = AckOrder()
    >>> first, second = order.add(packet_id=11), order.add(packet_id=12)
    >>> order.acknowledge(second)  # done first, but it has to wait for its elder
    []
    >>> order.acknowledge(first)
    [11, 12]
    >>> order.begin_connection()  # packet ids mean something else from here on
    >>> order.acknowledge(first) is None
    True
    """

    def __init__(self) -> None:
        self._connection = 0
        self._first = 0  # the position of the oldest entry that waits
        self._waiting: deque[tuple[int, bool]] = deque()  # (packet id, done)

    def __len__(self) -> int:
        return len(self._waiting)

    def begin_connection(self) -> None:
        """Forget everything that waits: its packet ids died with the connection."""
        self._connection += 1
        self._first = 0
        self._waiting.clear()

    def add(self, packet_id: int) -> Receipt:
        """Note an arrival, at the end of the line."""
        self._waiting.append((packet_id, False))
        return Receipt(self._connection, self._first + len(self._waiting) - 1)

    def acknowledge(self, receipt: Receipt) -> list[int] | None:
        """The packet ids that may go out now, or None if the receipt is stale or used."""
        place = receipt.position - self._first
        if receipt.connection != self._connection or place < 0:
            return None
        packet_id, done = self._waiting[place]
        if done:
            return None
        self._waiting[place] = (packet_id, True)
        ready = []
        while self._waiting and self._waiting[0][1]:
            ready.append(self._waiting.popleft()[0])
            self._first += 1
        return ready
