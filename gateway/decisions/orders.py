"""Orders: a version, a signature, retained, and published again until the node reports it.

1. A version is used once: the order is saved before it is published, and the next one is above
   both the last order and what is believed of the node (a restored database knows less). Only where
   that would be too far ahead for the node to follow it is lower: `registry.reports`.
2. An order is absolute: layout, classes, weights, all of it. A node that slept through three
   changes obeys the last one and has missed nothing.
3. After a key rotation an order that the new key did not sign is given again, under a new version:
   made from the records, for what lies in a database is not signed unseen.
4. While a node that is online has not reported an order, it is published again, at growing
   intervals; when the broker has lost its memory, all orders are.
5. Which nodes need another order follows from the records (the newest layout, the weights of its
   change), so a wave that was cut off goes on after the restart. A few are signed at each tick.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import islice

from nacl.signing import SigningKey

from edge_opid.wire import Channel, Sealer, Topic, WireError, open_sealed
from gateway.decisions.actions import Publish
from gateway.decisions.changes import Changes
from gateway.decisions.order_forms import OrderForms
from gateway.fitting.models import PushedWeights
from gateway.registry import NodeKey, OrderRecord
from gateway.registry.due import DueTimes
from gateway.registry.fleet import Fleet
from gateway.registry.reports import next_version


@lru_cache(maxsize=16_384)
def _topic(site: str, node: str) -> str:
    """Where a node's orders go: checked and spelled once for all orders to it."""
    return str(Topic(site, node, Channel.DESIRED))


class OrderPublisher:
    """Signs orders and keeps after them. The key never leaves it."""

    def __init__(self, fleet: Fleet, key: SigningKey, retry_s: float, retry_max_s: float) -> None:
        self._fleet, self._verify_key, self._seal = fleet, key.verify_key, Sealer(key).seal
        self._first_ms, self._longest_ms = int(1000 * retry_s), int(1000 * retry_max_s)
        self._waiting: dict[NodeKey, int] = {}
        """Unreported orders: how long is waited before they are published again."""
        self._retries: DueTimes[NodeKey] = DueTimes()
        self._absent: set[NodeKey] = set()
        """Those whose retry is due, and who are offline."""
        self._forms = OrderForms()
        self._foreign = {name for name in fleet.orders if not self._is_ours(name)}

    def is_signed(self, key: NodeKey) -> bool:
        """Whether the key of today signed the order in force: a node may trust no other any more.

        >>> publisher = OrderPublisher(Fleet([]), SigningKey(bytes(32)), 30, 3600)
        >>> publisher.is_signed(("street", "north"))
        True
        """
        return key not in self._foreign

    def _is_ours(self, key: NodeKey) -> bool:
        try:
            open_sealed(self._fleet.orders[key].payload, [self._verify_key])
        except WireError:
            return False
        return True

    def order(self, key: NodeKey, model: PushedWeights | None, gather: int, now_ms: int) -> Publish:
        """The node's newest layout with these weights, signed as the next version."""
        fleet, layout = self._fleet, self._fleet.layouts[key]
        group = fleet.groups[fleet.nodes[key].group]
        version = next_version(fleet, key)
        document = self._forms.form(layout, group.classes, model).fill(
            *key, version=version, layout_version=layout.version, gather=gather
        )
        fleet.put(
            OrderRecord(
                site=key[0],
                node=key[1],
                version=version,
                layout_version=layout.version,
                payload=self._seal(document),
                at_ms=now_ms,
                fit=-1 if model is None else model.size,
            )
        )
        self._await(key, now_ms, self._first_ms)
        self._foreign.discard(key)
        return self._publication(key)

    def _await(self, key: NodeKey, now_ms: int, wait_ms: int) -> None:
        self._waiting[key] = wait_ms
        self._retries.set(key, now_ms + wait_ms)
        self._absent.discard(key)

    def _publication(self, key: NodeKey) -> Publish:
        return Publish(_topic(*key), self._fleet.orders[key].payload, retain=True)

    @property
    def waiting(self) -> int:
        """How many orders have been published and not been reported yet."""
        return len(self._waiting)

    # -- keeping after them --------------------------------------------------------------------

    def is_reported(self, key: NodeKey) -> bool:
        """Whether the node has obeyed the order in force, or none is."""
        order = self._fleet.orders.get(key)
        return order is None or self._fleet.nodes[key].reported_version >= order.version

    def forget(self, key: NodeKey) -> None:
        """Nobody waits for this node's report."""
        self._wait_no_more(key)
        self._forms.forget(key)
        self._foreign.discard(key)

    def _wait_no_more(self, key: NodeKey) -> None:
        self._waiting.pop(key, None)
        self._retries.discard(key)
        self._absent.discard(key)

    def note_report(self, key: NodeKey, now_ms: int) -> None:
        """The node says what it obeys. A power cut may have taken back what it had reported."""
        if self.is_reported(key):
            self._wait_no_more(key)
        elif key not in self._waiting:
            self._await(key, now_ms, self._first_ms)

    def shift(self, step_ms: int) -> None:
        """The clock was set: what is due in a minute is still due in a minute."""
        self._retries.shift(step_ms)

    def unreported(self) -> list[NodeKey]:
        """The nodes that have an order to obey yet."""
        return [key for key in self._fleet.orders if not self.is_reported(key)]

    def publish_again(self, keys: Iterable[NodeKey], now_ms: int) -> list[Publish]:
        """Publish these nodes' orders anew, and begin with the shortest interval."""
        found = []
        for key in keys:
            if key in self._fleet.orders and self.is_signed(key):  # if not, another follows
                found.append(self._publication(key))
                if not self.is_reported(key):
                    self._await(key, now_ms, self._first_ms)
        return found

    def take_due(self, now_ms: int) -> list[Publish]:
        """Orders of nodes that are online and have not obeyed for too long."""
        found = []
        returned = self._absent & self._fleet.agenda.take_returned()
        self._absent -= returned
        for key in [*sorted(returned), *self._retries.take(now_ms + 1)]:
            if self.is_reported(key):
                self._wait_no_more(key)
            elif not self._fleet.nodes[key].online:
                self._absent.add(key)
            elif self.is_signed(key):  # if not, another follows
                self._await(key, now_ms, min(2 * self._waiting[key], self._longest_ms))
                found.append(self._publication(key))
        return found


ORDERS_PER_TICK = 100
"""Signed, saved and published together, in some 30 ms: nobody waits for a large wave."""


class OrderQueue:
    """The nodes that want an order, in the order they came to want it."""

    def __init__(self, fleet: Fleet, changes: Changes, publisher: OrderPublisher) -> None:
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
        keys = list(islice(self._wanting, ORDERS_PER_TICK))
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
