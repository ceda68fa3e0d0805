"""The skeleton that the loops of a node and of a gateway share.

`run` starts, goes round until somebody calls `stop`, and drains; whatever goes wrong meanwhile ends
the link without a goodbye, so that the broker publishes the will. What a subclass adds is its own:
what a round is made of (`round`), what becomes of a delivery (`_handle`), and what is saved before
the goodbye (`_finish`).

What happens often is counted always, and logged at its 1st, 2nd, 4th, 8th … time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from edge_opid import log
from edge_opid.link.contract import (
    Connected,
    Delivery,
    Disconnected,
    Link,
    LinkEvent,
    MessageDropped,
    PublishRefused,
    SubscriptionRefused,
)
from edge_opid.service.clock import SteadyClock
from edge_opid.service.systemd import Systemd

POLL_S = 0.1  # the longest wait for a message
DRAIN_S = 5.0  # for what is queued to reach the broker when we stop

ClockT = TypeVar("ClockT", bound=SteadyClock)


class BaseLoop(ABC, Generic[ClockT]):
    """One service and its link, until somebody calls `stop`."""

    deliveries_per_round: int
    """A burst must not keep a service from its other duties."""

    def __init__(self, link: Link, clock: ClockT, systemd: Systemd, poll_s: float) -> None:
        self.counts: Counter[str] = Counter()
        self._link, self._clock, self._systemd, self._poll_s = link, clock, systemd, poll_s
        self._stop = False

    def stop(self) -> None:
        """End after this round. A signal handler may call it: it only sets a flag."""
        self._stop = True

    def run(self) -> int:
        """Start, go round until stopped, drain; the exit code."""
        try:
            self.start()
            while not self._stop:
                self.round()
            self.drain()
        except BaseException:
            self._link.abort()  # the broker publishes the will
            raise
        return 0

    def start(self) -> None:
        """Subscribe, connect, and say that we are ready."""
        for filter_, qos in self._subscriptions().items():
            self._link.subscribe([filter_], qos)
        self._link.start()
        found = self._begin()
        self._systemd.tell_ready()
        log.info("started", **found)

    def drain(self) -> None:
        """Bring everything to its place, send what is queued, and say goodbye."""
        self._systemd.tell_stopping()
        left = self._finish()
        unsent = self._link.stop(DRAIN_S if self._link.connected else 0.0)
        log.info("stopped", unsent=unsent, **left)

    # --- what a subclass adds ---------------------------------------------------------------------

    @abstractmethod
    def round(self) -> None:
        """One turn: what came in, what is due, and the word that all is well."""

    @abstractmethod
    def _subscriptions(self) -> Mapping[str, int]:
        """The filters to subscribe to, each with its quality of service."""

    @abstractmethod
    def _begin(self) -> dict[str, object]:
        """Do what comes before the first round; what to log about it."""

    @abstractmethod
    def _finish(self) -> dict[str, object]:
        """Save what must not be lost before the goodbye; what to log about it."""

    @abstractmethod
    def _handle(self, delivery: Delivery) -> bool:
        """Hand one delivery to the decisions; whether this round may take another."""

    @abstractmethod
    def _on_connected(self, event: Connected) -> None:
        """The broker has answered."""

    @abstractmethod
    def _on_disconnected(self, event: Disconnected) -> None:
        """The connection is over, or could not be made."""

    # --- what comes in ----------------------------------------------------------------------------

    def _take_in(self, wait_s: float) -> None:
        """Take what has come; wait so long for the first message."""
        for turn in range(self.deliveries_per_round):
            delivery = self._link.poll(0.0 if turn else wait_s)
            self._hear_events()  # a former connection's end comes before the next one's messages
            if delivery is None or not self._handle(delivery):
                return

    def _hear_events(self) -> None:
        while (event := self._link.poll_event()) is not None:
            self.counts[type(event).__name__] += 1
            self._hear(event)

    def _hear(self, event: LinkEvent) -> None:
        match event:
            case Connected(session_present, protocol):
                log.info("connected", protocol=protocol, session_present=session_present)
                self._on_connected(event)
            case Disconnected(reason, refused):
                self._on_disconnected(event)
                count = self.counts["Disconnected"]
                if log.worth_a_line(count) or refused:
                    log.warning("disconnected", reason=reason, refused=refused, count=count)
            case SubscriptionRefused(filter_, reason):
                log.error("subscription refused", filter=filter_, reason=reason)
            case PublishRefused(topic, reason):
                self._note_unpublished(topic, reason)
            case MessageDropped(reason, count):
                log.warning("message dropped", reason=reason, count=count)

    # --- what goes out ----------------------------------------------------------------------------

    def _publish(self, topic: str, payload: bytes, *, retain: bool) -> None:
        if not self._link.publish(topic, payload, retain=retain):
            self._note_unpublished(topic, "the link did not take it")

    def _note_unpublished(self, topic: str, reason: str) -> None:
        self._note("publish_refused", "publication refused", topic=topic, reason=reason)

    def _note(
        self,
        counter: str,
        event: str,
        *,
        write: Callable[..., None] = log.warning,
        **fields: object,
    ) -> None:
        """Count what was refused or went wrong, and log it when it is worth a line."""
        self.counts[counter] += 1
        if log.worth_a_line(self.counts[counter]):
            write(event, **fields, count=self.counts[counter])

    def _say_alive(self) -> None:
        """Feed the watchdog; a link that will never work again ends us instead (`LinkError`)."""
        self._link.check()
        self._systemd.tell_alive(self._clock.passed_ms())
