"""Which form of the E-stage to push: repeated cross-validation, and the simpler one when in doubt.

1. Every candidate is fitted on the same folds, repeated with other seeds; what counts is whether it
   is right on instances it was neither fitted nor tuned on.
2. The most accurate candidate leads. A simpler one is taken instead when it is behind by no more
   than one standard error of the difference, instance by instance (copies of a row count as one).
3. Simplest is Z alone, which has nothing to push; then the linear forms, all of them one matrix of
   the same size, so the most accurate of them; then kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .batch import Batch, Floats, stratified_folds
from .kernel import KernelOpid
from .models import Model, z_alone
from .opid import Opid
from .opide import Opide
from .residual import Residual
from .tuning import Candidate, held_out, honest_scores

FOLDS, REPEATS = 5, 4
LINEAR: tuple[Candidate, ...] = (Residual(), Opid(), Opid("printed"), Opide())
ALL: tuple[Candidate, ...] = (*LINEAR, KernelOpid())
KERNELS = frozenset({"kernel"})
LABELLED_MIN = 6
"""Fewer different instances than this cannot tell candidates apart."""


@dataclass(frozen=True)
class Row:
    """One line of the table of candidates."""

    name: str
    accuracy: float
    """On held-out instances, mean of the repeats."""
    behind: float
    """How far behind the most accurate candidate."""
    error: float
    """One standard error of that difference."""
    tier: int
    """0: Z alone, 1: one matrix, 2: a kernel."""


@dataclass(frozen=True)
class BestModel:
    """The chosen model, what it was chosen from, and why."""

    model: Model
    table: tuple[Row, ...]
    why: str

    @property
    def chosen(self) -> str:
        """The candidate's name."""
        return self.model.name

    def scores(self, Z: ArrayLike, Xa: ArrayLike) -> Floats:
        """n×c scores of the chosen model."""
        return self.model.scores(Z, Xa)


def fit_best(
    Z: ArrayLike,
    Xa: ArrayLike,
    y: ArrayLike,
    classes: int,
    *,
    seed: int = 0,
    candidates: Sequence[Candidate] = ALL,
    folds: int = FOLDS,
    repeats: int = REPEATS,
) -> BestModel:
    """The E-stage model to push for this batch. `candidates=LINEAR` where nodes want one matrix.

    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 40)
    >>> noise = rng.normal(size=(40, 2))
    >>> best = fit_best(np.eye(2)[y] + noise, noise, y, classes=2, candidates=LINEAR)
    >>> best.chosen in ("residual", "opid", "opid printed", "opide")   # Xa tells the noise
    True
    >>> print(fit_best(np.eye(2)[y], noise, y, classes=2, candidates=LINEAR).why)
    z is right in 100.0 % of held-out instances, and nothing is better.
    """
    batch = Batch.of(Z, Xa, y, classes)
    fallback = z_alone(classes, batch.new)
    obstacle = too_little(batch)
    if obstacle:
        return BestModel(fallback, (), f"z, because {obstacle}.")
    candidates = [candidate for candidate in candidates if suits(candidate, batch)]
    splits = [stratified_folds(batch, folds, seed + repeat) for repeat in range(repeats)]
    found = {candidate.name: held_out(candidate, batch, splits) for candidate in candidates}
    right = {"z": np.asarray(batch.Z.argmax(1) == batch.y, float)}
    for candidate in candidates:
        honest = honest_scores(candidate, found[candidate.name], batch.y)
        right[candidate.name] = np.mean(honest.argmax(-1) == batch.y, axis=0)
    table = tabulate(right, batch)
    row, why = simplest(table)
    for candidate in candidates:
        if candidate.name == row.name:
            outcome = found[row.name]
            mixture = candidate.choose(outcome.scores, batch.y)
            return BestModel(outcome.whole.mixed(mixture), table, why)
    return BestModel(fallback, table, why)


def suits(candidate: Candidate, batch: Batch) -> bool:
    """A kernel has no way to keep the C-stage's score for a class that nobody labelled."""
    return candidate.name not in KERNELS or len(np.unique(batch.y)) == batch.classes


def too_little(batch: Batch) -> str:
    """Why the batch cannot teach anything, or nothing."""
    different, labels = len(np.unique(batch.groups)), len(np.unique(batch.y))
    if different < LABELLED_MIN:
        return f"{different} different labelled instances are fewer than {LABELLED_MIN}"
    if labels < 2:
        return "all instances have the same label"
    if batch.new == 0 and np.ptp(batch.Z, axis=0).max() == 0:
        return "every column is constant"
    return ""


def tabulate(right: dict[str, Floats], batch: Batch) -> tuple[Row, ...]:
    """The candidates, simplest tier first and then the most accurate first."""
    leader = max(right, key=lambda name: (right[name].mean(), name == "z"))
    rows = [
        Row(
            name,
            float(hits.mean()),
            float(np.mean(right[leader] - hits)),
            standard_error(right[leader] - hits, batch),
            0 if name == "z" else 2 if name in KERNELS else 1,
        )
        for name, hits in right.items()
    ]
    return tuple(sorted(rows, key=lambda row: (row.tier, -row.accuracy)))


def standard_error(difference: Floats, batch: Batch) -> float:
    """Of the mean, where copies of a row are one observation with more weight."""
    off = np.bincount(batch.groups, weights=difference - difference.mean())
    count = len(off)
    return float(np.sqrt(np.sum(off * off) * count / max(1, count - 1)) / batch.n)


def simplest(table: Sequence[Row]) -> tuple[Row, str]:
    """The first row, in the table's order, that is within one standard error of the leader."""
    leader = min(table, key=lambda row: (row.behind, row.tier))
    row = next(row for row in table if row.behind <= row.error + 1e-12)
    share = f"{100 * row.accuracy:.1f} % of held-out instances"
    if row.name == leader.name:
        ending = "nothing is better" if row.tier == 0 else "nothing as simple comes close"
        return row, f"{row.name} is right in {share}, and {ending}."
    return row, (
        f"{row.name} is right in {share}; {leader.name} leads by {100 * row.behind:.1f} ± "
        f"{100 * row.error:.1f} points, not enough to be worth more than the simpler one."
    )
