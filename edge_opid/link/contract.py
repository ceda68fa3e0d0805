"""What every link promises, and the five nouns it speaks in.

1. What `publish` took is handed to the broker at least once, in order, across reconnections; what
   it cannot take is refused and counted, never silently dropped.
2. A delivery of QoS 1 stays the broker's until `acknowledge`; not acknowledged, it comes again
   after the next connection. Acknowledgements leave in arrival order, whatever order they are
   given in.
3. An acknowledgement that belongs to a former connection is dropped and counted: its packet id
   means something else by now, and the message comes again anyway.
4. Every queue has an end. Reading stops, or a message is refused, before memory grows.
5. Subscriptions are made again at every connection, so a retained message is seen again too. One
   that the broker refuses is asked for again until it is granted: somebody may mend its rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from edge_opid.errors import RefusedError
from edge_opid.reasons import LinkReason


class LinkError(RefusedError, ConnectionError):
    """The connection is at fault: no broker, wrong password, a certificate nobody trusts."""

    def __init__(self, sentence: str) -> None:
        super().__init__("link", sentence)


class Receipt(NamedTuple):
    """Which arrival of which connection a delivery was. Only its own link can read it."""

    connection: int
    position: int


class Delivery(NamedTuple):
    """One message as it arrived. `receipt` is None for QoS 0: there is nothing to acknowledge."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    receipt: Receipt | None


@dataclass(frozen=True, slots=True)
class Will:
    """What the broker says in our name when we vanish without a goodbye."""

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = True


@dataclass(frozen=True, slots=True)
class Connected:
    """The broker took us. Without `session_present` it has forgotten what it queued for us."""

    session_present: bool
    protocol: str


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection ended or never came to be. `refused`: trying again alone will not help.

    `kind` is its line in the table of reasons, with what to do; `reason` is the sentence for this
    one. `fault`: it ended by an error of ours, not of the network or the broker.
    """

    reason: str
    refused: bool = False
    fault: bool = False
    kind: LinkReason = LinkReason.ENDED


@dataclass(frozen=True, slots=True)
class SubscriptionRefused:
    """The broker will not send us what this filter asks for."""

    filter: str
    reason: str


@dataclass(frozen=True, slots=True)
class SubscriptionGranted:
    """The broker refused this filter before, was asked again, and now sends what it asks for."""

    filter: str


@dataclass(frozen=True, slots=True)
class PublishRefused:
    """The broker received a message of ours and threw it away (only MQTT 5 tells)."""

    topic: str
    reason: str


@dataclass(frozen=True, slots=True)
class MessageDropped:
    """A message of theirs could not be used, and was acknowledged: `count` so far for this reason.

    Told the 1st, 2nd, 4th, 8th … time: a flood of them must not push other events out.
    """

    reason: LinkReason
    count: int


LinkEvent = (
    Connected
    | Disconnected
    | SubscriptionRefused
    | SubscriptionGranted
    | PublishRefused
    | MessageDropped
)


@dataclass(slots=True, kw_only=True)
class LinkCounters:
    """Everything that happened, in numbers; the reasons are those of `edge_opid.reasons`."""

    received: int = 0
    acknowledged: int = 0
    acks_stale: int = 0  # belonged to a former connection, or were given twice
    published: int = 0  # confirmed by the broker (QoS 1) or written to it (QoS 0)
    unconfirmed: int = 0  # sent again, because the broker did not confirm them in time
    connections: int = 0
    faults: int = 0  # connections ended by an error of our own
    refused: Counter[LinkReason] = field(default_factory=Counter)  # our publications, by reason
    dropped: Counter[LinkReason] = field(default_factory=Counter)  # their messages, by reason

    refused_last: LinkReason = LinkReason.UNSENT_NOT_RUNNING  # why the last one was

    def refuse(self, reason: LinkReason) -> None:
        """A publication of ours is not sent."""
        self.refused[reason] += 1
        self.refused_last = reason

    @property
    def publish_refused(self) -> int:
        """How many publications were refused, for whatever reason."""
        return self.refused.total()

    @property
    def reconnects(self) -> int:
        """How often the connection had to be made again."""
        return max(0, self.connections - 1)


class Link(Protocol):
    """Topics and payloads to and from one broker.

    The order of a life: `start`, `subscribe`, then `poll` and `acknowledge` for ever, `stop`. All
    of it by one thread, which need not lend the link its time otherwise than by `poll`; where it
    has something else to wait for, it calls `serve`, and the connection stays.
    """

    @property
    def counters(self) -> LinkCounters:
        """What happened so far."""

    @property
    def connected(self) -> bool:
        """Whether the broker has accepted us and the connection has not ended since."""

    def start(self) -> None:
        """Begin to connect, and to connect again whenever the connection ends."""

    def check(self) -> None:
        """Raise `LinkError` if this link will never work again: then the process must end."""

    def wait_connected(self, timeout_s: float) -> None:
        """Return when connected; raise `LinkError` after the timeout or as soon as refused."""

    def subscribe(self, filters: Iterable[str], qos: int = 1) -> None:
        """Ask for these filters now and at every later connection."""

    def unsubscribe(self, filters: Iterable[str]) -> None:
        """Stop asking. A persistent session would otherwise remember an old filter for ever."""

    def publish(self, topic: str, payload: bytes, qos: int = 1, retain: bool = False) -> bool:
        """Queue a message; False if it is refused (queue full, too large, stopped) and counted."""

    def poll(self, timeout_s: float | None = 0.0) -> Delivery | None:
        """The next delivery, or None after the timeout, or earlier when an event came in.

        With None for a timeout only what is here already is taken: the network is left alone.
        """

    def serve(self, wait_s: float = 0.0) -> None:
        """Send what is queued and keep the connection for so long, and take nothing."""

    def acknowledge(self, delivery: Delivery) -> None:
        """Tell the broker that it may forget this delivery: it has been dealt with."""

    def poll_event(self) -> LinkEvent | None:
        """The next thing that happened to the connection, or None. Never waits."""

    def stop(self, drain_s: float = 5.0) -> int:
        """Send what is queued, say goodbye, end. Returns how many messages stayed unsent."""

    def abort(self) -> None:
        """End without a goodbye, as `kill -9` would: the broker publishes the will."""
