"""OPIDe (Eq. 11 and 19): two logistic classifiers, on Z and on [Z, X^(a)], weighed w₁ to w₂."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from gateway.estage.batch import Batch, Floats, Ints
from gateway.estage.logistic import COSTS, one_vs_rest
from gateway.estage.models import LinearModel, LinearPath, keep_unseen, seen_classes
from gateway.estage.tuning import log_loss, one_of, tuned

WEIGHTS = np.linspace(0, 1, 11)
"""w₁'s grid."""


@dataclass(frozen=True)
class Opide:
    """The candidate: P = 2·costs settings, first those on Z, then those on [Z, X^(a)].

    The losses of Eq. 11 share nothing, so w₁ and w₂ do not change the classifiers, only how much
    each counts in the sum of their log-odds.
    """

    name: str = "opide"
    costs: tuple[float, ...] = tuple(COSTS)

    @property
    def count(self) -> int:
        """How many settings."""
        return 2 * len(self.costs)

    def paths(self, batch: Batch, held: Sequence[Ints]) -> list[LinearPath]:
        """One path for each training part."""
        every = np.arange(batch.n)
        return [self._path(batch, np.delete(every, rows)) for rows in held]

    def _path(self, batch: Batch, rows: Ints) -> LinearPath:
        c, y, costs = batch.classes, batch.y[rows], np.array(self.costs)
        on_Z, bias_Z = one_vs_rest(batch.Z[rows], y, c, costs)
        on_both, bias_both = one_vs_rest(batch.columns[rows], y, c, costs)
        nothing = np.zeros((len(costs), batch.new, c))
        V_z = np.concatenate([on_Z, on_both[:, :c]])
        V_a = np.concatenate([nothing, on_both[:, c:]])
        bias = np.concatenate([bias_Z, bias_both])
        # A least-squares score z is a probability; its log-odds are 4(z − ½) near ½.
        keep_unseen(V_z, V_a, bias, seen_classes(batch, rows), slope=4.0, offset=-2.0)
        w1 = np.repeat([1.0, 0.0], len(costs))
        return LinearPath(name=self.name, V_z=V_z, V_a=V_a, bias=bias, settings={"w1": w1})

    def choose(self, scores: Floats, batch: Batch) -> Floats:
        """α₁ and α₂ for each classifier by itself, then w₁."""
        y, half = batch.y, scores.shape[1] // 2
        first, second = scores[:, :half], scores[:, half:]
        g1, g2 = int(log_loss(first, y).argmin()), int(log_loss(second, y).argmin())
        w1 = WEIGHTS[:, None, None]
        both = w1 * first[:, g1, None] + (1 - w1) * second[:, g2, None]
        w = WEIGHTS[log_loss(both, y).argmin()]
        return np.asarray(w * one_of(2 * half, g1) + (1 - w) * one_of(2 * half, half + g2))


def fit_opide(
    Z: ArrayLike,
    Xa: ArrayLike,
    y: ArrayLike,
    classes: int,
    *,
    folds: int = 5,
    seed: int = 0,
) -> LinearModel:
    """OPIDe with α₁, α₂, w₁ and w₂ by cross-validation; scores are log-odds."""
    model = tuned(Opide(), Batch.of(Z, Xa, y, classes), folds, seed)
    assert isinstance(model, LinearModel)
    return model
