"""The loop that runs a gateway: broker and database on one side, decisions on the other.

The rules of a round, in the order of the code:

1. Take in what came: messages, operators' commands, finished fits, time.
2. Save all that was decided in one transaction. A database that refuses for a while (locked,
   restarted, disk full or failing) is asked again, at growing intervals; until then nothing more is
   taken in, and the log and systemd's status say so.
3. Only then publish, subscribe, fit, and acknowledge the messages: killed before, they come again.
   What a fit needs of a large group is read over several rounds.

How long it takes until every node has done what it was told: a line in the log for each wave.
"""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from edge_opid import log
from edge_opid.link.contract import (
    Connected,
    Delivery,
    Disconnected,
    Link,
    LinkEvent,
    PublishRefused,
)
from edge_opid.reasons import ServiceReason
from edge_opid.service.base_loop import POLL_S, BaseLoop, write_lines
from edge_opid.service.status_file import write_status
from edge_opid.service.systemd import Systemd
from edge_opid.wire import Channel, Message, Topic, WireError, decode
from edge_opid.wire.codec import MESSAGES_ON
from gateway.clock import GatewayClock
from gateway.decisions.actions import Action, Fit, ForgetExamples, Listen, Publish, Recall
from gateway.decisions.gateway import Gateway
from gateway.fitting.worker import FitFailed, Fitter
from gateway.label_courier import LabelCourier
from gateway.reasons import GatewayReason
from gateway.recall import FitPreparation, long_memories
from gateway.registry import EventError, FitRecord, NodeKey, Record
from gateway.registry.events import ANNOUNCEMENTS
from gateway.registry.history import HOUR_MS
from gateway.store import FORGET, RELEARN, CommandRecord, DatabaseError, FleetStore

