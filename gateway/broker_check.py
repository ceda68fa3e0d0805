"""What a gateway and its nodes need of a broker, or of a cluster of them, tried on a real one.

Each check is one property, tried with the clients that we use: ten small messages here, a large one
there. Of a cluster every address is tried against the first one, in both directions. What is left
behind (retained messages, sessions) is removed at the end.

| property | who needs it |
|---|---|
| answers | everybody |
| retained elsewhere | a node that reconnects to another address finds its order |
| retained by wildcard | a gateway that starts hears the status of every node |
| retained replaced, removed | a node never finds an order of before the last one |
| session moves | what came while nobody listened is delivered, wherever the client comes back |
| one client a session | a gateway that lost its site is not heard beside its successor |
| large message | the largest summary arrives |
| window | messages in flight: below 20 every wave of orders waits |
| survives a restart | sessions and retained messages outlive the broker's process |
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from edge_opid.link.background import BackgroundLink
from edge_opid.link.contract import Connected, Delivery, LinkError
from edge_opid.link.options import MqttOptions

YES, NO, NOT_TRIED = "yes", "NO", "not tried"
MESSAGES = 20
WINDOW, WINDOW_MIN = 256, 20
LARGE_BYTES = 262_144  # as `MqttOptions.payload_bytes_max`
QUIET_S = 0.3  # without another message: all have come


class LackError(Exception):
    """A property that the broker does not have; the sentence says what happened instead."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One property, whether the broker has it, and what was seen."""

    name: str
    outcome: str
    seen: str

    @property
    def is_lacking(self) -> bool:
        """Whether the broker will not do."""
        return self.outcome == NO


@dataclass
class Client:
    """One of our clients at one address."""

    link: BackgroundLink
    session_present: bool
    protocol: str
    wait_s: float

    def publish(self, topic: str, payloads: Sequence[bytes], *, retain: bool = False) -> None:
        """Publish at QoS 1, and wait until the broker has confirmed all."""
        before = self.link.counters.published
        for payload in payloads:
            self.link.publish(topic, payload, retain=retain)
        self._until(
            lambda: self.link.counters.published >= before + len(payloads),
            f"{len(payloads)} publications to {topic} are not confirmed",
        )

    def hear(self, count: int, *, acknowledge: bool = True) -> list[Delivery]:
        """So many deliveries, or those that came until time was up."""
        found: list[Delivery] = []
        until_s = time.monotonic() + self.wait_s
        while len(found) < count and time.monotonic() < until_s:
            delivery = self.link.poll(QUIET_S)
            if delivery is not None:
                found.append(delivery)
                if acknowledge:
                    self.link.acknowledge(delivery)
        return found

    def is_ended(self) -> bool:
        """Whether the broker ends this connection within the time we wait."""
        return self._seen(lambda: not self.link.connected)

    def _until(self, true: Callable[[], bool], complaint: str) -> None:
        if not self._seen(true):
            raise LackError(f"{complaint} after {self.wait_s:g} s")

    def _seen(self, true: Callable[[], bool]) -> bool:
        until_s = time.monotonic() + self.wait_s
        while not true():
            if time.monotonic() > until_s:
                return False
            time.sleep(0.01)
        return True


