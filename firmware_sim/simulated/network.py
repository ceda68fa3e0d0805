"""A network that is made up: connections like TCP's, and every way in which they fail.

1. A connection carries packets in order, in both directions, each after a delay of its own.
2. What is lost is never a packet in the middle: the connection breaks, and everything that was on
   its way goes with it. So each side knows what it sent, and not what arrived.
3. Behind a partition packets wait. If it lasts, each side gives up when its keep-alive says so:
   the client first, the broker later, and until then the broker believes in a dead connection.
4. A process that dies hangs up, and what it had sent still arrives. A machine without power says
   nothing.

The packets are those of MQTT's that matter here, and the end of the stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

from edge_opid.link.contract import Will
from edge_opid.link.queues import Outgoing
from firmware_sim.simulated.clock import VirtualClock, dice

KEEPALIVE_MS = 2_000  # short, as everything here: a simulated outage lasts seconds
DELAY_MOST_MS = 20


class Connect(NamedTuple):
    """A client says who it is."""

    client: str
    persistent: bool
    inflight_max: int
    will: Will | None


class ConnectionAccepted(NamedTuple):
    """The broker takes it, says whether it remembers it, and how much it takes unconfirmed."""

    session_present: bool
    receive_max: int


class Subscribe(NamedTuple):
    """Ask for a filter, or with `qos` -1 ask no longer."""

    filter: str
    qos: int


class PublishPacket(NamedTuple):
    """A message under a packet id, which means something to this connection only."""

    packet_id: int
    message: Outgoing


class Raw(NamedTuple):
    """A PUBLISH as the bytes that a broker sends: whoever receives it has to make sense of them."""

    data: bytes


class Confirm(NamedTuple):
    """The receiver of a message has it."""

    packet_id: int


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The client leaves as it should: no will."""


@dataclass(frozen=True, slots=True)
class End:
    """The other side is gone."""


Packet = Connect | ConnectionAccepted | Subscribe | PublishPacket | Raw | Confirm | Goodbye | End
"""Those of MQTT's packets that matter here, and the end of the stream."""


class Peer(Protocol):
    """Whoever sits at one end of a connection."""

    def received(self, connection: SimConnection, packet: Packet) -> None:
        """A packet has arrived."""

    def lost(self, connection: SimConnection, reason: str) -> None:
        """The connection is over, at this end."""


class Pipe:
    """One direction of a connection: in order, late, and closed at any moment."""

    def __init__(
        self, clock: VirtualClock, delay_ms: Callable[[], int], deliver: Callable[[Packet], None]
    ) -> None:
        self.closed = self.frozen = False
        self._clock, self._delay_ms, self._deliver = clock, delay_ms, deliver
        self._waiting: deque[Packet] = deque()
        self._last_ms = 0
        self._stalled = 0  # packets whose time came while the pipe was frozen

    def send(self, packet: Packet) -> None:
        """Put a packet on its way."""
        if not self.closed:
            self._waiting.append(packet)
            self._schedule()

    def thaw(self) -> None:
        """What was held up arrives after all."""
        self.frozen = False
        stalled, self._stalled = self._stalled, 0
        for _ in range(stalled):
            self._schedule()

    def close(self) -> None:
        """What is on its way is lost."""
        self.closed = True
        self._waiting.clear()

    def _schedule(self) -> None:
        self._last_ms = max(self._last_ms, self._clock.now_ms + self._delay_ms())
        self._clock.at(self._last_ms, self._arrive)

    def _arrive(self) -> None:
        if self.closed:
            return
        if self.frozen:
            self._stalled += 1
        else:
            self._deliver(self._waiting.popleft())


