"""Records for the tests of the gateway's store: one of each, and any that Hypothesis thinks of."""

from __future__ import annotations

from hypothesis import strategies as st

from edge_opid.wire import SensorDescription
from gateway.registry import (
    ChangeRecord,
    ChangeState,
    ExampleRecord,
    FitRecord,
    LayoutRecord,
    NodeRecord,
    OrderRecord,
    SensorRecord,
    SensorState,
    SummaryRecord,
)

HARD = (0.1 + 0.2, -0.0, 5e-324, 1.7976931348623157e308, float("inf"), 2.0**53 + 2, 1 / 3)
"""Floats that a database is likely to get wrong."""
LARGE = 2**53 - 1
ODD = "naïve – 温度 'quoted' \"twice\" %s :x\n\t\\"


def node(name="north", **fields):
    return NodeRecord(site="street", node=name, **{"group": "air", "gate": 0.5, **fields})


def order(name="north", version=1, **fields):
    return OrderRecord(
        site="street",
        node=name,
        version=version,
        layout_version=1,
        **{"payload": b"\0\xff", "at_ms": 1, **fields},
    )


def change(number=1, **fields):
    return ChangeRecord(
        id=number,
        group="air",
        retired=("pm25",),
        arrived=("no2",),
        columns=("no2", "temp"),
        opened_ms=5,
        **fields,
    )


def layout(name="north", version=1, change=0):
    described = (
        SensorDescription(
            id="t1",
            role="temp",
            reference=0.1 + 0.2,
            scale=1 / 3,
            timeout_s=60.0,
            knots=(-1.0, 0.1, 1.0),
            unit="°C",
        ),
        SensorDescription(
            id="p1", role="pm25", reference=-7.25, scale=3.4028234663852886e38, timeout_s=0.5
        ),
    )
    return LayoutRecord(
        site="street",
        node=name,
        version=version,
        sensors=described,
        vanishing=("pm25",),
        gate=0.25,
        change=change,
        at_ms=LARGE,
    )


def summary(name="north", version=1):
    return SummaryRecord(
        site="street", node=name, layout_version=version, payload=b"gram %d" % version, at_ms=9
    )


def example(change=1, place=0, name="north", **fields):
    values = {"t1": 0.1 + 0.2, "p1": -0.0}
    base = {"source": "s", "boot": 1, "seq": place, "layout_version": 2, "label": "fresh"}
    return ExampleRecord(
        change=change,
        site="street",
        node=name,
        **{**base, "values": values, "place": place, **fields},
    )


def fit(change=1, size=30):
    table = ({"name": "opide", "accuracy": 0.1 + 0.2, "behind": None, "error": None, "tier": 1},)
    parts = {"W_s": bytes(range(256)), "bias": b""}
    refused = {"south": "not finite"}
    return FitRecord(
        change=change,
        size=size,
        at_ms=7,
        chosen="opide",
        why=ODD,
        pushed=True,
        candidates=table,
        pooled=("north",),
        refused=refused,
        readings=LARGE,
        rounding_loss=-0.0,
        parts=parts,
        compact_loss=HARD[0],
    )


def hard_sensor():
    return SensorRecord(
        site="street",
        node="north",
        id="t1",
        role="temp",
        state=SensorState.SILENT,
        since_ms=LARGE,
        timeout_s=HARD[0],
        reference=HARD[1],
        scale=HARD[2],
        knots=HARD,
        reason=ODD,
    )


def one_of_each():
    """Every class of record, with values that are hard to keep."""
    hard_node = node(online=True, gate=HARD[3], seen_ms=LARGE, status=bytes(range(256)))
    first = (hard_node, hard_sensor(), layout(change=1), order(), summary())
    return [*first, change(closed_ms=LARGE), example(), fit()]


names = st.sampled_from(["north", "south", "east"])
numbers = st.integers(0, LARGE)
few = st.integers(1, 3)
reals = st.floats(allow_nan=False)
texts = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=9)
roles = st.lists(texts, max_size=3).map(tuple)
nodes = st.builds(
    NodeRecord,
    site=st.just("street"),
    node=names,
    group=texts,
    gate=reals,
    online=st.booleans(),
    seen_ms=numbers,
    status=st.binary(),
)
sensors = st.builds(
    SensorRecord,
    site=st.just("street"),
    node=names,
    id=names,
    role=texts,
    state=st.sampled_from(SensorState),
    since_ms=numbers,
    timeout_s=st.none() | reals,
    reference=st.none() | reals,
    scale=st.none() | reals,
    knots=st.lists(reals, max_size=3).map(tuple),
    unit=st.none() | texts,
    end_of_life_ms=st.none() | numbers,
    replaces=st.none() | names,
    reason=texts,
)
layouts = st.builds(layout, names, few, st.integers(0, 3))
orders = st.builds(
    OrderRecord,
    site=st.just("street"),
    node=names,
    version=numbers,
    layout_version=numbers,
    payload=st.binary(),
    at_ms=numbers,
)
changes = st.builds(
    ChangeRecord,
    id=few,
    group=texts,
    retired=roles,
    arrived=roles,
    columns=roles,
    opened_ms=numbers,
    state=st.sampled_from(ChangeState),
    fitted=st.integers(-1, 9),
    pushed=st.integers(-1, 9),
    closed_ms=st.none() | numbers,
)
saves = st.lists(
    st.lists(st.one_of(nodes, sensors, layouts, orders, changes), max_size=6), max_size=6
)
"""What a gateway may save, one transaction after the other."""
