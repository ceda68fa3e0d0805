"""The gateway: messages, commands and time in, actions out. No I/O.

What it decides is `put` into the fleet; whoever runs it saves `fleet.take_unsaved()` in one
transaction, and only then performs the actions. Killed before, the message comes again; killed
after, `connected` publishes every order that has not been reported. So nothing is done twice, and
nothing is forgotten.

| message | what the gateway does |
|---|---|
| `introduction` | adopts a node of its groups: its sensors, its layout, a first order |
| `status` | notes what the node has obeyed; where it knows more than we do, orders anew |
| sensor retired, silent, returned, deployed | `registry.lives` |
| `summary` | keeps it for pooling |
| `example` | one more labelled instance of the node's change |
| `reading` | only while a sensor is being measured |
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from nacl.signing import SigningKey

from edge_opid.errors import OpidError
from edge_opid.wire import (
    Event,
    Example,
    Introduction,
    NodeTopics,
    Reading,
    Status,
    Summary,
    Topic,
    decode_on,
    gateway_filters,
)

from .actions import Action, Listen
from .changes import Changes
from .cohorts import advance_settled
from .ordering import Ordering
from .policy import Group, Policy
from .publish import Publisher
from .registry import (
    FitRecord,
    NodeKey,
    SummaryRecord,
)
from .registry.adoption import adopt
from .registry.fleet import Fleet, Stored
from .registry.lives import EventError, happen, overdue, reconcile, retire
from .registry.measuring import Measuring

EXPECTED = frozenset({"late", "stale"})
"""Refusals that brokers and distance bring about: counted, and not worth a line."""
SEEN_MS = 60_000
"""How often a status that says nothing new is worth a write."""


class Gateway:
    """Everything a gateway decides."""

    def __init__(
        self,
        policy: Policy,
        groups: Iterable[Group],
        key: SigningKey,
        stored: Stored | None = None,
        pushed: Mapping[int, FitRecord] | None = None,
    ) -> None:
        self.policy = policy
        self.fleet = Fleet(groups, stored)
        self.fleet.touched.update(self.fleet.nodes)
        self.changes = Changes(self.fleet, policy, pushed or {})
        self.publisher = Publisher(self.fleet, key, policy.retry_s, policy.retry_max_s)
        self.orders = Ordering(self.fleet, self.changes, self.publisher)
        self.counts: Counter[str] = Counter()
        self.complaints: deque[str] = deque(maxlen=16)
        """What was refused lately, in sentences, for the log."""
        self._measuring = Measuring(policy.measure_readings)
        self._listening: frozenset[str] = frozenset()
        self._ticked = False  # this life's clock may be behind that of the one before
        self._handlers: dict[type[Any], Callable[[NodeKey, Any, bytes, int], list[Action]]] = {
            Introduction: self._introduced,
            Status: self._status,
            Summary: self._summary,
            Example: self._example,
            Reading: self._reading,
        }

    def subscriptions(self) -> list[str]:
        """What is always listened to."""
        sites = sorted({group.site for group in self.fleet.groups.values()})
        return [str(each) for site in sites for each in gateway_filters(site)]

    # -- messages ------------------------------------------------------------------------------

    def handle(self, topic: str, payload: bytes, now_ms: int) -> list[Action]:
        """Deal with one message. Whatever the bytes, this returns."""
        return self._counted(partial(self._dispatch, topic, payload, now_ms))

    def _dispatch(self, topic: str, payload: bytes, now_ms: int) -> list[Action]:
        parsed = Topic.parse(topic)
        key = parsed.site, parsed.node
        if self.fleet.group_of(key) is None:
            raise EventError("stranger", f"node {'/'.join(key)} is in no group of this gateway")
        message = decode_on(parsed.channel, payload)
        handler = self._handlers.get(type(message))
        if handler is not None:
            return handler(key, message, payload, now_ms)
        return self._happen(key, message, now_ms)  # type: ignore[arg-type]  # an event

    def command(self, key: NodeKey, event: Event, now_ms: int) -> str:
        """An operator's announcement; the sentence why not, or nothing."""
        try:
            self._happen(key, event, now_ms)
        except OpidError as error:
            self._refused(error)
            return str(error)
        return ""

    def _counted(self, decide: Callable[[], list[Action]]) -> list[Action]:
        try:
            return decide()
        except OpidError as error:
            self._refused(error)
            return []

    def _refused(self, error: OpidError) -> None:
        reason = getattr(error, "reason", "error")
        self.counts[f"refused-{reason}"] += 1
        if reason not in EXPECTED:
            self.complaints.append(str(error))

    def _happen(self, key: NodeKey, event: Event, now_ms: int) -> list[Action]:
        happen(self.fleet, key, event, now_ms)
        self.counts[event.kind] += 1
        return []

    def _introduced(
        self, key: NodeKey, message: Introduction, _: bytes, now_ms: int
    ) -> list[Action]:
        group = self.fleet.group_of(key)
        assert group is not None  # strangers were refused
        if not adopt(self.fleet, key, group, message, now_ms):
            return []
        self.counts["adopted"] += 1
        self.orders.want(key)
        return []

    def _status(self, key: NodeKey, status: Status, payload: bytes, now_ms: int) -> list[Action]:
        node = self.fleet.nodes.get(key)
        if node is None:
            self.counts["not-introduced"] += 1  # its introduction follows
            return []
        if status.time_ms is None:  # its last will, with the versions of when it started
            self.fleet.put(replace(node, online=False))
            return []
        news = replace(
            node,
            online=status.online,
            reported_version=status.version,
            reported_layout=status.layout_version,
            reported_model=status.model_version,
        )
        if news != node or now_ms - node.seen_ms >= SEEN_MS:
            self.fleet.put(replace(news, seen_ms=now_ms, status=payload))
            self.publisher.heard(key, now_ms)
        reconcile(self.fleet, key, status.silent, now_ms)
        order = self.fleet.orders.get(key)
        if order is not None and status.version > order.version:
            self._overtaken(key, status, now_ms)
        return []

    def _overtaken(self, key: NodeKey, status: Status, now_ms: int) -> None:
        """A node that has obeyed more than we remember: our memory is an older one."""
        layout = self.fleet.layouts[key]
        self.counts["overtaken"] += 1
        if status.layout_version >= layout.version:
            self.fleet.put(replace(layout, version=status.layout_version + 1, at_ms=now_ms))
        self.orders.want(key)

    def _summary(self, key: NodeKey, message: Summary, payload: bytes, now_ms: int) -> list[Action]:
        if key not in self.fleet.nodes:
            raise EventError("not-introduced", f"node {'/'.join(key)} has not said what it is yet")
        self.counts["summaries"] += 1
        self.fleet.put(SummaryRecord(*key, message.layout_version, payload, now_ms))
        return []

    def _example(self, key: NodeKey, example: Example, *_: object) -> list[Action]:
        self.counts[self.changes.gather(key, example)] += 1
        return []

    def _reading(self, key: NodeKey, reading: Reading, _: bytes, now_ms: int) -> list[Action]:
        done = self._measuring.heard(self.fleet, key, reading.values, now_ms)
        self.counts["measured"] += len(done)
        return []

    # -- time ----------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> list[Action]:
        """Do what is due: retire, advance layouts, fit, publish again, listen to whom we must."""
        if not self._ticked:
            self._ticked = True
            self.fleet.no_later_than(now_ms)
        self._retire_due(now_ms)
        for key in advance_settled(self.fleet, self.policy, now_ms):
            self.counts["layouts"] += 1
            self.orders.want(key)
        published = self.orders.due(now_ms)
        self.counts["orders"] += len(published)
        actions: list[Action] = [*published]
        actions += self.changes.due(now_ms)
        actions += self.publisher.due(now_ms)
        wanted = self._wanted_filters()
        if wanted != self._listening:
            self._listening = wanted
            actions.append(Listen(wanted))
        return actions

    def _retire_due(self, now_ms: int) -> None:
        for key, sensor, event, why in overdue(self.fleet, self.policy, now_ms):
            try:
                retire(self.fleet, key, sensor, event, why, now_ms)
                self.counts[event] += 1
            except EventError as error:  # the last one is kept, whatever its age
                if not self.counts[f"kept-{sensor}"]:
                    self.complaints.append(str(error))
                self.counts[f"kept-{sensor}"] = 1

    @property
    def busy(self) -> bool:
        """Whether there are orders to be signed yet."""
        return self.orders.busy

    def _wanted_filters(self) -> frozenset[str]:
        keys = self._measuring.listening(self.fleet)
        return frozenset(str(NodeTopics(*key).reading_filter()) for key in keys)

    # -- fits ----------------------------------------------------------------------------------

    def fitted(self, fit: FitRecord) -> None:
        """A fit is done: keep it, and where it is better, tell every member."""
        self.counts["fits"] += 1
        if self.changes.fitted(fit):
            for key in self.fleet.members(fit.change):
                self.orders.want(key)

    def fit_failed(self, change: int, why: str) -> None:
        """A fit that raised is counted; it is tried again when the batch has grown."""
        self.counts["fit-failed"] += 1
        self.complaints.append(f"change {change} could not be fitted: {why}")

    # -- the connection ------------------------------------------------------------------------

    def connected(self, session_present: bool, now_ms: int) -> list[Action]:
        """Publish what may not have arrived: the unreported orders, or all if all was lost."""
        keys = self.publisher.unreported() if session_present else list(self.fleet.orders)
        return [*self.publisher.again(keys, now_ms)]
