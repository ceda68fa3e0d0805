"""The memory that takes small steps: sensors that leave, wild values, bits that differ."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_opid import Layout, Sensor
from edge_opid.node import memories
from edge_opid.node.local_models import LocalModels
from edge_opid.node.logistic import LogisticMemory, Straight, likely
from edge_opid.node.memories import Learning
from edge_opid.wire import SensorDescription

KNOTS = (-8.0, -1.0, 0.5, 2.0, 8.0)


def described(*names: str, knots: tuple[float, ...] = ()) -> list[SensorDescription]:
    return [
        SensorDescription(id=name, role=name, reference=1.0, scale=2.0, timeout_s=60.0, knots=knots)
        for name in names
    ]


def local_models(*names: str, knots: tuple[float, ...] = ()) -> LocalModels:
    return LocalModels(described(*names, knots=knots), (), 8.0, Learning(2, 1.0, 1.0, 1.0))


def taught(*names: str, readings: int = 60) -> LocalModels:
    mine, rng = local_models(*names, knots=KNOTS), np.random.default_rng(3)
    for _ in range(readings):
        values = {name: float(rng.normal(1, 2)) for name in names}
        mine.learn(mine.encode(values), int(values[names[0]] > 1))
    return mine


@given(st.floats(-1e3, 1e3), st.sampled_from([(), KNOTS, (-8.0, 8.0)]))
@settings(max_examples=60, deadline=None)
def test_a_sensors_value_is_read_back_from_its_hats(value, knots):
    """Within the knots, beyond them and beyond the gate; with hats and without."""
    layout = Layout([Sensor("a", 1.0, 2.0, knots), Sensor("b", 0.0, 1.0, KNOTS)])
    x = layout.encode({"a": value, "b": 0.25})
    z = min(8.0, max(-8.0, (value - 1) / 2))
    np.testing.assert_allclose(Straight(layout, layout)(x), [z, 0.25, 1.0], atol=1e-5)


def test_the_steps_are_those_of_the_textbook():
    """AdaGrad on the log-loss, with NumPy's own exponential."""
    rng, memory = np.random.default_rng(1), LogisticMemory(("a", "b", "bias"), 3)
    W, n = np.zeros((3, 3)), np.zeros((3, 3))
    for _ in range(300):
        u, label = np.append(rng.normal(size=2), 1.0), int(rng.integers(3))
        p = np.exp(u @ W) / np.exp(u @ W).sum()
        np.testing.assert_allclose(memory.score_then_learn(u, label), p, atol=1e-3)
        g = np.outer(u, p - np.eye(3)[label])
        n += g * g
        W -= 0.5 / np.sqrt(2) * g / (1 + np.sqrt(n))  # two sensors
    np.testing.assert_allclose(memory.weights, W, atol=2e-3)


@pytest.mark.parametrize(
    "scores", [[0, 0], [3, -2, 1], [0, -900, -1100, -1e9], [1e6, 1e6, 0]], ids=str
)
def test_the_exponential_by_squaring_gives_a_distribution(scores):
    """Scores of any size, against NumPy's exponential."""
    found, expected = likely(np.array(scores, float)), np.exp(np.array(scores) - max(scores))
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(1)
    np.testing.assert_allclose(found, expected / expected.sum(), atol=2e-3)


def test_one_wild_reading_moves_the_weights_by_at_most_one_step():
    """A value of a million after a hundred good ones."""
    memory = LogisticMemory(("a", "bias"), 2)
    for value in (1.0, -1.0) * 50:
        memory.score_then_learn(np.array([value, 1.0]), int(value > 0))
    before = memory.weights.copy()
    memory.score_then_learn(np.array([1e6, 1.0]), 0)
    assert np.abs(memory.weights - before).max() <= 0.5
    assert np.isfinite(memory.weights).all()


def test_survivors_keep_their_weights_and_newcomers_start_at_zero():
    """One sensor leaves and another one comes."""
    mine = taught("a", "b", "c")
    rows = dict(zip(mine.logistic.names, mine.logistic.weights.copy(), strict=True))
    mine.obey(described("b", "c", "d", knots=KNOTS), (), 8.0, 1.0)
    after = dict(zip(mine.logistic.names, mine.logistic.weights, strict=True))
    assert set(after) == {"b", "c", "d", "bias"}
    assert not after["d"].any()
    assert all(np.array_equal(after[name], rows[name]) for name in ("b", "c", "bias"))


