"""Sums that were learned on one scale are moved to another as if they had been learned there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_opid import GramLearner, Layout, Sensor, WoodburyLearner
from edge_opid.errors import MismatchError
from edge_opid.node.memories import Learning, Memories

LEARNERS = {"woodbury": WoodburyLearner, "gram": GramLearner}
GIVEN = (Sensor("a", 20.0, 2.0), Sensor("b", 0.0, 5.0), Sensor("c", 1000.0, 10.0))
FLOAT32 = 2e-3
"""Scores are about 1. A scale that is 30 times too wide makes columns 30 times too small, so that
their weights have two digits less of float32's seven, and moving back loses them once more."""

scales = st.tuples(
    st.floats(-3, 3),  # where the new reference is, in old scales
    st.floats(-1.5, 1.5).map(lambda power: 10**power),  # the new scale, in old ones
)


def world(n, seed=3):
    """Values within two scales of where they should be, and a class that depends on all three."""
    rng = np.random.default_rng(seed)
    z = rng.uniform(-2, 2, (n, 3))
    labels = (z[:, 0] - 0.5 * z[:, 1] + 0.3 * z[:, 2] > 0.2).astype(int)
    rows = [
        {s.name: float(s.reference + s.scale * v) for s, v in zip(GIVEN, row, strict=True)}
        for row in z
    ]
    return rows, labels.tolist()


ROWS, LABELS = world(300)


def taught(kind, layout, rows=ROWS, labels=LABELS, **options):
    learner = kind(layout.vanishing_columns, layout.surviving_columns, 2, **options)
    for row, label in zip(rows, labels, strict=True):
        learner.learn_one(layout.encode(row), label)
    return learner


def said(learner, layout, rows=ROWS[:40]):
    return np.array([learner.predict_one(layout.encode(row)) for row in rows])


def layout_with(changed):
    moved = [
        Sensor(s.name, s.reference + s.scale * away, s.scale * wider)
        for s, (away, wider) in zip(GIVEN, changed, strict=True)
    ]
    return Layout(moved, vanishing=["b"], gate=200.0)


OLD = layout_with([(0.0, 1.0)] * 3)


@settings(max_examples=25, deadline=None)
@given(changed=st.tuples(scales, scales, scales), kind=st.sampled_from(sorted(LEARNERS)))
def test_a_learner_that_is_moved_equals_one_that_had_the_scales_from_the_start(changed, kind):
    """Float64, so that only the algebra is judged; the ridge is about the same zero in both."""
    new = layout_with(changed)
    moved = new.move_from(OLD).follow(taught(LEARNERS[kind], OLD, dtype="float64"))
    started = taught(LEARNERS[kind], new, dtype="float64")
    # Columns are float32 whatever the learner: 6e-8 of values up to 150, over weights up to 30.
    assert np.allclose(said(moved, new), said(started, new), atol=1e-3)
    assert moved.readings == started.readings == 300


@settings(max_examples=25, deadline=None)
@given(changed=st.tuples(scales, scales, scales), kind=st.sampled_from(sorted(LEARNERS)))
def test_moving_there_and_back_changes_no_prediction(changed, kind):
    """In float32, as nodes learn; the learner that was moved is as it was."""
    new = layout_with(changed)
    learner = taught(LEARNERS[kind], OLD)
    before, state = said(learner, OLD), learner.state()
    back = OLD.move_from(new).follow(new.move_from(OLD).follow(learner))
    assert np.allclose(said(back, OLD), before, atol=FLOAT32)
    after = learner.state()
    assert all(np.array_equal(after[name], state[name]) for name in state)


@settings(max_examples=25, deadline=None)
@given(changed=st.tuples(scales, scales, scales), kind=st.sampled_from(sorted(LEARNERS)))
def test_weights_that_are_moved_say_what_they_said(changed, kind):
    """A bridge, and what a gateway pushed, have no sums: their weights are moved themselves."""
    new, learner = layout_with(changed), taught(LEARNERS[kind], OLD)
    W = learner.weights()[0].astype(np.float64)
    moved = new.move_from(OLD).weights @ W
    for row in ROWS[:40]:
        assert np.allclose(new.encode(row) @ moved, OLD.encode(row) @ W, atol=FLOAT32)


# -- hats ------------------------------------------------------------------------------------------

KNOTS = (-8.0, -1.5, -0.5, 0.5, 1.5, 8.0)


def lifted(reference, scale, knots):
    return Layout([Sensor("a", reference, scale, knots), *GIVEN[1:]])


