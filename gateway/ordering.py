"""Which nodes need another order, and a few of them at a time.

What a node should hear follows from the records (its newest layout, the weights of its change), so
a wave that was cut off goes on after the restart.
"""

from __future__ import annotations

from .actions import Publish
from .changes import Changes
from .publish import Publisher
from .registry import NodeKey
from .registry.fleet import Fleet

ORDERS_PER_TICK = 100
"""Signed, saved and published together, in some 30 ms: nobody waits for a large wave."""


class Ordering:
    """The nodes that want an order, in the order they came to want it."""

    def __init__(self, fleet: Fleet, changes: Changes, publisher: Publisher) -> None:
        self._fleet, self._changes, self._publisher = fleet, changes, publisher
        self._wanting = dict.fromkeys(key for key in fleet.nodes if self._is_behind(key))

    @property
    def busy(self) -> bool:
        """Whether there are orders to be signed yet."""
        return bool(self._wanting)

    def want(self, key: NodeKey) -> None:
        """Remember that the node should hear something else than it was told."""
        self._wanting[key] = None

    def forget(self, key: NodeKey) -> None:
        """The node wants nothing any more."""
        self._wanting.pop(key, None)

    def take(self) -> list[NodeKey]:
        """The next nodes to be ordered. One that is configured no longer is not."""
        keys = list(self._wanting)[:ORDERS_PER_TICK]
        for key in keys:
            del self._wanting[key]
        return [key for key in keys if self._fleet.group_of(key)]

    def order(self, key: NodeKey, now_ms: int) -> Publish:
        """The node's newest layout, with the weights of its change where there are some."""
        change = self._fleet.changes.get(self._fleet.layouts[key].change)
        model = None if change is None else self._changes.model(change.id)
        gather = 0 if change is None else self._changes.ask(key, change)
        return self._publisher.order(key, model, gather, now_ms)

    def _is_behind(self, key: NodeKey) -> bool:
        """Whether the order in force says something else than this node should hear, or is signed
        by a former key.
        """
        order, layout = self._fleet.orders.get(key), self._fleet.layouts[key]
        change = self._fleet.changes.get(layout.change)
        wanted = layout.version, -1 if change is None else change.pushed
        if order is None or not self._publisher.is_signed(key):
            return True
        return (order.layout_version, order.fit) != wanted
