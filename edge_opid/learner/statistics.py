"""What any one-pass learner knows, and the C-stage solution that follows from it.

Eq. 4 of the paper is determined by the Gram matrix G = Σx̃x̃ᵀ, the moments Σx̃yᵀ, λ, ρ and the
split into vanishing and surviving columns. Learners keep it in forms that survive float32;
everything that is rare (a sensor dies, learners are merged) is done here, in float64.

Letters: d columns, c classes, the first `vanishing` columns vanish, D = d + survivors (or d
where nothing vanishes: then both classifiers are the same one).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edge_opid.native.rescue import is_diagonal, solved, triangular

Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Statistics:
    """The sums over all readings of a learner, dense and in float64."""

    gram: Matrix
    """Σ x̃ x̃ᵀ, d×d; positive semidefinite up to rounding."""
    moments: Matrix
    """Σ x̃ yᵀ, d×c, without what the ridge's centre adds to B."""
    readings: int
    """How many labelled readings went in."""
    evidence: float
    """How many they count for, after forgetting and carrying."""
    centre: Matrix | None = None
    """Where the ridge pulls the weights to, d×c; None is zero, as in the paper."""

    def __add__(self, other: Statistics) -> Statistics:
        """The statistics of both learners' readings, about this learner's centre."""
        return replace(
            self,
            gram=self.gram + other.gram,
            moments=self.moments + other.moments,
            readings=self.readings + other.readings,
            evidence=self.evidence + other.evidence,
        )

    def ordered(self, columns: Sequence[int]) -> Statistics:
        """The same readings, with these columns only, in this order."""
        chosen = list(columns)
        return replace(
            self,
            gram=self.gram[np.ix_(chosen, chosen)],
            moments=self.moments[chosen],
            centre=None if self.centre is None else self.centre[chosen],
        )

    def moved(self, columns: Matrix, weights: Matrix) -> Statistics:
        """The same readings in other columns, x′ = T·x: `columns` is T, `weights` what W′ is of W.

        >>> one = Statistics(np.ones((1, 1)), np.ones((1, 2)), 1, 1.0)
        >>> one.moved(np.array([[3.0]]), np.array([[1 / 3]])).gram.tolist()
        [[9.0]]
        """
        return replace(
            self,
            gram=columns @ self.gram @ columns.T,
            moments=columns @ self.moments,
            centre=None if self.centre is None else weights @ self.centre,
        )


def system(known: Statistics, vanishing: int, lam: float, rho: float) -> tuple[Matrix, Matrix]:
    """A and B of Eq. 4 and 5, for a ridge of ρ about the centre."""
    gram, moments = known.gram, known.moments
    if known.centre is not None:
        moments = moments + rho * known.centre
    if vanishing == 0:
        return gram + rho * np.eye(len(gram)), moments
    across, own = -lam * gram[:, vanishing:], (1 + lam) * gram
    A = np.block([[own, across], [across.T, own[vanishing:, vanishing:]]])
    return A + rho * np.eye(len(A)), np.vstack([moments, moments[vanishing:]])


def solve(known: Statistics, vanishing: int, lam: float, rho: float) -> tuple[Matrix, Matrix]:
    """W̃ (d×c) and W^(s) (survivors×c): the solution of Eq. 4."""
    A, B = system(known, vanishing, lam, rho)
    W = solved(A, B)
    d = len(known.gram)
    return W[:d], W[d:] if vanishing else W


def carried(
    known: Statistics,
    sources: Sequence[int | None],
    carry: float,
    lam: float,
    rho: float,
    relation: Matrix | None = None,
) -> Statistics:
    """What a learner of the next layout starts from.

    `sources[i]` is the old column that the new column i continues, or None for a new one. The
    survivors' sums are taken over, `carry` times; for the part that is not, the ridge is centred
    at (1 − carry)·W^(s), the C-stage's own answer to the loss of the other columns.

    `relation` says how the new columns, in their order, follow from the old ones, a row each (see
    `handover`): their sums are then what they would have been. Without it they are zero.
    """
    kept = [source for source in sources if source is not None]
    places = [place for place, source in enumerate(sources) if source is not None]
    width, classes = len(sources), known.moments.shape[1]
    survivors = known.ordered(kept)
    gram, moments = np.zeros((width, width)), np.zeros((width, classes))
    gram[np.ix_(places, places)] = carry * survivors.gram
    moments[places] = carry * survivors.moments
    if relation is not None:
        fresh = [place for place, source in enumerate(sources) if source is None]
        across = carry * relation @ known.gram
        gram[np.ix_(fresh, places)] = across[:, kept]
        gram[np.ix_(places, fresh)] = across[:, kept].T
        gram[np.ix_(fresh, fresh)] = across @ relation.T
        moments[fresh] = carry * relation @ known.moments
    centre = None
    if carry < 1 or survivors.centre is not None:
        centre = np.zeros((width, classes))
        centre[places] = (1 - carry) * bridge(known, kept, lam, rho)
        if survivors.centre is not None:
            centre[places] += carry * survivors.centre
    readings = known.readings if carry > 0 else 0
    return Statistics(gram, moments, readings, carry * known.evidence, centre)


def bridge(known: Statistics, kept: Sequence[int], lam: float, rho: float) -> Matrix:
    """W^(s) for exactly these survivors, whichever split the learner was planned with."""
    lost = [column for column in range(len(known.gram)) if column not in set(kept)]
    return solve(known.ordered([*lost, *kept]), len(lost), lam, rho)[1]


def positive_part(gram: Matrix) -> Matrix:
    """`gram` without the negative eigenvalues that float32 rounding may have left in it."""
    if is_diagonal(gram):
        return np.maximum(gram, 0.0)
    values, vectors = np.linalg.eigh(gram)
    if values[0] >= 0:
        return gram
    return np.asarray((vectors * np.maximum(values, 0)) @ vectors.T)


def upper_root(gram: Matrix) -> Matrix:
    """An upper triangular root with rootᵀ root = gram, also where gram is singular."""
    if not gram.any():
        return np.zeros_like(gram)
    values, vectors = np.linalg.eigh(gram)
    return triangular((vectors * np.sqrt(np.maximum(values, 0))).T)