def test_a_sensor_that_was_silent_for_a_while_is_not_forgotten():
    """While it says nothing it counts as its reference, and its weights wait for it."""
    mine = taught("a", "b")
    before = dict(zip(mine.logistic.names, mine.logistic.weights.copy(), strict=True))
    mine.silence(["a"], 1.0)
    values = {"b": 3.0}
    quiet = mine.scores(mine.encode(values))["logistic"]
    mine.learn(mine.encode(values), 1)
    mine.take_back(["a"])
    after = dict(zip(mine.logistic.names, mine.logistic.weights, strict=True))
    assert np.array_equal(after["a"], before["a"])
    assert not np.array_equal(after["b"], before["b"])
    again = taught("a", "b")
    np.testing.assert_allclose(quiet, again.scores(again.encode(values))["logistic"], atol=1e-6)


def test_a_restored_memory_goes_on_to_the_same_bits():
    """A sum of squares that was not saved would make every later step too large."""
    mine = taught("a", "b")
    again = LocalModels.restored(mine.state(), mine.learning)
    for each in (mine, again):
        each.learn(each.encode({"a": 0.3, "b": -2.0}), 1)
    assert np.array_equal(mine.logistic.weights, again.logistic.weights)
    assert np.array_equal(mine.logistic.squares, again.logistic.squares)


def both_ways(monkeypatch, *names: str, silent: bool, classes: int) -> list[object]:
    """A life of memories with the C file's steps, and once more with NumPy's on the same ridges."""
    found = []
    for steps in (memories.STEPS, None):
        monkeypatch.setattr(memories, "STEPS", steps)
        mine = LocalModels(described(*names, knots=KNOTS), (), 8.0, Learning(classes, 1, 1, 1))
        rng, told = np.random.default_rng(5), []
        for place in range(300):
            values = {name: float(rng.normal(1, 3)) for name in names}
            if silent and place == 150:
                mine.silence([names[0]], 1.0)
            x = mine.encode(values)
            rows, guesses = mine.guess(x, ordered=place % 3 == 0)
            told.append((rows.tobytes(), guesses))
            mine.observe(x)
            mine.learn(x, int(rng.integers(classes)))
        saved = mine.state()
        told.append((saved["blend"], mine.logistic.weights.tobytes(), mine.generation))
        told.append((mine.learner._columns.tobytes(), mine.everything._packed.tobytes()))
        found.append(told)
    return found


@pytest.mark.skipif(memories.STEPS is None, reason="no compiler was found, or NumPy is asked for")
@pytest.mark.parametrize(("silent", "classes"), [(False, 2), (True, 3), (True, 20)])
def test_the_memories_in_c_say_and_learn_what_those_in_numpy_do_to_the_bit(
    monkeypatch, silent, classes
):
    """Logistic memory, bridge and blend: sums in order, on either side."""
    compiled, by_numpy = both_ways(monkeypatch, "a", "b", "c", silent=silent, classes=classes)
    assert compiled == by_numpy


@pytest.mark.skipif(memories.STEPS is None, reason="no compiler was found, or NumPy is asked for")
def test_the_c_file_refuses_memories_that_do_not_belong_together():
    """It is given raw memory: other columns, classes or places must be an error."""
    steps = memories.STEPS
    one, other = taught("a", "b"), taught("a", "b", "c")
    x, room = one.encode({"a": 1.0, "b": 2.0}), np.empty(2)
    held, rows = list(one._held()), np.empty((4, 2), np.float32)
    for place in range(3):
        wrong = [*held[:place], other._held()[place], *held[place + 1 :]]
        with pytest.raises(ValueError, match="same columns and classes"):
            steps.guess(*wrong, x, rows, room, False)
    for bad in ([x[:-1], rows, room], [x, rows[:-1], room], [x, rows, room[:1]]):
        with pytest.raises(ValueError, match="expected"):
            steps.guess(*held, *bad, False)
    with pytest.raises(ValueError, match="belongs to sensor 2 of 2"):
        steps.hold_logistic(
            np.zeros((2, 2)),
            np.zeros((2, 2)),
            np.array([0, 2], np.intc),
            np.ones(2),
            np.zeros(2),
            0.1,
        )
    before = one.learner._B.copy()
    with pytest.raises(ValueError, match=r"label must be 0\.\.1"):
        steps.learn_all(*held, x, 2, np.empty((4, 2)), True)
    x[0] = np.nan
    assert steps.learn_all(*held, x, 1, np.empty((4, 2)), True) == 0
    assert np.array_equal(one.learner._B, before)


def test_memories_are_copied_and_pickled_without_what_is_held_for_the_c_file():
    mine = taught("a", "b")
    x = mine.encode({"a": 1.0, "b": 2.0})
    said = mine.own(x)
    for copied in (copy.deepcopy(mine), pickle.loads(pickle.dumps(mine))):
        assert np.array_equal(copied.own(x), said)
        copied.learn(x, 0)
    assert np.array_equal(mine.own(x), said)
