"""The broker at the other end of the simulated network, with a memory that can fail it.

Sessions, retained messages, wills and subscriptions are those of `MemoryBroker`, which keeps
MQTT's promises. Here are the connections, and what a real broker does that breaks promises: it
forgets, it comes back with an older memory, it drops what its queues cannot hold; and what a
hostile one would do: say everything again, put back an old order, and lie.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from random import Random

from edge_opid.link.queues import Outgoing
from edge_opid.testing.memory_broker import MemoryBroker, Session
from edge_opid.wire.topics import matches
from firmware_sim.simulated.network import (
    Confirm,
    Connect,
    ConnectionAccepted,
    End,
    Goodbye,
    Packet,
    PublishPacket,
    Raw,
    SimConnection,
    Subscribe,
)
from firmware_sim.simulated.poison import Poison, odd_topic, poison

REMEMBERED = 600  # messages that a hostile broker can say again
FOREIGN = "esphome/"  # said again, these could not be told from new ones by anybody


class RoutingBroker(MemoryBroker):
    """`MemoryBroker`, without asking every session about every message.

    With twenty nodes and their sensors, asking was a third of a simulation's time. Whoever changes
    a session or a subscription calls `reroute`. `awake` are the sessions for which something waits.

    >>> broker = RoutingBroker()
    >>> session = Session(persistent=True, inflight_max=8, on_lost=print)
    >>> broker.sessions["node"] = session
    >>> broker.subscribe(session, "reading/+", qos=1); broker.reroute()
    >>> broker.publish(Outgoing("reading/attic", b"21.3", 1, False))
    >>> len(session.queue), list(broker.awake) == ["node"]
    (1, True)
    """

    def __init__(self, queue_max: int = 1_000) -> None:
        super().__init__(queue_max)
        self.awake: dict[str, None] = {}
        self._routes: dict[str, list[tuple[str, Session, int]]] = {}

    def reroute(self) -> None:
        """Somebody has come, gone, or wants something else: everybody is looked at again."""
        self._routes.clear()
        self.awake.update(dict.fromkeys(self.sessions))

    def publish(self, message: Outgoing) -> None:
        """As `MemoryBroker` does."""
        if message.retain:
            self.retained.pop(message.topic, None)
            if message.payload:
                self.retained[message.topic] = message
        if message.topic not in self._routes:
            self._routes[message.topic] = self._wanted_by(message.topic)
        for client, session, qos in self._routes[message.topic]:
            self._enqueue(client, session, message, min(qos, message.qos), False)
            self.awake[client] = None

    def _enqueue(
        self, client_id: str, session: Session, message: Outgoing, qos: int, retain: bool
    ) -> None:
        """As `MemoryBroker` does; a message that need not be changed is not copied."""
        if (qos, retain) == (message.qos, message.retain) and len(session.queue) < self.queue_max:
            if session.on_lost is not None or qos:
                session.queue.append(message)
        else:
            super()._enqueue(client_id, session, message, qos, retain)

    def _wanted_by(self, topic: str) -> list[tuple[str, Session, int]]:
        found = []
        for client, session in self.sessions.items():
            granted = [qos for f, qos in session.subscriptions.items() if matches(f, topic)]
            if granted:
                found.append((client, session, max(granted)))
        return found


@dataclass(frozen=True)
class Checkpoint:
    """What a broker had written to its own disk at some moment."""

    sessions: dict[str, tuple[int, dict[str, int], tuple[Outgoing, ...]]]
    retained: dict[str, Outgoing]


class SimBroker:
    """One broker, its connections and its memory."""

    def __init__(self, queue_max: int = 1_000, receive_max: int = 65_535) -> None:
        self.memory = RoutingBroker(queue_max)
        self.unconfirmed: set[str] = set()  # whose PUBACKs are lost at present
        self._receive_max = receive_max
        self.said: deque[Outgoing] = deque(maxlen=REMEMBERED)
        self._at: dict[SimConnection, tuple[str, Session]] = {}  # who is connected
        self._where: dict[str, SimConnection] = {}  # the same by name; some are gone by now

    @property
    def up(self) -> bool:
        """Whether it takes connections."""
        return self.memory.up

    # --- connections ------------------------------------------------------------------------------

    def received(self, connection: SimConnection, packet: Packet) -> None:
        """A packet has arrived."""
        if not self.up:
            self._hang_up(connection)
        elif isinstance(packet, Connect):
            self._connect(connection, packet)
        elif connection in self._at:  # else it lost its session to a newer one, and will notice
            self._heard(connection, packet)

    def _heard(self, connection: SimConnection, packet: Packet) -> None:
        client, session = self._at[connection]
        match packet:
            case Subscribe(filter=filter_, qos=-1):
                session.subscriptions.pop(filter_, None)
                self.memory.reroute()
            case Subscribe(filter=filter_, qos=qos):
                self.memory.subscribe(session, filter_, qos)
                self.memory.reroute()
            case PublishPacket(packet_id=packet_id, message=message):
                if not message.topic.startswith(FOREIGN):
                    self.said.append(message)
                self.memory.publish(message)
                if message.qos and client not in self.unconfirmed:
                    connection.down.send(Confirm(packet_id))
            case Confirm(packet_id=packet_id):
                session.inflight.pop(packet_id, None)
                self.memory.awake[client] = None  # its window has room again
            case Goodbye():
                del self._at[connection]
                self.memory.goodbye(client)
                self.memory.reroute()
                connection.down.send(End())
        self._pump()

    def lost(self, connection: SimConnection, reason: str) -> None:
        """A client is gone without a word: its will is published."""
        if connection in self._at:
            client, _ = self._at.pop(connection)
            self.memory.drop(client, reason)
            self.memory.reroute()
            self._pump()

    def _connect(self, connection: SimConnection, packet: Connect) -> None:
        kick = partial(self._kick, connection)
        fresh = Session(
            persistent=packet.persistent,
            inflight_max=packet.inflight_max,
            will=packet.will,
            on_lost=kick,
        )
        session, present = self.memory.connect(packet.client, fresh)
        self._at[connection] = packet.client, session
        self._where[packet.client] = connection
        self.memory.reroute()
        connection.down.send(ConnectionAccepted(present, self._receive_max))
        self._pump()

    def _kick(self, connection: SimConnection, _reason: str) -> None:
        self._at.pop(connection, None)
        self._hang_up(connection)

    def _hang_up(self, connection: SimConnection) -> None:
        connection.up.close()
        connection.down.send(End())

    def _pump(self) -> None:
        """Send what may be sent: each session has a window of unconfirmed messages."""
        awake, self.memory.awake = self.memory.awake, {}
        for client in awake:
            connection = self._where.get(client)
            if connection in self._at:
                session = self._at[connection][1]
                while (taken := session.take_message()) is not None:
                    connection.down.send(_on_the_wire(*taken))

    # --- failures ---------------------------------------------------------------------------------

    def crash(self, *, forget: bool) -> None:
        """Go down; `forget` as a broker without persistence does."""
        self.memory.crash(forget=forget)
        self.memory.reroute()
        self._at.clear()

    def restart(self) -> None:
        """Come up again."""
        self.memory.restart()

    def checkpoint(self) -> Checkpoint:
        """What it would remember if it were killed now, with persistence."""
        sessions = {
            client: (
                each.inflight_max,
                dict(each.subscriptions),
                (*each.inflight.values(), *(m for m in each.queue if m.qos)),
            )
            for client, each in self.memory.sessions.items()
            if each.persistent
        }
        return Checkpoint(sessions, dict(self.memory.retained))

    def fall_back(self, to: Checkpoint) -> None:
        """Go down, and wake up later believing that it is still that moment."""
        self.crash(forget=True)
        for client, (inflight_max, subscriptions, queue) in to.sessions.items():
            session = Session(
                persistent=True, inflight_max=inflight_max, subscriptions=dict(subscriptions)
            )
            session.queue.extend(queue)
            self.memory.sessions[client] = session
        self.memory.retained.update(to.retained)
        self.memory.reroute()

    # --- malice -----------------------------------------------------------------------------------

    def say_again(self, chance: Random, count: int) -> None:
        """Messages of the past, as if they were new."""
        for message in chance.choices(self.said, k=count) if self.said else ():
            self.memory.publish(Outgoing(message.topic, message.payload, 1, False))
        self._pump()

    def babble(self, chance: Random, count: int) -> None:
        """Bytes that mean nothing, on topics that mean something."""
        topics = sorted({message.topic for message in self.said})
        for topic in chance.choices(topics, k=count) if topics else ():
            noise = chance.randbytes(chance.choice((0, 1, 40, 400)))
            self.memory.publish(Outgoing(topic, noise, 1, False))
        self._pump()

    def put_back(self, topic: str, chance: Random) -> None:
        """Retain an older message of this topic instead of the last."""
        older = [message for message in self.said if message.topic == topic]
        if older:
            self.memory.publish(chance.choice(older))
            self._pump()

    def lie(self, topic: str, payload: bytes, *, retain: bool = True) -> None:
        """A message that nobody sent, retained."""
        self.memory.publish(Outgoing(topic, payload, 1, retain))
        self._pump()

    def poison(self, client: str, chance: Random, *, retain: bool) -> None:
        """Whatever may be published, on a topic that this client has asked for."""
        session = self.memory.sessions.get(client)
        if session is None or not session.subscriptions:
            return
        filter_ = chance.choice(sorted(session.subscriptions))
        past = [message for message in self.said if matches(filter_, message.topic)]
        odd = Outgoing(odd_topic(chance, filter_), b"", 1, retain)
        like = chance.choice((odd, *past[-8:]))
        noise = chance.randbytes(chance.choice((0, 1, 40, 400)))
        payload = poison(chance, chance.choice((noise, like.payload)))
        self.lie(like.topic, payload, retain=retain)


def _on_the_wire(packet_id: int, message: Outgoing) -> PublishPacket | Raw:
    """Poison goes as the bytes that it is; making bytes of everything else would take too long."""
    if isinstance(message.payload, Poison):
        return Raw(message.payload.packet(packet_id, message))
    return PublishPacket(packet_id, message)
