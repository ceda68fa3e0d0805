"""The skeleton that the loops of a node and of a gateway share.

`run` starts, goes round until somebody calls `stop`, and drains; whatever goes wrong meanwhile ends
the link without a goodbye, so that the broker publishes the will. What a subclass adds is its own:
what a round is made of (`round`), what becomes of a delivery (`_handle`), and what is saved before
the goodbye (`_finish`).

What is refused, dropped or goes wrong is noted in a tally, under a reason of the tables: counted
always, logged when it is worth a line, and shown in the status.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
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
    SubscriptionGranted,
    SubscriptionRefused,
)
from edge_opid.reasons import LinkReason, Reason
from edge_opid.service.clock import SteadyClock
from edge_opid.service.systemd import Systemd
from edge_opid.tally import LogLine, Tally

POLL_S = 0.1  # the longest wait for a message
DRAIN_S = 5.0  # for what is queued to reach the broker when we stop

ClockT = TypeVar("ClockT", bound=SteadyClock)


class BaseLoop(ABC, Generic[ClockT]):
    """One service and its link, until somebody calls `stop`."""

    deliveries_per_round: int
    """A burst must not keep a service from its other duties."""
    wait_for_more_s: float | None = 0.0
    """How long to wait for another message in a round; None: only what is here already is taken."""

    def __init__(self, link: Link, clock: ClockT, systemd: Systemd, poll_s: float) -> None:
        self.tally = Tally()
        self._link, self._clock, self._systemd, self._poll_s = link, clock, systemd, poll_s
        self._stop = False
        self._down_ms: int | None = clock.now_ms()  # since when there is no connection …
        self._down_why = LinkReason.NOT_YET.what  # … and why
        self._deaf: dict[str, str] = {}  # filters that the broker refused, and its reasons

    @property
    def counts(self) -> Counter[Reason]:
        """What the loop itself has counted."""
        return self.tally.counts

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
            delivery = self._link.poll(self.wait_for_more_s if turn else wait_s)
            self._hear_events()  # a former connection's end comes before the next one's messages
            if delivery is None or not self._handle(delivery):
                return

    def _hear_events(self) -> None:
        while (event := self._link.poll_event()) is not None:
            self._hear(event)

    def _hear(self, event: LinkEvent) -> None:
        match event:
            case Connected(session_present, protocol):
                log.info("connected", protocol=protocol, session_present=session_present)
                self._down_ms, self._down_why, self._deaf = None, "", {}
                self._on_connected(event)
            case Disconnected(reason):
                self._on_disconnected(event)
                self._down(event)
                self._note(event.kind, about=event.kind.value, why=reason)
            case SubscriptionRefused(filter_, reason):
                self._deaf[filter_] = reason
                why = f"the broker refuses the subscription to {filter_}: {reason}"
                self._note(LinkReason.SUBSCRIPTION_REFUSED, about=filter_, filter=filter_, why=why)
            case SubscriptionGranted(filter_):
                self._deaf.pop(filter_, None)
                log.info("subscription granted", filter=filter_)
            case PublishRefused(topic, reason):
                self._note(LinkReason.UNSENT_BY_BROKER, about=topic, topic=topic, why=reason)
            case MessageDropped(reason, count):  # the link counts, and tells us now and then
                log.tell(
                    reason.level, reason.event, reason=reason.value, why=reason.what, count=count
                )

    def _down(self, event: Disconnected) -> None:
        """Remember since when there is no connection, and the latest reason."""
        if self._down_ms is None:
            self._down_ms = self._clock.now_ms()
        self._down_why = f"{event.reason}. {event.kind.do}".rstrip(" ")

    def connection(self) -> dict[str, object]:
        """How the connection is, for a status: since when there is none and why, what is deaf.

        A supervisor asks from another thread, so what may grow meanwhile is copied first.
        """
        return {
            "connected": self._link.connected,
            "not_connected_since_ms": None if self._link.connected else self._down_ms,
            "not_connected": "" if self._link.connected else self._down_why,
            "not_heard": [f"{each}: {why}" for each, why in dict(self._deaf).items()],
        }

    # --- what goes out ----------------------------------------------------------------------------

    def _publish(self, topic: str, payload: bytes, *, retain: bool, qos: int = 1) -> bool:
        """Hand a message to the link; whether it took it."""
        taken = self._link.publish(topic, payload, qos, retain)
        if not taken:
            self._note(self._link.counters.refused_last, about=topic, topic=topic)
        return taken

    def _note(self, reason: Reason, *, about: str = "", **fields: object) -> None:
        """Count what was refused or went wrong, and log it when it is worth a line."""
        self.tally.begin("", b"", self._clock.now_ms())
        self.tally.note(reason, about=about, **fields)
        write_lines(self.tally.take_lines())

    def _say_alive(self) -> None:
        """Feed the watchdog; a link that will never work again ends us instead (`LinkError`)."""
        self._link.check()
        self._systemd.tell_alive(self._clock.passed_ms())


def write_lines(lines: Iterable[LogLine]) -> None:
    """Write what a tally found worth a line to the log."""
    for reason, times, fields in lines:
        log.tell(reason.level, reason.event, **fields, count=times)
