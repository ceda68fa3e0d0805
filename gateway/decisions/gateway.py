"""The gateway: messages, commands and time in, actions out. No I/O.

Handlers write records; `tick` derives from the records what is due. So `handle` returns nothing:
what it decides is `put` into the fleet. Whoever runs the gateway saves `fleet.take_unsaved()` in
one transaction, and only then performs the actions of the ticks so far. Killed before, the message
comes again; killed after, `on_connected` publishes every order that has not been reported. So
nothing is done twice, nothing is forgotten, and there is no recovery code.

| message | what the gateway does |
|---|---|
| `introduction` | adopts a node of its groups: its sensors, its layout, a first order |
| `status` | notes what the node has obeyed; where it knows more than we do, orders anew |
| sensor retired, silent, returned, deployed | `registry.events` |
| `summary` | keeps it for pooling |
| `example` | one more labelled instance of the node's change |
| `reading` | only while a sensor is being measured |

What a node says once, and what stands nowhere else, is confirmed when it is saved, and where it was
refused: the node repeats it until then. Nobody misses a confirmation that is lost with us: the
repetition is confirmed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from nacl.signing import SigningKey

from edge_opid.errors import OpidError
from edge_opid.reasons import INFO, Reason
from edge_opid.tally import Tally
from edge_opid.wire import (
    LIMITS,
    REPEATED,
    Channel,
    Confirmed,
    Event,
    Example,
    Introduction,
    Message,
    NodeTopics,
    Reading,
    ScaleMeasured,
    SensorDeployed,
    SensorRemeasured,
    SensorRetired,
    SensorReturned,
    SensorSilent,
    Status,
    SummaryMessage,
    Topic,
    decode_on,
    digest,
    encode,
    gateway_filters,
)
from gateway.decisions.actions import Action, Listen, Publish, Recall
from gateway.decisions.changes import Changes
from gateway.decisions.cohorts import advance, close_empty, take_settled
from gateway.decisions.orders import OrderPublisher, OrderQueue
from gateway.decisions.retirement import Retirement
from gateway.decisions.timekeeping import Timekeeping
from gateway.policy import Group, Policy
from gateway.reasons import GatewayReason, refused
from gateway.registry import ChangeState, EventError, FitRecord, NodeKey, SummaryRecord
from gateway.registry.adoption import adopt, unannounced_sentence
from gateway.registry.agenda import Agenda
from gateway.registry.events import apply_event, reconcile
from gateway.registry.fleet import Fleet, StoredFleet
from gateway.registry.measuring import Measuring
from gateway.registry.overlap import KnownModel
from gateway.registry.reports import (
    check_reach,
    check_summary,
    is_ahead,
    is_as_ordered,
    is_beyond_reach,
    note_status,
    renumber_layout,
)

EVENTS: dict[type[Any], Reason] = {
    SensorRetired: GatewayReason.SENSOR_RETIRED,
    SensorSilent: GatewayReason.SENSOR_SILENT,
    SensorReturned: GatewayReason.SENSOR_RETURNED,
    SensorRemeasured: GatewayReason.SENSOR_REMEASURED,
    ScaleMeasured: GatewayReason.SCALE_MEASURED,
    SensorDeployed: GatewayReason.SENSOR_DEPLOYED,
}
COMPLAINTS_MAX = 16
_parsed = lru_cache(maxsize=32_768)(Topic.parse)
"""A node speaks on three topics for ever: each is looked at once."""


class Gateway:
    """Everything a gateway decides."""

    def __init__(
        self,
        policy: Policy,
        groups: Iterable[Group],
        key: SigningKey,
        stored: StoredFleet | None = None,
        pushed: Mapping[int, FitRecord] | None = None,
        agenda: Agenda | None = None,
    ) -> None:
        self.policy = policy
        self.fleet = Fleet(groups, stored, agenda)
        self.changes = Changes(self.fleet, policy, pushed or {})
        self.publisher = OrderPublisher(self.fleet, key, policy.retry_s, policy.retry_max_s)
        self.orders = OrderQueue(self.fleet, self.changes, self.publisher)
        self.tally = Tally()
        self._measuring = Measuring(policy.measure_readings, policy.overlap_readings)
        self._retirement = Retirement(self.fleet, policy)
        self._heard: set[NodeKey] = set()
        self._settling = False
        self._to_confirm: dict[NodeKey, list[str]] = {}
        self._time = Timekeeping(self.fleet)
        self._handlers: dict[type[Any], Callable[[NodeKey, Any, bytes, int], None]] = {
            Introduction: self._introduction,
            Status: self._status,
            SummaryMessage: self._summary,
            Example: self._example,
            Reading: self._reading,
        }

    @property
    def counts(self) -> Counter[Reason]:
        """Everything that happened since the process began, by reason."""
        return self.tally.counts

    @property
    def complaints(self) -> list[str]:
        """What is to be logged and was not yet, in sentences; the last of it."""
        lines = (each for each in self.tally.lines if each.reason.level != INFO)
        return [str(line.fields["why"]) for line in lines][-COMPLAINTS_MAX:]

    def subscriptions(self) -> dict[str, int]:
        """What is always listened to, and with which quality of service."""
        sites = sorted({group.site for group in self.fleet.groups.values()})
        return {str(each): 1 for site in sites for each in gateway_filters(site)}

    # -- messages ------------------------------------------------------------------------------

    def handle(self, topic: str, payload: bytes, now_ms: int) -> None:
        """Write the records of one message; `tick` derives what is due. Whatever the bytes."""
        self.tally.begin(topic, payload, now_ms)
        try:
            self._dispatch(topic, payload, now_ms)
        except OpidError as error:
            self._refuse(error)

    def _dispatch(self, topic: str, payload: bytes, now_ms: int) -> None:
        parsed = _parsed(topic)
        key = parsed.site, parsed.node
        if self.fleet.group_of(key) is None:
            raise EventError("stranger", f"node {'/'.join(key)} is in no group of this gateway")
        message = decode_on(parsed.channel, payload)
        if isinstance(message, REPEATED):
            self._to_confirm.setdefault(key, []).append(digest(payload))
        handler = self._handlers.get(type(message))
        if handler is not None:
            handler(key, message, payload, now_ms)
        else:
            self._happen(key, message, now_ms)  # type: ignore[arg-type]  # an event

    def command(self, key: NodeKey, event: Event, now_ms: int) -> str:
        """An operator's announcement; the sentence why not, or nothing."""
        self.tally.begin("", b"", now_ms)
        try:
            self._happen(key, event, now_ms)
        except OpidError as error:
            self._refuse(error)
            return str(error)
        return ""

    def relearn(self, key: NodeKey, now_ms: int) -> str:
        """Fit the node's group anew, though no sensor came or went; the sentence why not.

        It is a change like any other, with the same columns before and after. A change that is
        open will be fitted anyway.
        """
        self.tally.begin("", b"", now_ms)
        if key not in self.fleet.nodes:
            return f"no node {'/'.join(key)} is known"
        change = self.fleet.changes.get(self.fleet.layouts[key].change)
        if change is None or change.state != ChangeState.GATHERING:
            self._advance(key, now_ms)
        return ""

    def check_label(self, key: NodeKey, message: Message) -> None:
        """Refuse what a node would not take: it has no way to tell whoever gave the label."""
        group = self.fleet.group_of(key)
        if group is None:
            raise EventError("stranger", f"node {'/'.join(key)} is in no group of this gateway")
        label = getattr(message, "label", None)
        if label is not None and label not in group.classes:
            there = ", ".join(group.classes)
            raise EventError("class", f"{label!r} is not a class of group {group.id}: {there}")

    def forget(self, key: NodeKey, now_ms: int) -> list[Action]:
        """An operator wants nothing of this node to be known; the broker forgets its order, too.

        Raises an `EventError` where nothing is.
        """
        if key not in self.fleet.nodes:
            raise EventError("unknown-node", f"no node {'/'.join(key)} is known")
        change = self.fleet.layouts[key].change
        self.fleet.forget(key)
        self.orders.forget(key)
        self.publisher.forget(key)
        close_empty(self.fleet, change, now_ms)
        self.tally.begin("", b"", now_ms)
        self.tally.note(GatewayReason.FORGOTTEN, about="/".join(key), node="/".join(key))
        return [Publish(str(Topic(*key, Channel.DESIRED)), b"", retain=True)]

    def _refuse(self, error: OpidError) -> None:
        self.tally.note(refused(error), why=str(error))

    def _happen(self, key: NodeKey, event: Event, now_ms: int) -> None:
        apply_event(self.fleet, key, event, now_ms)
        where = "/".join(key)
        self.tally.note(EVENTS[type(event)], about=where, node=where, sensor=event.sensor)

    def _introduction(self, key: NodeKey, message: Introduction, _: bytes, now_ms: int) -> None:
        group = self.fleet.group_of(key)
        assert group is not None  # strangers were refused
        if adopt(self.fleet, key, group, message, now_ms):
            self.tally.note(GatewayReason.ADOPTED, about="/".join(key), node="/".join(key))
            self.orders.want(key)
            return
        versions = message.version, message.layout_version
        if is_ahead(self.fleet, key, *versions, message.sensors):
            self._order_anew(key, *versions, now_ms)
        self._order_within_reach(key, message.version, now_ms)
        sentence = unannounced_sentence(self.fleet, key, message)
        if sentence:
            self.tally.note(GatewayReason.UNANNOUNCED, about="/".join(key), why=sentence)

    def _status(self, key: NodeKey, status: Status, payload: bytes, now_ms: int) -> None:
        node = self.fleet.nodes.get(key)
        if node is None:
            self.counts[GatewayReason.NOT_INTRODUCED] += 1  # its introduction follows
            return
        if status.time_ms is None:  # its last will, with the versions of when it started
            self.fleet.put(replace(node, online=False))
            return
        as_ordered = is_as_ordered(self.fleet, key, status.version, status.layout_version)
        if not as_ordered:
            check_reach(self.fleet, key, status.version, status.layout_version, now_ms)
        if self._time.compare(key, status.time_ms, now_ms):
            self.counts[GatewayReason.CLOCK_CONFIRMED] += 1
        note_status(self.fleet, key, status, payload, now_ms)
        self.publisher.note_report(key, now_ms)
        reconcile(self.fleet, key, status.silent, now_ms)
        if as_ordered:
            return
        if is_ahead(self.fleet, key, status.version, status.layout_version):
            self._order_anew(key, status.version, status.layout_version, now_ms)
        self._order_within_reach(key, status.version, now_ms)

    def _order_anew(self, key: NodeKey, version: int, layout_version: int, now_ms: int) -> None:
        """A node that has obeyed more than we remember: our memory is an older one, or it lies."""
        self._doubt(
            key,
            GatewayReason.OVERTAKEN,
            f"{'/'.join(key)} says that it obeys order {version} and layout {layout_version}, and "
            f"was given {self.fleet.issued(key)} and {self.fleet.layouts[key].version}: it is "
            "ordered anew, above both; unless the database was restored from a backup, somebody "
            "speaks in its name",
            now_ms,
        )
        renumber_layout(self.fleet, key, layout_version, now_ms)
        self.orders.want(key)

    def _order_within_reach(self, key: NodeKey, version: int, now_ms: int) -> None:
        """A node that would refuse its order as too far ahead: somebody else has spoken for it."""
        if not is_beyond_reach(self.fleet, key, version):
            return
        self._doubt(
            key,
            GatewayReason.BEYOND_REACH,
            f"{'/'.join(key)} obeys order {version}, and its order in force has "
            f"{self.fleet.orders[key].version}, too far ahead for it: somebody has spoken in its "
            "name; it is ordered anew, within its reach",
            now_ms,
        )
        self.orders.want(key)

    def _doubt(self, key: NodeKey, kind: Reason, sentence: str, now_ms: int) -> None:
        self.tally.note(kind, about="/".join(key), why=sentence)
        self.fleet.doubt(key, kind.value, sentence, now_ms)

    def _summary(self, key: NodeKey, message: SummaryMessage, payload: bytes, now_ms: int) -> None:
        everything = message.everything.readings if message.everything else 0
        claimed = max(message.readings, everything)
        check_summary(self.fleet, key, message.layout_version, claimed, now_ms)
        self.counts[GatewayReason.SUMMARIES] += 1
        self._measuring.overlaps.forget_model(key)
        self.fleet.put(
            SummaryRecord(
                site=key[0],
                node=key[1],
                layout_version=message.layout_version,
                payload=payload,
                at_ms=now_ms,
            )
        )

    def _example(self, key: NodeKey, example: Example, *_: object) -> None:
        self.tally.note(self.changes.gather(key, example), about="/".join(key))

    def _reading(self, key: NodeKey, reading: Reading, _: bytes, now_ms: int) -> None:
        done = self._measuring.add_values(self.fleet, key, reading.values, now_ms)
        self.counts[GatewayReason.MEASURED] += len(done)
        for sentence in self._measuring.take_remarks():
            self.tally.note(GatewayReason.VALUES_SET_ASIDE, about="/".join(key), why=sentence)

    # -- time ----------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> list[Action]:
        """Do what is due: retire, advance layouts, fit, publish again, listen to whom we must."""
        self.tally.begin("", b"", now_ms)
        self._say(self._time.begin(now_ms))
        sure = self._time.sure
        for error in self._retirement.retire_due(now_ms, self.tally, sure=sure):
            self._refuse(error)
        heard = self._measuring.refresh(self.fleet)
        stirred = self._measuring.take_stirred(self.fleet)
        for each in self._measuring.take_over(self.fleet, stirred, now_ms):
            where = f"{each.site}/{each.node}"
            self.tally.note(
                GatewayReason.TOOK_OVER, about=where, node=where, sensor=each.id, old=each.replaces
            )
        settled, self._settling = take_settled(self.fleet, self.policy, now_ms)
        for key in settled:
            self._advance(key, now_ms)
        actions: list[Action] = []
        for key in self.orders.take():
            actions += self._order(key, now_ms)
        if not self._settling:  # a fit waits for the last member of its cohort
            actions += self.changes.take_due(now_ms, sure=sure)
        actions += self.publisher.take_due(now_ms)
        if unread := self._measuring.overlaps.take_unread():
            actions.append(Recall(unread))
        actions += self._take_confirmations()
        self.fleet.put_heard(now_ms, busy=self.busy or self.publisher.waiting > 0)
        if heard != self._heard:
            self._heard = heard
            wanted = (str(NodeTopics(*key).reading_filter()) for key in heard)
            actions.append(Listen(frozenset(wanted)))
        return actions

    def _take_confirmations(self) -> list[Action]:
        """One for each node that has said something since the last tick, or a few."""
        waiting, self._to_confirm = self._to_confirm, {}
        most = LIMITS.confirmed_max
        return [
            Publish(str(Topic(*key, Channel.CONFIRMED)), encode(Confirmed(tuple(some))))
            for key, digests in waiting.items()
            for some in (digests[at : at + most] for at in range(0, len(digests), most))
        ]

    def on_clock_set(self, step_ms: int, now_ms: int) -> None:
        """Somebody has set the clock, by so much, to now."""
        self.tally.begin("", b"", now_ms)
        self._say(self._time.begin(now_ms - step_ms))
        self._say(self._time.shift(step_ms, now_ms))
        self._retirement.shift(step_ms)
        self.publisher.shift(step_ms)

    def _say(self, sentence: str) -> None:
        if sentence:
            self.tally.note(GatewayReason.CLOCK, why=sentence)

    def _advance(self, key: NodeKey, now_ms: int) -> None:
        try:
            advance(self.fleet, key, self.policy, now_ms)
        except OpidError as error:  # what cannot be done for one is done for the others
            self._refuse(error)
            return
        self.tally.note(GatewayReason.LAYOUTS, about="/".join(key), node="/".join(key))
        self.orders.want(key)

    def _order(self, key: NodeKey, now_ms: int) -> list[Action]:
        try:
            published = self.orders.order(key, now_ms)
        except OpidError as error:
            self._refuse(error)
            return []
        self.counts[GatewayReason.ORDERS] += 1
        return [published]

    @property
    def busy(self) -> bool:
        """Whether there are layouts to be made, or orders to be signed yet."""
        return self._settling or self.orders.busy

    # -- fits ----------------------------------------------------------------------------------

    def on_fitted(self, fit: FitRecord) -> None:
        """A fit is done: keep it, and where it is better, tell every member."""
        self.counts[GatewayReason.FITS] += 1
        for node, why in fit.refused.items():
            sentence = f"change {fit.change} was fitted without {node}: {why}"
            self.tally.note(GatewayReason.FIT_WITHOUT, about=node, why=sentence)
        if self.changes.keep_fit(fit):
            for key in self.fleet.members(fit.change):
                self.orders.want(key)

    def on_fit_failed(self, change: int, why: str) -> None:
        """A fit that raised is counted; it is tried again when the batch has grown."""
        sentence = f"change {change} could not be fitted: {why}"
        self.tally.note(GatewayReason.FIT_FAILED, about=str(change), why=sentence)

    # -- what nodes know -----------------------------------------------------------------------

    def on_recalled(self, models: Mapping[NodeKey, KnownModel | None]) -> None:
        """What nodes have said of what they know: new sensors are judged by it."""
        for key, model in models.items():
            self._measuring.overlaps.know(key, model)

    # -- the connection ------------------------------------------------------------------------

    def on_connected(self, session_present: bool, now_ms: int) -> list[Action]:
        """Publish what may not have arrived: the unreported orders, or all if all was lost."""
        self._retirement.listen(now_ms)
        keys = self.publisher.unreported() if session_present else list(self.fleet.orders)
        return [*self.publisher.publish_again(keys, now_ms)]

    def on_disconnected(self) -> None:
        """Nothing is heard until `on_connected`: nobody's silence counts meanwhile."""
        self._retirement.listen(None)
