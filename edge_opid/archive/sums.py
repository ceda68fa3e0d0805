"""The sums over many readings, a block at a time: what a learner of one pass would have kept.

Every product is float64, and a block has a fixed number of readings for a layout, so the same rows
in the same order give the same bits on one machine. Readings without a label are summed apart:
those with one teach what the classes look like, all of them how the sensors go together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from edge_opid.errors import MismatchError, ReadingError
from edge_opid.layout.layout import BIAS, Layout
from edge_opid.layout.many import ManyEncoder
from edge_opid.learner.settings import EVIDENCE_MAX
from edge_opid.learner.statistics import Matrix
from edge_opid.learner.summary import Summary
from edge_opid.native.packing import upper

UNLABELLED, UNKNOWN = -1, -2
"""In the place of a class: nobody said which, and one that is not among the classes."""
BLOCK_NUMBERS = 2**19
"""Of one block, all columns and classes together: 4 MB in float64. Smaller ones cost more calls."""


@dataclass(kw_only=True)
class Sums:
    """Σ x̃x̃ᵀ and Σ x̃yᵀ of an archive's readings, in float64; `+=` adds those of another part."""

    labelled: Matrix
    """Σ x̃x̃ᵀ of the readings with a label, d×d."""
    unlabelled: Matrix
    """Σ x̃x̃ᵀ of the others, d×d."""
    moments: Matrix
    """Σ x̃yᵀ, d×c."""
    readings: int = 0
    """With a label."""
    others: int = 0
    """Without one."""
    heard: NDArray[np.int64]
    """How many values there were of each sensor, in the order of the layout's names."""
    refused: Counter[str] = field(default_factory=Counter)
    """Readings that were left out, and labels that were, by reason."""

    @classmethod
    def nothing(cls, layout: Layout, classes: int) -> Self:
        """The sums of no reading."""
        d = layout.width
        return cls(
            labelled=np.zeros((d, d)),
            unlabelled=np.zeros((d, d)),
            moments=np.zeros((d, classes)),
            heard=np.zeros(len(layout.sensors), np.int64),
        )

    def __iadd__(self, other: Sums) -> Self:
        if self.moments.shape != other.moments.shape:
            raise MismatchError(
                f"cannot add: {self.moments.shape} columns and classes here, "
                f"{other.moments.shape} there"
            )
        self.labelled += other.labelled
        self.unlabelled += other.unlabelled
        self.moments += other.moments
        self.readings += other.readings
        self.others += other.others
        self.heard += other.heard
        self.refused += other.refused
        return self

    def of(self, layout: Layout, sensors: Sequence[str]) -> Sums:
        """The same readings with these sensors' columns only: those of `layout.retire(others)`."""
        places = [
            place
            for name, span in layout.spans.items()
            if name in (*sensors, BIAS)
            for place in span
        ]
        return Sums(
            labelled=self.labelled[np.ix_(places, places)],
            unlabelled=self.unlabelled[np.ix_(places, places)],
            moments=self.moments[places],
            readings=self.readings,
            others=self.others,
            heard=self.heard[[name in sensors for name in layout.names]],
            refused=self.refused,
        )

    def summary(self, vanishing: int, lam: float, rho: float) -> Summary:
        """What a node would have sent of the readings with a label, in float64."""
        return _summary(self.labelled, self.moments, self.readings, vanishing, lam, rho)

    def everything(self, vanishing: int, lam: float, rho: float) -> Summary:
        """The same columns in all readings, labelled or not: no moments, d×0."""
        readings = self.readings + self.others
        gram = self.labelled + self.unlabelled
        return _summary(gram, self.moments[:, :0], readings, vanishing, lam, rho)


def _summary(
    gram: Matrix, moments: Matrix, readings: int, vanishing: int, lam: float, rho: float
) -> Summary:
    """Beyond `EVIDENCE_MAX` readings all count for less, as a node's do (docs/decisions/0002)."""
    share = min(1.0, EVIDENCE_MAX / max(readings, 1))
    return Summary(
        vanishing=vanishing,
        lam=lam,
        rho=rho,
        readings=readings,
        evidence=share * readings,
        gram=share * gram[upper(len(gram))],
        moments=share * moments,
    )


