"""The gateway's book as the pages see it: read from the database at most as often as it is cheap.

A fleet of a thousand nodes takes a good part of a second to read. So what was read serves every
viewer until it is `PATIENCE` times as old as reading it took, and at least a second: however many
look, reading takes a twentieth of a core at most. Whoever changes something reads anew.

Several threads ask; one at a time uses the store.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, TypeVar

from gateway.cli.context import CommandContext, all_keys
from gateway.cli.nodes import (
    full_node_facts,
    last_status,
    node_facts,
    sensor_facts,
    sensors_of,
)
from gateway.cli.status import status_facts
from gateway.config import GatewayConfig
from gateway.registry import NodeKey, SensorRecord, SensorState
from gateway.registry.fleet import Fleet
from gateway.store import FleetStore

Facts = dict[str, Any]
T = TypeVar("T")
PATIENCE = 20.0
FRESH_S = 1.0
SPARK_HOURS = 24
SILENT_MAX = 32  # nodes whose readings are listened to, for a sensor that nobody announced


@dataclass(frozen=True)
class View:
    """One moment of the book."""

    fleet: Fleet
    status: Facts
    overlap: int
    number: int
    """Counts the readings of the database: the same number, the same view."""
    hour: int
    """Hours since 1970, when it was read."""
    accuracies: dict[NodeKey, list[tuple[int, float | None]]]
    """Of each node, hour by hour, over the last day."""

    @cached_property
    def keys(self) -> list[NodeKey]:
        """Every node, also those that never came."""
        return all_keys(self.fleet)

    @cached_property
    def nodes(self) -> list[Facts]:
        """What `node list --json` says."""
        return [node_facts(self.fleet, key) for key in self.keys]

    @cached_property
    def silent(self) -> list[NodeKey]:
        """The first nodes that have a silent sensor."""
        found = (
            key
            for key, sensors in self.fleet.sensors.items()
            if any(each.state == SensorState.SILENT for each in sensors.values())
        )
        return list(islice(found, SILENT_MAX))

    def node(self, key: NodeKey) -> Facts:
        """What `node show --json` says."""
        return full_node_facts(self.fleet, key, self.overlap)

    def counts(self, key: NodeKey) -> dict[str, int]:
        """What the node said that it has counted since its process began."""
        return dict(last_status(self.fleet.nodes.get(key)).counts)

    def ordered_sensors(self, key: NodeKey) -> list[SensorRecord]:
        """The sensors of a node, by role, those with a column first."""
        return sensors_of(self.fleet, key)

    def sensors(self, key: NodeKey) -> list[Facts]:
        """What `sensor list --json` says of a node."""
        every = sensors_of(self.fleet, key)
        return [sensor_facts(self.fleet, each, self.overlap) for each in every]


class Book:
    """The database behind all pages."""

    def __init__(self, config: GatewayConfig, store: FleetStore) -> None:
        self.config = config
        self._context = CommandContext(config, store)
        self._lock = threading.Lock()
        self._view: View | None = None
        self._until_s = 0.0
        self._reads = 0

    def view(self) -> View:
        """The book as it was a moment ago; while one thread reads, others get what was there."""
        view = self._view
        if view is not None and time.monotonic() < self._until_s:
            return view
        if not self._lock.acquire(blocking=view is None):
            assert view is not None
            return view
        try:
            if self._view is None or time.monotonic() >= self._until_s:
                self._view = self._read()
            return self._view
        finally:
            self._lock.release()

    def expire(self) -> None:
        """The next view is read anew: something has been changed."""
        self._until_s = 0.0

    def ask(self, question: Callable[[CommandContext], T]) -> T:
        """Whatever else the database knows."""
        with self._lock:
            return question(self._context)

    def _read(self) -> View:
        began_s = time.monotonic()
        fleet, hour = self._context.fleet(), int(time.time()) // 3_600
        self._reads += 1
        found = View(
            fleet=fleet,
            status=status_facts(self._context, fleet),
            overlap=self.config.policy.overlap_readings,
            number=self._reads,
            hour=hour,
            accuracies=self._context.store.accuracies_since(hour - SPARK_HOURS + 1),
        )
        ended_s = time.monotonic()
        self._until_s = ended_s + max(FRESH_S, PATIENCE * (ended_s - began_s))
        return found
