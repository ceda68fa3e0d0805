"""Between whoever uses a link and its connection: the queues, the subscriptions, the counters.

The upper half is called by whoever uses the link, the lower half by the connection. Neither waits
for anything, and nothing here knows MQTT's bytes. Who calls from two threads brings a lock
(`background`).
"""

from __future__ import annotations

from edge_opid import log
from edge_opid.link.contract import (
    Connected,
    Delivery,
    Disconnected,
    LinkCounters,
    MessageDropped,
    PublishRefused,
    SubscriptionGranted,
    SubscriptionRefused,
)
from edge_opid.link.options import MqttOptions
from edge_opid.link.packets import TOO_LARGE, UnusablePacket, UsablePacket
from edge_opid.link.queues import AckOrder, Mailbox, Outbox, Outgoing
from edge_opid.reasons import LinkReason


class Exchange:
    """Bounded queues in both directions, the subscriptions wanted, and the counters."""

    def __init__(self, options: MqttOptions) -> None:
        self.counters = LinkCounters()
        self.state: Connected | Disconnected = Disconnected(
            f"not connected to broker {options.host}:{options.port} so far",
            kind=LinkReason.NOT_YET,
        )
        self._options = options
        self.mailbox = Mailbox(options.inbox_messages_max, options.inbox_bytes_max)
        self._outbox = Outbox(options.outbox_messages_max, options.outbox_bytes_max)
        self._order = AckOrder()
        self._acks: list[int] = []  # packet ids of this connection, ready to go out
        self._wanted: dict[str, int] = {}  # filter → QoS
        self._to_subscribe: dict[str, int] = {}
        self._to_unsubscribe: set[str] = set()
        self._granted: set[str] = set()  # filters that this connection hears
        self._refused: set[str] = set()  # and those that it was told it will not
        self._leaving: set[str] = set()  # filters the broker has not yet confirmed to forget

    # ---- the caller's half

    def offer(self, message: Outgoing) -> bool:
        """Queue a publication, or count why not."""
        size = len(message.payload)
        if size > self._options.payload_bytes_max:
            self.counters.refuse(LinkReason.UNSENT_TOO_LARGE)
            return False
        if not self._outbox.offer(message):
            self.counters.refuse(LinkReason.UNSENT_QUEUE_FULL)
            return False
        return True

    def acknowledge(self, delivery: Delivery) -> None:
        """Let the acknowledgement go out as soon as those before it are given."""
        if delivery.receipt is None:
            return
        ready = self._order.acknowledge(delivery.receipt)
        if ready is None:
            self.counters.acks_stale += 1
        elif ready:
            self._acks += ready

    def want(self, filters: dict[str, int]) -> None:
        """Subscribe now and at every later connection."""
        self._wanted |= filters
        self._to_subscribe |= filters
        self._to_unsubscribe -= filters.keys()
        self._leaving -= filters.keys()

    def unwant(self, filters: set[str]) -> None:
        """Unsubscribe, now or at the next connection."""
        for filter_ in filters:
            self._wanted.pop(filter_, None)
            self._to_subscribe.pop(filter_, None)
        self._to_unsubscribe |= filters
        self._refused -= filters
        self._granted -= filters

    def unsent(self) -> int:
        """How many publications the broker has not confirmed."""
        return len(self._outbox)

    # ---- the network's half

    def begin_connection(self, event: Connected) -> None:
        """A connection was accepted: packet ids start anew, all filters are asked for again."""
        self._order.begin_connection()
        self._acks.clear()
        self._to_subscribe = dict(self._wanted)
        self._granted.clear()
        self._refused.clear()
        self.counters.connections += 1
        self.state = event
        self.mailbox.put_event(event)

    def end_connection(self, event: Disconnected, *, unconfirmed: bool = False) -> None:
        """The connection is over: what it left unacknowledged comes again with the next one."""
        self._order.begin_connection()
        self._acks.clear()
        self._to_unsubscribe |= self._leaving
        again = self._outbox.requeue_sent()
        self.counters.unconfirmed += again if unconfirmed else 0
        self.counters.faults += event.fault
        gone = self.mailbox.discard_unacknowledged()
        if gone:
            self.counters.dropped[LinkReason.CONNECTION_LOST] += gone
        self.state = event
        self.mailbox.put_event(event)

    def put(self, message: UsablePacket) -> None:
        """A message came in."""
        topic, payload, qos, retain, packet_id = message
        if len(payload) > self._options.payload_bytes_max:
            self.drop(UnusablePacket(TOO_LARGE, qos, packet_id))
            return
        self.counters.received += 1
        receipt = self._order.add(packet_id) if qos else None
        self.mailbox.put(Delivery(topic, payload, qos, retain, receipt))

    def drop(self, refusal: UnusablePacket) -> None:
        """A message came in that can never be used: it is dropped, counted and acknowledged."""
        self.counters.received += 1
        self.counters.dropped[refusal.reason] += 1
        count = self.counters.dropped[refusal.reason]
        if log.worth_a_line(count):
            self.mailbox.put_event(MessageDropped(refusal.reason, count))
        if refusal.qos == 1:
            receipt = self._order.add(refusal.packet_id)
            self._acks += self._order.acknowledge(receipt) or []

    def take_acks(self) -> list[int]:
        """The packet ids to acknowledge now, in arrival order."""
        ready, self._acks = self._acks, []
        self.counters.acknowledged += len(ready)
        return ready

    def take_subscriptions(self) -> tuple[dict[str, int], set[str]]:
        """The filters to subscribe and to unsubscribe now."""
        taken = self._to_subscribe, self._to_unsubscribe
        self._leaving |= self._to_unsubscribe
        self._to_subscribe, self._to_unsubscribe = {}, set()
        return taken

    def grant(self, filter_: str) -> None:
        """The broker will send what this filter asks for."""
        if filter_ in self._wanted:
            self._granted.add(filter_)
        if filter_ in self._refused:
            self._refused.remove(filter_)
            self.mailbox.put_event(SubscriptionGranted(filter_))

    def deny(self, filter_: str, reason: str) -> None:
        """The broker will not; that is told once, however often it is asked."""
        self._granted.discard(filter_)
        if filter_ in self._wanted and filter_ not in self._refused:
            self._refused.add(filter_)
            self.mailbox.put_event(SubscriptionRefused(filter_, reason))

    def ask_again(self) -> None:
        """Subscribe once more to what is wanted and was refused, or not answered."""
        deaf = self._wanted.keys() - self._granted
        self._to_subscribe |= {filter_: self._wanted[filter_] for filter_ in sorted(deaf)}

    def confirm_unsubscribed(self, filters: set[str]) -> None:
        """The broker has forgotten these filters."""
        self._leaving -= filters

    def take_outgoing(self, window: int) -> Outgoing | None:
        """The publication to send now, if the window has room."""
        return self._outbox.take_next(window)

    def mark_sent(self, message: Outgoing, packet_id: int, now_s: float) -> None:
        """It is in flight; of QoS 0 nothing more will be heard."""
        if message.qos > 0:
            self._outbox.mark_sent(packet_id, message, now_s)
        else:
            self._outbox.release(message)
            self.counters.published += 1

    @property
    def owed_since_s(self) -> float | None:
        """Since when the broker has owed us the next confirmation; None if it owes us none."""
        return self._outbox.owed_since_s

    def is_in_flight(self, packet_id: int) -> bool:
        """Whether the broker owes us a confirmation under this id."""
        return self._outbox.is_in_flight(packet_id)

    def refuse(self, message: Outgoing, reason: str) -> None:
        """It cannot be sent: it is thrown away and reported."""
        self._outbox.release(message)
        self._report_refused(message, reason)

    def confirm(self, packet_id: int, failure: str | None, now_s: float) -> None:
        """The broker answered a publication: it has it, or (`failure`) will not take it."""
        message = self._outbox.confirm(packet_id, now_s)
        if message is not None and failure is not None:
            self._report_refused(message, failure)
        elif message is not None:
            self.counters.published += 1

    def _report_refused(self, message: Outgoing, reason: str) -> None:
        self.counters.refuse(LinkReason.UNSENT_BY_BROKER)
        self.mailbox.put_event(PublishRefused(message.topic, reason))
