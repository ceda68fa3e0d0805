"""What every learner promises, whatever it keeps.

The list of checks in `tests/test_learner_contract.py` is run against every implementation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, Self

from numpy.typing import ArrayLike

from edge_opid.errors import Refusal
from edge_opid.learner.statistics import Matrix
from edge_opid.learner.summary import Summary
from edge_opid.native.packing import Floats


class Scores(NamedTuple):
    """Both classifiers' scores for one reading, c values each; the largest one is the class."""

    all_sensors: Floats
    """From W̃, which uses every sensor."""
    survivors: Floats
    """From W^(s), which uses only those expected to survive."""


class Learner(Protocol):
    """A one-pass learner of the C-stage: W̃ on all columns and W^(s) on the survivors (Eq. 2).

    A reading is d values, the vanishing columns first; a label is a class index. A reading that
    cannot be learned raises `ReadingError` (or, with `refuse=True`, comes back as a `Refusal`)
    and changes nothing.
    """

    @property
    def vanishing(self) -> int:
        """How many of the columns, the first ones, are planned to vanish."""
        ...

    @property
    def readings(self) -> int:
        """Labelled readings learned, including those of merged and carried learners."""
        ...

    @property
    def evidence(self) -> float:
        """How many readings they count for, after forgetting and carrying."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of state: the same after the first reading and after the last."""
        ...

    @property
    def B(self) -> Floats:
        """B of Eq. 4, D×c."""
        ...

    def inverse(self) -> Floats:
        """A⁻¹ of Eq. 4, D×D."""
        ...

    def learn_one(self, x: ArrayLike, y: int, *, refuse: bool = False) -> Refusal | None:
        """Learn one labelled reading."""
        ...

    def learn_many(self, X: ArrayLike, y: ArrayLike, *, batch: int | None = None) -> None:
        """Learn n×d readings with n labels: all of them, or, if one is bad, none."""
        ...

    def score_then_learn(self, x: ArrayLike, y: int) -> Scores:
        """Learn one reading, and return what was predicted for it before."""
        ...

    def unlearn_one(self, x: ArrayLike, y: int, weight: float = 1.0) -> None:
        """Take back one reading that was learned, and still counts `weight` times."""
        ...

    def unlearn_many(self, X: ArrayLike, y: ArrayLike, weights: ArrayLike) -> None:
        """Take back n readings, each with what it still counts for."""
        ...

    def predict_one(self, x: ArrayLike) -> Floats:
        """The c scores of W̃ for d values."""
        ...

    def predict_survivors(self, x_s: ArrayLike) -> Floats:
        """The c scores of W^(s) for the surviving values."""
        ...

    def weights(self) -> tuple[Floats, Floats]:
        """W̃ (d×c) and W^(s) (survivors×c), as they are now."""
        ...

    def resplit(self, vanishing: Sequence[int]) -> Self:
        """A learner of the same columns and readings with another split, these columns first."""
        ...

    def inherit(
        self,
        kept: Sequence[int],
        new: int = 0,
        vanishing: Sequence[int] = (),
        carry: float = 1.0,
    ) -> Self:
        """A learner for the next layout, from what this one knows of the columns that remain."""
        ...

    def rearrange(
        self,
        sources: Sequence[int | None],
        vanishing: int,
        carry: float = 1.0,
        relation: Matrix | None = None,
    ) -> Self:
        """The general change: `sources[i]` is the column that the new column i continues."""
        ...

    def move(
        self, columns: Matrix, weights: Matrix, vanishing: int, bent: Sequence[int] = ()
    ) -> Self:
        """A learner of the same readings in other columns, x′ = `columns`·x."""
        ...

    def merge(self, other: Learner | Summary) -> Self:
        """Add another learner's readings to this one's, exactly; returns this learner."""
        ...

    def summary(self, dtype: str | None = None) -> Summary:
        """The statistics to hand on, in this learner's dtype or in another."""
        ...

    def state(self) -> dict[str, Any]:
        """Everything, for `from_state`: plain values and arrays, no reading."""
        ...
