"""A broker that remembers who wants what: most messages go where the last of their topic went."""

from __future__ import annotations

from edge_opid.link.queues import Outgoing
from edge_opid.testing.memory_broker import MemoryBroker, Session
from edge_opid.wire.topics import matches


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
