"""Orders packed once for all nodes alike, and no longer than there are such nodes."""

from __future__ import annotations

import gc

from edge_opid.wire import SensorDescription
from gateway.decisions.order_forms import OrderForms
from gateway.registry import LayoutRecord

CLASSES = ("calm", "busy")


def layout(node, version, reference=0.0):
    sensors = (SensorDescription(id="pm-1", role="pm", reference=reference, scale=1.0),)
    place = {"site": "s", "node": node, "version": version, "change": 0, "at_ms": 0}
    return LayoutRecord(**place, sensors=sensors, vanishing=(), gate=8.0)


def test_nodes_alike_share_one_form():
    forms = OrderForms()
    assert forms.form(layout("n1", 1), CLASSES, None) is forms.form(layout("n2", 5), CLASSES, None)


def test_a_layout_that_no_node_has_any_more_is_not_kept():
    """A node whose sensors are measured anew day after day: each layout was kept, thousands."""
    forms = OrderForms()
    shared = forms.form(layout("n2", 1), CLASSES, None)
    for version in range(1, 50):
        forms.form(layout("n1", version, float(version)), CLASSES, None)
    gc.collect()
    assert len(forms._alike) == 2
    assert forms.form(layout("n3", 1), CLASSES, None) is shared
    for node in ("n1", "n2", "n3"):
        forms.forget((("s"), node))
    gc.collect()
    assert not forms._alike
