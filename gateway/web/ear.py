"""What nodes say right now: their predictions, heard by the web process itself.

A fleet predicts far more often than it changes, and the gateway has no use for it; so the pages
have a connection of their own, which asks for predictions and keeps, for each node,

1. the last one, undecoded until somebody looks;
2. those it asked about, and the unsure ones, as long as it can still learn a label for them. One
   prediction a second is looked at; the node remembers its last 256 instances, so older ones are
   forgotten here, too;
3. of nodes with a silent sensor, which sensors speak that nobody has announced;
4. for half a minute, when somebody asks what a new node could use: all that is not ours.

Without a broker, or without the right to hear it, the pages show what the database has.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from edge_opid import log
from edge_opid.discovery.heard import Heard
from edge_opid.errors import OpidError
from edge_opid.link.contract import Delivery, Disconnected, Link, SubscriptionRefused
from edge_opid.node.recent import SIZE as INSTANCES_KEPT
from edge_opid.wire import (
    Asked,
    Channel,
    InstanceId,
    NodeTopics,
    Prediction,
    Reading,
    Topic,
    decode,
)
from edge_opid.wire.codec import JSON_ROOM
from edge_opid.wire.topics import ROOT
from gateway.registry import NodeKey

LABELLED_WITHIN = INSTANCES_KEPT - 16  # a label needs a moment to arrive
SURE = 0.8
"""What is at least so probable is not asked for."""
LOOK_S = 1.0
UNSURE_MAX = 64
STRANGERS_MAX = 32
NODES_MAX = 20_000
SAID_BYTES_MAX = JSON_ROOM * max(Prediction.bytes_max, Asked.bytes_max)
POLL_S = 0.5
DISCOVER_S = 30.0
EVERYTHING = "#"
HEARD = (Channel.PREDICTION, Channel.ASKED, Channel.READING)

_parsed = lru_cache(maxsize=32_768)(Topic.parse)
"""A node speaks on the same topics for ever, every second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A prediction as a page shows it."""

    instance: InstanceId
    time_ms: int
    label: str
    confidence: float | None
    scores: Mapping[str, float]
    asked: bool = False

    def facts(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "label": self.label,
            "confidence": self.confidence,
            "time_ms": self.time_ms,
            "instance": self.instance.plain(),
        }


@dataclass(slots=True)
class _Heard:
    """What was heard of one node."""

    payload: bytes = b""
    count: int = 0
    looked_s: float = 0.0
    unsure: deque[tuple[int, Said]] = field(default_factory=lambda: deque(maxlen=UNSURE_MAX))
    strangers: dict[str, int] = field(default_factory=dict)  # sensor → when it was first heard


def read_said(payload: bytes) -> Said:
    """A prediction, or what a node asks about, in either form."""
    message: Prediction | Asked = decode(payload, Prediction, Asked)  # type: ignore[assignment]
    return Said(
        instance=message.instance,
        time_ms=message.time_ms,
        label=message.label,
        confidence=message.confidence,
        scores=message.scores,
        asked=isinstance(message, Asked),
    )


class Ear:
    """Listens in a thread of its own; every question may be asked from any other."""

    def __init__(self, link: Link, sites: Iterable[str]) -> None:
        self._link, self._lock = link, threading.Lock()
        channels = Channel.PREDICTION, Channel.ASKED
        self._filters = [f"{ROOT}/{s}/+/{each}" for s in sorted(set(sites)) for each in channels]
        self._heard: dict[NodeKey, _Heard] = {}
        self._readings: frozenset[str] = frozenset()  # filters of readings asked for
        self._known: dict[NodeKey, frozenset[str]] = {}
        self._thread = threading.Thread(target=self._listen, name="ear", daemon=True)
        self._stopped = threading.Event()
        self._home, self._home_until_s = Heard(), 0.0
        self.not_understood = 0  # messages that are no predictions, or no readings
        self.trouble = "not connected to the broker yet"

    def start(self) -> None:
        """Begin to listen."""
        self._link.subscribe(self._filters, 0)
        self._link.start()
        self._thread.start()

    def stop(self) -> None:
        """Say goodbye."""
        self._stopped.set()
        self._thread.join(5.0)
        self._link.stop(0.0)

    # -- what the pages ask --------------------------------------------------------------------

    def said(self, key: NodeKey) -> Said | None:
        """The last prediction of a node."""
        with self._lock:
            heard = self._heard.get(key)
            payload = heard.payload if heard else b""
        try:
            return read_said(payload) if payload else None
        except OpidError:
            return None

    def unsure(self, key: NodeKey, most: int) -> list[Said]:
        """The instances that can still be labelled: those asked about, then the least sure."""
        with self._lock:
            heard = self._heard.get(key)
            if heard is None:
                return []
            within = [said for count, said in heard.unsure if heard.count - count < LABELLED_WITHIN]
        return sorted(within, key=lambda each: (not each.asked, each.confidence or 0.0))[:most]

    def strangers(self, key: NodeKey) -> dict[str, int]:
        """Sensors that speak and that nobody announced, each with when it was first heard."""
        with self._lock:
            heard = self._heard.get(key)
            return dict(heard.strangers) if heard else {}

    def forget(self, key: NodeKey, instances: Collection[InstanceId]) -> None:
        """These have a label now: they are not asked for again."""
        with self._lock:
            heard = self._heard.get(key)
            if heard is not None:
                left = [each for each in heard.unsure if each[1].instance not in instances]
                heard.unsure = deque(left, maxlen=UNSURE_MAX)

    def listen_for_strangers(self, known: Mapping[NodeKey, Collection[str]]) -> None:
        """Hear the readings of these nodes, and note who is not among their known sensors."""
        filters = frozenset(str(NodeTopics(*key).reading_filter()) for key in known)
        with self._lock:
            self._known = {key: frozenset(names) for key, names in known.items()}
            for key, heard in self._heard.items():
                for name in self._known.get(key, frozenset(heard.strangers)):
                    heard.strangers.pop(name, None)
            if filters != self._readings:
                self._link.subscribe(sorted(filters - self._readings), 0)
                self._link.unsubscribe(sorted(self._readings - filters))
                self._readings = filters

    def discover(self) -> None:
        """Hear everything for a while; what was heard before is forgotten."""
        with self._lock:
            if self.discovering_s <= 0:
                self._home, self._home_until_s = Heard(), time.monotonic() + DISCOVER_S
                self._link.subscribe([EVERYTHING], 0)

    @property
    def discovering_s(self) -> float:
        """For how long everything is still heard."""
        return self._home_until_s - time.monotonic()

    @property
    def home(self) -> Heard:
        """All that was heard while somebody asked for it."""
        return self._home

    # -- the thread ----------------------------------------------------------------------------

    def _listen(self) -> None:
        while not self._stopped.is_set():
            delivery = self._link.poll(POLL_S)
            self._end_discovery()
            while (event := self._link.poll_event()) is not None:
                self._hear_event(event)
            if delivery is not None:
                self._link.acknowledge(delivery)
                try:
                    self._hear(delivery)
                except OpidError:
                    self.not_understood += 1

    def _hear_event(self, event: object) -> None:
        match event:
            case Disconnected(reason):
                self.trouble = f"not connected to the broker: {reason}"
                log.warning("web: broker lost", why=reason)
            case SubscriptionRefused(filter_, reason):
                self.trouble = f"the broker refuses {filter_}: {reason}"
                log.warning("web: subscription refused", filter=filter_, why=reason)
            case _:
                self.trouble = ""

    def _end_discovery(self) -> None:
        with self._lock:
            if self._home_until_s and self.discovering_s <= 0:
                self._home_until_s = 0.0
                self._link.unsubscribe([EVERYTHING])

    def _hear(self, delivery: Delivery) -> None:
        if not delivery.topic.startswith(f"{ROOT}/"):
            self._hear_home(delivery)
            return
        topic = _parsed(delivery.topic)
        if topic.channel not in HEARD:
            return  # somebody discovers, and we hear everything
        if len(delivery.payload) > SAID_BYTES_MAX:
            self.not_understood += 1
            return
        key = topic.site, topic.node
        with self._lock:
            if key not in self._heard and len(self._heard) >= NODES_MAX:
                return
            heard = self._heard.setdefault(key, _Heard())
        if topic.channel == Channel.READING:
            self._hear_reading(key, heard, delivery.payload)
            return
        if topic.channel == Channel.ASKED:
            self._keep(heard, read_said(delivery.payload))
            return
        now_s = time.monotonic()
        with self._lock:
            heard.payload, heard.count = delivery.payload, heard.count + 1
        if now_s - heard.looked_s >= LOOK_S:
            heard.looked_s = now_s
            said = read_said(delivery.payload)
            if said.confidence is None or said.confidence < SURE:
                self._keep(heard, said)

    def _hear_home(self, delivery: Delivery) -> None:
        """What is not ours; what comes after the time is left alone, as a page is made of it."""
        with self._lock:
            if self.discovering_s > 0:
                at_s, kept = time.monotonic(), delivery.retain
                self._home.add(delivery.topic, delivery.payload, retained=kept, at_s=at_s)

    def _keep(self, heard: _Heard, said: Said) -> None:
        """One more to ask for; what the node asked about itself takes the place of its copy."""
        with self._lock:
            others = [each for each in heard.unsure if each[1].instance != said.instance]
            if len(others) == len(heard.unsure) or said.asked:
                heard.unsure = deque([*others, (heard.count, said)], maxlen=UNSURE_MAX)

    def _hear_reading(self, key: NodeKey, heard: _Heard, payload: bytes) -> None:
        reading = decode(payload, Reading)
        with self._lock:
            known = self._known.get(key)
            for sensor in reading.values if known is not None else ():
                if sensor not in (known or ()) and len(heard.strangers) < STRANGERS_MAX:
                    heard.strangers.setdefault(sensor, time.time_ns() // 1_000_000)