class Gatherer:
    """Adds up blocks of columns for one layout. Its memory does not grow.

    >>> from edge_opid.layout import Sensor
    >>> gatherer = Gatherer(Layout([Sensor("temp", 20, 5)]), classes=2)
    >>> gatherer.add({"temp": np.array([25.0, 15.0, 20.0])}, np.array([1, 0, UNLABELLED]))
    >>> gatherer.sums.moments.tolist(), gatherer.sums.readings, gatherer.sums.others
    ([[-1.0, 1.0], [1.0, 1.0]], 2, 1)
    """

    def __init__(self, layout: Layout, classes: int) -> None:
        self._encoder, self._classes = ManyEncoder(layout), classes
        height = layout.width + classes
        self._block = max(64, BLOCK_NUMBERS // height)
        self._columns = np.empty((layout.width, self._block), np.float32)
        self._stacked = np.empty((height, self._block))
        """x̃ above the one-hot y, a column a reading: one product gives both sums."""
        self._heard = np.empty(len(layout.sensors), np.int64)
        self.sums = Sums.nothing(layout, classes)

    def add(self, columns: Mapping[str, NDArray[Any]], classes: NDArray[np.integer[Any]]) -> None:
        """Learn n readings: an array a sensor, NaN where it said nothing, and n class numbers.

        Readings with an infinite value, or with none at all, are left out and counted.
        """
        for start in range(0, len(classes), self._block):
            rows = slice(start, start + self._block)
            block = {name: values[rows] for name, values in columns.items()}
            self._add_block(block, classes[rows])

    def _add_block(
        self, columns: Mapping[str, NDArray[Any]], classes: NDArray[np.integer[Any]]
    ) -> None:
        n = len(classes)
        try:
            X = self._encoder.encode(columns, self._columns[:, :n], self._heard)
        except ReadingError as error:
            if error.reason != "non-finite":
                raise
            self._leave_out("non-finite", _infinite(columns), columns, classes)
            return
        if not (self._heard == n).any():  # perhaps there are readings without any value
            empty = _empty(columns, n)
            if empty.any():
                self._leave_out("empty", empty, columns, classes)
                return
        sums, known = self.sums, classes >= 0
        sums.heard += self._heard
        sums.refused["unknown-label"] += int(np.count_nonzero(classes == UNKNOWN))
        count = int(np.count_nonzero(known))
        sums.readings += count
        sums.others += n - count
        if count:
            self._add_labelled(X if count == n else X[:, known], classes[known])
        if count < n:
            rest = self._stacked[: len(X), : n - count]
            rest[:] = X if count == 0 else X[:, ~known]
            sums.unlabelled += rest @ rest.T

    def _add_labelled(self, X: NDArray[np.float32], classes: NDArray[np.integer[Any]]) -> None:
        d, n = X.shape
        stacked = self._stacked[:, :n]
        stacked[:d] = X
        for k, row in enumerate(stacked[d:]):
            np.equal(classes, k, out=row, casting="unsafe")
        products = stacked @ stacked.T
        self.sums.labelled += products[:d, :d]
        self.sums.moments += products[:d, d:]

    def _leave_out(
        self,
        reason: str,
        bad: NDArray[np.bool_],
        columns: Mapping[str, NDArray[Any]],
        classes: NDArray[np.integer[Any]],
    ) -> None:
        """The block without these readings."""
        self.sums.refused[reason] += int(np.count_nonzero(bad))
        good = ~bad
        if good.any():
            self._add_block({name: each[good] for name, each in columns.items()}, classes[good])


def _infinite(columns: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
    return np.asarray(np.any([np.isinf(each) for each in columns.values()], axis=0))


def _empty(columns: Mapping[str, NDArray[Any]], n: int) -> NDArray[np.bool_]:
    if not columns:
        return np.ones(n, bool)
    return np.asarray(np.all([np.isnan(each) for each in columns.values()], axis=0))
