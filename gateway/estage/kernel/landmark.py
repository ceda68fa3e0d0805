"""Kernel OPID on landmarks, as a candidate of its own: what a node could be sent is what is judged.

Only a few rows of the batch, the landmarks, are kept, so that the model is small enough to push:
V^(s) and V̄ are confined to the landmarks' span from the start (Eq. 14 on the features
K_m^(−1/2) k(·, landmarks)), landmarks and settings are chosen anew in every fold, and the held-out
hits are those of the compact form. A training part costs two decompositions of 2m×2m, not of n×n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gateway.estage.batch import Batch, Floats, Ints
from gateway.estage.kernel.exact import (
    BALANCES,
    STRENGTHS,
    Kernel,
    KernelModel,
    KernelOpid,
    kernel_pair,
    standardised,
)
from gateway.estage.opid import penalties

FLOAT_BYTES = 4
LANDMARKS = 32
COMPACT = "kernel compact"
"""As tables call it."""
FLOOR = 1e-6
"""Directions of the landmarks' kernel matrix below this share of the largest are left out: nodes
compute in float32, and weights that large would leave rounding of what they cancel."""


@dataclass(frozen=True)
class LandmarkPath:
    """The models of every kernel and γ, fitted on the same rows."""

    models: tuple[KernelModel, ...]

    def scores(self, Z: Floats, Xa: Floats, Xs: Floats | None = None) -> Floats:  # noqa: ARG002
        """P×n×c."""
        return np.stack([model.scores(Z, Xa) for model in self.models])

    def mixed(self, mixture: Floats) -> KernelModel:
        """The chosen model, exactly as it was judged."""
        return self.models[int(mixture.argmax())]


@dataclass(frozen=True)
class LandmarkOpid(KernelOpid):
    """The candidate: a few kernels, every γ, on `count` landmarks picked from the training part."""

    count: int = LANDMARKS
    name: str = COMPACT

    def paths(self, batch: Batch, held: Sequence[Ints]) -> Sequence[LandmarkPath]:  # type: ignore[override]
        """One path for each training part; columns are standardised over the batch."""
        frame, found = standardised(batch, self.kernels[0]), []
        for out in held:
            kept = np.delete(np.arange(batch.n), out)
            part = replace(frame, support=frame.support[kept], bias=batch.Y[kept].mean(0))
            Y = batch.Y[kept] - part.bias
            models = [m for kernel in self.kernels for m in self._small(kernel, part, Y, batch.new)]
            found.append(LandmarkPath(tuple(models)))
        return found

    def _small(self, kernel: Kernel, frame: KernelModel, Y: Floats, d_a: int) -> list[KernelModel]:
        """One model for each γ, at the best of the balances by the value of Eq. 14."""
        points, c = frame.support, len(frame.bias)
        K = kernel(points, points)
        support = points[landmarks(K, self.count)]
        features = Features.of(kernel, points, support, Y)
        p = penalties("balanced", c, d_a)
        mean = float(np.trace(K)) / p[1] / max(1, len(K))
        gammas = np.array(self.gammas) if self.gammas else STRENGTHS * (mean or 1.0)
        solved = [features.solved(w1, p, gammas) for w1 in BALANCES]
        best = np.argmin([values for values, _, _ in solved], axis=0)
        small = replace(frame, kernel=kernel, support=support, name=COMPACT)
        return [
            replace(
                small,
                A_s=solved[place][1][row],
                A_b=solved[place][2][row],
                details={
                    "gamma": float(gammas[row]),
                    "w1": BALANCES[place],
                    "rbf": float(kernel.kind == "rbf"),
                },
            )
            for row, place in enumerate(best)
        ]


@dataclass(frozen=True)
class Features:
    """The batch in the landmarks' coordinates: 2m columns, those of Z first."""

    root_s: Floats
    """m×m: K^(s)^(−1/2) among the landmarks."""
    root_b: Floats
    """m×m: K̄^(−1/2)."""
    gram: Floats
    """2m×2m: FᵀF."""
    moments: Floats
    """2m×c: FᵀY."""
    total: float
    """tr YᵀY."""

    @classmethod
    def of(cls, kernel: Kernel, points: Floats, support: Floats, Y: Floats) -> Features:
        """F = [k(z, S_z) K^(s)^(−1/2), k(z̄, S) K̄^(−1/2)] of these rows, and its products."""
        c = Y.shape[1]
        root_s, root_b = (feature_root(K, FLOOR) for K in kernel_pair(kernel, support, c))
        on_Z = kernel(points[:, :c], support[:, :c]) @ root_s
        F = np.hstack([on_Z, kernel(points, support) @ root_b])
        return cls(root_s, root_b, F.T @ F, F.T @ Y, float(np.sum(Y * Y)))

    def solved(
        self, w1: float, p: tuple[float, float], gammas: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """For each γ the value of Eq. 14 at this balance, A_s and A_b.

        With each block multiplied by √(w/p), the penalty is γ times the plain square: one
        decomposition serves every γ.
        """
        m = len(self.root_s)
        unit = np.sqrt(np.repeat([w1 / p[0], (1 - w1) / p[1]], m))
        values, Q = np.linalg.eigh(unit[:, None] * self.gram * unit)
        turned = Q.T @ (unit[:, None] * self.moments)
        shrunk = turned / (np.maximum(values, 0)[:, None] + gammas[:, None, None])
        reached = self.total - np.sum(turned * shrunk, axis=(1, 2))
        V = unit[:, None] * (Q @ shrunk)
        return reached, self.root_s @ V[:, :m], self.root_b @ V[:, m:]


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
