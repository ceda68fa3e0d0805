"""Sums over the training part of every fold, from one pass: the whole minus what is held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gateway.estage.batch import Floats, Ints


@dataclass(frozen=True)
class Sums:
    """What least squares on F training parts needs. D columns M, c targets Y.

    Refitting on every fold would read the batch F times. Held-out rows are few, so each part's
    sums are the batch's minus theirs; everything is taken about the batch's own means first, so
    that the subtraction loses nothing to an offset.
    """

    gram: Floats
    """F×D×D: Σ m mᵀ, about the part's means where there is an intercept."""
    cross: Floats
    """F×D×c: Σ m yᵀ, likewise."""
    M_mean: Floats
    """F×D: the means that were taken out, zero without an intercept."""
    Y_mean: Floats
    """F×c."""

    def bias(self, V: Floats) -> Floats:
        """F×P×c: what the intercept is when F×P×D×c weights V are used."""
        return np.asarray(self.Y_mean[:, None, :] - np.einsum("fd,fpdc->fpc", self.M_mean, V))


def training_sums(M: Floats, Y: Floats, held: Sequence[Ints], intercept: bool = True) -> Sums:
    """The sums over all rows but those held out, for each set of held-out rows.

    >>> M, Y = np.array([[1.0], [2.0], [6.0]]), np.eye(2)[[0, 1, 1]]
    >>> sums = training_sums(M, Y, [np.array([2]), np.array([], int)])
    >>> sums.gram.ravel().tolist(), sums.M_mean.ravel().tolist()   # of [1, 2], then of [1, 2, 6]
    ([0.5, 14.0], [1.5, 3.0])
    """
    base_M = M.mean(0) if intercept else np.zeros(M.shape[1])
    base_Y = Y.mean(0) if intercept else np.zeros(Y.shape[1])
    M, Y = M - base_M, Y - base_Y
    whole = M.T @ M, M.T @ Y
    gram = np.stack([whole[0] - M[rows].T @ M[rows] for rows in held])
    cross = np.stack([whole[1] - M[rows].T @ Y[rows] for rows in held])
    if not intercept:
        return Sums(gram, cross, np.zeros(gram.shape[:2]), np.zeros((len(held), Y.shape[1])))
    left = np.array([max(1, len(M) - len(rows)) for rows in held], float)[:, None]
    M_mean = np.stack([-M[rows].sum(0) for rows in held]) / left
    Y_mean = np.stack([-Y[rows].sum(0) for rows in held]) / left
    gram -= left[..., None] * M_mean[:, :, None] * M_mean[:, None, :]
    cross -= left[..., None] * M_mean[:, :, None] * Y_mean[:, None, :]
    return Sums(gram, cross, M_mean + base_M, Y_mean + base_Y)
