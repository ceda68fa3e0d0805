"""OPID with a kernel (Eq. 13–18 by the kernel trick), on the whole batch.

With K^(s) and K̄ the kernel matrices of Z and of [Z, X^(a)], M = w₁K^(s)/p₁ + w₂K̄/p₂ and
α = (M/γ + I)⁻¹ Y, the weights are V^(s) = Φ(Z)ᵀα·w₁/(γp₁) and V̄ = Φ(Z̄)ᵀα·w₂/(γp₂), and the
value of Eq. 14 is tr Yᵀα. One eigendecomposition of M serves every γ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from gateway.estage.batch import Batch, Floats, Ints
from gateway.estage.opid import penalties
from gateway.estage.tuning import OneSetting, tuned

STRENGTHS = 10.0 ** np.linspace(2, -4, 9)
"""γ's grid in units of M's mean eigenvalue."""
BALANCES = (0.0, 0.5, 1.0)
"""w₁ while settings are compared; the final model alternates from there."""
ROUNDS_MAX = 200


@dataclass(frozen=True)
class Kernel:
    """A kernel on standardised columns: Gaussian, or (1 + x·x'/D)^degree."""

    kind: Literal["rbf", "poly", "linear"] = "rbf"
    size: float = 1.0
    """rbf: the width in units of √(2D), the typical distance; poly: the degree."""

    def __call__(self, A: Floats, B: Floats) -> Floats:
        """The kernel matrix of the rows of A and B."""
        dot, width = A @ B.T, max(1, A.shape[1])
        if self.kind == "linear":
            return np.asarray(dot)
        if self.kind == "poly":
            return np.asarray((1 + dot / width) ** self.size)
        apart = np.sum(A * A, 1)[:, None] + np.sum(B * B, 1) - 2 * dot
        return np.asarray(np.exp(-np.maximum(apart, 0) / (2 * width * self.size**2)))


@dataclass(frozen=True, kw_only=True)
class KernelModel:
    """k(z, S_z) A_s + k(z̄, S) A_b + bias, over support rows S: all of the batch, or landmarks."""

    kernel: Kernel
    centre: Floats
    """c + d_a: subtracted from [Z, X^(a)]."""
    scale: Floats
    """c + d_a: divided by."""
    support: Floats
    """m×(c + d_a), standardised."""
    A_s: Floats
    """m×c."""
    A_b: Floats
    """m×c."""
    bias: Floats
    details: Mapping[str, float] = field(default_factory=dict)
    name: str = "kernel"

    def scores(self, Z: ArrayLike, Xa: ArrayLike, Xs: ArrayLike | None = None) -> Floats:  # noqa: ARG002
        """n×c scores; Xs is not looked at."""
        rows = (np.hstack([np.asarray(Z, float), np.asarray(Xa, float)]) - self.centre) / self.scale
        c = len(self.bias)
        on_Z = self.kernel(rows[:, :c], self.support[:, :c]) @ self.A_s
        return np.asarray(on_Z + self.kernel(rows, self.support) @ self.A_b + self.bias)


@dataclass(frozen=True)
class KernelPath:
    """The models of every kernel and γ, fitted on the same rows."""

    models: tuple[KernelModel, ...]
    target: Floats
    p: tuple[float, float]

    def scores(self, Z: Floats, Xa: Floats, Xs: Floats | None = None) -> Floats:  # noqa: ARG002
        """P×n×c."""
        return np.stack([model.scores(Z, Xa) for model in self.models])

    def mixed(self, mixture: Floats) -> KernelModel:
        """The chosen model, its balance alternated to the end."""
        return alternated(self.models[int(mixture.argmax())], self.target, *self.p)


@dataclass(frozen=True)
class KernelOpid(OneSetting):
    """The candidate: a few kernels, every γ."""

    kernels: tuple[Kernel, ...] = (Kernel("rbf", 1.0), Kernel("poly", 2.0))
    gammas: tuple[float, ...] | None = None
    name: str = "kernel"

    def paths(self, batch: Batch, held: Sequence[Ints]) -> list[KernelPath]:
        """One path for each training part; columns are standardised over the batch."""
        whole, found = standardised(batch, self.kernels[0]), []
        for out in held:
            kept = np.delete(np.arange(batch.n), out)
            Y = batch.Y[kept]
            frame = replace(whole, support=whole.support[kept], bias=Y.mean(0))
            found.append(self._path(frame, Y - Y.mean(0), batch.new))
        return found

    def _path(self, frame: KernelModel, Y: Floats, d_a: int) -> KernelPath:
        p = penalties("balanced", len(frame.bias), d_a)
        models = [m for kernel in self.kernels for m in self._models(kernel, frame, Y, p)]
        return KernelPath(tuple(models), Y, p)

    def _models(
        self, kernel: Kernel, frame: KernelModel, Y: Floats, p: tuple[float, float]
    ) -> list[KernelModel]:
        """One model for each γ, at the best of the balances."""
        K_s, K_b = kernel_pair(kernel, frame.support, len(frame.bias))
        mean = float(np.trace(K_b)) / p[1] / max(1, len(K_b))
        gammas = np.array(self.gammas) if self.gammas else STRENGTHS * (mean or 1.0)
        best: list[tuple[float, KernelModel]] = [(np.inf, frame)] * len(gammas)
        for w1 in BALANCES:
            values, Q = np.linalg.eigh(w1 * K_s / p[0] + (1 - w1) * K_b / p[1])
            turned = Q.T @ Y
            for place, gamma in enumerate(gammas):
                shrunk = turned / (np.maximum(values, 0) / gamma + 1)[:, None]
                value = float(np.sum(turned * shrunk))
                if value < best[place][0]:
                    model = dual_model(frame, kernel, Q @ shrunk, w1, gamma, p)
                    best[place] = value, model
        return [model for _, model in best]


def standardised(batch: Batch, kernel: Kernel) -> KernelModel:
    """A model that says nothing yet: its support are all rows, in units of the batch's spread."""
    centre, spread = batch.columns.mean(0), batch.columns.std(0)
    scale = np.where(spread > 1e-9 * (1 + np.abs(centre)), spread, 1.0)
    rows, nothing = (batch.columns - centre) / scale, np.zeros_like(batch.Y)
    return KernelModel(
        kernel=kernel,
        centre=centre,
        scale=scale,
        support=rows,
        A_s=nothing,
        A_b=nothing,
        bias=np.zeros(batch.classes),
    )


def kernel_pair(kernel: Kernel, rows: Floats, c: int) -> tuple[Floats, Floats]:
    """K^(s) and K̄ of these rows."""
    return kernel(rows[:, :c], rows[:, :c]), kernel(rows, rows)


def dual_model(
    frame: KernelModel,
    kernel: Kernel,
    alpha: Floats,
    w1: float,
    gamma: float,
    p: tuple[float, float],
) -> KernelModel:
    """The model that α, w₁ and γ describe."""
    details = {"gamma": float(gamma), "w1": float(w1), "rbf": float(kernel.kind == "rbf")}
    on_Z, on_both = alpha * w1 / (gamma * p[0]), alpha * (1 - w1) / (gamma * p[1])
    return KernelModel(
        kernel=kernel,
        centre=frame.centre,
        scale=frame.scale,
        support=frame.support,
        A_s=on_Z,
        A_b=on_both,
        bias=frame.bias,
        details=details,
    )


def alternated(model: KernelModel, Y: Floats, p1: float, p2: float) -> KernelModel:
    """Eq. 16 and 17 in the dual, in turn, until w₁ stands still."""
    K_s, K_b = kernel_pair(model.kernel, model.support, len(model.bias))
    w1, gamma = np.clip(model.details["w1"], 0.05, 0.95), model.details["gamma"]
    for _ in range(ROUNDS_MAX):
        M = (w1 * K_s / p1 + (1 - w1) * K_b / p2) / gamma
        alpha = np.linalg.solve(M + np.eye(len(M)), Y)
        pull_1 = w1 * np.sqrt(max(0.0, float(np.sum(alpha * (K_s @ alpha)))) / p1)
        pull_2 = (1 - w1) * np.sqrt(max(0.0, float(np.sum(alpha * (K_b @ alpha)))) / p2)
        before, w1 = w1, pull_1 / (pull_1 + pull_2) if pull_1 + pull_2 > 0 else 0.0
        if abs(w1 - before) < 1e-8:
            break
    return dual_model(model, model.kernel, alpha, w1, gamma, (p1, p2))


def fit_kernel_opid(
    Z: ArrayLike,
    Xa: ArrayLike,
    y: ArrayLike,
    classes: int,
    *,
    kernels: Sequence[Kernel] = (Kernel("rbf", 1.0), Kernel("poly", 2.0)),
    gamma: float | None = None,
    folds: int = 5,
    seed: int = 0,
) -> KernelModel:
    """OPID in the dual, kernel and γ by cross-validation. It keeps the batch: see `landmark`."""
    candidate = KernelOpid(tuple(kernels), gammas=None if gamma is None else (gamma,))
    model = tuned(candidate, Batch.of(Z, Xa, y, classes), folds, seed)
    assert isinstance(model, KernelModel)
    return model
