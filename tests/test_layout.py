"""Named values to columns: order, gate, missing values, hats, pairs, changes and warm-up."""

from __future__ import annotations

import copy
import json
import pickle
from itertools import permutations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.oracle import Stream, eq4, relative

from edge_opid import (
    GramLearner,
    Layout,
    LayoutError,
    Pair,
    ReadingError,
    Sensor,
    WarmUp,
    WoodburyLearner,
    native,
)

AIR = [
    Sensor("temp", 20, 5),
    Sensor("co2", 420, 50),
    Sensor("pm25", 12, 4, knots=(-8, -1, 0, 2, 8)),
]
VALUES = {"temp": 25.0, "co2": 395.0, "pm25": 16.0}


def test_the_order_of_sensors_never_matters():
    """Neither in the layout nor in the reading: to the bit."""
    layouts = [Layout(order, vanishing=["temp"]) for order in permutations(AIR)]
    encoded = {
        layout.encode(dict(items)).tobytes()
        for layout in layouts
        for items in permutations(VALUES.items())
    }
    assert len(encoded) == 1
    assert len({layout.columns for layout in layouts}) == 1
    assert len(set(layouts)) == 1


def test_vanishing_columns_come_first_and_the_bias_survives_last():
    layout = Layout(AIR, vanishing=["pm25"])
    assert layout.columns == (*(f"pm25[{k}]" for k in range(5)), "co2", "temp", "bias")
    assert (layout.vanishing_columns, layout.surviving_columns) == (5, 3)
    assert layout.encode(VALUES)[-3:].tolist() == [-0.5, 1.0, 1.0]
    with pytest.raises(LayoutError, match="no sensor 'bias'"):
        Layout(AIR, vanishing=["bias"])


def test_a_missing_value_counts_as_the_reference():
    layout = Layout(AIR, pairs=[Pair("temp", "co2", features=3)])
    at_reference = {sensor.name: sensor.reference for sensor in AIR}
    nothing = layout.encode({})
    assert nothing.tolist() == [0.0] * (layout.width - 1) + [1.0]
    assert np.array_equal(layout.encode(at_reference), nothing)
    assert np.array_equal(layout.encode(dict.fromkeys(at_reference)), nothing)
    partial = layout.encode({"temp": 25.0, "pm25": None})
    assert partial[layout.spans["temp"][0]] == 1.0
    assert not partial[list(layout.spans["co2×temp"])].any()


BAD_READINGS = {
    "nan": ({"temp": float("nan")}, "non-finite", "sensor 'temp' is nan: expected a finite number"),
    "inf": ({"co2": float("inf")}, "non-finite", "sensor 'co2' is inf"),
    "beyond every float": ({"co2": 10**400}, "type", "too large to convert to float"),
    "stranger": ({"temp": 20.0, "ph": 7.0}, "unknown-sensor", "no sensor 'ph' here; there are"),
    "word": ({"temp": "warm"}, "type", "warm"),
}


@pytest.mark.parametrize(("values", "reason", "sentence"), BAD_READINGS.values(), ids=BAD_READINGS)
def test_a_bad_value_is_refused_by_the_name_of_its_sensor(values, reason, sentence):
    layout = Layout(AIR)
    before = layout.encode(VALUES)
    with pytest.raises(ReadingError) as error:
        layout.encode(values)
    assert error.value.refusal.reason == reason
    assert sentence in str(error.value)
    assert np.array_equal(layout.encode(VALUES), before)


def test_one_gated_sensor_does_not_silence_the_others():
    """A probe without power: whoever would rather not believe it leaves out what `gated` names."""
    layout = Layout(AIR)
    values = {**VALUES, "temp": -273.15}
    assert layout.gated(values) == ("temp",)
    x, gated = layout.encode_and_gate(values)
    assert gated == ("temp",)
    assert np.array_equal(x, layout.encode(values))
    rest = {name: value for name, value in values.items() if name != "temp"}
    temp = layout.spans["temp"]
    assert np.array_equal(np.delete(x, temp), np.delete(layout.encode(rest), temp))
    assert layout.encode_and_gate(rest)[1] == ()


def test_a_clipped_sensor_counts_as_a_value_at_the_gate():
    """A light that was off in the warm-up is far beyond the gate when it goes on, and counts."""
    layout = Layout(AIR)
    far, at = {**VALUES, "temp": 1e5, "co2": -3e4}, {**VALUES, "temp": 60.0, "co2": 20.0}
    assert layout.gated(far) == ("co2", "temp")
    clipped = layout.encode(far)
    assert np.array_equal(clipped, layout.encode(at))
    assert layout.gated(at) == ("co2", "temp")
    assert layout.gated(VALUES) == ()