COMMANDS_MS = 500  # between two looks for operators' commands
TICK_MS = 200
GATHER_S = 0.1  # for messages to gather while little comes
FULL_ROUND = 16  # messages: a broker that has 20 under way at a time waits for us soon
STATUS_MS = 3_000  # between two status files
LABEL_WAIT_MS = 60_000  # the longest a label waits to be withdrawn; later is a wrong clock
RETRY_S = 1.0  # before a database that refused is asked again; twice as long each time …
RETRY_MAX_S = 32.0  # … up to this
COMMANDS: tuple[type[Message], ...] = (*ANNOUNCEMENTS, *MESSAGES_ON[Channel.LABEL])
"""What may be left in the database: what operators announce, and what people say of instances."""


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
        status_file: Path | None = None,
    ) -> None:
        super().__init__(link, clock, systemd, poll_s)
        self._status_file, self._status_ms = status_file, -STATUS_MS
        self.gateway, self._store, self._fitter = gateway, store, fitter
        self._actions: list[Action] = []
        self._deliveries: list[Delivery] = []
        self._records: list[Record] = []  # taken from the fleet, not saved yet
        self._outcomes: dict[int, str] = {}
        self._looked_ms: int | None = None  # both by the time that has passed in this life
        self._ticked_ms: int | None = None
        self._filters: frozenset[str] = frozenset()
        self._wave = OrderWave()
        self._labels = LabelCourier(link)
        self._tidied_ms: int | None = None
        self._took = 0  # messages, in the last round
        self._preparing: deque[FitPreparation] = deque()  # fits whose members are being read

    def run(self) -> int:
        """As every loop; the fitter's thread ends with it."""
        try:
            return super().run()
        finally:
            self._fitter.stop()

    def round(self) -> None:
        """One turn: take in, decide, save, and only then perform."""
        self._follow_clock()
        began = Moment(self._clock.now_ms(), time.process_time())
        self._let_gather()
        self._take_in(0.0 if self._busy else self._poll_s)
        self._took = len(self._deliveries)
        self._take_commands()
        self._take_fits()
        self._tick()
        self._settle()
        self._prepare_fit()
        self._tidy()
        self._wave.follow(self.gateway, began, Moment(self._clock.now_ms(), time.process_time()))
        if self._clock.passed_ms() >= self._status_ms + STATUS_MS:
            self._write_status(running=True)
        self._say_alive()

    def _let_gather(self) -> None:
        """A moment's rest while little comes: ten messages at once cost little more than one.

        Not where the last round was a full one, as in a wave, or where a broker that has few
        messages under way at a time waits for our acknowledgements.
        """
        if not self._busy and self._took < FULL_ROUND:
            time.sleep(min(GATHER_S, self._poll_s))

    @property
    def _busy(self) -> bool:
        """Whether there is something to do, whatever comes."""
        return self.gateway.busy or bool(self._preparing)

    def _subscriptions(self) -> Mapping[str, int]:
        return self.gateway.subscriptions()

    def _begin(self) -> dict[str, object]:
        self.gateway.on_disconnected()  # until the link says otherwise
        fleet = self.gateway.fleet
        return {"nodes": len(fleet.nodes), "changes": len(fleet.changes)}

    def _finish(self) -> dict[str, object]:
        self.gateway.fleet.put_all_heard(self._clock.now_ms())
        self._settle()
        self._write_status(running=False)
        return {}

    def _follow_clock(self) -> None:
        step_ms = self._clock.follow()
        if step_ms:
            self.counts[GatewayReason.CLOCK_SET] += 1
            self.gateway.on_clock_set(step_ms, self._clock.now_ms())

    # -- 1: what comes in ----------------------------------------------------------------------

    def _handle(self, delivery: Delivery) -> bool:
        self.gateway.handle(delivery.topic, delivery.payload, self._clock.now_ms())
        self._deliveries.append(delivery)
        return True

    def _hear(self, event: LinkEvent) -> None:
        super()._hear(event)
        if isinstance(event, PublishRefused):
            self._labels.refuse(event.topic, event.reason)

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
                self._note(GatewayReason.RECLAIMED)
            commands = self._store.commands()
        except DatabaseError as error:
            self._note(GatewayReason.COMMANDS_UNREAD, why=error)
            return
        self._outcomes.update(self._labels.take_settled())
        for command in commands:
            if not self._labels.holds(command.id):
                outcome = self._obey(command, now_ms)
                if outcome:
                    self._outcomes[command.id] = outcome

    def _obey(self, command: CommandRecord, now_ms: int) -> str:
        """How it ended; nothing while it is under way."""
        key = command.site, command.node
        if command.payload == FORGET:
            return self._forget(key, now_ms)
        if command.payload == RELEARN:
            return self.gateway.relearn(key, now_ms) or "done"
        try:
            message: Message = decode(command.payload, *COMMANDS)
        except WireError as error:
            self._note(GatewayReason.COMMAND_REFUSED, about=command.node, why=error)
            return str(error)
        if not isinstance(message, ANNOUNCEMENTS):
            return self._label(command, message, now_ms)
        outcome = self.gateway.command(key, message, now_ms) or "done"
        log.info("command", node=command.node, what=message.kind, outcome=outcome)
        return outcome

    def _label(self, command: CommandRecord, message: Message, now_ms: int) -> str:
        """What a person says of an instance goes to its node; it is settled when it has arrived."""
        if 0 < command.at_ms - now_ms <= LABEL_WAIT_MS:
            return ""  # it can still be withdrawn
        key = command.site, command.node
        try:
            self.gateway.check_label(key, message)
        except EventError as error:
            self._note(GatewayReason.COMMAND_REFUSED, about=command.node, why=error)
            return str(error)
        topic = str(Topic(*key, Channel.LABEL))
        if self._publish(topic, command.payload, retain=False):  # else it is open, and comes again
            self._labels.await_confirmation(command.id, topic)
            self.counts[GatewayReason.LABELS] += 1
        return ""

    def _forget(self, key: NodeKey, now_ms: int) -> str:
        try:
            self._actions += self.gateway.forget(key, now_ms)
        except EventError as error:
            self._note(GatewayReason.COMMAND_REFUSED, about=key[1], why=error)
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
        write_lines(self.gateway.tally.take_lines())

    # -- 2: what must not be forgotten ---------------------------------------------------------

    def _settle(self) -> None:
        """Save, perform, acknowledge."""
        self._records += self.gateway.fleet.take_unsaved()
        if not self._insist(self._save):
            return  # told to stop: the last save has them, too, or nothing is acknowledged
        self._records.clear()
        self._labels.forget(self._outcomes)
        self._outcomes.clear()
        actions, self._actions = self._actions, []
        for action in actions:
            if isinstance(action, Publish):  # as nearly all: the database has no part in it
                self._publish(action.topic, action.payload, retain=action.retain)
            else:
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
                self._note(GatewayReason.DATABASE_REFUSES, why=error)
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
            self._link.serve(RETRY_S)
        return True

    def _save(self) -> None:
        if self._records or self._outcomes:
            self._store.save(self._records, self._outcomes)

    def _tidy(self) -> None:
        """Once an hour, thin out the history; while there is much of it, a little every round."""
        passed_ms = self._clock.passed_ms()
        if self._tidied_ms is not None and passed_ms - self._tidied_ms < HOUR_MS:
            return
        try:
            if not self._store.tidy_history(self._clock.now_ms()):
                self._tidied_ms = passed_ms
        except DatabaseError as error:  # nobody waits for it
            self._tidied_ms = passed_ms
            self._note(GatewayReason.HISTORY_UNTIDY, why=error)

    # -- 3: what is to be done -----------------------------------------------------------------

    def _publish(self, topic: str, payload: bytes, *, retain: bool, qos: int = 1) -> bool:
        taken = super()._publish(topic, payload, retain=retain, qos=qos)
        if taken:
            self._labels.count()
        return taken

    def _perform(self, action: Action) -> None:
        match action:
            case Listen(filters):
                self._link.subscribe(sorted(filters - self._filters))
                self._link.unsubscribe(sorted(self._filters - filters))
                self._filters = filters
            case ForgetExamples(change):
                self._store.forget_examples(change)
            case Fit():
                self._preparing.append(FitPreparation(self._store, self.gateway, action))
            case Recall(nodes):
                self.gateway.on_recalled(long_memories(self._store, self.gateway.fleet, nodes))

    def _prepare_fit(self) -> None:
        """Read some more of what the next fit needs; with the last of it the fit begins."""
        if self._preparing:
            self._insist(self._read_some)

    def _read_some(self) -> None:
        job = self._preparing[0].read_some()
        if job is not None:
            self._preparing.popleft()
            self._fitter.submit(job, self._clock.now_ms())

    # -- how it goes ---------------------------------------------------------------------------

    def _write_status(self, *, running: bool) -> None:
        """Everything that was refused or went wrong, for whoever looks at a running gateway."""
        self._status_ms = self._clock.passed_ms()
        if self._status_file is None:
            return
        try:
            write_status(self._status_file, self.health(running=running))
        except OSError as error:
            self._note(ServiceReason.STATUS_FILE_REFUSED, why=error)

    def health(self, *, running: bool = True) -> dict[str, object]:
        """How the gateway is: its connection, all that it counted, and the last of each refusal."""
        # Copies: whoever serves many sites asks from another thread.
        counted = Counter(dict(self.gateway.counts)) + Counter(dict(self.counts))
        counted.update(self._link.counters.dropped.copy())
        return {
            "running": running,
            "pid": os.getpid(),
            "time_ms": self._clock.now_ms(),
            **self.connection(),
            "counts": {reason.value: count for reason, count in sorted(counted.items())},
            "noted": {**self.gateway.tally.shown(), **self.tally.shown()},
        }

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


class Moment(NamedTuple):
    """When, and how much processor time this process had used by then."""

    at_ms: int
    cpu_s: float


class OrderWave:
    """From the first order that nobody has obeyed yet until all are obeyed."""

    def __init__(self) -> None:
        self._signed_before = 0
        self._began: Moment | None = None

    def follow(self, gateway: Gateway, began: Moment, now: Moment) -> None:
        """Look at the end of a round that began at `began`."""
        under_way = gateway.busy or gateway.publisher.waiting > 0
        signed = gateway.counts[GatewayReason.ORDERS]
        if under_way and self._began is None:
            self._began = began
        elif not under_way and self._began is not None:
            log.info(
                "all orders reported",
                orders=signed - self._signed_before,
                seconds=f"{(now.at_ms - self._began.at_ms) / 1000:.2f}",
                cpu_s=f"{now.cpu_s - self._began.cpu_s:.3f}",
            )
            self._began = None
        if not under_way:
            self._signed_before = signed
