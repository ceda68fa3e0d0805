"""A kernel model small enough to push: landmarks instead of the whole batch."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gateway.estage.batch import Batch, Floats, Ints, stratified_folds
from gateway.estage.kernel.exact import KernelModel, kernel_pair
from gateway.estage.opid import penalties
from gateway.estage.tuning import NOTHING

FLOAT_BYTES = 4


@dataclass(frozen=True)
class Compacted:
    """A compact kernel model, and what it cost."""

    model: KernelModel
    exact_accuracy: float
    """Of the exact kernel with the same settings, on held-out folds of the batch."""
    compact_accuracy: float
    """Of the compact form, on the same folds."""

    @property
    def loss(self) -> float:
        """The accuracy given up."""
        return self.exact_accuracy - self.compact_accuracy

    @property
    def nbytes(self) -> int:
        """The pushed size in float32."""
        return FLOAT_BYTES * self.model.numbers


def landmarks(K: Floats, count: int) -> Ints:
    """The rows that pivoted Cholesky picks: each the one the others explain least.

    >>> rows = np.array([[0.0], [0.1], [5.0]])
    >>> landmarks(np.exp(-(rows - rows.T) ** 2), 2).tolist()
    [0, 2]
    """
    left = np.diag(K).copy()
    found: list[int] = []
    L = np.zeros((len(K), min(count, len(K))))
    for step in range(L.shape[1]):
        pivot = int(left.argmax())
        if left[pivot] <= 1e-10 * K.diagonal().max():
            break
        L[:, step] = (K[:, pivot] - L @ L[pivot]) / np.sqrt(left[pivot])
        left = left - L[:, step] ** 2
        left[[*found, pivot]] = 0.0
        found.append(pivot)
    return np.array(found, np.int64)


def shrunk(model: KernelModel, batch: Batch, rows: Ints, count: int) -> KernelModel:
    """Eq. 14 with V^(s) and V̄ confined to the landmarks' span, at the model's γ and w₁."""
    c = batch.classes
    points = (batch.columns[rows] - model.centre) / model.scale
    support = points[landmarks(model.kernel(points, points), count)]
    p1, p2 = penalties("balanced", c, batch.new)
    w1, gamma = model.details["w1"], model.details["gamma"]
    K_s, K_b = kernel_pair(model.kernel, support, c)
    blocks = [(model.kernel(points, support), K_b, (1 - w1) / (gamma * p2))]
    blocks += [(model.kernel(points[:, :c], support[:, :c]), K_s, w1 / (gamma * p1))]
    roots = [feature_root(K) * np.sqrt(weight) for _, K, weight in blocks]
    Phi = np.hstack([cross @ root for (cross, _, _), root in zip(blocks, roots, strict=True)])
    bias = batch.Y[rows].mean(0)
    V = np.linalg.solve(Phi.T @ Phi + np.eye(Phi.shape[1]), Phi.T @ (batch.Y[rows] - bias))
    A_b, A_s = roots[0] @ V[: len(support)], roots[1] @ V[len(support) :]
    return replace(model, support=support, A_s=A_s, A_b=A_b, bias=bias, name="kernel compact")


def feature_root(K: Floats, floor: float = 1e-10) -> Floats:
    """K^(−1/2), without the directions below `floor` of the largest, which are rounding."""
    values, Q = np.linalg.eigh(K)
    kept = values > floor * max(values[-1], 1e-300)
    return np.asarray((Q * np.where(kept, 1 / np.sqrt(np.where(kept, values, 1)), 0)) @ Q.T)


def landmarks_that_fit(batch: Batch, bytes_max: int) -> int:
    """How many landmarks `bytes_max` bytes of float32 have room for; 0 where none has."""
    columns = batch.classes + batch.new
    fixed = 2 * columns + batch.classes
    return max(0, (bytes_max // FLOAT_BYTES - fixed) // (columns + 2 * batch.classes))


def compacted(
    model: KernelModel, batch: Batch, count: int = 32, folds: int = 5, seed: int = 0
) -> Compacted:
    """The model on `count` landmarks, and the accuracy of both forms on held-out folds."""
    right = np.zeros(2)
    for held in stratified_folds(batch, folds, seed):
        rows = np.delete(np.arange(batch.n), held)
        for form, size in enumerate((len(rows), count)):
            scores = shrunk(model, batch, rows, size).scores(batch.Z[held], batch.Xa[held])
            right[form] += np.sum(scores.argmax(1) == batch.y[held])
    whole = shrunk(model, batch, np.delete(np.arange(batch.n), NOTHING), count)
    exact, compact = right / max(1, batch.n)
    return Compacted(whole, float(exact), float(compact))
