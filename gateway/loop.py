"""The loop that runs a gateway: broker and database on one side, decisions on the other.

The rules of a round, in the order of the code:

1. Take in what came: messages, operators' commands, finished fits, time.
2. Save all that was decided in one transaction. A database that refuses for a while (locked,
   restarted, disk full or failing) is asked again, at growing intervals; until then nothing more is
   taken in, and the log and systemd's status say so.
3. Only then publish, subscribe, fit, and acknowledge the messages: killed before, they come again.

How long it takes until every node has done what it was told: a line in the log for each wave.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

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
from edge_opid.service.notify import Systemd
from edge_opid.wire import Event, SensorDeployed, SensorRetired, WireError, decode
from gateway.clock import GatewayClock
from gateway.decisions.actions import Action, Fit, ForgetExamples, Listen, Publish
from gateway.decisions.gateway import Gateway
from gateway.fitting.worker import FitFailed, Fitter
from gateway.recall import fit_job
from gateway.registry import EventError, FitRecord, NodeKey, Record
from gateway.store import FORGET, CommandRecord, DatabaseError, FleetStore

POLL_S = 0.1
DELIVERIES_PER_ROUND = 512  # a wave of reports becomes a few transactions
COMMANDS_MS = 500  # between two looks for operators' commands
TICK_MS = 200
RETRY_S = 1.0  # before a database that refused is asked again; twice as long each time …
RETRY_MAX_S = 32.0  # … up to this


class GatewayLoop:
    """One gateway, its link and its store, until somebody calls `stop`."""

    def __init__(
        self,
        gateway: Gateway,
        link: Link,
        store: FleetStore,
        clock: GatewayClock,
        fitter: Fitter,
        notify: Systemd,
        *,
        poll_s: float = POLL_S,
    ) -> None:
        self.gateway, self.counts = gateway, Counter[str]()
        self._link, self._store, self._clock = link, store, clock
        self._fitter, self._notify, self._poll_s = fitter, notify, poll_s
        self._stop = False
        self._actions: list[Action] = []
        self._deliveries: list[Delivery] = []
        self._outcomes: dict[int, str] = {}
        self._looked_ms: int | None = None  # both by the time that has passed in this life
        self._ticked_ms: int | None = None
        self._filters: frozenset[str] = frozenset()
        self._wave = OrderWave()

    def stop(self) -> None:
        """End after this round. A signal handler may call it: it only sets a flag."""
        self._stop = True

    def run(self) -> int:
        """Start, go round until stopped, say goodbye; the exit code."""
        try:
            self.start()
            while not self._stop:
                self.round()
            self.drain()
        except BaseException:
            self._link.abort()
            raise
        finally:
            self._fitter.stop()
        return 0

    def start(self) -> None:
        """Connect."""
        self.gateway.disconnected()  # until the link says otherwise
        self._link.subscribe(self.gateway.subscriptions())
        self._link.start()
        self._notify.ready()
        fleet = self.gateway.fleet
        log.info("started", nodes=len(fleet.nodes), changes=len(fleet.changes))

    def round(self) -> None:
        """One turn."""
        self._follow_clock()
        began_ms = self._clock.now_ms()
        self._take_in()
        self._take_commands()
        self._take_fits()
        self._tick()
        self._settle()
        self._wave.follow(self.gateway, began_ms, self._clock.now_ms())
        self._say_alive()

    def drain(self) -> None:
        """Save what is decided, send what is queued, go."""
        self._notify.stopping()
        self._settle()
        unsent = self._link.stop()
        log.info("stopped", unsent=unsent)

    def _follow_clock(self) -> None:
        step_ms = self._clock.follow()
        if step_ms:
            self.counts["clock_set"] += 1
            self.gateway.clock_set(step_ms, self._clock.now_ms())

    # -- 1: what comes in ----------------------------------------------------------------------

    def _take_in(self) -> None:
        for turn in range(DELIVERIES_PER_ROUND):
            waits = turn == 0 and not self.gateway.busy
            delivery = self._link.poll(self._poll_s if waits else 0.0)
            self._hear_events()  # a former connection's end comes before the next one's messages
            if delivery is None:
                return
            now_ms = self._clock.now_ms()
            self._actions += self.gateway.handle(delivery.topic, delivery.payload, now_ms)
            self._deliveries.append(delivery)

    def _hear_events(self) -> None:
        while (event := self._link.poll_event()) is not None:
            self.counts[type(event).__name__] += 1
            self._hear(event)

    def _hear(self, event: LinkEvent) -> None:
        count = self.counts[type(event).__name__]
        match event:
            case Connected(session_present, protocol):
                log.info("connected", protocol=protocol, session_present=session_present)
                self._actions += self.gateway.connected(session_present, self._clock.now_ms())
            case Disconnected(reason, refused):
                self.gateway.disconnected()
                if log.worth_a_line(count) or refused:
                    log.warning("disconnected", reason=reason, refused=refused, count=count)
            case SubscriptionRefused(filter_, reason):
                log.error("subscription refused", filter=filter_, reason=reason)
            case PublishRefused(topic, reason):
                self._refused(topic, reason)
            case MessageDropped(reason, number):
                log.warning("message dropped", reason=reason, count=number)

    def _take_commands(self) -> None:
        """What operators left in the database, twice a second; they must see that we serve it."""
        passed_ms, now_ms = self._clock.passed_ms(), self._clock.now_ms()
        if self._looked_ms is not None and passed_ms - self._looked_ms < COMMANDS_MS:
            return
        self._looked_ms = passed_ms
        try:
            if self._store.reclaim():
                self.counts["reclaimed"] += 1
                log.warning("the lost lock is taken again", count=self.counts["reclaimed"])
            commands = self._store.commands()
        except DatabaseError as error:
            self._complain("commands cannot be read", error)
            return
        for command in commands:
            self._outcomes[command.id] = self._obey(command, now_ms)

    def _obey(self, command: CommandRecord, now_ms: int) -> str:
        if command.payload == FORGET:
            return self._forget((command.site, command.node), now_ms)
        try:
            event: Event = decode(command.payload, SensorRetired, SensorDeployed)  # type: ignore[assignment]
        except WireError as error:
            return str(error)
        outcome = self.gateway.command((command.site, command.node), event, now_ms) or "done"
        log.info("command", node=command.node, what=event.kind, outcome=outcome)
        return outcome

    def _forget(self, key: NodeKey, now_ms: int) -> str:
        try:
            self._actions += self.gateway.forget(key, now_ms)
        except EventError as error:
            return str(error)
        log.info("forgotten", site=key[0], node=key[1])
        return "done"

    def _take_fits(self) -> None:
        for outcome in self._fitter.finished():
            match outcome:
                case FitRecord():
                    self._tell_of(outcome)
                    self.gateway.fitted(outcome)
                case FitFailed(change, why):
                    self.gateway.fit_failed(change, why)

    def _tick(self) -> None:
        passed_ms = self._clock.passed_ms()
        rested = self._ticked_ms is None or passed_ms - self._ticked_ms >= TICK_MS
        if self.gateway.busy or rested:
            self._ticked_ms = passed_ms
            self._actions += self.gateway.tick(self._clock.now_ms())
        while self.gateway.complaints:
            self.counts["complaints"] += 1
            sentence = self.gateway.complaints.popleft()
            if log.worth_a_line(self.counts["complaints"]):
                log.warning("refused", why=sentence, count=self.counts["complaints"])

    # -- 2: what must not be forgotten ---------------------------------------------------------

    def _settle(self) -> None:
        """Save, perform, acknowledge."""
        records = self.gateway.fleet.take_unsaved()
        if not self._insisted(lambda: self._save(records)):
            return  # nothing was acknowledged: it all comes again
        self._outcomes.clear()
        actions, self._actions = self._actions, []
        for action in actions:
            self._insisted(partial(self._perform, action))
        deliveries, self._deliveries = self._deliveries, []
        for delivery in deliveries:
            self._link.acknowledge(delivery)

    def _insisted(self, attempt: Callable[[], None]) -> bool:
        """Try until the database does not refuse for a while; False when told to stop meanwhile.

        A `MasterError` is not tried again: somebody else decides now, and what we believe may be
        out of date.
        """
        wait_s = RETRY_S
        while True:
            try:
                attempt()
            except DatabaseError as error:
                if not (error.transient or error.unsure):
                    raise
                self._complain("the database refuses", error)
                self._notify.says(f"waiting for the database: {error}")
            else:
                if wait_s > RETRY_S:
                    log.info("the database answers again")
                    self._notify.says("")
                return True
            if not self._pause(wait_s):
                return False
            wait_s = min(2 * wait_s, RETRY_MAX_S)

    def _pause(self, seconds: float) -> bool:
        """Let time pass, alive for systemd; False when told to stop meanwhile."""
        for _ in range(round(seconds / RETRY_S)):
            self._say_alive()
            if self._stop:
                return False
            time.sleep(RETRY_S)
        return True

    def _save(self, records: Sequence[Record]) -> None:
        if records or self._outcomes:
            self._store.save(records, self._outcomes)

    # -- 3: what is to be done -----------------------------------------------------------------

    def _perform(self, action: Action) -> None:
        match action:
            case Publish(topic, payload, retain):
                if not self._link.publish(topic, payload, retain=retain):
                    self._refused(topic, "the link did not take it")
            case Listen(filters):
                self._link.subscribe(sorted(filters - self._filters))
                self._link.unsubscribe(sorted(self._filters - filters))
                self._filters = filters
            case ForgetExamples(change):
                self._store.forget_examples(change)
            case Fit(change, size):
                job = fit_job(self._store, self.gateway, change, size)
                self._fitter.submit(job, self._clock.now_ms())

    # -- how it goes ---------------------------------------------------------------------------

    def _say_alive(self) -> None:
        """Feed the watchdog; a link that will never work again ends us instead (`LinkError`)."""
        self._link.check()
        self._notify.alive(self._clock.passed_ms())

    def _tell_of(self, fit: FitRecord) -> None:
        log.info(
            "fitted",
            change=fit.change,
            size=fit.size,
            chosen=fit.chosen,
            pushed=fit.pushed,
            pooled=len(fit.pooled),
            refused=len(fit.refused),
        )

    def _refused(self, topic: str, reason: str) -> None:
        self.counts["publish_refused"] += 1
        count = self.counts["publish_refused"]
        if log.worth_a_line(count):
            log.warning("publication refused", topic=topic, reason=reason, count=count)

    def _complain(self, what: str, error: DatabaseError) -> None:
        self.counts[what] += 1
        if log.worth_a_line(self.counts[what]):
            log.error(what, why=error, count=self.counts[what])


class OrderWave:
    """From the first order that nobody has obeyed yet until all are obeyed."""

    def __init__(self) -> None:
        self._signed_before = 0
        self._began_ms: int | None = None

    def follow(self, gateway: Gateway, began_ms: int, now_ms: int) -> None:
        """Look at the end of a round that began at `began_ms`."""
        under_way = gateway.busy or gateway.publisher.waiting > 0
        signed = gateway.counts["orders"]
        if under_way and self._began_ms is None:
            self._began_ms = began_ms
        elif not under_way and self._began_ms is not None:
            seconds = f"{(now_ms - self._began_ms) / 1000:.2f}"
            log.info("all orders reported", orders=signed - self._signed_before, seconds=seconds)
            self._began_ms = None
        if not under_way:
            self._signed_before = signed
