"""The learner that is smallest and cheapest between answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from edge_opid.learner.base import OnePassLearner, resplit_sources
from edge_opid.learner.checks import as_label, as_values, beyond
from edge_opid.learner.contract import Scores
from edge_opid.learner.settings import Settings
from edge_opid.learner.statistics import Statistics, solve, system, upper_root
from edge_opid.native import numpy_twin
from edge_opid.native.packing import Floats, pack_root, unpack_root
from edge_opid.native.rescue import solved


class GramLearner(OnePassLearner):
    """One-pass learner that keeps the Gram matrix and solves when asked (the paper's Eq. 7).

    G = Σx̃x̃ᵀ and Σx̃yᵀ determine the solution of Eq. 4 for every λ, every ρ and every split, so
    all three may still be chosen when `weights` is called. In float32 the sum G itself loses the
    small directions (60 % wrong labels after a million readings at condition 1e6), so it is kept
    as its factor, G = Lᵀ·diag(w)·L, in exactly the bytes G would take; this one loses nothing.

    **Cost**: 2·d·(d+1) + 4·d·c bytes, d² multiply-adds a reading, and one D×D solve in float64 for
    the first prediction after a reading (its weights are kept until the next reading; they are
    not part of the state). Where predictions are wanted at every reading, use `WoodburyLearner`.

    Parameters are those of `WoodburyLearner`. Under forgetting the ridge stays ρ.

    >>> from edge_opid import GramLearner
    >>> learner = GramLearner(vanishing=1, surviving=2, classes=2)
    >>> for x, y in [([1, 2, 1], 1), ([-1, 0, 1], 0), ([2, 1, 1], 1), ([-2, -1, 1], 0)]:
    ...     learner.learn_one(x, y)
    >>> print(learner.predict_one([1.5, 0.5, 1.0]).round(2))
    [0.15 0.59]
    >>> W_all, W_survivors = learner.weights(rho=0.1, vanishing=[0, 1])  # both chosen now
    >>> W_survivors.shape, learner.nbytes
    ((1, 2), 48)
    """

    _packed: Floats
    """G's factor, packed (native/packing.py): d(d+1)/2 numbers, updated in place."""
    _moments: Floats
    """Σ x̃ yᵀ, d×c."""
    _held: Any = None
    _solved: tuple[Floats, Floats] | None = None
    """The weights of the last solve, until the next reading."""

    @property
    def B(self) -> Floats:
        """B of Eq. 4, D×c."""
        mine = self.settings
        B = system(self._statistics(), mine.vanishing, mine.lam, mine.rho)[1]
        return B.astype(mine.kind)

    def inverse(self) -> Floats:
        """A⁻¹ of Eq. 4, D×D."""
        mine = self.settings
        A = system(self._statistics(), mine.vanishing, mine.lam, mine.rho)[0]
        return solved(A, np.eye(len(A))).astype(mine.kind)

    def weights(
        self,
        *,
        lam: float | None = None,
        rho: float | None = None,
        vanishing: Sequence[int] | None = None,
    ) -> tuple[Floats, Floats]:
        """W̃ (d×c) and W^(s) (survivors×c), for the settings' λ, ρ and split or for others.

        With `vanishing`, the rows of W̃ are in the order `resplit` gives: these columns first.
        """
        if (lam, rho, vanishing) == (None, None, None):
            if self._solved is None:
                mine = self.settings
                self._solved = self._solve(self._statistics(), mine.vanishing, mine.lam, mine.rho)
            return self._solved[0].copy(), self._solved[1].copy()
        chosen = Settings(
            vanishing=self.vanishing if vanishing is None else len(vanishing),
            surviving=self.settings.width
            - (self.vanishing if vanishing is None else len(vanishing)),
            classes=self.settings.classes,
            lam=self.settings.lam if lam is None else lam,
            rho=self.settings.rho if rho is None else rho,
        )
        known = self._statistics()
        if vanishing is not None:
            order = resplit_sources(self.settings.width, vanishing)
            known = known.ordered([column for column in order if column is not None])
        return self._solve(known, chosen.vanishing, chosen.lam, chosen.rho)

    def _solve(
        self, known: Statistics, vanishing: int, lam: float, rho: float
    ) -> tuple[Floats, Floats]:
        W_all, W_survivors = solve(known, vanishing, lam, rho)
        return W_all.astype(self.settings.kind), W_survivors.astype(self.settings.kind)

    def predict_one(self, x: ArrayLike) -> Floats:
        """The c scores of W̃ for d values; the largest is the class."""
        return self._scores(as_values(x, self._shape), which=0)

    def predict_survivors(self, x_s: ArrayLike) -> Floats:
        """The c scores of W^(s) for the surviving values alone."""
        return self._scores(as_values(x_s, (self.settings.surviving,)), which=1)

    def _scores(self, x: Floats, which: int) -> Floats:
        bad = numpy_twin.first_beyond(x, self.settings.limit)
        if bad >= 0:
            raise beyond(x, bad, self.settings.limit)
        scores = x.astype(self.settings.kind) @ self.weights()[which]
        return np.asarray(scores, self.settings.kind)

    def score_then_learn(self, x: ArrayLike, y: int) -> Scores:
        """Learn one reading, and return what was predicted for it before: one solve each."""
        values = as_values(x, self._shape)
        scores = Scores(
            self.predict_one(values), self.predict_survivors(values[self.vanishing :].copy())
        )
        self._learn(values, y, None)
        return scores

    def _learn(self, x: ArrayLike, y: int, scores: Floats | None) -> None:  # noqa: ARG002
        values, label = as_values(x, self._shape), as_label(y, self.settings.classes)
        bad = self._steps.learn_gram(self.held, values, label)
        if bad >= 0:
            raise beyond(values, bad, self.settings.limit)
        self.count_learned()

    @property
    def held(self) -> Any:
        """Arrays and settings as the steps take them: see `WoodburyLearner.held`."""
        if self._held is None:
            mine = self.settings
            work = np.zeros(mine.width, mine.kind)
            self._held = self._steps.hold_gram(
                self._packed, self._moments, work, mine.forgetting, mine.limit
            )
        return self._held

    def count_learned(self) -> None:
        """One more reading is in the sums: whoever put it there by `held` says so."""
        self._solved = None
        self._count_reading()

    def _subtract(self, X: Floats, moments: Floats) -> None:
        known = self._statistics()
        left = known.gram - X.T @ X
        self._packed = pack_root(upper_root(left), self.settings.kind)
        self._held = None
        self._moments -= moments.astype(self.settings.kind)
        self._solved = None

    def _absorb(self, X: Floats, Y: Floats, decay: float) -> None:
        numpy_twin.absorb_gram(self._packed, X, decay)
        self._moments *= self.settings.kind.type(decay)
        self._moments += X.T @ Y
        self._solved = None

    def _fade(self, decay: float) -> None:
        numpy_twin.absorb_gram(self._packed, np.zeros((0, self.settings.width)), decay)
        self._moments *= self.settings.kind.type(decay)
        self._solved = None

    def _statistics(self) -> Statistics:
        root = unpack_root(self._packed, self.settings.width)
        moments = self._moments.astype(np.float64)
        centre = None if self._centre is None else self._centre.astype(np.float64)
        gram = root.T @ root if root.any() else root
        return Statistics(gram, moments, self._readings, self._evidence, centre)

    def _restore(self, known: Statistics) -> None:
        kind = self.settings.kind
        self._packed = pack_root(upper_root(known.gram), kind)
        self._moments = known.moments.astype(kind)
        self._centre = None if known.centre is None else known.centre.astype(kind)
        self._readings, self._evidence = known.readings, known.evidence
        self._solved = self._held = None

    def _load(self, saved: dict[str, Any]) -> None:
        super()._load(saved)
        self._held = None

    def _arrays(self) -> dict[str, Floats]:
        arrays = {"packed": self._packed, "moments": self._moments}
        return arrays if self._centre is None else {**arrays, "centre": self._centre}

    @staticmethod
    def bytes_for(settings: Settings) -> int:
        """What a learner of this shape would take, before it is made."""
        d = settings.width
        return settings.kind.itemsize * (d * (d + 1) // 2 + d * settings.classes)
