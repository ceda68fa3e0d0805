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
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from edge_opid import log
from edge_opid.link.contract import Connected, Delivery, Disconnected, Link
from edge_opid.service.base_loop import POLL_S, BaseLoop
from edge_opid.service.systemd import Systemd
from edge_opid.wire import Event, SensorDeployed, SensorRetired, WireError, decode
from gateway.clock import GatewayClock
from gateway.decisions.actions import Action, Fit, ForgetExamples, Listen, Publish
from gateway.decisions.gateway import Gateway
from gateway.fitting.worker import FitFailed, Fitter
from gateway.recall import fit_job
from gateway.registry import EventError, FitRecord, NodeKey, Record
from gateway.store import FORGET, CommandRecord, DatabaseError, FleetStore

COMMANDS_MS = 500  # between two looks for operators' commands
TICK_MS = 200
RETRY_S = 1.0  # before a database that refused is asked again; twice as long each time …
RETRY_MAX_S = 32.0  # … up to this


class GatewayLoop(BaseLoop[GatewayClock]):
    """One gateway, its link and its store, until somebody calls `stop`."""

    deliveries_per_round = 512  # a wave of reports becomes a few transactions

    def __init__(
        self,
        gateway: Gateway,
        link: Link,
        store: FleetStore,
        clock: GatewayClock,
        fitter: Fitter,
        systemd: Systemd,
        *,
        poll_s: float = POLL_S,
    ) -> None:
        super().__init__(link, clock, systemd, poll_s)
        self.gateway, self._store, self._fitter = gateway, store, fitter
        self._actions: list[Action] = []
        self._deliveries: list[Delivery] = []
        self._outcomes: dict[int, str] = {}
        self._looked_ms: int | None = None  # both by the time that has passed in this life
        self._ticked_ms: int | None = None
        self._filters: frozenset[str] = frozenset()
        self._wave = OrderWave()

    def run(self) -> int:
        """As every loop; the fitter's thread ends with it."""
        try:
            return super().run()
        finally:
            self._fitter.stop()

    def round(self) -> None:
        """One turn: take in, decide, save, and only then perform."""
        self._follow_clock()
        began_ms = self._clock.now_ms()
        self._take_in(0.0 if self.gateway.busy else self._poll_s)
        self._take_commands()
        self._take_fits()
        self._tick()
        self._settle()
        self._wave.follow(self.gateway, began_ms, self._clock.now_ms())
        self._say_alive()

    def _subscriptions(self) -> Mapping[str, int]:
        return self.gateway.subscriptions()

    def _begin(self) -> dict[str, object]:
        self.gateway.on_disconnected()  # until the link says otherwise
        fleet = self.gateway.fleet
        return {"nodes": len(fleet.nodes), "changes": len(fleet.changes)}

    def _finish(self) -> dict[str, object]:
        self._settle()
        return {}

    def _follow_clock(self) -> None:
        step_ms = self._clock.follow()
        if step_ms:
            self.counts["clock_set"] += 1
            self.gateway.on_clock_set(step_ms, self._clock.now_ms())

    # -- 1: what comes in ----------------------------------------------------------------------

    def _handle(self, delivery: Delivery) -> bool:
        self.gateway.handle(delivery.topic, delivery.payload, self._clock.now_ms())
        self._deliveries.append(delivery)
        return True

    def _on_connected(self, event: Connected) -> None:
        now_ms = self._clock.now_ms()
        self._actions += self.gateway.on_connected(event.session_present, now_ms)

    def _on_disconnected(self, event: Disconnected) -> None:  # noqa: ARG002
        self.gateway.on_disconnected()

    def _take_commands(self) -> None:
        """What operators left in the database, twice a second; they must see that we serve it."""
        passed_ms, now_ms = self._clock.passed_ms(), self._clock.now_ms()
        if self._looked_ms is not None and passed_ms - self._looked_ms < COMMANDS_MS:
            return
        self._looked_ms = passed_ms
        try:
            if self._store.reclaim():
                self._note("reclaimed", "the lost lock is taken again")
            commands = self._store.commands()
        except DatabaseError as error:
            self._note_failed("commands cannot be read", error)
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
        for outcome in self._fitter.take_finished():
            match outcome:
                case FitRecord():
                    self._log_fit(outcome)
                    self.gateway.on_fitted(outcome)
                case FitFailed(change, why):
                    self.gateway.on_fit_failed(change, why)

    def _tick(self) -> None:
        passed_ms = self._clock.passed_ms()
        rested = self._ticked_ms is None or passed_ms - self._ticked_ms >= TICK_MS
        if self.gateway.busy or rested:
            self._ticked_ms = passed_ms
            self._actions += self.gateway.tick(self._clock.now_ms())
        while self.gateway.complaints:
            self._note("complaints", "refused", why=self.gateway.complaints.popleft())

    # -- 2: what must not be forgotten ---------------------------------------------------------

    def _settle(self) -> None:
        """Save, perform, acknowledge."""
        records = self.gateway.fleet.take_unsaved()
        if not self._insist(lambda: self._save(records)):
            return  # nothing was acknowledged: it all comes again
        self._outcomes.clear()
        actions, self._actions = self._actions, []
        for action in actions:
            self._insist(partial(self._perform, action))
        deliveries, self._deliveries = self._deliveries, []
        for delivery in deliveries:
            self._link.acknowledge(delivery)

    def _insist(self, attempt: Callable[[], None]) -> bool:
        """Try until the database does not refuse for a while; False when told to stop meanwhile.

        A `LeaderError` is not tried again: somebody else decides now, and what we believe may be
        out of date.
        """
        wait_s = RETRY_S
        while True:
            try:
                attempt()
            except DatabaseError as error:
                if not (error.transient or error.unsure):
                    raise
                self._note_failed("the database refuses", error)
                self._systemd.tell_status(f"waiting for the database: {error}")
            else:
                if wait_s > RETRY_S:
                    log.info("the database answers again")
                    self._systemd.tell_status("")
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
                self._publish(topic, payload, retain=retain)
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

    def _log_fit(self, fit: FitRecord) -> None:
        log.info(
            "fitted",
            change=fit.change,
            size=fit.size,
            chosen=fit.chosen,
            pushed=fit.pushed,
            pooled=len(fit.pooled),
            refused=len(fit.refused),
        )

    def _note_failed(self, event: str, error: DatabaseError) -> None:
        self._note(event, event, write=log.error, why=error)


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
