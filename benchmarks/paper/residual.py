"""The residual form: what [Z, X^(a), 1] can say about Y − Z. It shrinks towards the C-stage model.

OPID and OPIDe shrink towards 0, so with few labels they lose what the C-stage knew. Here γ → ∞
gives Z itself. `fit_best` has no need of it: a mixture that Z is part of goes back to Z, too
(decision 15).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from gateway.estage.batch import Batch, Floats, Ints
from gateway.estage.fold_sums import Sums, training_sums
from gateway.estage.models import LinearModel, LinearPath, keep_unseen, seen_classes
from gateway.estage.tuning import OneSetting, tuned

STRENGTHS = 10.0 ** np.linspace(4, -4, 17)
"""γ's grid in units of the mean eigenvalue of [Z, X^(a), 1]'s Gram matrix."""


def ridge_path(sums: Sums, gamma: Floats) -> Floats:
    """F×G×D×c: ridge weights for every part and every γ, from one eigendecomposition a part."""
    values, Q = np.linalg.eigh(sums.gram)
    turned = Q.transpose(0, 2, 1) @ sums.cross
    shrunk = turned[:, None] / (np.maximum(values, 0)[:, None, :, None] + gamma[:, None, None])
    return np.asarray(Q[:, None] @ shrunk)


@dataclass(frozen=True)
class Residual(OneSetting):
    """The candidate: the residual form for every γ of the grid."""

    name: str = "residual"
    gammas: tuple[float, ...] | None = None

    def paths(self, batch: Batch, held: Sequence[Ints]) -> list[LinearPath]:
        """One path for each training part."""
        c = batch.classes
        M = np.column_stack([batch.columns, np.ones(batch.n)])
        scale = float(np.sum(M * M)) / M.shape[1]
        gamma = STRENGTHS * (scale or 1.0) if self.gammas is None else np.array(self.gammas)
        V = ridge_path(training_sums(M, batch.Y - batch.Z, held, intercept=False), gamma)
        V[:, :, :c] += np.eye(c)
        found = []
        for weights, rows in zip(V, held, strict=True):
            V_z, V_a, bias = weights[:, :c], weights[:, c:-1], weights[:, -1]
            keep_unseen(V_z, V_a, bias, seen_classes(batch, np.delete(np.arange(batch.n), rows)))
            found.append(
                LinearPath(name=self.name, V_z=V_z, V_a=V_a, bias=bias, settings={"gamma": gamma})
            )
        return found


def fit_residual(
    Z: ArrayLike,
    Xa: ArrayLike,
    y: ArrayLike,
    classes: int,
    *,
    gamma: float | None = None,
    folds: int = 5,
    seed: int = 0,
) -> LinearModel:
    """Ridge of Y − Z on [Z, X^(a), 1], with γ by cross-validation, or the one given.

    >>> Z = np.array([[0.9, 0.1], [0.4, 0.6], [0.3, 0.7]])
    >>> fit_residual(Z, np.zeros((3, 1)), [0, 1, 1], 2, gamma=1e12).scores(Z, [[0.0]] * 3).round(3)
    array([[0.9, 0.1],
           [0.4, 0.6],
           [0.3, 0.7]])
    """
    batch = Batch.of(Z, Xa, y, classes)
    candidate = Residual(gammas=None if gamma is None else (gamma,))
    model = tuned(candidate, batch, folds, seed)
    assert isinstance(model, LinearModel)
    return model
