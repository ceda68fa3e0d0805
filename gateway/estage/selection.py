"""What to push for a batch: a mixture of linear forms, or a kernel where no matrix comes close.

1. The mixture (`estage.mixture`) gives each form the share that held-out instances surely speak
   for, and is one matrix. Where they speak for nothing, it is Z: the C-stage as it is.
2. Kernels have no place in a mixture, since they do not fold. One is taken only if it is right on
   held-out instances more often than the mixture, by more than 1.5 standard errors of the
   difference, instance by instance (copies of a row count as one).
3. Held out means: neither fitted nor tuned nor mixed on that instance. Folds are repeated with
   other seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .batch import Batch, Floats, Ints, Survivors, standard_errors, stratified_folds
from .kernel import KernelOpid
from .landmark import COMPACT
from .mixture import Mixture
from .models import Model, z_alone
from .tuning import Candidate, HeldOut, held_out, honest_scores

FOLDS, REPEATS = 5, 2
LINEAR: tuple[Candidate, ...] = (Mixture(),)
ALL: tuple[Candidate, ...] = (*LINEAR, KernelOpid())
TIERS = {"z": 0, "mixture": 1, "kernel": 2, COMPACT: 2}
"""How simple: 0 the C-stage as it is, 1 one matrix, 2 a kernel."""
KERNEL_TIER = 2
PATIENCE = 1.5
"""How many standard errors one matrix may be behind a kernel."""
LABELLED_MIN = 6
"""Fewer different instances than this cannot teach anything."""


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

    With `survivors` the batch's labels teach the survivors' weights, too.

    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 40)
    >>> noise = rng.normal(size=(40, 2))
    >>> best = fit_best(np.eye(2)[y] + noise, noise, y, classes=2, candidates=LINEAR)
    >>> print(best.why)                                                  # Xa tells the noise
    mixture is surely less off than z; it is right in 100.0 % of held-out instances, z in 87.5 %.
    >>> print(fit_best(np.eye(2)[y], noise, y, classes=2, candidates=LINEAR).why)
    z is right in 100.0 % of held-out instances, and nothing is surely better.
    """
    batch = Batch.of(Z, Xa, y, classes, survivors)
    right = {"z": np.asarray(batch.Z.argmax(1) == batch.y, float)}
    models: dict[str, Model] = {"z": z_alone(classes, batch.new)}
    obstacle = too_little(batch)
    if obstacle:
        return BestModel(models["z"], (), f"z, because {obstacle}.", right["z"])
    splits = splits_of(batch, seed, folds, repeats)
    for candidate in candidates:
        if suits(candidate, batch):
            found = held_out(candidate, batch, splits)
            models[candidate.name] = found.whole.mixed(candidate.choose(found.scores, batch))
            right[candidate.name] = hits_of(candidate, found, batch)
    table = tabulate(right, batch)
    name, why = taken(table, learned=adds_something(models))
    return BestModel(models[name], table, why, right[name])


def adds_something(models: dict[str, Model]) -> bool:
    """Whether the mixture is more than Z with another scale."""
    shares = models["mixture"].details if "mixture" in models else {}
    return any(share > 0 for form, share in shares.items() if form != "z")


def splits_of(batch: Batch, seed: int, folds: int, repeats: int) -> list[list[Ints]]:
    """The held-out rows of every fold of every repeat."""
    return [stratified_folds(batch, folds, seed + repeat) for repeat in range(repeats)]


def hits_on(
    candidate: Candidate, batch: Batch, seed: int, folds: int = FOLDS, repeats: int = REPEATS
) -> Floats:
    """The hits of one more candidate on the folds that `fit_best` made with this seed."""
    found = held_out(candidate, batch, splits_of(batch, seed, folds, repeats))
    return hits_of(candidate, found, batch)


def hits_of(candidate: Candidate, found: HeldOut, batch: Batch) -> Floats:
    """For each instance the share of repeats in which the candidate was right on it, held out."""
    honest = honest_scores(candidate, found, batch)
    return np.asarray(np.mean(honest.argmax(-1) == batch.y, axis=0))


def suits(candidate: Candidate, batch: Batch) -> bool:
    """A kernel cannot keep the C-stage's score for a class that nobody labelled."""
    return not isinstance(candidate, KernelOpid) or len(np.unique(batch.y)) == batch.classes


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
    """The candidates, the simplest first."""
    leader = max(right, key=lambda name: (right[name].mean(), -TIERS[name]))
    rows = [
        Row(
            name,
            float(hits.mean()),
            float(np.mean(right[leader] - hits)),
            float(standard_errors(right[leader] - hits, batch)),
            TIERS[name],
        )
        for name, hits in right.items()
    ]
    return tuple(sorted(rows, key=lambda row: (row.tier, -row.accuracy)))


def taken(table: Sequence[Row], learned: bool) -> tuple[str, str]:
    """The chosen row's name, and why: rules 1 and 2."""
    rows = {row.name: row for row in table}
    linear = rows["mixture" if learned else "z"]
    leader = min(table, key=lambda row: (row.behind, row.tier))
    share = f"right in {100 * linear.accuracy:.1f} % of held-out instances"
    if leader.tier < KERNEL_TIER and learned:
        alone = f"{100 * rows['z'].accuracy:.1f} %"
        return "mixture", f"mixture is surely less off than z; it is {share}, z in {alone}."
    if leader.tier < KERNEL_TIER:
        return "z", f"z is {share}, and nothing is surely better."
    lead = f"by {100 * linear.behind:.1f} ± {100 * linear.error:.1f} points"
    if linear.behind <= PATIENCE * linear.error + 1e-12:
        return linear.name, f"{linear.name} is {share}; {leader.name} leads {lead}, not enough."
    return leader.name, f"{linear.name} is {share}; {leader.name} leads {lead}."