class SimConnection:
    """Two pipes between a client and the broker, whose ends may close one after the other."""

    def __init__(
        self, clock: VirtualClock, delay_ms: Callable[[], int], client: Peer, broker: Peer
    ) -> None:
        self._clock, self._client, self._broker = clock, client, broker
        self.up = Pipe(clock, delay_ms, self._at_broker)
        self.down = Pipe(clock, delay_ms, self._at_client)

    @property
    def over(self) -> bool:
        """Whether nobody believes in it any more."""
        return self.up.closed and self.down.closed

    def freeze(self) -> None:
        """A partition begins."""
        self.up.frozen = self.down.frozen = True

    def thaw(self) -> None:
        """A partition ends."""
        self.up.thaw()
        self.down.thaw()

    def cut(self, reason: str) -> None:
        """Both ends lose it now, and with it all that was on its way."""
        self.end_at_client(reason)
        self.end_at_broker(reason)

    def end_at_client(self, reason: str) -> None:
        """The client's end closes: nothing reaches it any more."""
        if not self.down.closed:
            self.down.close()
            self._client.lost(self, reason)

    def end_at_broker(self, reason: str) -> None:
        """The broker's end closes: nothing reaches it any more."""
        if not self.up.closed:
            self.up.close()
            self._broker.lost(self, reason)

    def hang_up(self) -> None:
        """The client's process is gone; its kernel sends what was written, then the end."""
        self.down.close()
        self.up.send(End())

    def go_dark(self) -> None:
        """The client's machine is gone, and nobody says so."""
        self.down.close()
        self.up.close()
        self._clock.after(3 * KEEPALIVE_MS // 2, partial(self._broker.lost, self, "keep-alive"))

    def _at_broker(self, packet: Packet) -> None:
        if isinstance(packet, End):
            self.end_at_broker("hung up")
        else:
            self._broker.received(self, packet)

    def _at_client(self, packet: Packet) -> None:
        if isinstance(packet, End):
            self.up.close()
            self.end_at_client("the broker hung up")
        else:
            self._client.received(self, packet)


class Listener(Peer, Protocol):
    """The broker, as the network sees it."""

    @property
    def up(self) -> bool:
        """Whether it takes connections."""


class Network:
    """All connections to one broker. Clients have names, and each its own weather."""

    def __init__(self, clock: VirtualClock, broker: Listener, seed: object) -> None:
        self.clock, self.broker, self._seed = clock, broker, seed
        self._made: dict[str, list[SimConnection]] = {}
        self._slow_ms: dict[str, int] = {}
        self._parted_until: dict[str, int] = {}

    def dial(self, client: str, peer: Peer) -> SimConnection | None:
        """A new connection, or none because the broker cannot be reached."""
        if not self.broker.up or self.parted(client):
            return None
        made = self._made.setdefault(client, [])
        chance = dice(self._seed, "delays", client, len(made))
        delay_ms = partial(self._delay_ms, client, chance.random)
        made.append(SimConnection(self.clock, delay_ms, peer, self.broker))
        return made[-1]

    def parted(self, client: str) -> bool:
        """Whether this client is cut off at the moment."""
        return self.clock.now_ms < self._parted_until.get(client, 0)

    def _delay_ms(self, client: str, chance: Callable[[], float]) -> int:
        return 1 + int(chance() * (DELAY_MOST_MS + self._slow_ms.get(client, 0)))

    # --- what can happen to it --------------------------------------------------------------------

    def reset(self, client: str) -> None:
        """Whatever this client was saying, its connection breaks in the middle."""
        for connection in self._living(client):
            connection.cut("connection reset")

    def slow_down(self, client: str, most_ms: int) -> None:
        """Packets of this client take up to so much longer; 0 is the end of it."""
        self._slow_ms[client] = most_ms

    def part(self, client: str, for_ms: int) -> None:
        """Nothing passes between this client and the broker for a while."""
        until = max(self.clock.now_ms + for_ms, self._parted_until.get(client, 0))
        self._parted_until[client] = until
        for connection in self._living(client):
            connection.freeze()
            self.clock.after(KEEPALIVE_MS, partial(self._give_up, connection, at_client=True))
            late_ms = 3 * KEEPALIVE_MS // 2
            self.clock.after(late_ms, partial(self._give_up, connection, at_client=False))
        self.clock.at(until, partial(self._join, client))

    def _give_up(self, connection: SimConnection, *, at_client: bool) -> None:
        if at_client and connection.down.frozen:
            connection.end_at_client("keep-alive")
        elif not at_client and connection.up.frozen:
            connection.end_at_broker("keep-alive")

    def _join(self, client: str) -> None:
        if not self.parted(client):
            for connection in self._living(client):
                connection.thaw()

    def _living(self, client: str) -> list[SimConnection]:
        return [each for each in self._made.get(client, ()) if not each.over]
