"""In float64 both learners equal the direct solve of Eq. 4 to 1e-9, whatever was done to them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracle import Stream, eq4, eq4_from_sums, eq5, one_hot, relative

from edge_opid import GramLearner, WoodburyLearner

EXACT = 1e-9  # float64 at condition 1e2 loses five of its sixteen digits at most
X, Y = Stream(width=12, condition=1e2, seed=3).take(360)
X = X.astype(np.float64)


def close(learner, expected, tolerance=EXACT):
    return all(relative(g, e) < tolerance for g, e in zip(learner.weights(), expected, strict=True))


@pytest.mark.parametrize("batch", [1, 2, 7, 64])
@pytest.mark.parametrize(("lam", "rho"), [(1.0, 1.0), (0.0, 0.1), (30.0, 1e-3)])
@pytest.mark.parametrize("vanishing", [0, 5])
def test_learning_one_by_one_or_in_batches_equals_the_direct_solve(
    exact, vanishing, lam, rho, batch
):
    """Also in batches that do not divide the readings, and with nothing that vanishes."""
    learner = exact(vanishing, 12 - vanishing, 3, lam=lam, rho=rho)
    learner.learn_many(X, Y, batch=batch)
    # The first step from the ridge solves with I + Uᵀ U/ρ, of about this condition: 64 readings are
    # off by 7e-10 on x86-64, and by 1.2e-9 on arm64, whose BLAS adds in another order.
    condition = batch * (1 + 2 * lam) * 12 / rho
    tolerance = max(EXACT, np.finfo(float).eps * condition)
    assert close(learner, eq4(X, Y, 3, vanishing, lam, rho), tolerance)
    A = eq5(X.T @ X, vanishing, lam, rho)
    assert relative(learner.inverse(), np.linalg.inv(A)) < tolerance


def test_the_step_is_proposition_2_with_its_three_columns():
    """Two columns and a 2×2 give what the paper's three columns and its 3×3 give (Eq. 10)."""
    vanishing, lam = 5, 1.7
    learner = WoodburyLearner(vanishing, 7, 3, lam=lam, dtype="float64")
    learner.learn_many(X[:50], Y[:50])
    before, x = learner.inverse(), X[50]
    u1, u2 = np.r_[x, np.zeros(7)], np.r_[np.zeros(12), x[vanishing:]]
    U = np.column_stack([u1, u2, np.sqrt(lam) * (u1 - u2)])
    middle = np.linalg.inv(np.eye(3) + U.T @ before @ U)
    learner.learn_one(x, 0)
    assert relative(learner.inverse(), before - before @ U @ middle @ U.T @ before) < EXACT


def test_another_split_afterwards_equals_having_planned_it(exact):
    """A sensor dies that nobody expected to: the plan of what vanishes is changed at the end."""
    learner = exact(5, 7, 3)
    learner.learn_many(X, Y)
    order = [9, 2, 0, 1, 3, 4, 5, 6, 7, 8, 10, 11]
    assert close(learner.resplit(vanishing=[9, 2]), eq4(X[:, order], Y, 3, 2, 1.0, 1.0))
    assert close(learner.resplit(vanishing=[]), eq4(X, Y, 3, 0, 1.0, 1.0))
    assert close(learner, eq4(X, Y, 3, 5, 1.0, 1.0))


def test_three_learners_merged_are_one(exact):
    parts = [exact(5, 7, 3) for _ in range(3)]
    for learner, rows in zip(parts, np.split(np.arange(360), 3), strict=True):
        learner.learn_many(X[rows], Y[rows])
    before = parts[1].state()
    merged = parts[0].merge(parts[1]).merge(parts[2].summary())
    assert close(merged, eq4(X, Y, 3, 5, 1.0, 1.0))
    assert merged.readings == 360
    assert all(np.array_equal(value, parts[1].state()[name]) for name, value in before.items())


def test_the_two_kinds_merge_with_each_other():
    one, two = WoodburyLearner(5, 7, 3, dtype="float64"), GramLearner(5, 7, 3, dtype="float64")
    one.learn_many(X[:100], Y[:100])
    two.learn_many(X[100:], Y[100:])
    assert close(one.merge(two), eq4(X, Y, 3, 5, 1.0, 1.0))


def test_inheriting_all_is_as_if_only_the_survivors_had_ever_been_seen(exact):
    """With carry = 1 nothing of the survivors is lost, and new columns start from nothing."""
    learner = exact(5, 7, 3)
    learner.learn_many(X, Y)
    kept = [0, 3, 7, 8, 11]
    heir = learner.inherit(kept=kept, new=2, vanishing=[1, 5], carry=1.0)
    old = np.c_[X[:, kept], np.zeros((360, 2))]
    order = [1, 5, 0, 2, 3, 4, 6]
    assert close(heir, eq4(old[:, order], Y, 3, 2, 1.0, 1.0))
    assert heir.readings == 360


