"""The link over MQTT: one thread that keeps one connection alive, or makes the next."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

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
from edge_opid.link.options import MqttOptions, read_credentials, tls_context
from edge_opid.link.queues import Outgoing
from edge_opid.link.versions import MQTT_311, Versions
from edge_opid.wire.topics import check_filter, check_topic

TURN_S = 0.5  # the longest wait of the network's thread; keep-alive needs no more


class MqttLink:
    """A `Link` to an MQTT broker: MQTT 5, or 3.1.1 where the broker refuses 5.

    One thread owns the connection; callers only touch bounded queues and never wait for the
    network. When a connection ends, the thread makes the next one after a random, bounded,
    growing delay, for as long as it takes: also after a refused password, which somebody may put
    right at the broker, and after an error of its own (no memory, a bug), which is logged and
    counted. `wait_connected` and the events tell what the matter is. Should the thread itself end,
    `check` raises: whoever runs the link must end too, and be started again.

    `options` say where, who, and every bound; `draw` picks each delay (a test may put something
    else than `random.uniform` there).
    """

    def __init__(
        self, options: MqttOptions, draw: Callable[[float, float], float] = random.uniform
    ) -> None:
        if options.credentials is not None:
            read_credentials(options.credentials)  # a bad file is an error now, not a retry later
        if options.tls is not None:
            tls_context(options.tls)
        self._options = options
        self._exchange = Exchange(options)
        self._backoff = Backoff(options.reconnect_first_s, options.reconnect_most_s, draw)
        self._versions = Versions(mqtt_5_first=options.mqtt_5_first, again_s=options.mqtt_5_again_s)
        self._thread: threading.Thread | None = None
        self._deadline: float | None = None  # set by `stop`: drain until then
        self._goodbye = True
        self._death: BaseException | None = None  # what ended the thread

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
        if self._thread is not None:
            raise LinkError(
                f"link {self._options.client_id!r} was started before: make a new one instead"
            )
        name = f"link-{self._options.client_id}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise `LinkError` if the thread has ended though nobody asked it to."""
        thread = self._thread
        if thread is not None and self._deadline is None and not thread.is_alive():
            raise LinkError(
                f"link {self._options.client_id!r}: its thread has ended ({self._death!r}); "
                "nothing will be heard or sent until the process is started again"
            ) from self._death

    def wait_connected(self, timeout_s: float) -> None:
        """Return when connected; raise `LinkError` after the timeout or as soon as refused."""
        exchange = self._exchange

        def decided() -> bool:
            return isinstance(exchange.state, Connected) or exchange.state.refused

        with exchange.lock:
            exchange.lock.wait_for(decided, timeout_s)
            state = exchange.state
        if isinstance(state, Disconnected):
            waited = "" if state.refused else f" (waited {timeout_s} s)"
            raise LinkError(f"link {self._options.client_id!r}: {state.reason}{waited}")

    def subscribe(self, filters: Iterable[str], qos: int = 1) -> None:
        """Ask for these filters now and at every later connection."""
        self._exchange.want({check_filter(filter_): qos for filter_ in filters})

    def unsubscribe(self, filters: Iterable[str]) -> None:
        """Stop asking for these filters."""
        self._exchange.unwant({check_filter(filter_) for filter_ in filters})

    def publish(self, topic: str, payload: bytes, qos: int = 1, retain: bool = False) -> bool:
        """Queue a message; False if it is refused, and counted."""
        message = Outgoing(check_topic(topic), payload, qos, retain)
        if self._thread is None or self._deadline is not None:
            self.counters.refused["not running"] += 1
            return False
        return self._exchange.offer(message)

    def poll(self, timeout_s: float = 0.0) -> Delivery | None:
        """The next delivery, or None after the timeout, or earlier when an event came in."""
        return self._exchange.take(timeout_s)

    def acknowledge(self, delivery: Delivery) -> None:
        """Tell the broker that it may forget this delivery."""
        self._exchange.acknowledge(delivery)

    def poll_event(self) -> LinkEvent | None:
        """The next thing that happened to the connection, or None."""
        return self._exchange.take_event()

    def stop(self, drain_s: float = 5.0) -> int:
        """Send what is queued, say goodbye, end; returns how many messages stayed unsent."""
        self._end(drain_s, goodbye=True)
        return self._exchange.unsent()

    def abort(self) -> None:
        """End without a goodbye, as `kill -9` would: the broker publishes the will."""
        self._end(0.0, goodbye=False)

    def _end(self, drain_s: float, *, goodbye: bool) -> None:
        thread, exchange = self._thread, self._exchange
        with exchange.lock:
            if thread is None or self._deadline is not None:
                return
            self._goodbye = goodbye
            self._deadline = time.monotonic() + drain_s
            exchange.waker.ring()
            exchange.lock.notify_all()
        # A TCP connection being made cannot be interrupted, hence the second term.
        thread.join(drain_s + self._options.connect_timeout_s + 2.0)
        if not thread.is_alive():
            exchange.waker.close()

    # ---- the network's thread

    def _run(self) -> None:
        try:
            while not self._finished():
                protocol = self._versions.choose(time.monotonic())
                connection = Connection(self._options, self._exchange, protocol)
                lasted_s = self._live(connection)
                end = connection.close(goodbye=self._goodbye and self._finished())
                self._exchange.end_connection(end, unconfirmed=connection.unconfirmed)
                self._pause(connection, lasted_s)
        except BaseException as error:  # noqa: BLE001 - `check` raises it where it is seen
            self._death = error
            log.error("link thread ended", trace=True, why=repr(error))
            self._exchange.end_connection(
                Disconnected(f"the link's thread ended: {error!r}", refused=True, fault=True)
            )

    def _live(self, connection: Connection) -> float:
        """Run one connection to its end; returns how long it lasted."""
        began = time.monotonic()
        try:
            connection.open()
            while not self._finished() and connection.turn(TURN_S):
                pass
        except LinkError:
            return 0.0  # the connection keeps the reason as its `end`
        except Exception as error:  # noqa: BLE001 - no memory, a bug: the next one may do better
            self._fault(connection, error)
        return time.monotonic() - began if connection.accepted else 0.0

    def _fault(self, connection: Connection, error: Exception) -> None:
        connection.end = Disconnected(f"the link failed: {error!r}", fault=True)
        count = self.counters.faults + 1
        if log.worth_a_line(count):
            log.error("link fault", trace=True, why=repr(error), count=count)

    def _finished(self) -> bool:
        deadline = self._deadline
        if deadline is None:
            return False
        if not self._goodbye or time.monotonic() >= deadline:
            return True
        return self._exchange.unsent() == 0

    def _pause(self, connection: Connection, lasted_s: float) -> None:
        """Learn what the broker speaks, and wait before the next attempt."""
        now_s = time.monotonic()
        if connection.unsupported:
            self._versions.note_unsupported(now_s)
            if self._versions.choose(now_s) == MQTT_311:
                return
        elif connection.answered:
            self._versions.note_answer()
        elif connection.opened:
            self._versions.note_silence(now_s)
        if lasted_s >= self._options.stable_s:
            self._backoff.reset()
        until = time.monotonic() + self._backoff.next_delay_s()
        with self._exchange.lock:
            while not self._finished() and (left := until - time.monotonic()) > 0:
                self._exchange.lock.wait(min(left, TURN_S))


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
    draw: Callable[[float, float], float] = field(default=random.uniform)
    attempts: int = 0

    def next_delay_s(self) -> float:
        """Draw the next delay; the bound doubles until it reaches `most_s`."""
        bound = min(self.most_s, self.first_s * 2.0 ** min(self.attempts, 32))
        self.attempts += 1
        return self.draw(0.0, bound)

    def reset(self) -> None:
        """The last connection was a good one: start again from the first bound."""
        self.attempts = 0
