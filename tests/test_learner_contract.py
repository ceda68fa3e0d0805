"""One list of checks that every learner passes, compiled and in NumPy."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from support.oracle import Stream, eq4, relative

from edge_opid import GramLearner, Learner, WoodburyLearner, native

X, Y = Stream(width=9, condition=1e2).take(400)
FLOAT32 = 2e-5  # 400 readings at condition 1e2: 1e2 · 400^½ · 6e-8, rounded up


def taught(make, vanishing=4, n=300, **options):
    learner = make(vanishing=vanishing, surviving=9 - vanishing, classes=3, **options)
    for x, y in zip(X[:n], Y[:n], strict=True):
        learner.learn_one(x, y)
    return learner


def test_both_learners_are_learners():
    """The protocol is what callers rely on; this line fails to type-check when one drifts."""
    learners: list[Learner] = [WoodburyLearner(1, 1, 2), GramLearner(1, 1, 2)]
    assert len(learners) == 2


def test_it_predicts_before_it_has_learned(make):
    learner = make(vanishing=2, surviving=3, classes=4)
    assert learner.predict_one(np.ones(5)).tolist() == [0.0] * 4
    assert learner.predict_survivors(np.ones(3)).tolist() == [0.0] * 4
    assert learner.readings == 0


@pytest.mark.parametrize("vanishing", [0, 1, 4, 8], ids="{} vanish".format)
def test_it_equals_the_direct_solve(make, vanishing):
    """Also with one sensor left, and with none planned to vanish."""
    learner = taught(make, vanishing)
    expected = eq4(X[:300], Y[:300], 3, vanishing, 1.0, 1.0)
    for got, wanted in zip(learner.weights(), expected, strict=True):
        assert relative(got, wanted) < FLOAT32
    assert relative(learner.predict_one(X[300]), X[300] @ expected[0]) < FLOAT32
    survivors = X[300][vanishing:]
    assert relative(learner.predict_survivors(survivors), survivors @ expected[1]) < FLOAT32


def test_with_nothing_to_vanish_both_classifiers_are_one_and_nothing_is_stored_twice(make):
    learner = taught(make, vanishing=0)
    W_all, W_survivors = learner.weights()
    assert np.array_equal(W_all, W_survivors)
    assert learner.B.shape == (9, 3)
    assert learner.inverse().shape == (9, 9)


def test_the_order_of_columns_is_irrelevant(make):
    shuffled = np.r_[np.array([2, 0, 3, 1]), np.array([7, 4, 8, 6, 5])]
    one = taught(make).weights()[0]
    other = make(vanishing=4, surviving=5, classes=3)
    other.learn_many(X[:300][:, shuffled], Y[:300])
    assert relative(other.weights()[0], one[shuffled].astype(float)) < FLOAT32


def test_scoring_while_learning_changes_nothing_but_tells_both_predictions(make):
    """`score_then_learn` returns what was predicted before, and learns as `learn_one` does."""
    plain, scored = taught(make), taught(make)
    before = plain.predict_one(X[300]), plain.predict_survivors(X[300][4:].copy())
    scores = scored.score_then_learn(X[300], Y[300])
    plain.learn_one(X[300], Y[300])
    # The C file sums alike in both; NumPy's matrix products may not.
    assert relative(scores.all_sensors, before[0]) < 1e-5
    assert relative(scores.survivors, before[1]) < 1e-5
    assert np.array_equal(plain.weights()[0], scored.weights()[0])


def test_the_same_readings_give_the_same_bits(make):
    one, two = taught(make), taught(make)
    for name, value in one.state().items():
        assert np.array_equal(value, two.state()[name]), name


@pytest.mark.parametrize(
    "save", [lambda a: pickle.loads(pickle.dumps(a)), dict], ids=["pickle", "state"]
)
def test_it_saves_and_loads_to_the_same_bits(make, native_name, save):
    """And goes on to the same bits, which a wrong working space or counter would break."""
    learner = taught(make)
    loaded = type(learner).from_state(save(learner.state()), native=native_name)
    for x, y in zip(X[300:], Y[300:], strict=True):
        learner.learn_one(x, y)
        loaded.learn_one(x, y)
    after = learner.state()
    assert all(np.array_equal(value, loaded.state()[name]) for name, value in after.items())


def test_a_saved_state_does_not_follow_the_learner(make):
    learner = taught(make)
    saved = learner.state()
    copy = {name: np.array(value) for name, value in saved.items() if name != "settings"}
    learner.learn_one(X[300], Y[300])
    assert all(np.array_equal(value, saved[name]) for name, value in copy.items())


def test_it_stays_float32(make):
    learner = taught(make)
    found = [*learner.weights(), learner.B, learner.inverse(), learner.predict_one(X[0])]
    found += [*learner.score_then_learn(X[0], 0), learner.summary().gram]
    assert {array.dtype for array in found} == {np.dtype(np.float32)}


def test_the_reading_is_not_kept(make):
    """A caller may reuse its buffer: nothing learned moves with it."""
    learner, buffer = taught(make), X[300].copy()
    learner.learn_one(buffer, 1)
    before = learner.weights()[0]
    buffer[:] = 99.0
    assert np.array_equal(learner.weights()[0], before)


def test_what_it_hands_out_is_a_copy(make):
    learner = taught(make)
    before = learner.weights()[0].copy()
    for array in (learner.B, learner.inverse(), *learner.weights()):
        array[:] = 0
    assert np.array_equal(learner.weights()[0], before)


def test_its_bytes_are_the_same_after_1_000_and_100_000_readings(make, native_name):
    learner = make(vanishing=4, surviving=5, classes=3)
    born = learner.nbytes
    learner.learn_many(np.tile(X, (3, 1))[:1000], np.tile(Y, 3)[:1000])
    assert learner.nbytes == born
    if native_name == "compiled":
        learner.learn_many(np.tile(X, (250, 1)), np.tile(Y, 250))
    else:
        learner.learn_many(np.tile(X, (250, 1)), np.tile(Y, 250), batch=256)
    assert (learner.readings, learner.nbytes) == (101_000, born)


@pytest.mark.parametrize("classes", [2, 3, 20])
@pytest.mark.parametrize(
    ("vanishing", "surviving"), [(0, 1), (6, 12), (25, 50), (0, 31), (250, 500)]
)
def test_the_state_is_no_larger_than_promised(vanishing, surviving, classes):
    d = vanishing + surviving
    D = d + (surviving if vanishing else 0)
    woodbury = WoodburyLearner(vanishing, surviving, classes)
    gram = GramLearner(vanishing, surviving, classes)
    assert woodbury.nbytes <= 4 * D**2 + 4 * D * classes + 1024
    assert gram.nbytes <= 2 * d * (d + 1) + 4 * d * classes + 1024
    for learner in (woodbury, gram):
        assert learner.nbytes == type(learner).bytes_for(learner.settings)


def test_a_state_moves_between_kernels(learner_class):
    """Both keep the same bytes, so a node may lose or gain its compiler."""
    if len(native.available) < 2:
        pytest.skip("no C file in this install")
    one = learner_class(4, 5, 3, native="compiled")
    one.learn_many(X[:200], Y[:200])
    two = learner_class.from_state(one.state(), native="numpy")
    for learner in (one, two):
        learner.learn_many(X[200:], Y[200:])
    assert relative(two.weights()[0], one.weights()[0].astype(float)) < FLOAT32
