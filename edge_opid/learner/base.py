"""The verbs both learners share: each is one line of algebra on their `Statistics`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from edge_opid.errors import LayoutError, ReadingError, Refusal
from edge_opid.learner.checks import as_batch, as_values
from edge_opid.learner.contract import Learner
from edge_opid.learner.handover import best_ridge, distilled, teacher
from edge_opid.learner.settings import EVIDENCE_MAX, LIMIT, Settings
from edge_opid.learner.statistics import Matrix, Statistics, carried, solve
from edge_opid.learner.summary import Summary, check_agreement
from edge_opid.native import available, choose
from edge_opid.native.packing import Floats, upper

UNLEARNED_AT_ONCE = 64  # readings: more at once are dearer than another decomposition


class OnePassLearner(ABC):
    """Settings, counters and every change of layout. What is kept, and how, is a subclass's."""

    def __init__(
        self,
        vanishing: int,
        surviving: int,
        classes: int,
        lam: float = 1.0,
        rho: float = 1.0,
        *,
        forgetting: float = 1.0,
        limit: float = LIMIT,
        evidence_max: float = EVIDENCE_MAX,
        dtype: DTypeLike = np.float32,
        native: str | None = None,
    ) -> None:
        kind = np.dtype(dtype).name
        self._begin(
            Settings(
                vanishing=vanishing,
                surviving=surviving,
                classes=classes,
                lam=lam,
                rho=rho,
                forgetting=forgetting,
                limit=limit,
                evidence_max=evidence_max,
                dtype=kind,
            ),
            native,
        )
        self._restore(_nothing(self.settings))

    def _begin(self, settings: Settings, native: str | None) -> None:
        self.settings = settings
        self.native = choose(native, settings.dtype)
        self._steps = available[self.native]
        self._shape, self._kind = (settings.width,), settings.kind
        self._readings = 0
        self._evidence = 0.0
        self._centre: Floats | None = None  # d×c, only after an `inherit` with carry < 1

    # -- what a subclass keeps -----------------------------------------------------------------

    @abstractmethod
    def _statistics(self) -> Statistics:
        """The sums over all readings, from what is kept."""

    @abstractmethod
    def _restore(self, known: Statistics) -> None:
        """Keep exactly what follows from these sums; the old state is gone when this returns."""

    @abstractmethod
    def _absorb(self, X: Floats, Y: Floats, decay: float) -> None:
        """Fade by `decay`, then add XᵀX and XᵀY: a batch that has passed the guards."""

    @abstractmethod
    def _fade(self, decay: float) -> None:
        """Let everything learned count `decay` times as much."""

    # -- reading -------------------------------------------------------------------------------

    @property
    def vanishing(self) -> int:
        """How many of the columns, the first ones, are planned to vanish."""
        return self.settings.vanishing

    @property
    def readings(self) -> int:
        """Labelled readings learned, including those of merged and carried learners."""
        return self._readings

    @property
    def evidence(self) -> float:
        """How many readings they count for, after forgetting and carrying."""
        return self._evidence

    def learn_one(self, x: ArrayLike, y: int, *, refuse: bool = False) -> Refusal | None:
        """Learn one labelled reading: `x` has d values, the vanishing ones first."""
        try:
            self._learn(x, y, None)
        except ReadingError as error:
            if not refuse:
                raise
            return error.refusal
        return None

    @abstractmethod
    def _learn(self, x: ArrayLike, y: int, scores: Floats | None) -> None:
        """Learn one reading, filling `scores` (2×c) with the predictions made before."""

    def unlearn_one(self, x: ArrayLike, y: int, weight: float = 1.0) -> None:
        """Take back one reading that was learned, as though it never had been: sums subtract.

        `weight` is what it still counts for: 1, or with forgetting β to the power of the readings
        learned since. Whoever calls this knows that it was learned, in these columns and under
        this label; the sums cannot tell. In float64, and seldom: one decomposition, some 5·D³
        operations.

        >>> from edge_opid import GramLearner
        >>> learner = GramLearner(vanishing=0, surviving=2, classes=2)
        >>> for value, label in [(1, 1), (-1, 0), (2, 0), (-2, 0)]:
        ...     learner.learn_one([value, 1], label)
        >>> learner.unlearn_one([2, 1], 0)  # it was not 0
        >>> learner.learn_one([2, 1], 1)
        >>> learner.readings, [round(float(each), 2) for each in learner.predict_one([1.5, 1])]
        (4, [-0.01, 0.81])
        """
        self.unlearn_many(as_values(x, self._shape)[None], [y], [weight])

    def unlearn_many(self, X: ArrayLike, y: ArrayLike, weights: ArrayLike) -> None:
        """Take back n readings, each with what it still counts for: all of them, or none.

        One decomposition for up to 64, so that taking back an hour of labels keeps nobody waiting.
        """
        rows, labels = as_batch(X, y, self.settings)
        counts = as_values(weights, (len(rows),)).astype(np.float64)
        exact = rows.astype(self.settings.kind).astype(np.float64)
        Y = counts[:, None] * np.eye(self.settings.classes)[labels]
        for first in range(0, len(rows), UNLEARNED_AT_ONCE):
            some = slice(first, first + UNLEARNED_AT_ONCE)
            roots = np.sqrt(counts[some])[:, None]
            self._subtract(roots * exact[some], exact[some].T @ Y[some])
        self._readings = max(0, self._readings - len(rows))
        self._evidence = max(0.0, self._evidence - float(counts.sum()))

    @abstractmethod
    def _subtract(self, X: Floats, moments: Floats) -> None:
        """Take XᵀX and these moments (d×c) out of the sums."""

    def _count_reading(self) -> None:
        """One more reading; see `Settings.evidence_max`."""
        mine = self.settings
        self._readings += 1
        self._evidence = mine.forgetting * self._evidence + 1
        if self._evidence > mine.evidence_max:
            self._halve()

    def _halve(self) -> None:
        while self._evidence > self.settings.evidence_max:
            self._evidence /= 2
            self._fade(0.5)

    def learn_many(self, X: ArrayLike, y: ArrayLike, *, batch: int | None = None) -> None:
        """Learn n×d readings with n labels: all of them, or, if one is bad, none.

        `batch` readings go into one Woodbury step (Eq. 10 with n > 1), by NumPy. Left to itself,
        the C file takes them one by one, which is faster, and NumPy 32 at a time.
        """
        rows, labels = as_batch(X, y, self.settings)
        step = batch or (1 if self.native == "compiled" else 32)
        if step == 1:
            for x, label in zip(rows, labels, strict=True):
                self._learn(x, label, None)
            return
        for start in range(0, len(rows), step):
            self._learn_batch(rows[start : start + step], labels[start : start + step])

    def _learn_batch(self, rows: Floats, labels: list[int]) -> None:
        beta, n = self.settings.forgetting, len(rows)
        ages = beta ** np.arange(n - 1, -1, -1)  # what each reading still counts at the end
        roots = np.sqrt(ages)[:, None]
        self._absorb(roots * rows, roots * np.eye(self.settings.classes)[labels], beta**n)
        self._readings += n
        self._evidence = beta**n * self._evidence + float(ages.sum())
        self._halve()

    # -- changes of layout ---------------------------------------------------------------------

    def resplit(self, vanishing: Sequence[int]) -> Self:
        """A learner for another split of the same columns, for sensors nobody expected to die.

        Its readings have the columns named here first, in this order, then the others as before.
        """
        sources = resplit_sources(self.settings.width, vanishing)
        return self.rearrange(sources, len(vanishing))

    def inherit(
        self,
        kept: Sequence[int],
        new: int = 0,
        vanishing: Sequence[int] = (),
        carry: float = 1.0,
    ) -> Self:
        """A learner for the next layout, from what this one knows of the columns that remain.

        The next layout's columns are `kept` (numbers of this learner's columns) followed by
        `new` fresh ones; `vanishing` are numbers in that list, and come first in its readings.
        The survivors' statistics count `carry` times; for the rest, the ridge is centred at W^(s).
        """
        sources = inherit_sources(self.settings.width, kept, new, vanishing)
        return self.rearrange(sources, len(vanishing), carry)

    def rearrange(
        self,
        sources: Sequence[int | None],
        vanishing: int,
        carry: float = 1.0,
        relation: Matrix | None = None,
    ) -> Self:
        """The general change: `sources[i]` is the column that the new column i continues, or None.

        `resplit` and `inherit` are two cases of it; `Layout.change_to` gives the sources by name.
        Where it is known how the new columns follow from the old ones, `relation` says so
        (`handover.Overlap`).
        """
        _check_sources(sources, self.settings.width, vanishing, carry)
        lam, rho = self.settings.lam, self.settings.rho
        known = carried(self._statistics(), sources, carry, lam, rho, relation)
        surviving = len(sources) - vanishing
        return self._made(replace(self.settings, vanishing=vanishing, surviving=surviving), known)

    def distil(self, kept: Sequence[int], everything: Matrix) -> Matrix:
        """W^(s) for these columns, as all readings tell it, whose Gram matrix is `everything`."""
        return distilled(self._statistics(), everything, kept, self.settings.rho)

    def teacher(self) -> Matrix:
        """W̃ with a ridge that few labels need, to teach others: see `handover.teacher`."""
        known = self._statistics()
        return teacher(known, max(self.settings.rho, best_ridge(known)))

    def gram(self) -> Matrix:
        """Σ x̃ x̃ᵀ, d×d."""
        return self._statistics().gram

    def move(
        self, columns: Matrix, weights: Matrix, vanishing: int, bent: Sequence[int] = ()
    ) -> Self:
        """A learner of the same readings in other columns, x′ = T·x: `columns` is T.

        G′ = TGTᵀ and Σx′yᵀ = TΣxyᵀ, so this is what it had learned in those columns, if they really
        are T·x. Of `bent` ones, which are so only about, the ridge is centred at what the weights
        said: W′ = E·W, where E is `weights`. `Layout.move_from` gives all of it by name.
        """
        before, mine = self._statistics(), self.settings
        known = before.moved(columns, weights)
        if bent:
            said = weights @ solve(before, mine.vanishing, mine.lam, mine.rho)[0]
            centre = np.zeros_like(said) if known.centre is None else known.centre
            centre[list(bent)] = said[list(bent)]
            known = replace(known, centre=centre)
        surviving = len(columns) - vanishing
        return self._made(replace(mine, vanishing=vanishing, surviving=surviving), known)

    def with_classes(self, sources: Sequence[int | None]) -> Self:
        """A learner whose class k continues class `sources[k]`, or is new (None): to the bit.

        A class is a column of the sums of x̃yᵀ, and one that was never seen is a column of zeros.
        What was learned of a class that is left out stays in Σx̃x̃ᵀ: as readings of no class.
        """
        saved = self.state()
        saved["settings"]["classes"] = len(sources)
        for name in ("B", "moments", "centre"):
            if name in saved:
                saved[name] = with_columns(saved[name], sources)
        return self.from_state(saved, native=self.native)

    def with_ridge(self, lam: float, rho: float, forgetting: float) -> Self:
        """A learner of the same readings with another λ, ρ and β.

        The sums determine the solution for every λ and ρ, in float64; β is for what comes, and
        alone changes no bit.
        """
        settings = replace(self.settings, lam=lam, rho=rho, forgetting=forgetting)
        if (lam, rho) != (self.settings.lam, self.settings.rho):
            return self._made(settings, self._statistics())
        return self.from_state({**self.state(), "settings": asdict(settings)}, native=self.native)

    def _made(self, settings: Settings, known: Statistics) -> Self:
        learner = type(self).__new__(type(self))
        learner._begin(settings, self.native)
        learner._restore(known)
        learner._halve()
        return learner

    def merge(self, other: Learner | Summary) -> Self:
        """Add another learner's readings to this one's, exactly; returns this learner.

        Both must have the same columns, classes, λ and ρ. The other one is not changed.
        """
        theirs = other if isinstance(other, Summary) else other.summary("float64")
        check_agreement(self.summary("float64"), theirs)
        self._restore(self._statistics() + theirs.statistics())
        self._halve()
        return self

    def summary(self, dtype: str | None = None) -> Summary:
        """The statistics to hand on, in this learner's dtype or in another."""
        known, mine = self._statistics(), self.settings
        packed, moments = known.gram[upper(mine.width)], known.moments
        dtype = dtype or mine.dtype
        return Summary(
            vanishing=mine.vanishing,
            lam=mine.lam,
            rho=mine.rho,
            readings=known.readings,
            evidence=known.evidence,
            gram=packed.astype(dtype),
            moments=moments.astype(dtype),
        )

    # -- saving --------------------------------------------------------------------------------

    @abstractmethod
    def _arrays(self) -> dict[str, Floats]:
        """The arrays that are the state, by name: `nbytes` counts them, `state` saves them."""

    @property
    def nbytes(self) -> int:
        """Bytes of state: the same after the first reading and after the last."""
        return sum(array.nbytes for array in self._arrays().values())

    def state(self) -> dict[str, Any]:
        """Everything, for `from_state`: plain values and copies of arrays, no reading."""
        arrays = {name: array.copy() for name, array in self._arrays().items()}
        counters = {"readings": self._readings, "evidence": self._evidence}
        return {"settings": asdict(self.settings), **counters, **arrays}

    @classmethod
    def from_state(cls, state: dict[str, Any], *, native: str | None = None) -> Self:
        """The learner that `state` was taken from, to the bit."""
        learner = cls.__new__(cls)
        learner._begin(Settings(**state["settings"]), native)
        learner._load({name: value for name, value in state.items() if name != "settings"})
        return learner

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled and copied as its state; elsewhere, computed with what is there."""
        return _revived, (type(self), self.state(), self.native)

    def _load(self, saved: dict[str, Any]) -> None:
        for name, value in saved.items():
            setattr(self, f"_{name}", value.copy() if isinstance(value, np.ndarray) else value)


def with_columns(array: NDArray[Any], sources: Sequence[int | None]) -> NDArray[Any]:
    """An array whose column k is the column `sources[k]` of this one, or zeros.

    >>> print(with_columns(np.array([[1.0, 2.0]]), [1, None]))
    [[2. 0.]]
    """
    columns = [len(array[0]) if source is None else source for source in sources]
    return np.ascontiguousarray(np.pad(array, ((0, 0), (0, 1)))[:, columns])


def _revived(cls: type[OnePassLearner], state: dict[str, Any], native: str) -> OnePassLearner:
    return cls.from_state(state, native=native if native in available else None)


def _nothing(settings: Settings) -> Statistics:
    d, c = settings.width, settings.classes
    return Statistics(np.zeros((d, d)), np.zeros((d, c)), 0, 0.0)


# -- which column continues which: an entry for each column of the next learner, None for a new one


def resplit_sources(width: int, vanishing: Sequence[int]) -> list[int | None]:
    """The same columns with these first.

    >>> resplit_sources(5, vanishing=[3, 1])
    [3, 1, 0, 2, 4]
    """
    return _first(list(range(width)), vanishing)


def inherit_sources(
    width: int, kept: Sequence[int], new: int, vanishing: Sequence[int]
) -> list[int | None]:
    """The kept columns and then the new ones, those at the places in `vanishing` first.

    >>> inherit_sources(5, kept=[0, 2, 4], new=1, vanishing=[2])
    [4, 0, 2, None]
    """
    if new < 0:
        raise LayoutError(f"new must be at least 0, got {new}")
    _check_columns("kept", kept, width)
    return _first([*kept, *[None] * new], vanishing)


def _check_sources(sources: Sequence[int | None], width: int, vanishing: int, carry: float) -> None:
    """Refuse a change that names a column twice or not at all, or carries more than there is."""
    _check_columns("sources", [source for source in sources if source is not None], width)
    if not 0 <= vanishing < len(sources):
        raise LayoutError(
            f"vanishing must be 0..{len(sources) - 1} of {len(sources)} columns "
            f"(one has to survive), got {vanishing}"
        )
    if not 0 <= carry <= 1:
        raise LayoutError(f"carry must be 0..1, got {carry}")


def _first(columns: list[int | None], chosen: Sequence[int]) -> list[int | None]:
    _check_columns("vanishing", chosen, len(columns))
    rest = [place for place in range(len(columns)) if place not in set(chosen)]
    return [columns[place] for place in [*chosen, *rest]]


def _check_columns(name: str, columns: Sequence[int], width: int) -> None:
    for column in columns:
        if not 0 <= column < width:
            raise LayoutError(f"{name}: column {column} must be 0..{width - 1}")
    if len(set(columns)) != len(columns):
        raise LayoutError(f"{name}: a column is named twice in {list(columns)}")
