"""Orders packed once for all nodes that are told the same.

Nodes are told the same where their layouts have the same sensors, down to reference and scale, and
their weights come from the same fit. Even a node that is like no other gets several orders with one
layout, as its change is fitted again and again.
"""

from __future__ import annotations

from weakref import WeakValueDictionary

from edge_opid.wire import Desired, SensorDescription
from edge_opid.wire.order_form import OrderForm
from gateway.fitting.models import PushedWeights
from gateway.registry import LayoutRecord, NodeKey
from gateway.registry.columns import columns_of

Content = tuple[tuple[SensorDescription, ...], tuple[str, ...], float, tuple[str, ...]]


class _Alike:
    """Nodes with equal layouts and classes: their order, with the weights that they got last."""

    __slots__ = ("__weakref__", "form", "model")

    def __init__(self) -> None:
        self.form: OrderForm | None = None
        self.model: PushedWeights | None = None


class OrderForms:
    """The form of every node's order, shared where it can be."""

    def __init__(self) -> None:
        self._alike: WeakValueDictionary[Content, _Alike] = WeakValueDictionary()
        """As long as a node has such a layout."""
        self._nodes: dict[NodeKey, tuple[LayoutRecord, _Alike]] = {}

    def form(
        self, layout: LayoutRecord, classes: tuple[str, ...], model: PushedWeights | None
    ) -> OrderForm:
        """What a node with this layout is told, but for its address and the numbers."""
        alike = self._alike_of(layout, classes)
        if alike.form is None or alike.model is not model:
            alike.form, alike.model = OrderForm(_example(layout, classes, model)), model
        return alike.form

    def _alike_of(self, layout: LayoutRecord, classes: tuple[str, ...]) -> _Alike:
        key = layout.site, layout.node
        found = self._nodes.get(key)
        if found is not None and found[0] is layout:  # a layout is compared once, not every time
            return found[1]
        content = layout.sensors, layout.vanishing, layout.gate, classes
        alike = self._alike.setdefault(content, _Alike())
        self._nodes[key] = layout, alike
        return alike

    def forget(self, key: NodeKey) -> None:
        """The node wants nothing any more."""
        self._nodes.pop(key, None)


def _example(
    layout: LayoutRecord, classes: tuple[str, ...], model: PushedWeights | None
) -> Desired:
    """The order to this node, checked as every message is."""
    return Desired(
        layout.site,
        layout.node,
        version=1,
        layout_version=layout.version,
        sensors=layout.sensors,
        vanishing=layout.vanishing,
        gate=layout.gate,
        classes=classes,
        weights=None if model is None else model.weights(columns_of(layout)),
    )
