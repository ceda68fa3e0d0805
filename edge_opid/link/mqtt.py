"""The link over MQTT: it keeps one connection alive, or makes the next, while it is polled."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache

from edge_opid import log
from edge_opid.link.connection import Connection
from edge_opid.link.contract import (
    Connected,
    Delivery,
    Disconnected,
    LinkCounters,
    LinkError,
    LinkEvent,
)
from edge_opid.link.exchange import Exchange
from edge_opid.link.options import MqttOptions
from edge_opid.link.poller import IN, Poller
from edge_opid.link.queues import Outgoing
from edge_opid.link.versions import MQTT_311, Versions
from edge_opid.reasons import LinkReason
from edge_opid.wire.topics import check_filter, check_topic

RIVAL_S = 60.0  # a rival is back within its own longest back-off …
RIVAL_TIMES = 3  # … each time
TURN_S = 0.5  # the longest wait at a time; keep-alive needs no more
_checked = lru_cache(maxsize=256)(check_topic)  # most publications go to a few topics
DELIVERIES_PER_TURN = 64  # are given out before what they led to is sent, and more is read


def uniform(low: float, high: float) -> float:
    """Some number between these, as `random.uniform`, which would load 0.2 MB for it."""
    return low + (high - low) * int.from_bytes(os.urandom(4)) / 2**32


class MqttLink:
    """A `Link` to an MQTT broker: MQTT 5, or 3.1.1 where the broker refuses 5.

    It has no thread. It reads, writes and keeps the connection alive inside `poll`, `serve`,
    `wait_connected` and `stop`; everything else only touches bounded queues. So a message crosses
    no thread between the network and whoever polls, and whoever does not poll for longer than the
    keep-alive loses the connection. Who cannot promise that takes a `BackgroundLink`. Only while a
    connection is being made, which may take seconds, a thread does that, and nothing else.

    When a connection ends, the next one is made after a random, bounded, growing delay, for as long
    as it takes: also after a refused password, which somebody may put right at the broker, and
    after an error of its own (no memory, a bug), which is logged and counted. `wait_connected` and
    the events tell what the matter is. Should the link itself end, `check` raises: whoever runs it
    must end too, and be started again.

    `options` say where, who, and every bound; `draw` picks each delay (a test may put something
    else than `uniform` there). Once `allowed` says no, the link ends without a goodbye, and
    neither connects nor sends again: somebody else has its session.
    """

    def __init__(
        self,
        options: MqttOptions,
        draw: Callable[[float, float], float] = uniform,
        allowed: Callable[[], bool] = lambda: True,
    ) -> None:
        options.login()  # a bad file is an error now, not a retry later
        if options.tls is not None:
            from edge_opid.link.tls import tls_context  # noqa: PLC0415 - see there

            tls_context(options.tls)
        self._options, self._allowed = options, allowed
        self._exchange = Exchange(options)
        self._mailbox = self._exchange.mailbox
        self._poller = Poller()
        self._backoff = Backoff(options.reconnect_first_s, options.reconnect_most_s, draw)
        self._versions = Versions(mqtt_5_first=options.mqtt_5_first, again_s=options.mqtt_5_again_s)
        self._rivalry = Rivalry()
        self._started = self._running = False
        self._opening: Opening | None = None
        self._connection: Connection | None = None
        self._began_s = 0.0  # when the attempt at this connection began
        self._resume_s = 0.0  # when the next attempt begins
        self._given_out = 0  # deliveries since the last turn
        self._deadline: float | None = None  # set by `stop`: drain until then
        self._death: BaseException | None = None  # what ended the link for good

    @property
    def counters(self) -> LinkCounters:
        """What happened so far."""
        return self._exchange.counters

    @property
    def connected(self) -> bool:
        """Whether the broker has accepted us and the connection has not ended since."""
        return isinstance(self._exchange.state, Connected)

    def start(self) -> None:
        """Begin to connect, and to connect again whenever the connection ends."""
        if self._started:
            raise LinkError(
                f"link {self._options.client_id!r} was started before: make a new one instead"
            )
        self._started = self._running = True
        self._step(0.0)

    def check(self) -> None:
        """Raise `LinkError` if the link has ended though nobody asked it to."""
        if self._death is not None:
            raise LinkError(
                f"link {self._options.client_id!r} has ended ({self._death!r}); "
                "nothing will be heard or sent until the process is started again"
            ) from self._death

    def wait_connected(self, timeout_s: float) -> None:
        """Return when connected; raise `LinkError` after the timeout or as soon as refused."""
        deadline = time.monotonic() + timeout_s
        while not self._is_decided() and (left_s := deadline - time.monotonic()) > 0:
            self._step(min(left_s, TURN_S))
        self._raise_unless_connected(timeout_s)

    def _is_decided(self) -> bool:
        state = self._exchange.state
        return isinstance(state, Connected) or state.refused

    def _raise_unless_connected(self, waited_s: float) -> None:
        state = self._exchange.state
        if isinstance(state, Disconnected):
            waited = "" if state.refused else f" (waited {waited_s} s)"
            raise LinkError(f"link {self._options.client_id!r}: {state.reason}{waited}")

    def subscribe(self, filters: Iterable[str], qos: int = 1) -> None:
        """Ask for these filters now and at every later connection."""
        self._exchange.want({check_filter(filter_): qos for filter_ in filters})

    def unsubscribe(self, filters: Iterable[str]) -> None:
        """Stop asking for these filters."""
        self._exchange.unwant({check_filter(filter_) for filter_ in filters})

    def publish(self, topic: str, payload: bytes, qos: int = 1, retain: bool = False) -> bool:
        """Queue a message; False if it is refused, and counted."""
        message = Outgoing(_checked(topic), payload, qos, retain)
        if not self._running:
            self._exchange.counters.refuse(LinkReason.UNSENT_NOT_RUNNING)
            return False
        return self._exchange.offer(message)

    def poll(self, timeout_s: float | None = 0.0) -> Delivery | None:
        """The next delivery, or None after the timeout, or earlier when an event came in."""
        mailbox = self._mailbox
        self._given_out += 1
        if self._given_out <= DELIVERIES_PER_TURN and (delivery := mailbox.take()) is not None:
            return delivery
        if timeout_s is None:
            return None
        self._given_out = 0
        seen, deadline = mailbox.events_seen, time.monotonic() + timeout_s
        self._step(0.0 if len(mailbox) else min(timeout_s, TURN_S))
        while not len(mailbox) and mailbox.events_seen == seen and self._running:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                break
            self._step(min(left_s, TURN_S))
        return mailbox.take()

    def serve(self, wait_s: float = 0.0) -> None:
        """Send what is queued and keep the connection for so long, and take nothing."""
        deadline = time.monotonic() + wait_s
        self._step(min(wait_s, TURN_S))
        while self._running and (left_s := deadline - time.monotonic()) > 0:
            self._step(min(left_s, TURN_S))

    def acknowledge(self, delivery: Delivery) -> None:
        """Tell the broker that it may forget this delivery."""
        self._exchange.acknowledge(delivery)

    def poll_event(self) -> LinkEvent | None:
        """The next thing that happened to the connection, or None."""
        return self._mailbox.take_event()

    def stop(self, drain_s: float = 5.0) -> int:
        """Send what is queued, say goodbye, end; returns how many messages stayed unsent."""
        if self._running:
            self._deadline = time.monotonic() + drain_s
            while (left_s := self._left_to_drain_s()) > 0:
                self._step(min(left_s, TURN_S))
            self._end(goodbye=True)
        return self._exchange.unsent()

    def abort(self) -> None:
        """End without a goodbye, as `kill -9` would: the broker publishes the will."""
        if self._running:
            self._deadline = time.monotonic()
            self._end(goodbye=False)

    def _left_to_drain_s(self) -> float:
        """How long to go on before the end, if anything is left to send."""
        if self._deadline is None or not self._running or self._exchange.unsent() == 0:
            return 0.0
        return self._deadline - time.monotonic()

    def _end(self, *, goodbye: bool) -> None:
        self._running = False
        if self._opening is not None:
            self._opening.abandon()
            self._opening = None
        if self._connection is not None:
            end = self._connection.close(goodbye=goodbye)
            self._exchange.end_connection(end)
            self._connection = None
        self._poller.forget()

    # ---- from one connection to the next

    def _step(self, wait_s: float) -> None:
        """Do what is next: a turn of the connection, or a step towards one. Waits so long."""
        if self._running and not self._allowed():
            self._end(goodbye=False)
        if not self._running:
            return
        try:
            if self._connection is not None:
                self._turn(self._connection, wait_s)
            elif self._opening is not None:
                self._await(self._opening, wait_s)
            elif (left_s := self._resume_s - time.monotonic()) > 0:
                self._poller.wait(-1, 0, min(wait_s, left_s))
            else:
                self._open()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - `check` raises it where it is seen
            self._die(error)

    def _open(self) -> None:
        """Begin to connect."""
        self._began_s = time.monotonic()
        protocol = self._versions.choose(self._began_s)
        connection = Connection(self._options, self._exchange, self._poller, protocol)
        try:
            self._opening = Opening(connection)
        except Exception as error:  # noqa: BLE001 - no thread, no pipe: a while later there may be
            self._fault(connection, error)
            self._lose(connection)

    def _await(self, opening: Opening, wait_s: float) -> None:
        """Until the connection is made, or cannot be, or for so long."""
        if not self._poller.wait(opening.handle, IN, wait_s):
            return
        self._poller.forget()
        self._opening = None
        connection, error = opening.take()
        if error is None:
            self._connection = connection
            return
        if not isinstance(error, Exception):
            raise error
        if not isinstance(error, LinkError):  # that one keeps the reason as its `end`
            self._fault(connection, error)
        self._lose(connection)

    def _turn(self, connection: Connection, wait_s: float) -> None:
        try:
            if connection.turn(wait_s):
                return
        except Exception as error:  # noqa: BLE001 - no memory, a bug: the next one may do better
            self._fault(connection, error)
        self._lose(connection)

    def _lose(self, connection: Connection) -> None:
        """A connection is over: say so, and wait before the next attempt."""
        lasted_s = time.monotonic() - self._began_s if connection.accepted else 0.0
        end = connection.close(goodbye=False)
        self._poller.forget()
        self._connection = None
        end = self._rivalry.judge(end, lasted_s, hung_up=connection.hung_up)
        self._exchange.end_connection(end, unconfirmed=connection.unconfirmed)
        self._resume_s = time.monotonic() + self._pause_s(connection, lasted_s)

    def _fault(self, connection: Connection, error: Exception) -> None:
        connection.end = Disconnected(
            f"the link failed: {error!r}", fault=True, kind=LinkReason.FAULT
        )
        count = self._exchange.counters.faults + 1
        if log.worth_a_line(count):
            log.error("link fault", trace=error, why=repr(error), count=count)

    def _pause_s(self, connection: Connection, lasted_s: float) -> float:
        """Learn what the broker speaks, and draw the wait before the next attempt."""
        now_s = time.monotonic()
        if connection.unsupported:
            self._versions.note_unsupported(now_s)
            if self._versions.choose(now_s) == MQTT_311:
                return 0.0
        elif connection.answered:
            self._versions.note_answer()
        elif connection.opened:
            self._versions.note_silence(now_s)
        if lasted_s >= self._options.stable_s:
            self._backoff.reset()
        return self._backoff.next_delay_s()

    def _die(self, error: BaseException) -> None:
        """Nothing will ever come or go again: `check` says so to whoever runs us."""
        self._death, self._running = error, False
        log.error("link ended", trace=True, why=repr(error))
        reason = f"the link has ended: {error!r}"
        self._exchange.end_connection(
            Disconnected(reason, refused=True, fault=True, kind=LinkReason.FAULT)
        )


class Opening:
    """A connection being made, in a thread: names, TCP and TLS may take seconds.

    `handle` can be read as soon as `take` may be called.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._done = self._abandoned = False
        self.handle, self._bell = os.pipe()
        self._thread = threading.Thread(target=self._open, name="connecting", daemon=True)
        try:
            self._thread.start()
        except BaseException:
            self._close()
            raise

    def take(self) -> tuple[Connection, BaseException | None]:
        """The connection, and why it was not made."""
        self._thread.join()
        self._close()
        return self._connection, self._error

    def abandon(self) -> None:
        """Nobody waits any more. The broker has not heard of us so far, and will not."""
        with self._lock:
            self._abandoned = True
            if self._done:
                self._give_up()

    def _open(self) -> None:
        try:
            self._connection.open()
        except BaseException as error:  # noqa: BLE001 - `take` gives it to whoever waits
            self._error = error
        with self._lock:
            self._done = True
            if self._abandoned:
                self._give_up()
            else:
                os.write(self._bell, b"!")

    def _give_up(self) -> None:
        self._connection.close(goodbye=False)
        self._close()

    def _close(self) -> None:
        os.close(self.handle)
        os.close(self._bell)


