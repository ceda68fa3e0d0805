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
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from nacl.signing import SigningKey

from edge_opid.errors import OpidError
from edge_opid.wire import (
    Channel,
    Event,
    Example,
    Introduction,
    NodeTopics,
    Reading,
    Status,
    SummaryMessage,
    Topic,
    decode_on,
    gateway_filters,
)
from gateway.decisions.actions import Action, Listen, Publish
from gateway.decisions.changes import Changes
from gateway.decisions.cohorts import advance, close_empty, take_settled
from gateway.decisions.orders import OrderPublisher, OrderQueue
from gateway.decisions.retirement import Retirement
from gateway.decisions.timekeeping import KIND, Timekeeping
from gateway.policy import Group, Policy
from gateway.registry import EventError, FitRecord, NodeKey, SummaryRecord
from gateway.registry.adoption import adopt, unannounced_sentence
from gateway.registry.events import apply_event, reconcile
from gateway.registry.fleet import Fleet, StoredFleet
from gateway.registry.measuring import Measuring
from gateway.registry.reports import (
    check_reach,
    check_summary,
    is_ahead,
    is_beyond_reach,
    note_status,
    renumber_layout,
)

EXPECTED = frozenset({"late", "stale"})
"""Refusals that brokers and distance bring about: counted, and not worth a line."""


