"""What the E-stage is compared with: the paper's logistic regressions, and two plain ridges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from edge_opid.learner.statistics import Statistics
from gateway.estage.batch import Batch, Floats, Ints
from gateway.estage.logistic import COSTS, one_vs_rest
from gateway.estage.models import LinearModel, LinearPath
from gateway.estage.to_matrix import ColumnWeights
from gateway.estage.tuning import log_loss, one_of, tuned

Columns = Literal["both", "survivors", "new"]


@dataclass(frozen=True)
class _RawLogistic:
    """One logistic regression for each cost. All columns come as `Xa`; Z is not looked at."""

    name: str

    def paths(self, batch: Batch, held: Sequence[Ints]) -> list[LinearPath]:
        every, c = np.arange(batch.n), batch.classes
        found = []
        for out in held:
            rows = np.delete(every, out)
            V, bias = one_vs_rest(batch.Xa[rows], batch.y[rows], c, COSTS)
            V_z = np.zeros((len(COSTS), c, c))
            found.append(
                LinearPath(name=self.name, V_z=V_z, V_a=V, bias=bias, settings={"cost": COSTS})
            )
        return found

    def choose(self, scores: Floats, batch: Batch) -> Floats:
        return one_of(scores.shape[1], int(log_loss(scores, batch.y).argmin()))


def raw_logistic(
    Xs: ArrayLike,
    Xa: ArrayLike,
    y: ArrayLike,
    classes: int,
    columns: Columns = "both",
    *,
    folds: int = 5,
    seed: int = 0,
) -> ColumnWeights:
    """The paper's SVM, SVM^(s) or SVM^(a): logistic regression on the E-stage batch alone."""
    Xs, Xa = np.asarray(Xs, float), np.asarray(Xa, float)
    split = 0 if columns == "new" else Xs.shape[1]
    rows = np.hstack([Xs[:, :split], Xa if columns != "survivors" else Xa[:, :0]])
    batch = Batch.of(np.zeros((len(rows), classes)), rows, y, classes)
    model = tuned(_RawLogistic(f"svm {columns}"), batch, folds, seed)
    assert isinstance(model, LinearModel)
    survivors, new = np.zeros((Xs.shape[1], classes)), np.zeros((Xa.shape[1], classes))
    survivors[:split] = model.V_a[:split]
    if columns != "survivors":
        new[:] = model.V_a[split:]
    return ColumnWeights(survivors, new, model.bias)


def survivors_ridge(known: Statistics, kept: Sequence[int], rho: float) -> Floats:
    """W of a ridge on the surviving columns alone: what λ = 0 would have given for W^(s)."""
    part = known.ordered(kept)
    return np.asarray(np.linalg.solve(part.gram + rho * np.eye(len(kept)), part.moments))


def imputed_ridge(
    known: Statistics, kept: Sequence[int], means: ArrayLike, rho: float
) -> tuple[Floats, Floats]:
    """Weights and bias of a ridge on all columns, the dead ones replaced by their means.

    >>> known = Statistics(np.eye(2), np.array([[1.0], [0.5]]), 2, 2.0)
    >>> W, bias = imputed_ridge(known, [1], [4.0, 0.0], rho=1.0)
    >>> W.tolist(), bias.tolist()
    ([[0.25]], [2.0])
    """
    W = np.linalg.solve(known.gram + rho * np.eye(len(known.gram)), known.moments)
    lost = [column for column in range(len(W)) if column not in set(kept)]
    return np.asarray(W[list(kept)]), np.asarray(np.asarray(means)[lost] @ W[lost])