@dataclass
class BrokerCheck:
    """All checks of one broker: `BrokerCheck([options, …]).findings()`."""

    addresses: Sequence[MqttOptions]
    wait_s: float = 10.0
    restart: Callable[[], None] | None = None
    """Restarts the broker, or raises a `LackError`; without it that is not tried."""
    prefix: str = "opid-check"
    _token: str = field(default_factory=lambda: secrets.token_hex(4))
    _retained: set[str] = field(default_factory=set)
    _sessions: set[str] = field(default_factory=set)

    def findings(self) -> Iterator[Finding]:
        """One after the other, as they are found."""
        try:
            answers = self._judge("answers", self._answers)
            yield answers
            if not answers.is_lacking:
                yield from self._after_the_first()
        finally:
            self._tidy()

    def _after_the_first(self) -> Iterator[Finding]:
        for name, check in (
            ("retained elsewhere", self._retained_elsewhere),
            ("retained by wildcard", self._retained_by_wildcard),
            ("retained replaced, removed", self._retained_replaced),
            ("session moves", self._session_moves),
            ("one client a session", self._one_client),
            ("large message", self._large),
            ("window", self._window),
        ):
            yield self._judge(name, check)
        if self.restart is not None:
            yield self._judge("survives a restart", partial(self._survives, self.restart))
        else:
            yield Finding("survives a restart", NOT_TRIED, "give --restart with a command")

    def _judge(self, name: str, check: Callable[[], str]) -> Finding:
        try:
            return Finding(name, YES, check())
        except (LackError, LinkError) as error:
            return Finding(name, NO, str(error))

    # -- the properties ------------------------------------------------------------------------

    def _answers(self) -> str:
        found = []
        for place, address in enumerate(self.addresses):
            with self._client(address, f"answers-{place}") as client:
                found.append(f"{address.host}:{address.port} {client.protocol}")
        return ", ".join(found)

    def _pairs(self) -> Iterator[tuple[MqttOptions, MqttOptions]]:
        """The first address with itself, and with every other one in both directions."""
        first, *others = self.addresses
        yield first, first
        for other in others:
            yield first, other
            yield other, first

    def _retained_elsewhere(self) -> str:
        for number, (here, there) in enumerate(self._pairs()):
            topic = self._topic(f"elsewhere/{number}", retained=True)
            with self._client(here, "says") as says:
                says.publish(topic, [b"order"], retain=True)
            self._expect_retained(there, topic, {topic: b"order"}, f"from {_name(here)}")
        return f"{len(self.addresses)} of {len(self.addresses)} addresses see it"

    def _retained_by_wildcard(self) -> str:
        topics = [self._topic(f"wildcard/n{n}/status", retained=True) for n in range(MESSAGES)]
        with self._client(self.addresses[0], "says") as says:
            for topic in topics:
                says.publish(topic, [topic.encode()], retain=True)
        wanted = {topic: topic.encode() for topic in topics}
        for there in self.addresses:
            self._expect_retained(there, self._topic("wildcard/+/status"), wanted, "by a wildcard")
        return f"{MESSAGES} of {MESSAGES}"

    def _retained_replaced(self) -> str:
        topic = self._topic("replaced", retained=True)
        here, there = self.addresses[0], self.addresses[-1]
        with self._client(here, "says") as says:
            says.publish(topic, [b"1", b"2", b"3"], retain=True)
        self._expect_retained(there, topic, {topic: b"3"}, "the last of three")
        with self._client(there, "says") as says:
            says.publish(topic, [b""], retain=True)
        time.sleep(QUIET_S)
        with self._client(here, "hears") as hears:
            hears.link.subscribe([topic])
            left = [each for each in replace_wait(hears, 1.0).hear(1) if each.payload]
        if left:
            raise LackError(f"{_name(here)} still has {left[0].payload!r} after its removal")
        return "the last one counts, an empty one removes it"

    def _session_moves(self) -> str:
        payloads = [str(number).encode() for number in range(MESSAGES)]
        for number, (here, there) in enumerate(self._pairs()):
            topic, name = self._topic(f"session/{number}"), f"session-{number}"
            self._sessions.add(name)
            with self._client(here, name, persistent=True) as first:
                first.link.subscribe([topic])
                time.sleep(QUIET_S)
            with self._client(here, "says") as says:
                says.publish(topic, payloads)
            with self._client(there, name, persistent=True) as again:
                found = list(dict.fromkeys(each.payload for each in again.hear(MESSAGES)))
                where = f"{_name(here)} to {_name(there)}"
                if found != payloads:
                    count = len(set(found) & set(payloads))
                    disorder = ", in another order" if set(found) == set(payloads) else ""
                    raise LackError(f"{count} of {MESSAGES} messages came from {where}{disorder}")
                if not again.session_present:
                    raise LackError(f"the session was not present from {where}")
        return f"{MESSAGES} of {MESSAGES}, in order"

    def _one_client(self) -> str:
        here, there = self.addresses[0], self.addresses[-1]
        self._sessions.add("rival")
        with self._client(here, "rival", persistent=True) as old:
            with self._client(there, "rival", persistent=True):
                ended = old.is_ended()
            old.link.abort()
        if not ended:
            raise LackError(f"{_name(here)} kept the first client of a session beside the second")
        return "the second client ends the first one's connection"

    def _large(self) -> str:
        topic, payload = self._topic("large"), secrets.token_bytes(LARGE_BYTES)
        with self._client(self.addresses[-1], "hears") as hears:
            hears.link.subscribe([topic])
            time.sleep(QUIET_S)
            with self._client(self.addresses[0], "says") as says:
                says.publish(topic, [payload])
            found = hears.hear(1)
        if [each.payload for each in found] != [payload]:
            raise LackError(f"a message of {LARGE_BYTES} bytes did not arrive")
        return f"{LARGE_BYTES} bytes"

    def _window(self) -> str:
        topic = self._topic("window")
        with self._client(self.addresses[0], "hears") as hears:
            hears.link.subscribe([topic])
            time.sleep(QUIET_S)
            with self._client(self.addresses[0], "says") as says:
                says.publish(topic, [str(n).encode() for n in range(WINDOW)])
            found = len(replace_wait(hears, 3.0).hear(WINDOW, acknowledge=False))
        if found < WINDOW_MIN:
            raise LackError(f"{found} messages unacknowledged at a time, {WINDOW_MIN} are needed")
        return f"{found} unacknowledged at a time" + ("" if found < WINDOW else " or more")

    def _survives(self, restart: Callable[[], None]) -> str:
        here = self.addresses[0]
        kept, topic = self._topic("kept", retained=True), self._topic("restart")
        payloads = [str(number).encode() for number in range(MESSAGES)]
        self._sessions.add("restart")
        with self._client(here, "restart", persistent=True) as first:
            first.link.subscribe([topic])
            time.sleep(QUIET_S)
        with self._client(here, "says") as says:
            says.publish(kept, [b"order"], retain=True)
            says.publish(topic, payloads)
        restart()
        self._expect_retained(here, kept, {kept: b"order"}, "after the restart")
        with self._client(here, "restart", persistent=True) as again:
            found = {each.payload for each in again.hear(MESSAGES)}
        if found != set(payloads):
            raise LackError(f"{len(found)} of {MESSAGES} messages for a session were left")
        return "retained messages and sessions are there"

    # -- what they share -----------------------------------------------------------------------

    def _expect_retained(
        self, there: MqttOptions, filter_: str, wanted: dict[str, bytes], words: str
    ) -> None:
        with self._client(there, "hears") as hears:
            hears.link.subscribe([filter_])
            heard = hears.hear(len(wanted))
        found = {each.topic: each.payload for each in heard}
        if found != wanted:
            count = sum(found.get(topic) == payload for topic, payload in wanted.items())
            raise LackError(f"{_name(there)} has {count} of {len(wanted)} retained, {words}")

    def _topic(self, name: str, *, retained: bool = False) -> str:
        topic = f"{self.prefix}/{self._token}/{name}"
        if retained:
            self._retained.add(topic)
        return topic

    @contextmanager
    def _client(
        self, address: MqttOptions, name: str, *, persistent: bool = False
    ) -> Iterator[Client]:
        """A connected client, which disconnects at the end."""
        options = replace(
            address,
            client_id=f"opid-check-{self._token}-{name}",
            persistent=persistent,
            session_expiry_s=300 if persistent else 0,
            inflight_max=WINDOW,
            outbox_bytes_max=4 * LARGE_BYTES,
            reconnect_first_s=0.2,
            reconnect_most_s=2.0,
        )
        link = BackgroundLink(options)
        link.start()
        try:
            link.wait_connected(self.wait_s)
            yield Client(link, *_greeting(link), self.wait_s)
            link.stop(2.0)
        finally:
            link.abort()

    def _tidy(self) -> None:
        """Leave nothing behind, as far as the broker lets us."""
        try:
            with self._client(self.addresses[0], "tidies") as client:
                for topic in sorted(self._retained):
                    client.publish(topic, [b""], retain=True)
            for name in sorted(self._sessions):
                with self._client(self.addresses[0], name):
                    pass  # a clean start ends the session that was kept
        except (LackError, LinkError):
            pass  # it was said why: nothing answers


def _greeting(link: BackgroundLink) -> tuple[bool, str]:
    """What the broker said when it accepted us: the session it had, and the protocol."""
    while (event := link.poll_event()) is not None:
        if isinstance(event, Connected):
            return event.session_present, event.protocol
    return False, "?"


def _name(address: MqttOptions) -> str:
    return f"{address.host}:{address.port}"


def replace_wait(client: Client, wait_s: float) -> Client:
    """The same client, more or less patient."""
    return replace(client, wait_s=wait_s)
