"""OPID's E-stage (Eq. 13–18): V^(s) on Z and V̄ on [Z, X^(a)], their balance w₁, w₂ learned too.

With a = γ p₁/w₁ and b = γ p₂/w₂ the penalties of Eq. 14 on V^(s) and V̄, only the sum u of both
weights on Z shows in the prediction. For a given u the cheapest split has V^(s) = u·b/(a + b), and
the penalty that remains on u is ab/(a + b) = γ p₁p₂/(p₁w₂ + p₂w₁). So Eq. 17 is one ridge on
[Z, X^(a)] with two penalties, and neither limit, w₁ = 0 nor w₂ = 0, divides by zero.

X^(a)'s Gram matrix is diagonalised once per fold; every γ and every w costs a c×c solve after that.

p₁ = 1/c, p₂ = 1/(c + d_a) is Eq. 14 as printed. Its optimum is always w₁ = 0 (the text of
`docs/decisions/0007-the-e-stage.md` has the two-line proof), one ridge on [Z, X^(a)] with the
penalty γ/(c + d_a). The balanced form, p₁ = c and p₂ = c + d_a, is the default.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from gateway.estage.batch import Batch, Floats, Ints
from gateway.estage.fold_sums import Sums, training_sums
from gateway.estage.models import LinearModel, LinearPath, keep_unseen, seen_classes
from gateway.estage.tuning import OneSetting, tuned

Penalty = Literal["balanced", "printed"]
STRENGTHS = 10.0 ** np.linspace(4, -4, 17)
"""γ's grid in units of the mean eigenvalue of [Z, X^(a)]'s Gram matrix."""
STEPS_MAX = 60
"""Alternations at most; the secant needs about six, bisection alone would need forty."""


@dataclass(frozen=True)
class Rotated:
    """The sums of F parts in the coordinates where X^(a)'s Gram matrix is diagonal."""

    e: Floats
    """F×1×d_a: its eigenvalues."""
    Q: Floats
    """F×d_a×d_a: its eigenvectors."""
    Z: Floats
    """F×d_a×c: Qᵀ X^(a)ᵀ Z."""
    Y: Floats
    """F×d_a×c: Qᵀ X^(a)ᵀ Y."""
    ZZ: Floats
    """F×1×c×c: Zᵀ Z."""
    ZY: Floats
    """F×1×c×c: Zᵀ Y."""

    @classmethod
    def of(cls, sums: Sums, c: int) -> Rotated:
        """Diagonalise each part: the only step that is cubic in d_a."""
        e, Q = np.linalg.eigh(sums.gram[:, c:, c:])
        turn = Q.transpose(0, 2, 1)
        corner = sums.gram[:, None, :c, :c], sums.cross[:, None, :c]
        Z, Y = turn @ sums.gram[:, c:, :c], turn @ sums.cross[:, c:]
        return cls(np.maximum(e, 0)[:, None, :], Q, Z, Y, *corner)


@dataclass(frozen=True)
class Solution:
    """Eq. 17 solved for F parts and G values of γ, and what Eq. 16 needs of it."""

    u: Floats
    """F×G×c×c: the weights on Z, V^(s) and V̄'s part together."""
    shrink: Floats
    """F×G×d_a: 1/(eigenvalue + b), by which the residual's projections are multiplied."""
    pull_1: Floats
    """F×G: √p₁ ‖V^(s)‖ / w₁."""
    pull_2: Floats
    """F×G: √p₂ ‖V̄‖ / w₂."""


class Alternation:
    """Eq. 16 and 17 for F parts and G values of γ at once."""

    def __init__(self, parts: Rotated, gamma: Floats, p1: float, p2: float) -> None:
        self.parts, self.gamma, self.p1, self.p2 = parts, gamma, p1, p2
        F, d_a, c = parts.Z.shape
        pair = np.concatenate([parts.Z, parts.Y], axis=2)
        # F×d_a×(2c)²: products of the rotated columns, so that a sum over d_a is one product.
        self._products = np.einsum("fdi,fdj->fdij", pair, pair).reshape(F, d_a, 4 * c * c)

    def _sum(self, weights: Floats) -> tuple[Floats, Floats, Floats]:
        """Σ over d_a of weights times Z Zᵀ, Z Yᵀ and Y Yᵀ: F×G×c×c each."""
        c = self.parts.Z.shape[2]
        total = (weights @ self._products).reshape(*weights.shape[:2], 2 * c, 2 * c)
        return total[..., :c, :c], total[..., :c, c:], total[..., c:, c:]

    def solve(self, w1: Floats) -> Solution:
        """Eq. 17 for the balance w₁, F×G."""
        parts, p1, p2, w2 = self.parts, self.p1, self.p2, 1 - w1
        mixed = p1 * w2 + p2 * w1
        ridge = self.gamma * p1 * p2 / mixed
        free = parts.e * w2[..., None] + self.gamma[:, None] * p2
        shrink = w2[..., None] / free
        ZZ, ZY, _ = self._sum(shrink)
        c = ZZ.shape[-1]
        left = parts.ZZ - ZZ + ridge[..., None, None] * np.eye(c)
        u: Floats = np.asarray(np.linalg.solve(left, parts.ZY - ZY), np.float64)
        ZZ, ZY, YY = self._sum(1 / free**2)
        on_new = np.trace(YY, axis1=-2, axis2=-1) + np.sum(u * (ZZ @ u - 2 * ZY), axis=(-2, -1))
        on_Z = np.sum(u * u, axis=(-2, -1)) / mixed**2
        pull_2 = np.sqrt(p2 * (np.maximum(on_new, 0) + p1 * p1 * on_Z))
        return Solution(u, shrink, p2 * np.sqrt(p1 * on_Z), pull_2)

    def balance(self) -> Floats:
        """w₁ where Eq. 16 and 17 agree, F×G: the optimum of Eq. 14, which is jointly convex.

        Each round solves Eq. 17 and asks Eq. 16 which way w₁ wants to go; by convexity the
        optimum lies on that side. Steps are taken on log(w₁/w₂), where Eq. 16 is
        `+ log(pull₁/pull₂)`: the secant through the last two rounds, or, where that leaves the
        bracket, Eq. 16's own step, or, where that does too, the middle.
        """
        shape = len(self.parts.Z), len(self.gamma)
        none, all_ = self.solve(np.zeros(shape)), self.solve(np.ones(shape))
        at_0, at_1 = none.pull_1 <= none.pull_2, all_.pull_1 >= all_.pull_2
        low, high = np.full(shape, -40.0), np.full(shape, 40.0)
        x, before, step_before = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        settled = at_0 | at_1
        for _ in range(STEPS_MAX):
            now = self.solve(_logistic(x))
            with np.errstate(divide="ignore", invalid="ignore"):
                step = np.log(now.pull_1 / now.pull_2)
                secant = x - step * (x - before) / (step - step_before)
            low, high = np.where(step > 0, x, low), np.where(step < 0, x, high)
            wanted = _first_inside(low, high, secant, x + step)
            settled |= ~(np.abs(step) > 1e-8) | (high - low < 1e-8)
            if settled.all():
                break
            before, step_before, x = x, step, np.where(settled, x, wanted)
        return np.where(at_0, 0.0, np.where(at_1, 1.0, _logistic(x)))


