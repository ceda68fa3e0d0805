"""The slow truth: Eq. 4 and 5 solved directly in float64, and seeded streams to try it on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np


def one_hot(y, classes):
    return np.eye(classes)[np.asarray(y)]


def eq5(gram, vanishing, lam, rho):
    """A of Eq. 5, built block by block as printed."""
    if vanishing == 0:
        return gram + rho * np.eye(len(gram))
    d, D = len(gram), 2 * len(gram) - vanishing
    A = np.zeros((D, D))
    A[:d, :d] = (1 + lam) * gram
    A[:d, d:] = -lam * gram[:, vanishing:]
    A[d:, :d] = -lam * gram[vanishing:]
    A[d:, d:] = (1 + lam) * gram[vanishing:, vanishing:]
    return A + rho * np.eye(D)


def eq4_from_sums(gram, moments, vanishing, lam, rho, centre=None):
    """(W̃, W^(s)) of Eq. 4 from Σx̃x̃ᵀ and Σx̃yᵀ, the ridge centred at `centre`."""
    d = len(gram)
    if centre is not None:
        moments = moments + rho * centre
    B = moments if vanishing == 0 else np.vstack([moments, moments[vanishing:]])
    W = np.linalg.solve(eq5(gram, vanishing, lam, rho), B)
    return W[:d], W[d:] if vanishing else W


def eq4(X, y, classes, vanishing, lam, rho, centre=None):
    X = np.asarray(X, np.float64)
    return eq4_from_sums(X.T @ X, X.T @ one_hot(y, classes), vanishing, lam, rho, centre)


def relative(got, expected):
    """The largest error, as a share of the largest expected value."""
    return float(np.abs(np.asarray(got, np.float64) - expected).max() / np.abs(expected).max())


def disagreement(X, W_a, W_b):
    """The share of readings that two weight matrices label differently."""
    return float(np.mean((X @ W_a).argmax(1) != (X @ W_b).argmax(1)))


@dataclass(frozen=True)
class Stream:
    """Seeded readings whose Gram matrix has the given condition number, in chunks."""

    width: int
    classes: int = 3
    condition: float = 1e6
    offset: float = 0.0
    seed: int = 1

    def _world(self):
        rng = np.random.default_rng(self.seed)
        left = np.linalg.qr(rng.normal(size=(self.width, self.width)))[0]
        right = np.linalg.qr(rng.normal(size=(self.width, self.width)))[0]
        sizes = 2 * np.logspace(0, -np.log10(self.condition) / 2, self.width)
        return rng, (left * sizes) @ right, rng.normal(size=(self.width, self.classes))

    def chunks(self, total, chunk=20_000) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """`total` readings as float32, with labels that follow the hidden causes."""
        rng, mix, truth = self._world()
        for start in range(0, total, chunk):
            n = min(chunk, total - start)
            causes = rng.normal(size=(n, self.width))
            noise = 0.5 * rng.normal(size=(n, self.classes))
            X = (causes @ mix + self.offset).astype(np.float32)
            yield X, (causes @ truth + noise).argmax(1)

    def take(self, total):
        return next(iter(self.chunks(total, chunk=total)))
