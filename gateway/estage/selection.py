"""Which form of the E-stage to push: repeated cross-validation, and the simpler one when in doubt.

1. Every candidate is fitted on the same folds, repeated with other seeds; what counts is whether it
   is right on instances it was neither fitted nor tuned on.
2. The most accurate candidate leads. A simpler one is taken instead when it is behind by no more
   than one standard error of the difference, instance by instance (copies of a row count as one);
   the blend below by 1.5.
3. Simplest is the C-stage: continued on the batch and blended with OPIDe, where the survivors'
   columns are given (the same estimate from more readings needs no evidence for itself, only none
   against it); or as it is, which has nothing to push; then the linear forms, all of them one
   matrix of the same size, so the most accurate of them; then kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .batch import Batch, Floats, Ints, Survivors, stratified_folds
from .blend import Blend
from .kernel import KernelOpid
from .landmark import COMPACT
from .models import Model, z_alone
from .opid import Opid
from .opide import Opide
from .residual import Residual
from .tuning import Candidate, HeldOut, held_out, honest_scores
from .update import Update

FOLDS, REPEATS = 5, 4
LINEAR: tuple[Candidate, ...] = (Blend(), Update(), Residual(), Opid(), Opid("printed"), Opide())
ALL: tuple[Candidate, ...] = (*LINEAR, KernelOpid())
TIERS = {"blend": 0, "z": 1, "kernel": 3, COMPACT: 3}
"""How simple: 0 and 1 the C-stage, continued or as it is, 2 one matrix, 3 a kernel."""
ONE_MATRIX = 2
PATIENCE = {"blend": 1.5}
"""How many standard errors a simpler candidate may be behind, where it is not one. The blend uses
the batch already, and is left for luck only; Z would leave a good new sensor unused."""
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
    """0: the C-stage continued, 1: Z alone, 2: one matrix, 3: a kernel."""


@dataclass(frozen=True)
class BestModel:
    """The chosen model, what it was chosen from, and why."""

    model: Model
    table: tuple[Row, ...]
    why: str
    hits: Floats
    """n: the share of repeats in which the chosen form was right on each instance while it was held
    out; 0 or 1 for Z, which learns nothing. A later fit is compared with this one on them."""

    @property
    def chosen(self) -> str:
        """The candidate's name."""
        return self.model.name

    def scores(self, Z: ArrayLike, Xa: ArrayLike, Xs: ArrayLike | None = None) -> Floats:
        """n×c scores of the chosen model; Xs is needed where `fit_best` was given the survivors."""
        return self.model.scores(Z, Xa, Xs)


def fit_best(
    Z: ArrayLike,
    Xa: ArrayLike,
    y: ArrayLike,
    classes: int,
    *,
    survivors: Survivors | None = None,
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
    batch = Batch.of(Z, Xa, y, classes, survivors)
    fallback = z_alone(classes, batch.new)
    right = {"z": np.asarray(batch.Z.argmax(1) == batch.y, float)}
    obstacle = too_little(batch)
    if obstacle:
        return BestModel(fallback, (), f"z, because {obstacle}.", right["z"])
    fitting = {candidate.name: candidate for candidate in candidates if suits(candidate, batch)}
    splits = splits_of(batch, seed, folds, repeats)
    found = {name: held_out(candidate, batch, splits) for name, candidate in fitting.items()}
    for name, candidate in fitting.items():
        right[name] = hits_of(candidate, found[name], batch.y)
    table = tabulate(right, batch)
    row, why = simplest(table)
    model: Model = fallback
    if row.name in fitting:
        mixture = fitting[row.name].choose(found[row.name].scores, batch.y)
        model = found[row.name].whole.mixed(mixture)
    return BestModel(model, table, why, right[row.name])


def splits_of(batch: Batch, seed: int, folds: int, repeats: int) -> list[list[Ints]]:
    """The held-out rows of every fold of every repeat."""
    return [stratified_folds(batch, folds, seed + repeat) for repeat in range(repeats)]


def hits_on(
    candidate: Candidate, batch: Batch, seed: int, folds: int = FOLDS, repeats: int = REPEATS
) -> Floats:
    """The hits of one more candidate on the folds that `fit_best` made with this seed."""
    found = held_out(candidate, batch, splits_of(batch, seed, folds, repeats))
    return hits_of(candidate, found, batch.y)


def hits_of(candidate: Candidate, found: HeldOut, y: Ints) -> Floats:
    """For each instance the share of repeats in which the candidate was right on it, held out."""
    honest = honest_scores(candidate, found, y)
    return np.asarray(np.mean(honest.argmax(-1) == y, axis=0))


def suits(candidate: Candidate, batch: Batch) -> bool:
    """What can be fitted to this batch, and is not part of another candidate.

    Updates and blends need the survivors, and a blend contains OPIDe. A kernel cannot keep the
    C-stage's score for a class that nobody labelled.
    """
    if isinstance(candidate, Update | Blend):
        return batch.survivors is not None
    if isinstance(candidate, Opide):
        return batch.survivors is None
    is_kernel = isinstance(candidate, KernelOpid)
    return not is_kernel or len(np.unique(batch.y)) == batch.classes


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
    leader = max(right, key=lambda name: (right[name].mean(), -TIERS.get(name, ONE_MATRIX)))
    rows = [
        Row(
            name,
            float(hits.mean()),
            float(np.mean(right[leader] - hits)),
            standard_error(right[leader] - hits, batch),
            TIERS.get(name, ONE_MATRIX),
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
    """The first row, in the table's order, that is close enough to the leader."""
    leader = min(table, key=lambda row: (row.behind, row.tier))
    row = next(
        row for row in table if row.behind <= PATIENCE.get(row.name, 1.0) * row.error + 1e-12
    )
    share = f"{100 * row.accuracy:.1f} % of held-out instances"
    if row.name == leader.name:
        ending = "nothing is better" if row.tier < ONE_MATRIX else "nothing as simple comes close"
        return row, f"{row.name} is right in {share}, and {ending}."
    return row, (
        f"{row.name} is right in {share}; {leader.name} leads by {100 * row.behind:.1f} ± "
        f"{100 * row.error:.1f} points, not enough to be worth more than the simpler one."
    )
