"""A learner's statistics as they travel: small arrays and the settings they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from edge_opid.errors import MismatchError
from edge_opid.learner.statistics import Matrix, Statistics
from edge_opid.native.packing import Floats, upper


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Everything another learner or the gateway needs to go on from here, and no reading.

    Exact up to its dtype: a float32 summary rounds each sum once. The ridge and its centre are
    settings, not readings, so a summary is free of them and summaries of many nodes add up.

    >>> from edge_opid import WoodburyLearner
    >>> learner = WoodburyLearner(vanishing=1, surviving=2, classes=2, dtype="float64")
    >>> learner.learn_one([1.0, 2.0, -1.0], 1)
    >>> learner.summary().moments.tolist()
    [[0.0, 1.0], [0.0, 2.0], [0.0, -1.0]]
    """

    vanishing: int
    """How many of the columns, the first ones, are planned to vanish."""
    lam: float
    rho: float
    readings: int
    evidence: float
    gram: Floats
    """Σ x̃ x̃ᵀ, its upper triangle row by row: d(d+1)/2 numbers."""
    moments: Floats
    """Σ x̃ yᵀ, d×c."""

    @property
    def nbytes(self) -> int:
        """The bytes of the two arrays."""
        return self.gram.nbytes + self.moments.nbytes

    def statistics(self) -> Statistics:
        """The sums, dense, in float64."""
        width = len(self.moments)
        if self.gram.shape != (width * (width + 1) // 2,):
            raise MismatchError(
                f"summary of {width} columns needs {width * (width + 1) // 2} Gram entries, "
                f"got {self.gram.shape}"
            )
        half: Matrix = np.zeros((width, width))
        half[upper(width)] = self.gram
        gram = half + half.T
        np.fill_diagonal(gram, half.diagonal() + 0.0)
        return Statistics(gram, self.moments.astype(np.float64), self.readings, self.evidence)

    def mapped(self, columns: Matrix, places: Sequence[int], classes: int) -> Summary:
        """The same readings with other columns, x′ = T·x, and other class numbers, none to vanish.

        `columns` is T (see `Layout.columns_from`). Class k becomes `places[k]` of `classes`.
        """
        known = self.statistics()
        moments: Matrix = np.zeros((len(columns), classes))
        moments[:, list(places)] = columns @ known.moments
        gram = (columns @ known.gram @ columns.T)[upper(len(columns))]
        return replace(self, vanishing=0, gram=gram, moments=moments)


def check_agreement(mine: Summary, theirs: Summary) -> None:
    """Statistics may be added only where they are of the same columns, classes, λ and ρ.

    >>> sums = {"gram": np.zeros(6), "moments": np.zeros((3, 2))}
    >>> mine = Summary(vanishing=1, lam=1.0, rho=1.0, readings=0, evidence=0.0, **sums)
    >>> theirs = Summary(vanishing=1, lam=2.0, rho=1.0, readings=0, evidence=0.0, **sums)
    >>> check_agreement(mine, theirs)
    Traceback (most recent call last):
    edge_opid.errors.MismatchError: cannot merge: lam is 1.0 here and 2.0 there
    """
    (width, classes), (other_width, other_classes) = mine.moments.shape, theirs.moments.shape
    pairs = {
        "columns": (width, other_width),
        "classes": (classes, other_classes),
        "vanishing": (mine.vanishing, theirs.vanishing),
        "lam": (mine.lam, theirs.lam),
        "rho": (mine.rho, theirs.rho),
    }
    for what, (here, there) in pairs.items():
        if here != there:
            raise MismatchError(f"cannot merge: {what} is {here} here and {there} there")