@pytest.mark.parametrize("carry", [0.0, 0.3])
def test_what_is_not_carried_comes_back_as_the_centre_of_the_ridge(exact, carry):
    """(κG + ρI) W = κΣxyᵀ + ρ(1 − κ)W^(s), for W^(s) of exactly the sensors that remain."""
    learner = exact(5, 7, 3, rho=0.5)
    learner.learn_many(X, Y)
    kept, lost = [0, 3, 7, 8, 11], [1, 2, 4, 5, 6, 9, 10]
    bridge = eq4(X[:, [*lost, *kept]], Y, 3, len(lost), 1.0, 0.5)[1]
    heir = learner.inherit(kept=kept, new=1, carry=carry)
    old = np.c_[X[:, kept], np.zeros((360, 1))]
    centre = (1 - carry) * np.r_[bridge, np.zeros((1, 3))]
    gram, moments = carry * old.T @ old, carry * old.T @ one_hot(Y, 3)
    assert close(heir, eq4_from_sums(gram, moments, 0, 1.0, 0.5, centre))
    more = np.c_[X[:50, kept], X[:50, [2]]]
    heir.learn_many(more, Y[:50])
    gram, moments = gram + more.T @ more, moments + more.T @ one_hot(Y[:50], 3)
    assert close(heir, eq4_from_sums(gram, moments, 0, 1.0, 0.5, centre))


def test_a_summary_holds_readings_and_not_the_ridge(exact):
    """So that the summaries of a hundred nodes with a hundred priors still add up."""
    learner = exact(0, 12, 3)
    learner.learn_many(X, Y)
    heir = learner.inherit(kept=list(range(12)), carry=0.0)
    heir.learn_many(X[:40], Y[:40])
    known = heir.summary().statistics()
    assert relative(known.gram, X[:40].T @ X[:40]) < EXACT
    assert relative(known.moments, X[:40].T @ one_hot(Y[:40], 3)) < EXACT


def test_lam_rho_and_the_split_may_be_chosen_at_solve_time():
    learner = GramLearner(5, 7, 3, dtype="float64")
    learner.learn_many(X, Y)
    order = [4, 0, 1, 2, 3, *range(5, 12)]
    got = learner.weights(lam=3.0, rho=0.01, vanishing=[4])
    expected = eq4(X[:, order], Y, 3, 1, 3.0, 0.01)
    assert all(relative(g, e) < EXACT for g, e in zip(got, expected, strict=True))
    assert close(learner, eq4(X, Y, 3, 5, 1.0, 1.0))


class History:
    """What a learner has lived through, as a plain list of rows: the oracle for any life."""

    def __init__(self, rows, labels, vanishing):
        self.rows, self.labels, self.vanishing = rows, labels, vanishing

    def weights(self):
        return eq4(self.rows, self.labels, 3, self.vanishing, 0.7, 0.2)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), kind=st.sampled_from([WoodburyLearner, GramLearner]))
def test_any_life_of_changes_equals_a_solve_over_the_whole_history(data, kind):
    """Sensors die and appear in any order; with carry = 1 no statistic is ever lost."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), label="seed"))
    width = data.draw(st.integers(2, 6))
    learner = kind(0, width, 3, lam=0.7, rho=0.2, dtype="float64")
    past = History(np.zeros((0, width)), np.zeros(0, int), 0)
    for _ in range(data.draw(st.integers(1, 4))):
        n = data.draw(st.integers(0, 9))
        X_new, y_new = rng.normal(size=(n, width)), rng.integers(0, 3, n)
        learner.learn_many(X_new, y_new, batch=data.draw(st.sampled_from([1, 4])))
        rows, labels = np.vstack([past.rows, X_new]), np.r_[past.labels, y_new]
        kept = data.draw(st.lists(st.integers(0, width - 1), unique=True, min_size=1))
        new = data.draw(st.integers(0, 2))
        total = len(kept) + new
        vanishing = data.draw(st.lists(st.integers(0, total - 1), unique=True, max_size=total - 1))
        learner = learner.inherit(kept, new, vanishing)
        order = [*vanishing, *(i for i in range(total) if i not in vanishing)]
        rows = np.c_[rows[:, kept], np.zeros((len(rows), new))][:, order]
        past, width = History(rows, labels, len(vanishing)), total
        for got, expected in zip(learner.weights(), past.weights(), strict=True):
            assert np.abs(got - expected).max() < 1e-8