def test_an_absurd_value_counts_as_missing_and_is_not_clipped():
    """1e12 is a fault and no light: it says nothing, and the others are heard."""
    layout = Layout(AIR)
    rest = {name: value for name, value in VALUES.items() if name != "temp"}
    for absurd in (1e12, -1e300):
        values = {**VALUES, "temp": absurd}
        assert np.array_equal(layout.encode(values), layout.encode(rest))
    beyond_both = {**VALUES, "temp": 1e12, "co2": 1e4}
    at_one = {**rest, "co2": 820.0}
    assert np.array_equal(layout.encode(beyond_both), layout.encode(at_one))


def test_the_gate_clips_none_of_20_000_normal_readings():
    layout, values = Layout(["z"]), np.random.default_rng(0).normal(size=20_000)
    assert not any(layout.gated({"z": float(value)}) for value in values)


IMPOSSIBLE = {
    "no sensors": (lambda: Layout([]), "at least one sensor"),
    "twice": (lambda: Layout(["a", "a"]), "names must differ"),
    "called bias": (lambda: Layout(["bias"]), "none be 'bias'"),
    "scale zero": (lambda: Sensor("a", scale=0.0), "scale must be above 0, got 0.0"),
    "no name": (lambda: Sensor(""), "1..64 characters"),
    "falling knots": (lambda: Sensor("a", knots=(1.0, 0.0)), "knots must rise"),
    "one knot": (lambda: Sensor("a", knots=(1.0,)), "two and more"),
    "pair of one": (lambda: Pair("a", "a"), "two sensors"),
    "pair with a stranger": (lambda: Layout(["a"], pairs=[Pair("a", "b")]), "no sensor 'b' here"),
    "retire a stranger": (lambda: Layout(["a"]).retire("b"), "cannot retire 'b'"),
    "retire the last": (lambda: Layout(["a"]).retire("a"), "at least one sensor"),
}


