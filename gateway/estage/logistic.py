"""L2-regularised logistic regression, one-vs-rest, by LIBLINEAR: the paper's solver."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from .batch import Floats, Ints

COSTS: Floats = np.logspace(-3, 3, 7)
"""α of Eq. 19, sklearn's C."""
CERTAIN = 10.0
"""The log-odds of a class that is everywhere, or nowhere, among the labels."""


def one_vs_rest(X: Floats, y: Ints, classes: int, cost: float) -> tuple[Floats, Floats]:
    """Weights D×c and bias c, in log-odds.

    Binary problems are solved once: the second classifier is the first one mirrored.
    """
    W, bias = np.zeros((X.shape[1], classes)), np.zeros(classes)
    last = classes if classes > 2 else 1
    for k in range(last):
        W[:, k], bias[k] = _one(X, y == k, cost)
    if classes == 2:
        W[:, 1], bias[1] = -W[:, 0], -bias[0]
    return W, bias


def _one(X: Floats, positive: NDArray[np.bool_], cost: float) -> tuple[Floats, float]:
    """One class against the rest; where there is only one of the two, its certainty."""
    if positive.all() or not positive.any():
        return np.zeros(X.shape[1]), CERTAIN if positive.any() else -CERTAIN
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
