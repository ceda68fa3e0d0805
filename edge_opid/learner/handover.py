"""What columns that go hand on to those that stay or come, from readings that nobody labelled.

Labels are rare, readings are not, and two things can be learned from readings alone:

- **What the survivors know of the dead** (`distilled`). The full classifier W̃ is the teacher: what
  it would have said of every reading, labelled or not, is regressed on the surviving columns. From
  sums that is W^(s) = (G_ss + I)⁻¹ G_s: W̃, where G is the Gram matrix of all readings.
- **How new columns follow from old ones** (`Overlap`). While old and new sensors speak together,
  each new column is regressed on the old ones, a ≈ N x̃. Sums over the old columns then become sums
  over the new ones, T G Tᵀ and T C with T = [I; N], as if the new sensors had always been there.

Letters as in `statistics`; all of this is rare, and done in float64. The figures, and what was
tried besides, are in docs/decisions/0032.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from edge_opid.learner.statistics import Matrix, Statistics
from edge_opid.native.rescue import solved

RIDGES: tuple[float, ...] = tuple(10.0 ** (half / 2) for half in range(-4, 11))
"""0.01 to 100,000, two a decade: what ridges are chosen from."""
READINGS_PER_LABEL = 2
"""From which on unlabelled readings teach more than they mislead."""
STUDENT = 1.0
"""The ridge of a student: it has a row for every reading, and needs little."""
UNLIKE = 0.6
"""A new sensor is another one than the old in its role where a regression has less than this share
of the error of taking it for the old one. Two alike sensors, each with noise of its own, have .5 at
the least; noise alone has .5 at the most, or a little more as regressions are not perfect."""
BLOCKS = 4
"""Stretches of time that take turns to be predicted from the others: neighbours in time say the
same, so that rows left out at random would be no test."""


def distilled(known: Statistics, everything: Matrix, kept: Sequence[int], rho: float) -> Matrix:
    """W^(s), survivors×c, from the Gram matrix of all readings.

    `known` are the sums of the labelled ones. The teacher's ridge is at least ρ.
    """
    columns = list(kept)
    if known.centre is None and not known.moments.any():
        return np.zeros((len(columns), known.moments.shape[1]))  # no label has taught anything
    careful = careful_ridge(known, columns, rho)
    own = everything[np.ix_(columns, columns)] + STUDENT * np.eye(len(columns))
    return solved(own, everything[columns] @ teacher(known, careful))


def careful_ridge(known: Statistics, kept: Sequence[int], rho: float) -> float:
    """The teacher's ridge: ρ, or more where that is better with all columns or with those kept."""
    return max(rho, best_ridge(known), best_ridge(known.ordered(kept)))


def teacher(known: Statistics, ridge: float) -> Matrix:
    """W̃ as it is taught: one that has its few labels by heart would teach their noise."""
    centre = np.zeros_like(known.moments) if known.centre is None else known.centre
    A = known.gram + ridge * np.eye(len(known.gram))
    return centre + solved(A, known.moments - known.gram @ centre)


def best_ridge(known: Statistics) -> float:
    """The ridge of the least generalised cross-validation error, from the sums alone.

    Labels are one-hot, so that Σ|y|² is their number; the ridge is about the centre, and so are
    the targets.

    >>> rng = np.random.default_rng(1)
    >>> X = np.column_stack([rng.normal(size=(60, 9)), np.ones(60)])
    >>> def of(labels):
    ...     return best_ridge(Statistics(X.T @ X, X.T @ np.eye(2)[labels], 60, 60.0))
    >>> of((X[:, 0] > 0).astype(int)) < of(rng.integers(2, size=60))  # noise is not to be learned
    True
    """
    gram, moments, n = known.gram, known.moments, max(known.evidence, 1.0)
    total = n
    if known.centre is not None:
        pulled = gram @ known.centre
        total += float((known.centre * (pulled - 2 * moments)).sum())
        moments = moments - pulled
    values, vectors = np.linalg.eigh(gram)
    values, turned = np.maximum(values, 0.0), vectors.T @ moments
    errors = []
    for ridge in RIDGES:
        weights = turned / (values + ridge)[:, None]
        squares = total + float((weights * (values[:, None] * weights - 2 * turned)).sum())
        freedom = n - float((values / (values + ridge)).sum())
        errors.append(max(squares, 0.0) / freedom**2 if freedom > 1e-3 * n else np.inf)
    return RIDGES[int(np.argmin(errors))]


@dataclass(frozen=True, slots=True)
class Overlap:
    """Readings of one stretch of time in which old and new sensors spoke together.

    >>> rng = np.random.default_rng(0)
    >>> old = np.column_stack([rng.normal(size=(200, 2)), np.ones(200)])
    >>> twin = old[:, :1] + 0.1 * rng.normal(size=(200, 1))
    >>> overlap = Overlap(old, twin)
    >>> print(overlap.relation().round(1) + 0.0)  # it says what the first one says
    [[1. 0. 0.]]
    """

    old: Matrix
    """Rows × the old layout's columns, in the order of time."""
    new: Matrix
    """The same rows × columns that continue none of them."""

    def relation(self) -> Matrix:
        """N, new×old columns: how each new one follows from the old, 0 where it does not."""
        return regressed(self.old, self.new).T

    def correction(self, teacher: Matrix, bridge: Matrix, columns: Matrix) -> Matrix:
        """What to add to the weights `bridge` to say more nearly what the teacher says.

        `columns` are all columns of the next layout, in the same rows; the teacher's weights are
        for the old ones.
        """
        return regressed(columns, self.old @ teacher - columns @ bridge)

    def is_unlike(self, same: Matrix) -> bool:
        """Whether the new columns are not what these old ones, in whose place they are, were.

        Another sensor in the same role usually says what the old one said, and noise of its own:
        then what was learned of the old one holds to the letter. One that is upside down, has
        another gain, or looks at something else is foretold much better by a regression.
        """
        foretold = float(_held_out_errors(self.old, self.new).min(axis=0).sum())
        return foretold < UNLIKE * float(((self.new - same) ** 2).sum())


def regressed(X: Matrix, targets: Matrix) -> Matrix:
    """Weights from X to targets. Each target has its own ridge, which may be infinite.

    Ridges are chosen by predicting each of four stretches of time from the three others.
    """
    chosen = _held_out_errors(X, targets).argmin(axis=0) - 1  # −1: the infinite one
    W = np.zeros((X.shape[1], targets.shape[1]))
    for place, weights in enumerate(_ridge_path(X, targets)):
        W[:, chosen == place] = weights[:, chosen == place]
    return W


def _held_out_errors(X: Matrix, targets: Matrix) -> Matrix:
    """Squared errors for each target, (1 + ridges)×targets: of 0, and of each of `RIDGES`."""
    errors = np.zeros((1 + len(RIDGES), targets.shape[1]))
    for rows in np.array_split(np.arange(len(X)), BLOCKS):
        others = np.setdiff1d(np.arange(len(X)), rows)
        errors[0] += (targets[rows] ** 2).sum(axis=0)
        for place, weights in enumerate(_ridge_path(X[others], targets[others]), 1):
            errors[place] += ((targets[rows] - X[rows] @ weights) ** 2).sum(axis=0)
    return errors


def _ridge_path(X: Matrix, targets: Matrix) -> Iterator[Matrix]:
    """The weights for each of `RIDGES`, from one decomposition."""
    values, vectors = np.linalg.eigh(X.T @ X)
    values, turned = np.maximum(values, 0.0), vectors.T @ (X.T @ targets)
    return (vectors @ (turned / (values + ridge)[:, None]) for ridge in RIDGES)