class Gateway:
    """Everything a gateway decides."""

    def __init__(
        self,
        policy: Policy,
        groups: Iterable[Group],
        key: SigningKey,
        stored: StoredFleet | None = None,
        pushed: Mapping[int, FitRecord] | None = None,
    ) -> None:
        self.policy = policy
        self.fleet = Fleet(groups, stored)
        self.fleet.touched.update(self.fleet.nodes)
        self.changes = Changes(self.fleet, policy, pushed or {})
        self.publisher = OrderPublisher(self.fleet, key, policy.retry_s, policy.retry_max_s)
        self.orders = OrderQueue(self.fleet, self.changes, self.publisher)
        self.counts: Counter[str] = Counter()
        self.complaints: deque[str] = deque(maxlen=16)
        """What was refused lately, in sentences, for the log."""
        self._measuring = Measuring(policy.measure_readings)
        self._retirement = Retirement(self.fleet, policy)
        self._listening: frozenset[str] = frozenset()
        self._time = Timekeeping(self.fleet)
        self._handlers: dict[type[Any], Callable[[NodeKey, Any, bytes, int], None]] = {
            Introduction: self._introduction,
            Status: self._status,
            SummaryMessage: self._summary,
            Example: self._example,
            Reading: self._reading,
        }

    def subscriptions(self) -> dict[str, int]:
        """What is always listened to, and with which quality of service."""
        sites = sorted({group.site for group in self.fleet.groups.values()})
        return {str(each): 1 for site in sites for each in gateway_filters(site)}

    # -- messages ------------------------------------------------------------------------------

    def handle(self, topic: str, payload: bytes, now_ms: int) -> None:
        """Write the records of one message; `tick` derives what is due. Whatever the bytes."""
        try:
            self._dispatch(topic, payload, now_ms)
        except OpidError as error:
            self._refuse(error)

    def _dispatch(self, topic: str, payload: bytes, now_ms: int) -> None:
        parsed = Topic.parse(topic)
        key = parsed.site, parsed.node
        if self.fleet.group_of(key) is None:
            raise EventError("stranger", f"node {'/'.join(key)} is in no group of this gateway")
        message = decode_on(parsed.channel, payload)
        handler = self._handlers.get(type(message))
        if handler is not None:
            handler(key, message, payload, now_ms)
        else:
            self._happen(key, message, now_ms)  # type: ignore[arg-type]  # an event

    def command(self, key: NodeKey, event: Event, now_ms: int) -> str:
        """An operator's announcement; the sentence why not, or nothing."""
        try:
            self._happen(key, event, now_ms)
        except OpidError as error:
            self._refuse(error)
            return str(error)
        return ""

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
        self.counts["forgotten"] += 1
        return [Publish(str(Topic(*key, Channel.DESIRED)), b"", retain=True)]

    def _refuse(self, error: OpidError) -> None:
        reason = getattr(error, "reason", "error")
        self.counts[f"refused-{reason}"] += 1
        if reason not in EXPECTED:
            self.complaints.append(str(error))

    def _happen(self, key: NodeKey, event: Event, now_ms: int) -> None:
        apply_event(self.fleet, key, event, now_ms)
        self.counts[event.kind] += 1

    def _introduction(self, key: NodeKey, message: Introduction, _: bytes, now_ms: int) -> None:
        group = self.fleet.group_of(key)
        assert group is not None  # strangers were refused
        if adopt(self.fleet, key, group, message, now_ms):
            self.counts["adopted"] += 1
            self.orders.want(key)
            return
        versions = message.version, message.layout_version
        if is_ahead(self.fleet, key, *versions, message.sensors):
            self._order_anew(key, *versions, now_ms)
        self._order_within_reach(key, message.version, now_ms)
        sentence = unannounced_sentence(self.fleet, key, message)
        if sentence:
            self.counts["unannounced"] += 1
            self.complaints.append(sentence)

    def _status(self, key: NodeKey, status: Status, payload: bytes, now_ms: int) -> None:
        node = self.fleet.nodes.get(key)
        if node is None:
            self.counts["not-introduced"] += 1  # its introduction follows
            return
        if status.time_ms is None:  # its last will, with the versions of when it started
            self.fleet.put(replace(node, online=False))
            return
        check_reach(self.fleet, key, status.version, status.layout_version, now_ms)
        if self._time.compare(key, status.time_ms, now_ms):
            self.counts["clock-confirmed"] += 1
        if note_status(self.fleet, key, status, payload, now_ms):
            self.publisher.note_report(key, now_ms)
        reconcile(self.fleet, key, status.silent, now_ms)
        if is_ahead(self.fleet, key, status.version, status.layout_version):
            self._order_anew(key, status.version, status.layout_version, now_ms)
        self._order_within_reach(key, status.version, now_ms)

    def _order_anew(self, key: NodeKey, version: int, layout_version: int, now_ms: int) -> None:
        """A node that has obeyed more than we remember: our memory is an older one, or it lies."""
        self._doubt(
            key,
            "overtaken",
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
            "beyond-reach",
            f"{'/'.join(key)} obeys order {version}, and its order in force has "
            f"{self.fleet.orders[key].version}, too far ahead for it: somebody has spoken in its "
            "name; it is ordered anew, within its reach",
            now_ms,
        )
        self.orders.want(key)

    def _doubt(self, key: NodeKey, kind: str, sentence: str, now_ms: int) -> None:
        self.counts[kind] += 1
        self.complaints.append(sentence)
        self.fleet.doubt(key, kind, sentence, now_ms)

    def _summary(self, key: NodeKey, message: SummaryMessage, payload: bytes, now_ms: int) -> None:
        check_summary(self.fleet, key, message.layout_version, message.readings, now_ms)
        self.counts["summaries"] += 1
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
        self.counts[self.changes.gather(key, example)] += 1

    def _reading(self, key: NodeKey, reading: Reading, _: bytes, now_ms: int) -> None:
        done = self._measuring.add_values(self.fleet, key, reading.values, now_ms)
        self.counts["measured"] += len(done)
        for sentence in self._measuring.take_remarks():
            self.counts["values-set-aside"] += 1
            self.complaints.append(sentence)

    # -- time ----------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> list[Action]:
        """Do what is due: retire, advance layouts, fit, publish again, listen to whom we must."""
        self._say(self._time.begin(now_ms))
        sure = self._time.sure
        for error in self._retirement.retire_due(now_ms, self.counts, sure=sure):
            self._refuse(error)
        for key in take_settled(self.fleet, self.policy, now_ms):
            self._advance(key, now_ms)
        actions: list[Action] = []
        for key in self.orders.take():
            actions += self._order(key, now_ms)
        actions += self.changes.take_due(now_ms, sure=sure)
        actions += self.publisher.take_due(now_ms)
        wanted = self._wanted_filters()
        if wanted != self._listening:
            self._listening = wanted
            actions.append(Listen(wanted))
        return actions

    def on_clock_set(self, step_ms: int, now_ms: int) -> None:
        """Somebody has set the clock, by so much, to now."""
        self._say(self._time.begin(now_ms - step_ms))
        self._say(self._time.shift(step_ms, now_ms))
        self._retirement.shift(step_ms)
        self.publisher.shift(step_ms)

    def _say(self, sentence: str) -> None:
        if sentence:
            self.counts[KIND] += 1
            self.complaints.append(sentence)

    def _advance(self, key: NodeKey, now_ms: int) -> None:
        try:
            advance(self.fleet, key, self.policy, now_ms)
        except OpidError as error:  # what cannot be done for one is done for the others
            self._refuse(error)
            return
        self.counts["layouts"] += 1
        self.orders.want(key)

    def _order(self, key: NodeKey, now_ms: int) -> list[Action]:
        try:
            published = self.orders.order(key, now_ms)
        except OpidError as error:
            self._refuse(error)
            return []
        self.counts["orders"] += 1
        return [published]

    @property
    def busy(self) -> bool:
        """Whether there are orders to be signed yet."""
        return self.orders.busy

    def _wanted_filters(self) -> frozenset[str]:
        keys = self._measuring.refresh(self.fleet)
        return frozenset(str(NodeTopics(*key).reading_filter()) for key in keys)

    # -- fits ----------------------------------------------------------------------------------

    def on_fitted(self, fit: FitRecord) -> None:
        """A fit is done: keep it, and where it is better, tell every member."""
        self.counts["fits"] += 1
        for node, why in fit.refused.items():
            self.counts["fit-without"] += 1
            self.complaints.append(f"change {fit.change} was fitted without {node}: {why}")
        if self.changes.keep_fit(fit):
            for key in self.fleet.members(fit.change):
                self.orders.want(key)

    def on_fit_failed(self, change: int, why: str) -> None:
        """A fit that raised is counted; it is tried again when the batch has grown."""
        self.counts["fit-failed"] += 1
        self.complaints.append(f"change {change} could not be fitted: {why}")

    # -- the connection ------------------------------------------------------------------------

    def on_connected(self, session_present: bool, now_ms: int) -> list[Action]:
        """Publish what may not have arrived: the unreported orders, or all if all was lost."""
        self._retirement.listen(now_ms)
        keys = self.publisher.unreported() if session_present else list(self.fleet.orders)
        return [*self.publisher.publish_again(keys, now_ms)]

    def on_disconnected(self) -> None:
        """Nothing is heard until `on_connected`: nobody's silence counts meanwhile."""
        self._retirement.listen(None)
