"""Where the caller's thread and the network's thread meet: all shared state, under one lock.

The upper half is called by whoever uses the link, the lower half by the connection. Neither half
ever waits for the network, and nothing here knows MQTT's bytes. A `Waker` interrupts the network's
thread, which waits for its socket, when there is something to send.
"""

from __future__ import annotations

import select
import socket
import threading

from edge_opid import log
from edge_opid.link.contract import (
    Connected,
    Delivery,
    Disconnected,
    LinkCounters,
    LinkEvent,
    MessageDropped,
    PublishRefused,
)
from edge_opid.link.options import MqttOptions
from edge_opid.link.packets import TOO_LARGE, UnusablePacket, UsablePacket
from edge_opid.link.queues import AckOrder, Mailbox, Outbox, Outgoing


class Exchange:
    """Bounded queues in both directions, the subscriptions wanted, and the counters."""

    def __init__(self, options: MqttOptions) -> None:
        self.lock = threading.Condition()
        self.counters = LinkCounters()
        self.waker = Waker()
        self.state: Connected | Disconnected = Disconnected(
            f"not connected to broker {options.host}:{options.port} so far"
        )
        self._options = options
        self._mailbox = Mailbox(options.inbox_messages_max, options.inbox_bytes_max, self.lock)
        self._outbox = Outbox(options.outbox_messages_max, options.outbox_bytes_max)
        self._order = AckOrder()
        self._acks: list[int] = []  # packet ids of this connection, ready to go out
        self._wanted: dict[str, int] = {}  # filter → QoS
        self._to_subscribe: dict[str, int] = {}
        self._to_unsubscribe: set[str] = set()

    # ---- the caller's half

    def offer(self, message: Outgoing) -> bool:
        """Queue a publication, or count why not."""
        size = len(message.payload)
        with self.lock:
            if size > self._options.payload_bytes_max:
                self.counters.refused["too large"] += 1
                return False
            if not self._outbox.offer(message):
                self.counters.refused["queue full"] += 1
                return False
            self.waker.ring()
            return True

    def take(self, timeout_s: float) -> Delivery | None:
        """The next delivery; the network reads on if it had stopped for want of room."""
        was_full = self._mailbox.full
        delivery = self._mailbox.take(timeout_s)
        if was_full and delivery is not None:
            with self.lock:
                self.waker.ring()
        return delivery

    def take_event(self) -> LinkEvent | None:
        """The next event, or None."""
        return self._mailbox.take_event()

    def acknowledge(self, delivery: Delivery) -> None:
        """Let the acknowledgement go out as soon as those before it are given."""
        if delivery.receipt is None:
            return
        with self.lock:
            ready = self._order.acknowledge(delivery.receipt)
            if ready is None:
                self.counters.acks_stale += 1
            elif ready:
                self._acks += ready
                self.waker.ring()

    def want(self, filters: dict[str, int]) -> None:
        """Subscribe now and at every later connection."""
        with self.lock:
            self._wanted |= filters
            self._to_subscribe |= filters
            self._to_unsubscribe -= filters.keys()
            self.waker.ring()

    def unwant(self, filters: set[str]) -> None:
        """Unsubscribe, now or at the next connection."""
        with self.lock:
            for filter_ in filters:
                self._wanted.pop(filter_, None)
                self._to_subscribe.pop(filter_, None)
            self._to_unsubscribe |= filters
            self.waker.ring()

    def unsent(self) -> int:
        """How many publications the broker has not confirmed."""
        with self.lock:
            return len(self._outbox)

    # ---- the network's half

    @property
    def full(self) -> bool:
        """Whether to stop reading until somebody polls."""
        return self._mailbox.full

    def begin_connection(self, event: Connected) -> None:
        """A connection was accepted: packet ids start anew, all filters are asked for again."""
        with self.lock:
            self._order.begin_connection()
            self._acks.clear()
            self._to_subscribe = dict(self._wanted)
            self.counters.connections += 1
            self.state = event
            self._mailbox.put_event(event)

    def end_connection(self, event: Disconnected, *, unconfirmed: bool = False) -> None:
        """The connection is over: what it left unacknowledged comes again with the next one."""
        with self.lock:
            self._order.begin_connection()
            self._acks.clear()
            again = self._outbox.requeue_sent()
            self.counters.unconfirmed += again if unconfirmed else 0
            self.counters.faults += event.fault
            gone = self._mailbox.discard_unacknowledged()
            if gone:
                self.counters.dropped["connection lost"] += gone
            self.state = event
            self._mailbox.put_event(event)

    def put(self, message: UsablePacket) -> None:
        """A message came in."""
        topic, payload, qos, retain, packet_id = message
        if len(payload) > self._options.payload_bytes_max:
            self.drop(UnusablePacket(TOO_LARGE, qos, packet_id))
            return
        with self.lock:
            self.counters.received += 1
            receipt = self._order.add(packet_id) if qos else None
            self._mailbox.put(Delivery(topic, payload, qos, retain, receipt))

    def drop(self, refusal: UnusablePacket) -> None:
        """A message came in that can never be used: it is dropped, counted and acknowledged."""
        with self.lock:
            self.counters.received += 1
            self.counters.dropped[refusal.reason] += 1
            count = self.counters.dropped[refusal.reason]
            if log.worth_a_line(count):
                self._mailbox.put_event(MessageDropped(refusal.reason, count))
            if refusal.qos == 1:
                receipt = self._order.add(refusal.packet_id)
                self._acks += self._order.acknowledge(receipt) or []

    def take_acks(self) -> list[int]:
        """The packet ids to acknowledge now, in arrival order."""
        with self.lock:
            ready, self._acks = self._acks, []
            self.counters.acknowledged += len(ready)
            return ready

    def take_subscriptions(self) -> tuple[dict[str, int], set[str]]:
        """The filters to subscribe and to unsubscribe now."""
        with self.lock:
            taken = self._to_subscribe, self._to_unsubscribe
            self._to_subscribe, self._to_unsubscribe = {}, set()
            return taken

    def take_outgoing(self, window: int) -> Outgoing | None:
        """The publication to send now, if the window has room."""
        with self.lock:
            return self._outbox.take_next(window)

    def mark_sent(self, message: Outgoing, packet_id: int, now_s: float) -> None:
        """It is in flight; of QoS 0 nothing more will be heard."""
        with self.lock:
            if message.qos > 0:
                self._outbox.mark_sent(packet_id, message, now_s)
            else:
                self._outbox.release(message)
                self.counters.published += 1

    @property
    def owed_since_s(self) -> float | None:
        """Since when the broker has owed us the next confirmation; None if it owes us none."""
        with self.lock:
            return self._outbox.owed_since_s

    def take_back(self, message: Outgoing, reason: str | None = None) -> None:
        """With a reason it is thrown away and reported; without, it is tried again later."""
        with self.lock:
            if reason is None:
                self._outbox.put_back(message)
            else:
                self._outbox.release(message)
                self._report_refused(message, reason)

    def confirm(self, packet_id: int, failure: str | None, now_s: float) -> None:
        """The broker answered a publication: it has it, or (`failure`) will not take it."""
        with self.lock:
            message = self._outbox.confirm(packet_id, now_s)
            if message is not None and failure is not None:
                self._report_refused(message, failure)
            elif message is not None:
                self.counters.published += 1

    def report(self, event: LinkEvent) -> None:
        """Tell whoever polls for events."""
        self._mailbox.put_event(event)

    def wait(self, handle: int, wanted: int, wait_s: float) -> int:
        """What the socket is ready for (`select.poll` bits); 0 when time or a ring came first."""
        seen, rung = self.waker.wait(handle, wanted, wait_s)
        if rung:
            with self.lock:
                self.waker.hear()
        return seen

    def _report_refused(self, message: Outgoing, reason: str) -> None:
        self.counters.refused["by broker"] += 1
        self._mailbox.put_event(PublishRefused(message.topic, reason))


class Waker:
    """One byte through a socket pair. Ringing twice before it is heard costs nothing."""

    def __init__(self) -> None:
        self._ear, self._bell = socket.socketpair()
        self._ear.setblocking(False)
        self._bell.setblocking(False)
        self._rung = False

    def wait(self, handle: int, wanted: int, wait_s: float) -> tuple[int, bool]:
        """Wait for a socket or a ring: what the socket is ready for, and whether it rang.

        `poll` rather than `select`: a gateway may have more than 1,024 files open.
        """
        poller = select.poll()
        poller.register(self._ear, select.POLLIN)
        poller.register(handle, wanted)
        ready = dict(poller.poll(int(wait_s * 1000)))
        return ready.get(handle, 0), self._ear.fileno() in ready

    def ring(self) -> None:
        """Wake the waiter. The caller holds the link's lock, as `hear` does."""
        if not self._rung:
            self._rung = True
            self._bell.send(b"!")

    def hear(self) -> None:
        """Be ready for the next ring."""
        if self._rung:
            self._rung = False
            self._ear.recv(16)

    def close(self) -> None:
        """Give the two file descriptors back."""
        self._ear.close()
        self._bell.close()
