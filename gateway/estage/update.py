"""The C-stage continued on the batch: its labels teach the survivors' weights too.

Z and X^(a) alone forget that the batch has labels for X^(s). The C-stage's sums say how sure it is
of W^(s): a change Δ of the survivors' weights costs tr Δᵀ(G_ss + ρI)Δ, which with X^(a) left out is
exactly what the C-stage would have learned, had the batch been its next readings. So

    min over Δ, V:  ‖Y − Z − X^(s)Δ − AV‖² + tr Δᵀ(G_ss + ρI)Δ + γ‖V‖²

where A is what X^(a) says and X^(s) does not (`estage.innovations`; decision 36). γ = ∞ leaves the
new sensors out. It needs `SurvivorColumns`. (Trusting the old readings less, with a factor before
the second term, was tried: decision 10.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from gateway.estage.batch import Batch, BatchError, Floats, Ints, SurvivorColumns
from gateway.estage.innovations import Innovator
from gateway.estage.models import LinearModel, LinearPath, keep_unseen, seen_classes
from gateway.estage.tuning import OneSetting, tuned

STRENGTHS: Floats = np.append(np.inf, 10.0 ** np.linspace(2, -2, 9))
"""γ's grid in units of n times the mean variance of X^(a)'s columns."""


def whitened(survivors: SurvivorColumns) -> tuple[Floats, Floats]:
    """S and T with S = X^(s) T, where the price of a change of weights is its plain square sum.

    S has no more columns than there are instances: what they do not span stays as it is.
    """
    try:
        L = np.linalg.cholesky(survivors.precision)
    except np.linalg.LinAlgError as error:
        raise BatchError("the survivors' precision must be positive definite") from error
    T = np.linalg.inv(L).T
    S = survivors.Xs @ T
    if S.shape[1] > len(S):
        turn = np.linalg.svd(S, full_matrices=False)[2].T
        S, T = S @ turn, T @ turn
    return S, T


@dataclass(frozen=True)
class Update(OneSetting):
    """The candidate: the update for every γ."""

    name: str = "update"
    strengths: tuple[float, ...] = tuple(STRENGTHS)

    @property
    def count(self) -> int:
        """How many settings."""
        return len(self.strengths)

    def paths(self, batch: Batch, held: Sequence[Ints]) -> list[LinearPath]:
        """One path for each training part."""
        if batch.survivors is None:
            raise BatchError("an update needs the batch's survivors, and got none")
        S, T = whitened(batch.survivors)
        spread = float(np.sum((batch.Xa - batch.Xa.mean(0)) ** 2)) / max(1, batch.new)
        gamma = np.array(self.strengths) * (spread or 1.0)
        innovator, missed = Innovator(batch.survivors.Xs, batch.Xa), batch.Y - batch.Z
        found = []
        for out in held:
            rows = np.delete(np.arange(batch.n), out)
            new = innovator.of(rows)
            M = np.hstack([S[rows], new.columns])
            V_s, V_a = fitted(M.T @ M, M.T @ missed[rows], S.shape[1], gamma)
            V_z = np.tile(np.eye(batch.classes), (len(V_s), 1, 1))
            bias, V_s = -new.offset @ V_a, T @ V_s - new.N @ V_a
            seen = seen_classes(batch, rows)
            keep_unseen(V_z, V_a, bias, seen)
            keep_unseen(V_z, V_s, bias, seen)
            found.append(
                LinearPath(
                    name=self.name, V_z=V_z, V_a=V_a, bias=bias, settings={"gamma": gamma}, V_s=V_s
                )
            )
        return found


def fitted(gram: Floats, cross: Floats, width: int, gamma: Floats) -> tuple[Floats, Floats]:
    """G×width×c and G×d_a×c: the weights on S and X^(a) for every γ.

    S is eliminated once; what it leaves of X^(a)'s Gram matrix is diagonalised, and every γ is a
    division after that.
    """
    own = gram[:width, :width] + np.eye(width)
    both = np.linalg.solve(own, np.hstack([gram[:width, width:], cross[:width]]))
    on_A, on_R = both[:, : len(gram) - width], both[:, len(gram) - width :]
    left = gram[width:, width:] - gram[width:, :width] @ on_A
    values, Q = np.linalg.eigh((left + left.T) / 2)
    turned = Q.T @ (cross[width:] - gram[width:, :width] @ on_R)
    V_a = Q @ (turned / (np.maximum(values, 0) + gamma[:, None])[..., None])
    return on_R - on_A @ V_a, V_a


def fit_update(
    Z: ArrayLike,
    Xa: ArrayLike,
    y: ArrayLike,
    classes: int,
    survivors: SurvivorColumns,
    *,
    gamma: float | None = None,
    folds: int = 5,
    seed: int = 0,
) -> LinearModel:
    """The update with γ by cross-validation, or the one given (in its grid's units)."""
    candidate = Update(strengths=tuple(STRENGTHS) if gamma is None else (gamma,))
    model = tuned(candidate, Batch.of(Z, Xa, y, classes, survivors), folds, seed)
    assert isinstance(model, LinearModel)
    return model
