"""Orders: a version, a signature, retained, and published again until the node reports it.

1. A version is used once: the order is saved before it is published, and the next one is above
   both the last order and what is believed of the node (a restored database knows less). Only where
   that would be too far ahead for the node to follow it is lower: `registry.reported`.
2. An order is absolute: layout, classes, weights, all of it. A node that slept through three
   changes obeys the last one and has missed nothing.
3. After a key rotation an order that the new key did not sign is given again, under a new version:
   made from the records, for what lies in a database is not signed unseen.
4. While a node that is online has not reported an order, it is published again, at growing
   intervals; when the broker has lost its memory, all orders are.
"""

from __future__ import annotations

from collections.abc import Iterable

from nacl.signing import SigningKey

from edge_opid.wire import Channel, Desired, Topic, Weights, WireError, open_sealed, seal_desired

from .actions import Publish
from .fitted_models import FittedModel
from .registry import NodeKey, OrderRecord
from .registry.columns import columns_of
from .registry.fleet import Fleet
from .registry.reported import next_version


class PushedModel:
    """The weights of a fit, for whatever order of columns a node has."""

    def __init__(self, size: int, model: FittedModel, dtype: str) -> None:
        self.size, self._model, self._dtype = size, model, dtype
        self._made: dict[tuple[str, ...], Weights] = {}

    def weights(self, columns: tuple[str, ...]) -> Weights:
        """As they travel; made once for all nodes with these columns."""
        if columns not in self._made:
            self._made[columns] = self._model.weights(columns, self._dtype)
        return self._made[columns]


class Publisher:
    """Signs orders and keeps after them. The key never leaves it."""

    def __init__(self, fleet: Fleet, key: SigningKey, retry_s: float, retry_max_s: float) -> None:
        self._fleet, self._key = fleet, key
        self._first_ms, self._longest_ms = int(1000 * retry_s), int(1000 * retry_max_s)
        self._waiting: dict[NodeKey, tuple[int, int]] = {}
        """Unreported orders: when to publish again, and how long was waited before."""
        self._foreign = {name for name in fleet.orders if not self._is_ours(name)}

    def is_signed(self, key: NodeKey) -> bool:
        """Whether the key of today signed the order in force: a node may trust no other any more.

        >>> Publisher(Fleet([]), SigningKey(bytes(32)), 30, 3600).is_signed(("street", "north"))
        True
        """
        return key not in self._foreign

    def _is_ours(self, key: NodeKey) -> bool:
        try:
            open_sealed(self._fleet.orders[key].payload, [self._key.verify_key])
        except WireError:
            return False
        return True

    def order(self, key: NodeKey, model: PushedModel | None, gather: int, now_ms: int) -> Publish:
        """The node's newest layout with these weights, signed as the next version."""
        fleet, layout = self._fleet, self._fleet.layouts[key]
        group = fleet.groups[fleet.nodes[key].group]
        desired = Desired(
            *key,
            version=next_version(fleet, key),
            layout_version=layout.version,
            sensors=layout.sensors,
            vanishing=layout.vanishing,
            gate=layout.gate,
            classes=group.classes,
            weights=None if model is None else model.weights(columns_of(layout)),
            gather=gather,
        )
        payload = seal_desired(desired, self._key)
        size = -1 if model is None else model.size
        fleet.put(OrderRecord(*key, desired.version, layout.version, payload, now_ms, size))
        self._waiting[key] = (now_ms + self._first_ms, self._first_ms)
        self._foreign.discard(key)
        return self._publication(key)

    def _publication(self, key: NodeKey) -> Publish:
        topic = str(Topic(*key, Channel.DESIRED))
        return Publish(topic, self._fleet.orders[key].payload, retain=True)

    @property
    def waiting(self) -> int:
        """How many orders have been published and not been reported yet."""
        return len(self._waiting)

    # -- keeping after them --------------------------------------------------------------------

    def reported(self, key: NodeKey) -> bool:
        """Whether the node has obeyed the order in force, or none is."""
        order = self._fleet.orders.get(key)
        done = order is None or self._fleet.nodes[key].reported_version >= order.version
        if done:
            self._waiting.pop(key, None)
        return done

    def forget(self, key: NodeKey) -> None:
        """Nobody waits for this node's report."""
        self._waiting.pop(key, None)
        self._foreign.discard(key)

    def heard(self, key: NodeKey, now_ms: int) -> None:
        """The node says what it obeys. A power cut may have taken back what it had reported."""
        if not self.reported(key):
            self._waiting.setdefault(key, (now_ms + self._first_ms, self._first_ms))

    def stepped(self, step_ms: int) -> None:
        """The clock was set: what is due in a minute is still due in a minute."""
        self._waiting = {
            key: (due_ms + step_ms, waited_ms) for key, (due_ms, waited_ms) in self._waiting.items()
        }

    def unreported(self) -> list[NodeKey]:
        """The nodes that have an order to obey yet."""
        return [key for key in self._fleet.orders if not self.reported(key)]

    def again(self, keys: Iterable[NodeKey], now_ms: int) -> list[Publish]:
        """Publish these nodes' orders anew, and begin with the shortest interval."""
        found = []
        for key in keys:
            if key in self._fleet.orders and self.is_signed(key):  # if not, another follows
                found.append(self._publication(key))
                if not self.reported(key):
                    self._waiting[key] = (now_ms + self._first_ms, self._first_ms)
        return found

    def due(self, now_ms: int) -> list[Publish]:
        """Orders of nodes that are online and have not obeyed for too long."""
        found = []
        for key, (due_ms, waited_ms) in list(self._waiting.items()):
            if now_ms < due_ms or self.reported(key) or not self._fleet.nodes[key].online:
                continue
            if not self.is_signed(key):
                continue
            longer_ms = min(2 * waited_ms, self._longest_ms)
            self._waiting[key] = (now_ms + longer_ms, longer_ms)
            found.append(self._publication(key))
        return found
