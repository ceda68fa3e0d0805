"""A broker in memory that keeps MQTT's promises, and breaks only those it is told to.

Delivery is pulled: a link takes its next message when it polls. So nothing happens between two
calls, a test can look at every state, and the same calls give the same run.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from edge_opid.link.contract import Will
from edge_opid.link.queues import Outgoing
from edge_opid.wire.topics import matches


@dataclass(slots=True, kw_only=True)
class Session:
    """What the broker knows of one client id: filters, what waits, what is unacknowledged."""

    persistent: bool
    inflight_max: int
    will: Will | None = None
    on_lost: Callable[[str], None] | None = None  # set while connected
    subscriptions: dict[str, int] = field(default_factory=dict)
    queue: deque[Outgoing] = field(default_factory=deque)
    inflight: dict[int, Outgoing] = field(default_factory=dict)
    last_packet_id: int = 0

    def take_message(self) -> tuple[int, Outgoing] | None:
        """The next message and its packet id (0 for QoS 0), while the window has room."""
        if not self.queue or len(self.inflight) >= self.inflight_max:
            return None
        message = self.queue.popleft()
        if message.qos == 0:
            return 0, message
        self.last_packet_id = self.last_packet_id % 65_535 + 1
        self.inflight[self.last_packet_id] = message
        return self.last_packet_id, message

    def disconnect(self) -> None:
        """What was not acknowledged goes back to the head of the queue; QoS 0 is forgotten."""
        unacknowledged = list(self.inflight.values())
        waiting = [message for message in self.queue if message.qos > 0]
        self.queue = deque(unacknowledged + waiting)
        self.inflight.clear()
        self.on_lost = None


class MemoryBroker:
    """Sessions, retained messages and wills of any number of `MemoryLink`s.

    At most `queue_max` messages wait for one client (mosquitto's default is 1,000). A real broker
    drops the rest silently; this one counts them in `dropped`.

    >>> broker = MemoryBroker()
    >>> broker.publish(Outgoing("a/b", b"1", qos=1, retain=True))
    >>> broker.retained["a/b"].payload
    b'1'
    """

    def __init__(self, queue_max: int = 1_000) -> None:
        self.queue_max = queue_max
        self.up = True
        self.sessions: dict[str, Session] = {}
        self.retained: dict[str, Outgoing] = {}
        self.dropped: Counter[str] = Counter()  # by client id

    def connect(self, client_id: str, fresh: Session) -> tuple[Session, bool]:
        """Begin or resume a session; the same client id elsewhere is thrown out (MQTT-3.1.4-3)."""
        self.drop(client_id, "session taken over")
        old = self.sessions.get(client_id)
        present = old is not None and old.persistent and fresh.persistent
        if old is not None and present:
            fresh.subscriptions, fresh.queue = old.subscriptions, old.queue
        self.sessions[client_id] = fresh
        return fresh, present

    def subscribe(self, session: Session, filter_: str, qos: int) -> None:
        """Remember the filter and queue the retained messages it matches."""
        session.subscriptions[filter_] = qos
        for topic, message in self.retained.items():
            if matches(filter_, topic):
                self._enqueue("retained", session, message, min(qos, message.qos), retain=True)

    def publish(self, message: Outgoing) -> None:
        """Keep it if it is to be retained (an empty one clears), and queue it for all who asked."""
        if message.retain:
            self.retained.pop(message.topic, None)
            if message.payload:
                self.retained[message.topic] = message
        for client_id, session in self.sessions.items():
            granted = [qos for f, qos in session.subscriptions.items() if matches(f, message.topic)]
            if granted:
                self._enqueue(client_id, session, message, min(max(granted), message.qos), False)

    def goodbye(self, client_id: str) -> None:
        """The client disconnects as it should: its will is not published."""
        if client_id in self.sessions:
            self.sessions[client_id].will = None
            self._end(client_id)

    def drop(self, client_id: str, reason: str = "connection lost") -> None:
        """Cut one connection: the link is told, the will is published, the session waits."""
        session = self.sessions.get(client_id)
        if session is None or session.on_lost is None:
            return
        session.on_lost(reason)
        will = self._end(client_id)
        if will is not None:
            self.publish(Outgoing(will.topic, will.payload, will.qos, will.retain))

    def crash(self, *, forget: bool) -> None:
        """Go down without a word; `forget` as a broker without persistence does."""
        self.up = False
        for client_id, session in list(self.sessions.items()):
            if session.on_lost is not None:
                session.on_lost("broker went down")
                self._end(client_id)
        if forget:
            self.sessions.clear()
            self.retained.clear()

    def restart(self) -> None:
        """Come up again; links connect at their next poll."""
        self.up = True

    def _end(self, client_id: str) -> Will | None:
        session = self.sessions[client_id]
        session.disconnect()
        if not session.persistent:
            del self.sessions[client_id]
        will, session.will = session.will, None
        return will

    def _enqueue(
        self, client_id: str, session: Session, message: Outgoing, qos: int, retain: bool
    ) -> None:
        if session.on_lost is None and qos == 0:
            return
        if len(session.queue) >= self.queue_max:
            self.dropped[client_id] += 1
            return
        session.queue.append(Outgoing(message.topic, message.payload, qos, retain))
