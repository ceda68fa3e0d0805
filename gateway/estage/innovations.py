"""What the new sensors say that the survivors do not: X^(a) minus what X^(s) tells of it.

W^(s) was learned without the new sensors, so it already counts whatever of theirs the survivors
give away. A new column as it is counts that twice, unless the survivors' weights change with it;
and such a change is dear, because the C-stage is sure of them. It is sure of them *without* the
new sensors. So a new column enters as its innovation A − X^(s)N, where X^(s)N is a ridge of A on
X^(s), and weights V for it change the survivors' weights by −NV, free of charge. No label is used
for N. (Decision 36.)

A ridge can follow any noise where there are as many columns as rows. So its strength is the one
that leaves least of rows it was not fitted on (each row left out in closed form, its copies with
it), "no relation" being one of the choices; and every fold has a relation of its training part
alone, so that held-out instances show what it is worth.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from gateway.estage.batch import Floats, Ints

STRENGTHS: Floats = np.append(np.inf, 10.0 ** np.arange(2, -3.5, -0.5))
"""The ridge's grid, in units of the mean eigenvalue of X^(s)'s centred Gram matrix."""
LEFT_MIN = 1e-9
"""At least so much of a row is left: where all rows are copies of one, 0/0 would be."""


@dataclass(frozen=True)
class Relation:
    """A ridge of A on P, for some rows of a batch: every strength from one decomposition."""

    P: Floats
    """n×k, about its mean."""
    A: Floats
    """n×d_a, about its mean."""
    means: tuple[Floats, Floats]
    """Those of P and A."""
    copies: Ints
    """n: how many copies each row has, itself included."""

    @classmethod
    def of(cls, P: Floats, A: Floats, groups: Ints) -> Self:
        """From rows as they are; `groups` says which are copies of each other."""
        _, place, count = np.unique(groups, return_inverse=True, return_counts=True)
        means = P.mean(0), A.mean(0)
        return cls(P - means[0], A - means[1], means, count[place.reshape(-1)])

    @cached_property
    def _turned(self) -> tuple[Floats, Floats, Floats]:
        """Eigenvalues and eigenvectors of PᵀP, and P in their directions."""
        values, turn = np.linalg.eigh(self.P.T @ self.P)
        return np.maximum(values, 0), turn, self.P @ turn

    def _shrunk(self, strength: float) -> Floats:
        """1/(eigenvalue + ridge)."""
        values = self._turned[0]
        unit = float(values.mean()) if values.any() else 1.0
        return 1 / (values + strength * unit)

    def weights(self, strength: float) -> Floats:
        """N, k×d_a."""
        _, turn, turned = self._turned
        return np.asarray(turn @ (self._shrunk(strength)[:, None] * (turned.T @ self.A)))

    def left(self, strength: float) -> Floats:
        """n×d_a: of each row's A, what a ridge that has not seen this row leaves."""
        turned = self._turned[2]
        own = self.copies * (1 / len(self.P) + (turned * turned) @ self._shrunk(strength))
        missed = self.A - self.P @ self.weights(strength)
        return np.asarray(missed / np.maximum(1 - own, LEFT_MIN)[:, None])

    def best_strength(self) -> float:
        """The one that leaves least of rows it has not seen."""
        losses = [float(np.sum(self.left(each) ** 2)) for each in STRENGTHS]
        return float(STRENGTHS[int(np.argmin(losses))])


@dataclass(frozen=True)
class Innovations:
    """The new columns of some rows without what the survivors tell of them."""

    columns: Floats
    """n×d_a: X^(a) − X^(s)N − offset."""
    N: Floats
    """d_s×d_a."""
    offset: Floats
    """d_a."""


class Innovator:
    """Innovations for the training part of every fold, with one strength for all.

    X^(s) is turned once into as many coordinates as its rows span, which changes no ridge.

    >>> rng = np.random.default_rng(0)
    >>> Xs = rng.normal(size=(60, 2))
    >>> Xa = 3 * Xs[:, :1] + 5 + 0.1 * rng.normal(size=(60, 1))
    >>> found = Innovator(Xs, Xa).of(np.arange(60))
    >>> print(found.N.round(1).ravel() + 0, found.offset.round(1), found.columns.std().round(1))
    [3. 0.] [5.] 0.1
    """

    def __init__(self, Xs: Floats, Xa: Floats) -> None:
        self._turn = np.linalg.svd(Xs - Xs.mean(0), full_matrices=False)[2].T
        self._P, self._A = Xs @ self._turn, Xa
        both = np.hstack([Xs, Xa])
        self._groups = np.unique(both, axis=0, return_inverse=True)[1].reshape(-1)
        self.strength = self._relation(np.arange(len(Xs))).best_strength()

    def _relation(self, rows: Ints) -> Relation:
        return Relation.of(self._P[rows], self._A[rows], self._groups[rows])

    def of(self, rows: Ints) -> Innovations:
        """Those of these rows, from a relation that knows no others."""
        relation = self._relation(rows)
        weights = relation.weights(self.strength)
        P_mean, A_mean = relation.means
        columns = relation.A - relation.P @ weights
        return Innovations(columns, self._turn @ weights, A_mean - P_mean @ weights)
