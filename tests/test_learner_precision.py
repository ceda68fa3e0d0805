"""Float32 for a million readings, beside float64; and the printed form, which does not last."""

from __future__ import annotations

import numpy as np
import pytest
from support.oracle import Stream, disagreement, eq4_from_sums, one_hot

from edge_opid import GramLearner, WoodburyLearner

VANISHING, SURVIVING, WIDTH = 12, 28, 40
MILLION = 1_000_000
PROMISED = 0.005  # the share of labels that may differ from the float64 solve


class Sums:
    """Σx̃x̃ᵀ and Σx̃yᵀ in float64, for the oracle."""

    def __init__(self):
        self.gram, self.moments = np.zeros((WIDTH, WIDTH)), np.zeros((WIDTH, 3))

    def add(self, X, y):
        X = X.astype(np.float64)
        self.gram += X.T @ X
        self.moments += X.T @ one_hot(y, 3)

    def weights(self, rho):
        return eq4_from_sums(self.gram, self.moments, VANISHING, 1.0, rho)


def shares_of_other_labels(learner, sums, rho, X):
    X = X.astype(np.float64)
    return [
        disagreement(X[:, VANISHING * which :], ours.astype(np.float64), truth)
        for which, (ours, truth) in enumerate(
            zip(learner.weights(), sums.weights(rho), strict=True)
        )
    ]


@pytest.mark.parametrize("rho", [1.0, 1e-3])
def test_a_million_readings_at_condition_1e6_cost_at_most_half_a_percent_of_labels(
    make, native_name, rho
):
    """A million updates in float32, against a float64 solve, for both classifiers.

    The NumPy twin rounds as the compiled steps do and takes many times as long: it has a tenth.
    """
    stream, sums = Stream(WIDTH, condition=1e6), Sums()
    readings = MILLION if native_name == "compiled" else MILLION // 10
    learner = make(VANISHING, SURVIVING, 3, rho=rho)
    born = learner.nbytes
    for X, y in stream.chunks(readings):
        learner.learn_many(X, y)
        sums.add(X, y)
    assert 0.5 < np.linalg.cond(sums.gram) / 1e6 < 2
    assert (learner.readings, learner.nbytes) == (readings, born)
    arrays = [value for value in learner.state().values() if isinstance(value, np.ndarray)]
    assert all(np.isfinite(array).all() for array in arrays)
    assert np.linalg.eigvalsh(learner.inverse().astype(np.float64)).min() > 0
    assert max(shares_of_other_labels(learner, sums, rho, X)) <= PROMISED


def as_printed(A_inverse, B, x, y):
    """Eq. 10 for n = 1 in NumPy float32, term by term: what this package does not do."""
    x_survivors = x[VANISHING:]
    U = np.zeros((len(A_inverse), 3), np.float32)
    U[:WIDTH, 0], U[WIDTH:, 1] = x, x_survivors
    U[:, 2] = U[:, 0] - U[:, 1]  # λ = 1
    AU = A_inverse @ U
    middle = np.linalg.inv(np.eye(3, dtype=np.float32) + U.T @ AU)
    A_inverse -= AU @ middle @ (U.T @ A_inverse)
    B[:, y] += U[:, 0] + U[:, 1]


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
@pytest.mark.parametrize("rho", [1.0, 1e-3])
def test_eq_10_as_printed_fails_on_the_same_stream(rho):
    """The control: if this ever passes, the precision tests have lost their teeth."""
    stream, sums = Stream(WIDTH, condition=1e6), Sums()
    D = WIDTH + SURVIVING
    A_inverse, B = np.eye(D, dtype=np.float32) / np.float32(rho), np.zeros((D, 3), np.float32)
    for X, y in stream.chunks(200_000):
        for x, label in zip(X, y, strict=True):
            as_printed(A_inverse, B, x, label)
        sums.add(X, y)
        if not np.isfinite(A_inverse).all():
            return
        W = A_inverse.astype(np.float64) @ B
        if disagreement(X.astype(float), W[:WIDTH], sums.weights(rho)[0]) > 2 * PROMISED:
            return
    pytest.fail("Eq. 10 as printed held for 200,000 readings")


def test_a_gram_matrix_summed_in_float32_fails_on_the_same_stream():
    """Why GramLearner keeps a factor: the plain sum is useless after 200,000 readings."""
    stream, sums = Stream(WIDTH, condition=1e6), Sums()
    gram, moments = np.zeros((WIDTH, WIDTH), np.float32), np.zeros((WIDTH, 3), np.float32)
    for X, y in stream.chunks(200_000):
        for x, label in zip(X, y, strict=True):
            gram += np.outer(x, x)
            moments[:, label] += x
        sums.add(X, y)
    W = eq4_from_sums(gram.astype(float), moments.astype(float), VANISHING, 1.0, 1e-3)[0]
    assert disagreement(X.astype(float), W, sums.weights(1e-3)[0]) > 10 * PROMISED


@pytest.mark.parametrize("kind", [WoodburyLearner, GramLearner])
def test_years_of_readings_do_not_stall_it(kind):
    """Float32 sums stop growing at 2²⁴; halving before that keeps every new reading counting.

    Simulated with a limit of 2,000 in place of 2²²: after 20,000 readings of one world and 8,000
    of another, the learner follows the new one, and what it holds never exceeds the limit.
    """
    learner = kind(VANISHING, SURVIVING, 3, evidence_max=2_000)
    old, new = Stream(WIDTH, condition=1e2, seed=5), Stream(WIDTH, condition=1e2, seed=6)
    for X, y in old.chunks(20_000):
        learner.learn_many(X, y, batch=50)
    assert learner.evidence <= 2_000
    for X, y in new.chunks(8_000):
        learner.learn_many(X, y, batch=50)
    sums = Sums()
    sums.add(X, y)
    assert learner.readings == 28_000
    assert disagreement(X.astype(float), learner.weights()[0], sums.weights(1.0)[0]) < 0.15


def test_a_raw_stream_without_a_layout_still_keeps_the_promised_precision(make):
    """An offset of 20 scales is refused nowhere, and costs no more than the promise."""
    stream, sums = Stream(WIDTH, condition=1e2, offset=20.0), Sums()
    learner = make(VANISHING, SURVIVING, 3)
    for X, y in stream.chunks(40_000):
        learner.learn_many(X, y)
        sums.add(X, y)
    assert max(shares_of_other_labels(learner, sums, 1.0, X)) <= PROMISED
