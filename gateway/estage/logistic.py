"""L2-regularised logistic regression, one-vs-rest, for every cost of a grid (Eq. 19).

Many columns of many instances go to LIBLINEAR, the paper's solver. Where there are few of either (Z
has as many columns as there are classes) all costs and classes are solved here at once, by Newton's
method on the same sentence,

    ½‖w‖² + cost · Σ log(1 + exp(−s xw)),  s = ±1, the bias one more column of ones:

scikit-learn takes a millisecond to call LIBLINEAR for what takes microseconds, and OPIDe asks for
it hundreds of times.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from gateway.estage.batch import Floats, Ints

COSTS: Floats = np.logspace(-3, 3, 7)
"""α of Eq. 19, sklearn's C."""
CERTAIN = 10.0
"""The log-odds of a class that is everywhere, or nowhere, among the labels."""
FEW = 48
"""So many columns, or instances, are solved here: a step costs as much as their square."""
STEPS_MAX, HALVINGS_MAX, SETTLED = 50, 20, 1e-9


def one_vs_rest(X: Floats, y: Ints, classes: int, costs: Floats) -> tuple[Floats, Floats]:
    """Weights P×D×c and bias P×c for P costs, in log-odds.

    Binary problems are solved once: the second classifier is the first one mirrored.
    """
    last = classes if classes > 2 else 1
    positive = y[:, None] == np.arange(last)
    solved = by_newton if min(X.shape) <= FEW else by_liblinear
    W = np.zeros((len(costs), X.shape[1] + 1, last))
    mixed = positive.any(0) & ~positive.all(0)
    W[:, -1] = np.where(positive.any(0), CERTAIN, -CERTAIN)  # only one of the two: its certainty
    W[..., mixed] = solved(X, positive[:, mixed], costs)
    if classes == 2:
        W = np.concatenate([W, -W], axis=2)
    return W[:, :-1], W[:, -1]


def by_newton(X: Floats, positive: NDArray[np.bool_], costs: Floats) -> Floats:
    """P×(D+1)×K weights, the bias last, for K columns of `positive`."""
    A = np.column_stack([X, np.ones(len(X))])
    turn = np.eye(A.shape[1])
    if A.shape[1] > len(A):  # w lies in the instances' span: as many coordinates are enough
        U, scale, turn = np.linalg.svd(A, full_matrices=False)
        A = U * scale
    S = np.where(positive, 1.0, -1.0).T  # K×n
    cost = costs[:, None, None]
    w = np.zeros((len(costs), len(S), A.shape[1]))
    for _ in range(STEPS_MAX):
        miss = 1 / (1 + np.exp(np.minimum(S * (w @ A.T), 500)))
        slope = w - cost * ((S * miss) @ A)
        if np.abs(slope).max(initial=0) <= SETTLED * (1 + np.abs(w).max(initial=0)):
            break
        bend = cost * miss * (1 - miss)
        H = np.eye(A.shape[1]) + (A.T * bend[:, :, None, :]) @ A
        w = downhill(w, np.linalg.solve(H, slope[..., None])[..., 0], A, S, cost)
    return np.asarray((w @ turn).swapaxes(1, 2))


def downhill(w: Floats, step: Floats, A: Floats, S: Floats, cost: Floats) -> Floats:
    """The weights w − step, the step halved where its sentence would be larger than before."""

    def value(at: Floats) -> Floats:
        losses = np.logaddexp(0, -S * (at @ A.T)).sum(-1, keepdims=True)
        return np.asarray(0.5 * np.sum(at * at, -1, keepdims=True) + cost * losses)

    before, share = value(w), np.ones((*w.shape[:2], 1))
    for _ in range(HALVINGS_MAX):
        worse = value(w - share * step) > before * (1 + 1e-12)
        if not worse.any():
            break
        share = np.where(worse, share / 2, share)
    return np.asarray(w - share * step)


def by_liblinear(X: Floats, positive: NDArray[np.bool_], costs: Floats) -> Floats:
    """The same by LIBLINEAR, one problem after the other."""
    W = np.zeros((len(costs), X.shape[1] + 1, positive.shape[1]))
    for place, cost in enumerate(costs):
        for k, own in enumerate(positive.T):
            W[place, :-1, k], W[place, -1, k] = _one(X, own, float(cost))
    return W


def _one(X: Floats, positive: NDArray[np.bool_], cost: float) -> tuple[Floats, float]:
    """One class against the rest."""
    # The primal Newton solver for few columns, coordinate descent on the dual for many.
    solver = LogisticRegression(
        C=cost, solver="liblinear", dual=X.shape[1] > len(X), tol=1e-3, random_state=0, max_iter=200
    )
    # The batch has been checked once; checking it for each of a thousand small fits takes longer
    # than the fits.
    quick = config_context(assume_finite=True, skip_parameter_validation=True)
    with warnings.catch_warnings(), quick:
        # A cost at the edge of the grid may not converge: cross-validation then judges what it is.
        warnings.simplefilter("ignore", ConvergenceWarning)
        solver.fit(X, positive)
    return solver.coef_[0], float(solver.intercept_[0])