@pytest.mark.parametrize(("make", "sentence"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_impossible_layouts_are_not_made(make, sentence):
    with pytest.raises(LayoutError, match=sentence):
        make()


# -- the lift ----------------------------------------------------------------------------------

knots = st.lists(st.floats(-8, 8).map(lambda k: round(k, 2)), min_size=2, max_size=9, unique=True)


@settings(deadline=None, max_examples=100)
@given(knots=knots.map(lambda k: tuple(sorted(k))), z=st.floats(-7.9, 7.9))
def test_hats_sum_to_one_before_centring_and_interpolate_linearly(knots, z):
    """The oracle is np.interp: hats times the knots give back z, clamped to the ends."""
    layout = Layout([Sensor("a", knots=knots)])
    hats = layout.encode({"a": z})[:-1].astype(float) + [
        np.interp(0.0, knots, row) for row in np.eye(len(knots))
    ]
    assert hats.sum() == pytest.approx(1, abs=1e-5)
    assert hats @ np.array(knots) == pytest.approx(np.clip(z, knots[0], knots[-1]), abs=1e-4)
    assert hats.min() > -1e-6


def test_a_lifted_sensor_lives_and_dies_with_all_its_columns():
    """Retiring it from a trained learner leaves what the others alone would have given."""
    rng = np.random.default_rng(2)
    sensors = [Sensor("a", knots=(-8, -1, 0, 1, 8)), Sensor("b"), Sensor("c", knots=(-8, 0, 8))]
    old = Layout(sensors, pairs=[Pair("a", "b", features=4), Pair("b", "c", features=2)])
    new = old.retire("a").deploy(Sensor("d", knots=(-8, 0, 8))).plan(vanishing=["c"])
    rows = [dict(zip("abc", rng.normal(size=3), strict=True)) for _ in range(200)]
    labels = rng.integers(0, 2, 200)
    for kind in (WoodburyLearner, GramLearner):
        learner = kind(0, old.width, 2, dtype="float64")
        learner.learn_many(np.array([old.encode(row) for row in rows]), labels)
        heir = old.change_to(new).follow(learner)
        others = [{"b": row["b"], "c": row["c"]} for row in rows]
        X = np.array([new.encode(row) for row in others], np.float64)
        expected = eq4(X, labels, 2, new.vanishing_columns, 1.0, 1.0)
        for got, wanted in zip(heir.weights(), expected, strict=True):
            assert relative(got, wanted) < 1e-8


def test_a_pair_vanishes_with_either_sensor():
    pairs = [Pair("co2", "temp", features=2), Pair("pm25", "temp", features=2)]
    layout = Layout(AIR, vanishing=["co2"], pairs=pairs)
    assert layout.columns[:3] == ("co2", "co2×temp[0]", "co2×temp[1]")
    assert [pair.name for pair in layout.retire("co2").pairs] == ["pm25×temp"]
    assert layout.retire("temp").pairs == ()
    assert Pair("temp", "co2") == Pair("co2", "temp")


def test_a_replacement_takes_over_the_columns_of_its_role():
    """Another reference and scale, the same number of columns: the history goes on."""
    old, new = Layout(AIR), Layout([Sensor("temp", 19, 4), AIR[1], AIR[2]])
    change = old.change_to(new)
    assert (change.kept, change.retired, change.deployed) == (("co2", "pm25", "temp"), (), ())
    assert None not in change.sources
    other_basis = Layout([Sensor("temp", 19, 4, knots=(-8, 0, 8)), AIR[1], AIR[2]])
    assert old.change_to(other_basis).sources.count(None) == 3


def test_the_cost_is_told_before_it_is_paid():
    layout = Layout(AIR, vanishing=["pm25"])
    cost = layout.cost(classes=3)
    shape = (layout.vanishing_columns, layout.surviving_columns, 3)
    assert cost.woodbury_bytes == WoodburyLearner(*shape).nbytes
    assert cost.gram_bytes == GramLearner(*shape).nbytes
    assert "3 sensors, 8 columns (5 vanish)" in str(cost)


def test_a_layout_survives_json():
    layout = Layout(AIR, vanishing=["co2"], pairs=[Pair("temp", "co2", 3, 0.7, 5)], gate=6.0)
    again = Layout.from_dict(json.loads(json.dumps(layout.to_dict())))
    assert again == layout
    assert np.array_equal(again.encode(VALUES), layout.encode(VALUES))


# -- the warm-up -------------------------------------------------------------------------------


def test_a_raw_stream_through_a_layout_is_as_accurate_as_a_standardised_one():
    """Offset 20 and scales from 1e-2 to 1e2 cost at most 0.2 points of accuracy."""
    X, y = Stream(width=12, condition=1e2, seed=4).take(6000)
    standard = (X - X[:200].mean(0)) / X[:200].std(0)
    raw = 20 + standard * np.logspace(-2, 2, 12)
    names = [f"s{i:02}" for i in range(12)]
    warmup = WarmUp(names, readings=200)
    for row in raw[:200]:
        warmup.add(dict(zip(names, row, strict=True)))
    layout = warmup.layout(vanishing=names[:4])
    through = np.array([layout.encode(dict(zip(names, row, strict=True))) for row in raw])
    accuracies = []
    for data in (np.c_[standard, np.ones(6000)], through):
        learner = WoodburyLearner(4, 9, 3)
        hits = [
            learner.score_then_learn(x, c).all_sensors.argmax() == c
            for x, c in zip(data, y, strict=True)
        ]
        accuracies.append(np.mean(hits))
    assert accuracies[1] >= accuracies[0] - 0.002
    assert accuracies[0] > 0.6


def test_spikes_in_the_warm_up_do_not_blow_up_the_scale():
    warmup, rng = WarmUp(["a"], readings=200), np.random.default_rng(0)
    for i, value in enumerate(rng.normal(20, 2, size=200)):
        warmup.add({"a": 1e9 if i % 50 == 7 else float(value)})
    (sensor,) = warmup.layout().sensors
    assert sensor.reference == pytest.approx(20, abs=0.5)
    assert sensor.scale == pytest.approx(2, rel=0.25)


def test_a_sensor_that_did_not_move_is_usable():
    warmup = WarmUp(["door", "lux", "mute"], readings=30, knots={"door": 4})
    for i in range(30):
        warmup.add({"door": 1.0, "lux": float(i)})
    layout = warmup.layout()
    assert [sensor.columns for sensor in layout.sensors] == [3, 1, 1]  # one knot: all values equal
    assert np.isfinite(layout.encode({"door": 0.0, "lux": 3.0, "mute": 0.5})).all()


def test_a_spike_in_the_warm_up_does_not_move_the_reference():
    """It is the mean, in which a spike counts as a value at the gate around the median."""
    rng, warmup = np.random.default_rng(5), WarmUp(["rain", "spiky"], readings=200)
    rain, spiky = (rng.random(200) < 0.25).astype(float), rng.normal(20, 1, 200)
    spiky[17] = 1e9
    for values in zip(rain.tolist(), spiky.tolist(), strict=True):
        warmup.add(dict(zip(("rain", "spiky"), values, strict=True)))
    found = {sensor.name: sensor for sensor in warmup.layout().sensors}
    assert found["rain"].reference == pytest.approx(rain.mean(), rel=1e-6)
    assert found["spiky"].reference == pytest.approx(20, abs=0.3)
    assert found["spiky"].scale == pytest.approx(1, abs=0.2)


def test_the_warm_up_doubles_ends_and_keeps_its_rows():
    warmup, due = WarmUp(["a", "b"], readings=70), []
    for i in range(70):
        warmup.add({"a": float(i), "b": None if i % 2 else 1.0}, label=i % 3)
        due += [i + 1] if warmup.due else []
    assert due == [8, 16, 32, 64, 70]
    rows = list(warmup.rows())
    assert rows[4] == ({"a": 4.0, "b": 1.0}, 1)
    assert rows[5] == ({"a": 5.0}, 2)
    with pytest.raises(LayoutError, match="the warm-up is full: 70 readings"):
        warmup.add({"a": 1.0})
    with pytest.raises(ReadingError, match="sensor 'a' is nan"):
        WarmUp(["a"]).add({"a": float("nan")})
    assert len(list(warmup.rows())) == 70


def test_knots_stand_where_values_are_dense_and_reach_to_the_gate():
    warmup, rng = WarmUp(["a"], readings=200, knots=8), np.random.default_rng(1)
    for value in rng.exponential(size=200):
        warmup.add({"a": float(value)})
    (sensor,) = warmup.layout().sensors
    assert 7 <= len(sensor.knots) <= 8  # the largest value may lie beyond the gate itself
    assert (sensor.knots[0], sensor.knots[-1]) == (-8.0, 8.0)
    gaps = np.diff(sensor.knots[1:-1])
    assert gaps[0] < gaps[-1]


def test_the_lift_learns_what_no_linear_function_can():
    """A band in the middle is class 1: hats find it, the linear column cannot."""
    values = np.random.default_rng(3).normal(size=2000)
    labels = (np.abs(values) < 0.7).astype(int)
    accuracy = []
    for count in (1, 8):
        warmup = WarmUp(["a"], readings=100, knots=count)
        for value in values[:100]:
            warmup.add({"a": float(value)})
        layout = warmup.layout()
        X = np.array([layout.encode({"a": float(value)}) for value in values])
        learner = GramLearner(0, layout.width, 2)
        learner.learn_many(X[:1000], labels[:1000])
        accuracy.append(np.mean((X[1000:] @ learner.weights()[0]).argmax(1) == labels[1000:]))
    assert accuracy[0] < 0.6
    assert accuracy[1] > 0.9


ANY_VALUE = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-100, 600),
    st.integers(-(10**6), 10**6),
    st.none(),
)


