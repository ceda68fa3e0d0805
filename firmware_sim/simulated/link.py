"""A link over the simulated network: what `MqttLink` is over a real one, without threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Unpack

from edge_opid.link.contract import (
    Connected,
    Delivery,
    Disconnected,
    LinkError,
    LinkEvent,
    MessageDropped,
)
from edge_opid.link.packets import Framer, PacketError, UnusablePacket, UsablePacket
from edge_opid.link.queues import EVENTS_MAX, ConfirmationWait, Outbox, Outgoing
from edge_opid.testing.unthreaded import SessionSettings, UnthreadedLink
from edge_opid.wire.topics import check_filter
from firmware_sim.simulated.clock import dice
from firmware_sim.simulated.network import (
    Confirm,
    Connect,
    ConnectionAccepted,
    Goodbye,
    Network,
    Packet,
    PublishPacket,
    Raw,
    SimConnection,
    Subscribe,
)

RECONNECT_FIRST_MS, RECONNECT_MOST_MS = 200, 2_000
CONFIRM_S = 2.5  # as much as two slow packets take, and half as much again with the looks …
LOOK_MS = 500  # … which are so far apart
PACKET_BYTES_MAX = 4_096  # of a message that is more than a story
STABLE_MS = 1_000  # a connection shorter than this does not reset the back-off


class SimLink(UnthreadedLink):
    """A `Link` whose broker is as far away as the weather makes it.

    `on_arrival` is called when there is something to poll. Nothing here waits.

    >>> from firmware_sim.simulated.clock import VirtualClock
    >>> from firmware_sim.simulated.broker import SimBroker
    >>> clock = VirtualClock()
    >>> network = Network(clock, SimBroker(), seed=1)
    >>> node, sensor = SimLink(network, "node"), SimLink(network, "sensor")
    >>> node.subscribe(["reading/+"]); node.start(); sensor.start()
    >>> clock.run_for(100)
    >>> sensor.publish("reading/attic", b"21.3"), node.poll()
    (True, None)
    >>> clock.run_for(100)
    >>> node.poll().payload
    b'21.3'
    """

    def __init__(
        self,
        network: Network,
        client: str,
        *,
        outbox_messages_max: int = 4_096,
        life: int = 0,
        on_arrival: Callable[[], None] | None = None,
        **session: Unpack[SessionSettings],
    ) -> None:
        super().__init__(Outbox(outbox_messages_max, bytes_max=2**24), **session)
        self._network, self._client, self._room = network, client, self._inflight_max
        self._chance = dice("reconnect", client, life)
        self._on_arrival = on_arrival or (lambda: None)
        self._inbox: deque[Delivery] = deque()
        self._events: deque[LinkEvent] = deque(maxlen=EVENTS_MAX)
        self._connection: SimConnection | None = None
        self._accepted = self._watching = False
        self._dead = self._at_fault = False
        self._packet_id = self._since_ms = 0
        self._patience_ms, self._protocol = RECONNECT_FIRST_MS, "simulated"

    # --- the protocol -----------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        """Whether the broker has accepted us, as far as we know."""
        return self._accepted

    def start(self) -> None:
        """Begin to connect."""
        self._running = True
        self._dial()

    def check(self) -> None:
        """Raise if what would be the network's thread has ended."""
        if self._dead:
            raise LinkError(f"link {self._client!r}: its thread has ended")

    def wait_connected(self, timeout_s: float) -> None:
        """Simulated time passes only between calls, so this is known at once."""
        if not self._accepted:
            raise LinkError(f"client {self._client!r} is not connected after {timeout_s} s")

    def subscribe(self, filters: Iterable[str], qos: int = 1) -> None:
        """Ask for these filters now and at every later connection."""
        for filter_ in filters:
            self._filters[check_filter(filter_)] = qos
            self._send(Subscribe(filter_, qos))

    def unsubscribe(self, filters: Iterable[str]) -> None:
        """Stop asking for these filters."""
        for filter_ in filters:
            self._filters.pop(filter_, None)
            self._send(Subscribe(filter_, -1))

    def poll(self, timeout_s: float | None = 0.0) -> Delivery | None:  # noqa: ARG002 - never waits
        """The next delivery, or None at once."""
        return self._inbox.popleft() if self._inbox else None

    def _confirm(self, packet_id: int) -> None:
        self.counters.acknowledged += 1
        self._send(Confirm(packet_id))

    def poll_event(self) -> LinkEvent | None:
        """The next thing that happened to the connection, or None."""
        return self._events.popleft() if self._events else None

    def stop(self, drain_s: float = 5.0) -> int:  # noqa: ARG002 - what was sent is on its way
        """Say goodbye behind everything that was sent; how many messages stayed unsent."""
        self._running = False
        if self._accepted:
            self._flush()
            self._send(Goodbye())
        elif self._connection is not None:
            self._connection.hang_up()
        self._accepted = False
        return len(self._outbox)

    def abort(self) -> None:
        """End as `kill -9` ends a process: the kernel hangs up."""
        self._running = self._accepted = False
        if self._connection is not None:
            self._connection.hang_up()

    def go_dark(self) -> None:
        """End as a power cut ends a machine."""
        self._running = self._accepted = False
        if self._connection is not None:
            self._connection.go_dark()

    def fault(self) -> None:
        """An error in a turn of what would be the network's thread: the next may do better."""
        if self._connection is not None:
            self._at_fault = True
            self._connection.cut("the link's own fault")

    def die(self) -> None:
        """What would be the network's thread ends: nobody will ever dial again."""
        self.abort()
        self._dead = True
        self._events.append(Disconnected("the link's thread ended", refused=True, fault=True))

    # --- the network's side -----------------------------------------------------------------------

    def received(self, connection: SimConnection, packet: Packet) -> None:
        """A packet of the broker has arrived."""
        if connection is not self._connection:
            return
        match packet:
            case Confirm(packet_id=packet_id):
                now_s = self._network.clock.now_ms / 1000
                if self._outbox.confirm(packet_id, now_s) is not None:
                    self.counters.published += 1
                self._flush()
                return  # nothing to poll
            case PublishPacket(packet_id=packet_id, message=message):
                self._arrived(packet_id, message)
            case Raw(data=data):
                self._decipher(connection, data)
            case ConnectionAccepted(session_present=present, receive_max=receive_max):
                self._room = min(self._inflight_max, receive_max)
                self._begin(present)
        if self._running:
            self._on_arrival()

    def lost(self, connection: SimConnection, reason: str) -> None:
        """The connection is over; what was not acknowledged comes again with the next."""
        if connection is not self._connection:
            return
        self._connection, was = None, self._accepted
        self._accepted = False
        self._outbox.requeue_sent()
        self._order.begin_connection()
        self._inbox = deque(each for each in self._inbox if each.receipt is None)
        if was:
            self._events.append(Disconnected(reason, fault=self._at_fault))
        self.counters.faults += self._at_fault
        self._at_fault = False
        if self._running:
            self._on_arrival()
            self._try_later()

    def _dial(self) -> None:
        if not self._running or self._connection is not None:
            return
        self._connection = self._network.dial(self._client, self)
        if self._connection is None:
            self._try_later()
            return
        self._framer = Framer(mqtt_5=True, packet_bytes_max=PACKET_BYTES_MAX)
        self._confirmation = ConfirmationWait()
        hello = Connect(self._client, self._persistent, self._inflight_max, self._will)
        self._connection.up.send(hello)

    def _try_later(self) -> None:
        """Each failure doubles the wait; half of it is chance, or a fleet would come at once."""
        clock = self._network.clock
        if self._since_ms and clock.now_ms - self._since_ms >= STABLE_MS:
            self._patience_ms = RECONNECT_FIRST_MS
        self._since_ms = 0
        wait_ms = int(self._patience_ms * (0.5 + self._chance.random() / 2))
        self._patience_ms = min(2 * self._patience_ms, RECONNECT_MOST_MS)
        clock.after(wait_ms, self._dial)

    def _begin(self, session_present: bool) -> None:
        self._accepted, self._since_ms = True, self._network.clock.now_ms
        self._order.begin_connection()
        self.counters.connections += 1
        self._events.append(Connected(session_present, self._protocol))
        for filter_, qos in self._filters.items():
            self._send(Subscribe(filter_, qos))
        self._flush()

    def _arrived(self, packet_id: int, message: Outgoing) -> None:
        self._inbox.append(self._received(packet_id, message))

    def _decipher(self, connection: SimConnection, data: bytes) -> None:
        """Bytes, as TCP brings them: in pieces, and by the framer of the real link."""
        for piece in (data[: len(data) // 3], data[len(data) // 3 :]):
            self._framer.feed(piece)
            try:
                while (found := self._framer.take()) is not None:
                    self._understood(found)
            except PacketError as error:
                connection.cut(str(error))
                return

    def _understood(self, found: UsablePacket | UnusablePacket | bytes) -> None:
        match found:
            case UsablePacket(topic, payload, qos, retain, packet_id):
                self._arrived(packet_id, Outgoing(topic, payload, qos, retain))
            case UnusablePacket(reason, qos, packet_id):
                self.counters.received += 1
                self.counters.dropped[reason] += 1
                self._events.append(MessageDropped(reason, self.counters.dropped[reason]))
                if qos == 1:
                    for ready in self._order.acknowledge(self._order.add(packet_id)) or ():
                        self._send(Confirm(ready))

    def _flush(self) -> None:
        while self._accepted and (message := self._outbox.take_next(self._room)) is not None:
            self._packet_id = self._packet_id % 65_535 + 1
            self._send(PublishPacket(self._packet_id, message))
            if message.qos:
                self._outbox.mark_sent(self._packet_id, message, self._network.clock.now_ms / 1000)
                self._watch()
            else:
                self._outbox.release(message)
                self.counters.published += 1

    def _watch(self) -> None:
        """Look for the unconfirmed, as long as there is anything to be confirmed."""
        if not self._watching:
            self._watching = True
            self._network.clock.after(LOOK_MS, self._look)

    def _look(self) -> None:
        """A confirmation was lost: MQTT sends again on the next connection, and not before."""
        self._watching = False
        since_s, now_s = self._outbox.owed_since_s, self._network.clock.now_ms / 1000
        if self._connection is None or since_s is None:
            return
        if self._confirmation.look(since_s, now_s) > CONFIRM_S:
            self._connection.cut("the broker did not confirm a publication")
        else:
            self._watch()

    def _send(self, packet: Packet) -> None:
        if self._accepted and self._connection is not None:
            self._connection.up.send(packet)
