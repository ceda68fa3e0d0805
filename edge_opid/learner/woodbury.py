"""The learner that can answer at every reading."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edge_opid.learner.base import OnePassLearner
from edge_opid.learner.checks import as_label, as_values, beyond
from edge_opid.learner.contract import Scores
from edge_opid.learner.settings import Settings
from edge_opid.learner.statistics import Statistics, positive_part, system
from edge_opid.native import numpy_twin
from edge_opid.native.packing import Floats, pack, packed_size, padded, unpack
from edge_opid.native.rescue import definite_root, inverse, is_diagonal, solved


class WoodburyLearner(OnePassLearner):
    """One-pass learner that keeps A⁻¹ and B, and is right after every reading (Proposition 2).

    It learns two classifiers together (Eq. 2): W̃ on all columns and W^(s) on those that will
    survive, tied by λ, with ridge ρ. Their weights are A⁻¹B (Eq. 4); each reading is one Woodbury
    step on A⁻¹. As printed (Eq. 10) that step diverges in float32; here A⁻¹ is kept as its factor,
    A⁻¹ = S Sᵀ with S = U·diag(√v), U unit upper triangular in float32 and v > 0, so that it stays
    positive definite whatever rounding does (docs/decisions/0001). Use it where predictions are
    wanted all the time; `GramLearner` is smaller and cheaper where they are wanted seldom.

    **Cost**: 4·(D²/2 + 16·D) + 24·D + 4·D·c bytes, where d columns make D = d + survivors (D = d
    when none is to vanish); about 5·D² float operations a reading.

    `vanishing`, `surviving`: how many columns will go and stay; readings have the vanishing ones
    first. `classes`: labels are 0 … classes − 1. `lam`, `rho`: λ and ρ of Eq. 2. `forgetting`: β,
    what an old reading counts for after each new one (the ridge fades with the readings, but no
    direction's variance rises above 1/ρ: a stuck sensor cannot overflow the state). `limit`: the
    largest |value| learned. `dtype`: float32, or float64 for an oracle. `native`: "compiled" or
    "numpy", by default what `edge_opid.native.name` says.

    >>> from edge_opid import WoodburyLearner
    >>> learner = WoodburyLearner(vanishing=1, surviving=2, classes=2)
    >>> for x, y in [([1, 2, 1], 1), ([-1, 0, 1], 0), ([2, 1, 1], 1), ([-2, -1, 1], 0)]:
    ...     learner.learn_one(x, y)
    >>> print(learner.predict_one([1.5, 0.5, 1.0]).round(2))
    [0.15 0.59]
    >>> print(learner.predict_survivors([0.5, 1.0]).round(2))  # the first sensor has died
    [0.38 0.43]
    >>> learner.readings, learner.nbytes
    (4, 368)
    """

    _columns: Floats
    """U, packed (native/packing.py): about D²/2 numbers, updated in place by every reading."""
    _variances: NDArray[np.float64]
    """v, D positive float64: the scale of A⁻¹, which shrinks as 1/readings and must not stall."""
    _B: Floats
    """B of Eq. 4, D×c: Σ [x̃; x^(s)] yᵀ, plus the ridge times its centre."""
    _work: Floats
    """The C file's working space, 4·padded(D): nothing in it outlives a call."""
    _held: Any = None
    _ridge: float
    """What is left of ρ in A after forgetting."""

    @property
    def B(self) -> Floats:
        """B of Eq. 4, D×c: a copy."""
        return self._B.copy()

    def inverse(self) -> Floats:
        """A⁻¹ of Eq. 4, D×D."""
        U = unpack(self._columns, self.settings.size)
        return np.asarray((U * self._variances) @ U.T, self.settings.kind)

    def weights(self) -> tuple[Floats, Floats]:
        """W̃ (d×c) and W^(s) (survivors×c), as they are now."""
        W = numpy_twin.times(self._columns, self._variances, self._B).astype(self.settings.kind)
        d = self.settings.width
        return W[:d], W[d:] if self.vanishing else W

    def predict_one(self, x: ArrayLike) -> Floats:
        """The c scores of W̃ for d values; the largest is the class."""
        return self._predict(as_values(x, self._shape), survivors=False)

    def predict_survivors(self, x_s: ArrayLike) -> Floats:
        """The c scores of W^(s) for the surviving values alone."""
        return self._predict(as_values(x_s, (self.settings.surviving,)), survivors=True)

    def _predict(self, x: Floats, survivors: bool) -> Floats:
        scores = np.empty(self.settings.classes)
        bad = self._steps.predict(self.held, x, survivors, scores)
        if bad >= 0:
            raise beyond(x, bad, self.settings.limit)
        return scores.astype(self._kind)

    @property
    def held(self) -> Any:
        """Arrays and settings as the steps take them; made anew when the arrays are others.

        It belongs to this learner, in this process: it is neither saved nor copied.
        """
        if self._held is None:
            mine = self.settings
            self._held = self._steps.hold_ridge(
                self._columns,
                self._variances,
                self._B,
                self._work,
                mine.vanishing,
                mine.surviving,
                mine.lam,
                mine.forgetting,
                1 / mine.rho,
                mine.limit,
            )
        return self._held

    def score_then_learn(self, x: ArrayLike, y: int) -> Scores:
        """Learn one reading, and return what was predicted for it before, at no extra pass.

        The step computes A⁻¹ times the reading anyway; times B, that is both predictions.
        """
        scores = np.empty((2, self.settings.classes))
        self._learn(x, y, scores)
        found = scores.astype(self._kind)
        return Scores(found[0], found[1])

    def _learn(self, x: ArrayLike, y: int, scores: Floats | None) -> None:
        values, label = as_values(x, self._shape), as_label(y, self.settings.classes)
        bad = self._steps.learn(self.held, values, label, scores)
        if bad >= 0:
            raise beyond(values, bad, self.settings.limit)
        self.count_learned()

    def count_learned(self) -> None:
        """One more reading is in A⁻¹ and B: whoever put it there by `held` says so."""
        self._ridge *= self.settings.forgetting
        self._count_reading()

    def _subtract(self, X: Floats, moments: Floats) -> None:
        """A − rowsᵀM⁻¹rows, on the factor: S′ = S·R⁻¹, where RᵀR = I − F·M⁻¹Fᵀ, F = Sᵀrowsᵀ.

        Whatever else is in A stays as it is, what is left of the ridge, too.
        """
        mine, together = self.settings, self.settings.vanishing == 0
        rows = numpy_twin.stacked(X, mine.vanishing, mine.size)[:, : mine.size]
        S = unpack(self._columns, mine.size) * np.sqrt(self._variances)
        F = S.T @ rows.T
        left = np.eye(mine.size) - F @ solved(numpy_twin.inner(mine.lam, len(X), together), F.T)
        self._keep_root(solved(definite_root(left).T, S.T).T)
        self._B -= self._stacked_moments(moments).astype(mine.kind)

    def _absorb(self, X: Floats, Y: Floats, decay: float) -> None:
        mine = self.settings
        self._fade(decay)
        rows = numpy_twin.stacked(X.astype(mine.kind), mine.vanishing, mine.size)
        n, together = len(X), mine.vanishing == 0
        M = numpy_twin.inner(mine.lam, n, together)
        numpy_twin.absorb(self._columns, self._variances, rows, M)
        self._B += self._stacked_moments(X.T @ Y)

    def _stacked_moments(self, moments: Floats) -> Floats:
        """Σx̃yᵀ as it stands in B: where D > d, that of the survivors follows."""
        mine = self.settings
        both = [moments, moments[mine.vanishing :]]
        return np.vstack(both[: 1 if mine.vanishing == 0 else 2])

    def _fade(self, decay: float) -> None:
        numpy_twin.fade(self._variances, self._B, decay, 1 / self.settings.rho)
        self._ridge *= decay

    def _statistics(self) -> Statistics:
        """G from the inverse of the factor's leading block, which alone determines A's (Eq. 5)."""
        mine, d = self.settings, self.settings.width
        U = unpack(self._columns, mine.size)[:d, :d]
        root, variances = inverse(U), self._variances[:d]
        A = np.diag(1 / variances) if is_diagonal(U) else (root.T / variances) @ root
        weight = 1 + mine.lam if mine.vanishing else 1.0
        gram = (A - self._ridge * np.eye(d)) / weight
        if _least_eigenvalue(U, variances, root, A) < 2 * self._ridge:
            gram = positive_part(gram)
        moments = self._B[:d].astype(np.float64)
        centre = None if self._centre is None else self._centre.astype(np.float64)
        if centre is not None:
            moments -= self._ridge * centre
        return Statistics(gram, moments, self._readings, self._evidence, centre)

    def _restore(self, known: Statistics) -> None:
        mine = self.settings
        A, B = system(known, mine.vanishing, mine.lam, mine.rho)
        centre = None if known.centre is None else known.centre.astype(mine.kind)
        self._keep_root(inverse(definite_root(A)))
        self._load(
            {
                "B": B.astype(mine.kind),
                "ridge": mine.rho,
                "centre": centre,
                "readings": known.readings,
                "evidence": known.evidence,
            }
        )

    def _keep_root(self, S: Floats) -> None:
        """A⁻¹ is S·Sᵀ from now on, S being upper triangular."""
        diagonal = np.diag(S).astype(np.float64)
        self._columns, self._variances = pack(S / diagonal, self.settings.kind), diagonal**2
        self._held = None

    def _load(self, saved: dict[str, Any]) -> None:
        super()._load(saved)
        self._work = np.zeros(4 * padded(self.settings.size), self.settings.kind)
        self._held = None

    def _arrays(self) -> dict[str, Floats]:
        arrays = {"columns": self._columns, "variances": self._variances, "B": self._B}
        return arrays if self._centre is None else {**arrays, "centre": self._centre}

    @property
    def nbytes(self) -> int:
        """Bytes of state and working space: the same after the first reading and the last."""
        return super().nbytes + self._work.nbytes

    def state(self) -> dict[str, Any]:
        """Everything, for `from_state`: plain values and copies of arrays, no reading."""
        return {**super().state(), "ridge": self._ridge}

    @staticmethod
    def bytes_for(settings: Settings) -> int:
        """What a learner of this shape would take, before it is made."""
        size = settings.size
        numbers = packed_size(size) + size * settings.classes + 4 * padded(size)
        return settings.kind.itemsize * numbers + 8 * size


def _least_eigenvalue(U: Floats, v: Floats, root: Floats, A: Floats) -> float:
    """No eigenvalue of A = (U·diag(v)·Uᵀ)⁻¹, as it was computed from `root` = U⁻¹, is below this.

    ‖A⁻¹‖ is at most max(v)·‖U‖², and what rounding takes away is bounded, too. Where readings have
    spoken in every direction that is far above the ridge, and nobody need look at the eigenvalues
    themselves, which costs 4 times the rest of it and 1.1 MB of LAPACK's code.
    """
    squares = [float((each * each).sum()) for each in (U, root, A)]
    rounding = len(U) * float(np.finfo(np.float64).eps) * math.prod(squares) ** 0.5
    return 1 / (float(v.max()) * squares[0]) - 2 * rounding