@pytest.mark.skipif("compiled" not in native.available, reason="no compiler was found")
@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["temp", "co2", "pm25"]), ANY_VALUE),
    st.sampled_from([0.5, 8.0, 1e7]),
)
@example({"temp": 50_000_020.0, "pm25": 4_000_013.0}, 1e7)  # one beyond the gate, one only absurd
def test_the_c_file_encodes_what_numpy_encodes_to_the_bit(values, gate):
    """Missing, at the gate, absurd, on a knot: the columns are the learners' input."""
    encoder = Layout(AIR, vanishing=["co2"], gate=gate).encoder
    x, gated = encoder.encode(values)
    expected, expected_gated = encoder.encode_by_numpy(values)
    assert x.tobytes() == expected.tobytes()
    assert gated == expected_gated


@pytest.mark.skipif("compiled" not in native.available, reason="no compiler was found")
def test_the_c_file_leaves_what_is_unusual_to_numpy_and_refuses_what_does_not_fit():
    """It knows plain dicts of plain numbers. Whatever else may come must not reach its memory."""
    steps, layout = native.available["compiled"], Layout(AIR)
    held, x = layout.encoder.held_by(layout.names), np.zeros(layout.width, np.float32)
    huge, unusual = 10**400, {"temp": np.float64(1.0)}
    for values in (unusual, {"temp": True}, {"temp": huge}, {"temp": np.nan}, {"x": 1.0}, [1.0]):
        assert steps.encode(held, values, x) is None
    assert steps.encode(held, {"temp": 21}, x) == ()
    open_held = layout.encoder.held_by(layout.names, strangers=True)
    assert steps.encode(open_held, {"x": "no number", "co2": 9e9}, x) == (0,)
    for wrong in (x[:-1], x.astype(float), x.tobytes()):
        with pytest.raises((ValueError, TypeError, BufferError)):
            steps.encode(held, {}, wrong)
    one, two, place = np.ones(1), np.ones((2, 1)), np.zeros(1, np.intc)
    good = [("a",), one, one, np.ones(1), place, place, two, two, one, 8.0, False]
    assert steps.hold_layout(*good)
    for at, bad in {
        0: ["a"],
        1: np.ones(2),
        4: np.ones(1, np.intc),
        5: -np.ones(1, np.intc),
        6: one,
        9: "x",
    }.items():
        with pytest.raises((ValueError, TypeError)):
            steps.hold_layout(*good[:at], bad, *good[at + 1 :])


def test_a_layout_is_copied_and_pickled_after_it_has_encoded():
    layout = Layout(AIR)
    x = layout.encode(VALUES)
    for copied in (copy.deepcopy(layout), pickle.loads(pickle.dumps(layout))):
        assert copied.encode(VALUES).tobytes() == x.tobytes()
