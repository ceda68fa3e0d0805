"""Forgetting: old readings fade as announced, and a stuck sensor cannot wind the state up."""

from __future__ import annotations

import numpy as np
import pytest
from support.oracle import Stream, eq4_from_sums, one_hot, relative

from edge_opid import GramLearner, WoodburyLearner

X, Y = Stream(width=8, condition=1e2).take(500)
BETA = 0.98
EXACT = {GramLearner: 1e-9, WoodburyLearner: 1e-3}
"""GramLearner's ridge stays ρ. WoodburyLearner's fades with the readings, except in directions
not seen yet, where the ceiling holds it at ρ: a thousandth, here, once all have been seen."""


def faded_sums(n):
    ages = BETA ** np.arange(n - 1, -1, -1)[:, None]
    rows = X[:n].astype(np.float64)
    return (ages * rows).T @ rows, (ages * rows).T @ one_hot(Y[:n], 3)


@pytest.mark.parametrize("batch", [1, 16])
def test_old_readings_count_as_much_as_announced(exact, batch):
    """The oracle sums every reading times β to the power of its age."""
    learner = exact(3, 5, 3, forgetting=BETA)
    learner.learn_many(X[:320], Y[:320], batch=batch)
    rho = 1.0 if isinstance(learner, GramLearner) else BETA**320
    expected = eq4_from_sums(*faded_sums(320), 3, 1.0, rho)
    for got, wanted in zip(learner.weights(), expected, strict=True):
        assert relative(got, wanted) < EXACT[type(learner)]
    assert learner.evidence == pytest.approx((1 - BETA**320) / (1 - BETA))
    assert learner.readings == 320


def test_scores_while_forgetting_are_those_of_the_model_before(make):
    learner = make(3, 5, 3, forgetting=BETA)
    learner.learn_many(X[:300], Y[:300])
    before = learner.predict_one(X[300])
    assert relative(learner.score_then_learn(X[300], 0).all_sensors, before) < 1e-5


@pytest.mark.parametrize("beta", [0.9, 0.99, 0.999])
def test_a_stuck_sensor_cannot_overflow_the_state(make, native_name, beta):
    """Three of eight sensors stick at a constant for 100,000 readings (NumPy: 5,000).

    Without a ceiling A⁻¹ overflows float32 after 844, 9,201 and 93,852 readings. With it no
    direction's variance passes 1/ρ, so the trace stays below D/ρ times what U can add.
    """
    learner = make(3, 5, 3, forgetting=beta)
    n = 100_000 if native_name == "compiled" else 5_000
    stuck = np.tile(X, (n // len(X), 1))
    stuck[:, [1, 4, 6]] = [0.5, -1.0, 0.0]
    labels = np.tile(Y, n // len(X))
    for x, y in zip(stuck, labels, strict=True):
        learner.learn_one(x, y)
    inverse = learner.inverse().astype(np.float64)
    assert np.isfinite(inverse).all()
    assert np.trace(inverse) < 100 * len(inverse)
    assert np.linalg.eigvalsh(inverse).min() > 0
    assert np.isfinite(learner.weights()[0]).all()


def test_a_stuck_sensor_comes_back_and_is_learned_again():
    """The ceiling costs only what was lost anyway: the revived sensor regains its weight."""
    learner = WoodburyLearner(0, 8, 3, forgetting=0.99)
    stuck = np.tile(X, (20, 1))
    stuck[:, 2] = 0.0
    learner.learn_many(stuck, np.tile(Y, 20))
    learner.learn_many(X, Y)
    fresh = WoodburyLearner(0, 8, 3, forgetting=0.99)
    fresh.learn_many(X, Y)
    assert relative(learner.weights()[0], fresh.weights()[0].astype(float)) < 0.05
    assert learner.inverse().max() < 1.0  # 1/ρ, where it began


@pytest.mark.parametrize("kind", [WoodburyLearner, GramLearner])
def test_carrying_and_merging_know_what_has_faded(kind):
    """A summary taken under forgetting holds the faded sums, not more."""
    learner = kind(3, 5, 3, forgetting=BETA, dtype="float64")
    learner.learn_many(X[:320], Y[:320])
    gram, moments = faded_sums(320)
    known = learner.summary().statistics()
    assert relative(known.gram, gram) < EXACT[kind]
    assert relative(known.moments, moments) < 1e-9
