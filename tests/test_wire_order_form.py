"""An order that was packed in parts has the bytes of one that was packed at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_opid.errors import WireError
from edge_opid.wire import LIMITS, Desired, Matrix, SensorDescription, Weights, decode, encode
from edge_opid.wire.order_form import OrderForm

GOLDEN = Path(__file__).parent / "golden"
IDS = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,31}", fullmatch=True)
ORDINALS = st.one_of(
    st.sampled_from([1, 127, 128, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32]),
    st.integers(1, LIMITS.integer_max),
)
SENSORS = st.lists(IDS, min_size=1, max_size=20, unique=True).map(
    lambda ids: tuple(
        SensorDescription(id=each, role=f"r{n}", reference=n / 7, scale=1.5, knots=(), unit=None)
        for n, each in enumerate(ids)
    )
)
WEIGHTS = st.one_of(
    st.none(), st.just(Weights("matrix", {"W": Matrix.of(np.ones((3, 2), np.float32))}))
)


def filled(form, order):
    return form.fill(
        order.site,
        order.node,
        version=order.version,
        layout_version=order.layout_version,
        gather=order.gather,
    )


@pytest.mark.parametrize("name", ["desired", "desired_gathering"])
def test_the_pinned_bytes_of_an_order_come_out_of_a_form(name):
    payload = bytes.fromhex((GOLDEN / f"{name}.hex").read_text())
    order = decode(payload, Desired)
    another = replace(order, site="elsewhere", node="n9", version=1, layout_version=1, gather=5)
    assert filled(OrderForm(another), order) == payload


@settings(max_examples=100, deadline=None)
@given(
    sensors=SENSORS,
    weights=WEIGHTS,
    site=IDS,
    node=IDS,
    version=ORDINALS,
    layout_version=ORDINALS,
    gather=st.integers(0, LIMITS.gather_max),
)
def test_a_form_gives_the_bytes_of_the_plain_encoding(sensors, weights, gather, **numbers):
    order = Desired(
        **numbers, sensors=sensors, vanishing=(sensors[0].id,), gate=8.0, weights=weights,
        classes=("calm", "busy"), gather=gather,
    )  # fmt: skip
    another = replace(order, site="s", node="n", version=3, layout_version=4, gather=0)
    assert filled(OrderForm(another), order) == encode(order)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("site", "a/b"),
        ("node", "../n"),
        ("version", 0),
        ("version", True),
        ("layout_version", LIMITS.integer_max + 1),
        ("gather", -1),
        ("gather", 100_001),
    ],
)
def test_what_no_message_may_hold_no_form_is_filled_in_with(field, value):
    """A form that skipped the checks would have a gateway sign what every node refuses."""
    payload = bytes.fromhex((GOLDEN / "desired.hex").read_text())
    order: Desired = decode(payload, Desired)
    whole = {"site": "s", "node": "n", "version": 1, "layout_version": 1, "gather": 0}
    with pytest.raises(WireError) as refused:
        OrderForm(order).fill(**{**whole, field: value})
    with pytest.raises(WireError) as plainly:
        replace(order, **{field: value})
    assert str(refused.value) == str(plainly.value)
    assert filled(OrderForm(order), order) == payload


@pytest.mark.parametrize("field", ["version", "layout_version"])
def test_a_flag_is_no_version_though_it_equals_one_that_was_packed_before(field):
    """True == 1: what is remembered of 1 must not answer for it."""
    order = decode(bytes.fromhex((GOLDEN / "desired.hex").read_text()), Desired)
    form, numbers = OrderForm(order), {"version": 1, "layout_version": 1, "gather": 0}
    packed = form.fill("street", "north", **numbers)
    with pytest.raises(WireError, match="whole number"):
        form.fill("street", "north", **{**numbers, field: True})
    assert form.fill("street", "north", **numbers) == packed