def _logistic(x: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-x)))


def _first_inside(low: Floats, high: Floats, *choices: Floats) -> Floats:
    """The first choice strictly between low and high, or their middle."""
    found = (low + high) / 2
    for choice in reversed(choices):
        found = np.where((low < choice) & (choice < high), choice, found)
    return found


def penalties(penalty: Penalty, c: int, d_a: int) -> tuple[float, float]:
    """p₁ and p₂: how dear V^(s) and V̄ are.

    >>> penalties("balanced", 3, 50), penalties("printed", 4, 4)
    ((3.0, 53.0), (0.25, 0.125))
    """
    if penalty == "balanced":
        return float(c), float(c + d_a)
    return 1 / c, 1 / (c + d_a)


@dataclass(frozen=True)
class Opid(OneSetting):
    """The candidate: OPID for every γ of the grid."""

    penalty: Penalty = "balanced"
    intercept: bool = True
    gammas: tuple[float, ...] | None = None
    """None: `STRENGTHS`, in units of the batch's own scale."""

    @property
    def name(self) -> str:
        """As the table calls it."""
        return "opid" if self.penalty == "balanced" else "opid printed"

    def paths(self, batch: Batch, held: Sequence[Ints]) -> list[LinearPath]:
        """One path for each training part, all of them fitted together."""
        c = batch.classes
        sums = training_sums(batch.columns, batch.Y, held, self.intercept)
        p1, p2 = penalties(self.penalty, c, batch.new)
        gamma = self._gamma(batch, p2)
        parts = Rotated.of(sums, c)
        problem = Alternation(parts, gamma, p1, p2)
        w1 = problem.balance()
        best = problem.solve(w1)
        residual = parts.Y[:, None] - parts.Z[:, None] @ best.u
        V_a = parts.Q[:, None] @ (best.shrink[..., None] * residual)
        bias = sums.bias(np.concatenate([best.u, V_a], axis=2))
        every = np.arange(batch.n)
        found = []
        for f, rows in enumerate(held):
            seen = seen_classes(batch, np.delete(every, rows))
            keep_unseen(best.u[f], V_a[f], bias[f], seen)
            settings = {"gamma": gamma, "w1": w1[f]}
            found.append(
                LinearPath(
                    name=self.name, V_z=best.u[f], V_a=V_a[f], bias=bias[f], settings=settings
                )
            )
        return found

    def _gamma(self, batch: Batch, p2: float) -> Floats:
        if self.gammas is not None:
            return np.array(self.gammas, float)
        M = batch.columns - (batch.columns.mean(0) if self.intercept else 0)
        scale = float(np.sum(M * M)) / M.shape[1]
        return np.asarray(STRENGTHS * (scale or 1.0) / p2)


def fit_opid(
    Z: ArrayLike,
    Xa: ArrayLike,
    y: ArrayLike,
    classes: int,
    *,
    penalty: Penalty = "balanced",
    gamma: float | None = None,
    intercept: bool = True,
    folds: int = 5,
    seed: int = 0,
) -> LinearModel:
    """OPID (Eq. 13–18) with γ by cross-validation, or the one given.

    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 40)
    >>> Z = np.eye(2)[y] + rng.normal(size=(40, 2))
    >>> Xa = (2.0 * y - 1)[:, None] + 0.2 * rng.normal(size=(40, 1))
    >>> model = fit_opid(Z, Xa, y, classes=2)
    >>> print(f"{np.mean(Z.argmax(1) == y):.2f} {np.mean(model.scores(Z, Xa).argmax(1) == y):.2f}")
    0.88 1.00
    """
    batch = Batch.of(Z, Xa, y, classes)
    model = tuned(Opid(penalty, intercept, None if gamma is None else (gamma,)), batch, folds, seed)
    assert isinstance(model, LinearModel)
    return model