@pytest.mark.parametrize("kind", LEARNERS.values(), ids=LEARNERS)
@pytest.mark.parametrize(
    "kept",
    [KNOTS[1:-1], (-8.0, -1.5, 0.5, 8.0), (-8.0, -0.5, 8.0)],
    ids=["all", "with ends", "few"],
)
def test_hats_are_moved_exactly_where_the_new_knots_are_old_ones(kind, kept):
    """The scale is ten times as wide; every new knot within the old range stood there before."""
    old = lifted(20.0, 2.0, KNOTS)
    new = lifted(24.0, 20.0, (-8.0, *((2.0 * k + 20.0 - 24.0) / 20.0 for k in kept), 3.0, 8.0))
    T = new.move_from(old).columns
    for row in ROWS[:40]:
        # 1e-6: the columns themselves are float32
        assert np.allclose(T @ old.encode(row).astype(float), new.encode(row), atol=1e-6)
    moved = new.move_from(old).follow(taught(kind, old))
    started = taught(kind, new)
    agree = said(moved, new).argmax(1) == said(started, new).argmax(1)
    assert agree.mean() >= 0.97  # of 40: the ridge is centred elsewhere, which moves the boundary


@pytest.mark.parametrize("kind", LEARNERS.values(), ids=LEARNERS)
def test_hats_with_other_knots_inherit_what_was_said_at_them(kind):
    """Knots that no old one stood at: the answers stay as good as a few knots can make them."""
    old, new = lifted(20.0, 2.0, KNOTS), lifted(21.0, 3.0, (-8.0, -1.1, -0.2, 0.3, 0.9, 8.0))
    learner = taught(kind, old)
    moved = new.move_from(old).follow(learner)
    right = said(moved, new, ROWS).argmax(1) == LABELS
    assert right.mean() > (said(learner, old, ROWS).argmax(1) == LABELS).mean() - 0.05


# -- what cannot be moved --------------------------------------------------------------------------

IMPOSSIBLE = {
    "a straight column to hats": (Layout([Sensor("a")]), Layout([Sensor("a", knots=(-1, 1))])),
    "too far apart": (Layout([Sensor("a", 0, 1)]), Layout([Sensor("a", 0, 1e-6)])),
    "too far apart, behind a gate that was made narrow": (
        Layout([Sensor("a", 0, 1)], gate=1e-30),
        Layout([Sensor("a", 0, 1e-6)], gate=1e-30),
    ),
    "a sensor that is gone": (Layout(["a", "b"]), Layout(["a"])),
}


@pytest.mark.parametrize(("old", "new"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_what_cannot_be_moved_is_refused(old, new):
    with pytest.raises(MismatchError):
        new.move_from(old)


# -- all memories together -------------------------------------------------------------------------


def memories():
    made = Memories(OLD, Learning(2, 1.0, 1.0, 1.0))
    for row, label in zip(ROWS, LABELS, strict=True):
        made.learn(made.layout.encode(row), label)
    return made


def own(memories, rows=ROWS[:40]):
    alive = memories.layout.names
    return np.array([memories.own(memories.layout.encode({n: r[n] for n in alive})) for r in rows])


@pytest.mark.parametrize("silent", [(), ("c",)], ids=["all alive", "one silent"])
def test_all_memories_of_a_node_say_after_a_move_what_they_said_before(silent):
    """Ridge, forgetful ridge, logistic memory, bridge; and the parked learner when it returns."""
    mine, new = memories(), layout_with([(1.0, 3.0), (-2.0, 0.5), (0.0, 1.0)])
    if silent:
        mine.silence(silent, carry=1.0)
    before = own(mine)
    mine.rescale(new)
    assert mine.full == new
    assert mine.silent == silent
    # The forgetful ridge gets its whole ρ back, about a hundredth of what it remembers.
    assert np.allclose(own(mine), before, atol=0.03)
    if silent:
        other = memories()
        mine.take_back(silent)
        assert np.allclose(own(mine), own(other), atol=0.03)


def test_a_memory_that_was_clipped_says_at_the_new_gate_what_it_said_at_the_old():
    """Its line was never seen beyond: stretched to a scale 100 times as wide it would shout."""
    mine = memories()
    wide = layout_with([(0.0, 100.0), (0.0, 1.0), (0.0, 1.0)])
    weight = mine.logistic.weights[mine.logistic.names.index("a")].copy()
    mine.rescale(wide, clipped=["a"])
    assert np.array_equal(mine.logistic.weights[mine.logistic.names.index("a")], weight)


def test_a_move_that_cannot_be_changes_nothing():
    """A scale ten million times too small: refused, and every memory is as it was."""
    mine = memories()
    before = own(mine)
    with pytest.raises(MismatchError, match="too far apart"):
        mine.rescale(layout_with([(0.0, 1e-7), (0.0, 1.0), (0.0, 1.0)]))
    assert mine.full == OLD
    assert np.array_equal(own(mine), before)


def test_unlabelled_readings_teach_again_though_a_sensor_was_silent_when_that_was_turned_on():
    """The parked sums had none of them, and took the place of the new ones when it returned."""
    mine = memories()
    mine.learn_unlabelled(False)
    mine.silence(["c"], carry=1.0)
    mine.learn_unlabelled(True)
    mine.take_back(["c"])
    mine.observe(mine.layout.encode(ROWS[0]))
    assert mine.everything is not None
    assert mine.everything.readings == 1