@dataclass(slots=True)
class Rivalry:
    """Tells two clients that take one session from each other from a broker that is away.

    MQTT 5 says so; a broker of 3.1.1 just hangs up, on us when the other one connects and on the
    other one when we do. One hang-up is a restart. Several in a row, each soon after the broker had
    accepted us and none followed by a broker that cannot be reached, are another client.

    >>> rivalry, end = Rivalry(), Disconnected("hung up")
    >>> [rivalry.judge(end, lasted_s=2.0, hung_up=True).kind.value for _ in range(3)]
    ['connection-ended', 'connection-ended', 'session-probably-taken-over']
    """

    in_a_row: int = 0

    def judge(self, end: Disconnected, lasted_s: float, *, hung_up: bool) -> Disconnected:
        """The end of a connection, under its right name."""
        if not (hung_up and end.kind is LinkReason.ENDED and 0 < lasted_s < RIVAL_S):
            self.in_a_row = 0
            return end
        self.in_a_row += 1
        if self.in_a_row < RIVAL_TIMES:
            return end
        kind = LinkReason.PROBABLY_TAKEN_OVER
        return replace(end, reason=f"{end.reason}: {kind.what}", kind=kind)


@dataclass(slots=True)
class Backoff:
    """Bounded exponential delays with full jitter.

    A thousand nodes lose the same broker in the same second. Were each to wait exactly 1, 2, 4 s,
    they would come back as one wave; a delay drawn evenly between 0 and the bound spreads them.

    >>> backoff = Backoff(first_s=1.0, most_s=60.0, draw=lambda low, high: high)
    >>> [backoff.next_delay_s() for _ in range(8)]
    [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    >>> backoff.reset()
    >>> backoff.next_delay_s()
    1.0
    """

    first_s: float
    most_s: float
    draw: Callable[[float, float], float] = field(default=uniform)
    attempts: int = 0

    def next_delay_s(self) -> float:
        """Draw the next delay; the bound doubles until it reaches `most_s`."""
        bound = min(self.most_s, self.first_s * 2.0 ** min(self.attempts, 32))
        self.attempts += 1
        return self.draw(0.0, bound)

    def reset(self) -> None:
        """The last connection was a good one: start again from the first bound."""
        self.attempts = 0
