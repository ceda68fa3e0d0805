"""ρ of the C-stage from what the C-stage has kept: generalised cross-validation on its sums.

Leaving one reading out of a ridge changes its own residual by a factor 1/(1 − h), h its share in
its own prediction. With all h replaced by their mean, df/N, the error of leaving one out is
RSS/N / (1 − df/N)², and RSS needs only the Gram matrix, the moments and Σ‖y‖² = N (labels are
one-hot). No reading is needed again, and no E-stage label is spent on it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edge_opid.learner.statistics import Statistics
from gateway.estage.batch import Floats

RHOS: Floats = 10.0 ** np.linspace(-2, 4, 13)
"""The grid: each √10 times the one before."""


def left_out_error(known: Statistics, kept: Sequence[int], rhos: Floats = RHOS) -> Floats:
    """For each ρ, the generalised cross-validation error of a ridge on the `kept` columns."""
    part, N = known.ordered(kept), known.evidence
    values, Q = np.linalg.eigh(part.gram)
    values = np.maximum(values, 0)
    turned = np.sum((Q.T @ part.moments) ** 2, axis=1)
    shrink = 1 / (values + rhos[:, None])
    residual = N - np.sum(turned * shrink * (2 - values * shrink), axis=1)
    free = 1 - np.sum(values * shrink, axis=1) / N
    return np.asarray(np.where(free > 0, residual / N / np.maximum(free, 1e-12) ** 2, np.inf))


def chosen_rho(known: Statistics, kept: Sequence[int], rhos: Floats = RHOS) -> float:
    """The ρ with the smallest error; among equals, the largest.

    A learner with fewer readings than columns cannot be judged this way at small ρ: those are
    never chosen.

    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(200, 4)), rng.integers(0, 2, 200)
    >>> X[:, 0] += y
    >>> known = Statistics(X.T @ X, X.T @ np.eye(2)[y], 200, 200.0)
    >>> chosen_rho(known, range(4)) < chosen_rho(known, [1, 2, 3])   # noise is worth more shrinking
    True
    """
    if known.evidence <= 0:
        return 1.0
    errors = left_out_error(known, kept, rhos)
    return float(rhos[len(rhos) - 1 - int(errors[::-1].argmin())])
