"""What to push for a batch: a mixture of linear forms, or a kernel where no matrix comes close.

1. The mixture (`estage.mixture`) gives each form the share that held-out instances surely speak
   for, and is one matrix. Where they speak for nothing, it is Z: the C-stage as it is.
2. Kernels have no place in a mixture, since the sum would be no matrix. One is taken only if it is
   right on held-out instances more often than the mixture, by more than 1.5 standard errors of the
   difference, instance by instance (copies of a row count as one).
3. Held out means: neither fitted nor tuned nor mixed on that instance. Folds are repeated with
   other seeds.
4. Where the instances are of several nodes, what was chosen must also hold for nodes it has not
   seen: fitted without them, it may not be surely worse than Z for more of them than it is surely
   better for. Else it is Z: what one node says, however often, is not true of the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from gateway.estage.batch import (
    Batch,
    Floats,
    Ints,
    SurvivorColumns,
    standard_errors,
    stratified_folds,
)
from gateway.estage.kernel.exact import KernelOpid
from gateway.estage.kernel.landmark import COMPACT
from gateway.estage.mixture import Mixture
from gateway.estage.models import Model, z_alone
from gateway.estage.tuning import Candidate, HeldOut, held_out, honest_scores

FOLDS, REPEATS = 5, 2
LINEAR: tuple[Candidate, ...] = (Mixture(),)
ALL: tuple[Candidate, ...] = (*LINEAR, KernelOpid())
TIERS = {"z": 0, "mixture": 1, "kernel": 2, COMPACT: 2}
"""How simple: 0 the C-stage as it is, 1 one matrix, 2 a kernel."""
KERNEL_TIER = 2
LEAD_ERRORS = 1.5
"""How many standard errors one matrix may be behind a kernel."""
NODE_FOLDS = 8
"""At most so many fits without some nodes: of a large cohort several are left out at once."""
NODE_DOUBT = 2.0
"""How many standard errors make a left-out node's verdict sure."""
LABELLED_MIN = 6
"""Fewer different instances than this cannot teach anything."""


@dataclass(frozen=True, kw_only=True)
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
    survivors: SurvivorColumns | None = None,
    seed: int = 0,
    candidates: Sequence[Candidate] = ALL,
    folds: int = FOLDS,
    repeats: int = REPEATS,
    nodes: Sequence[Hashable] | None = None,
) -> BestModel:
    """The E-stage model to push for this batch. `candidates=LINEAR` where nodes want one matrix.

    With `survivors` the batch's labels teach the survivors' weights, too. `nodes` says of which
    node each instance is.

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
        if is_applicable(candidate, batch):
            found = held_out(candidate, batch, splits)
            models[candidate.name] = found.whole.mixed(candidate.choose(found.scores, batch))
            right[candidate.name] = hits_of(candidate, found, batch)
    table = tabulate(right, batch)
    name, why = choice(table, learned=adds_something(models))
    chosen = next((each for each in candidates if each.name == name), None)
    if chosen is not None and nodes is not None:
        name, why = choice_across_nodes(chosen, why, batch, nodes)
    return BestModel(models[name], table, why, right[name])


def choice_across_nodes(
    chosen: Candidate, why: str, batch: Batch, nodes: Sequence[Hashable]
) -> tuple[str, str]:
    """The chosen candidate's name, or Z's, and why: rule 4."""
    better, worse = verdicts(chosen, batch, nodes)
    if worse <= better:
        return chosen.name, why
    of = f"{worse} of {len(node_folds(nodes))} parts of the nodes"
    return "z", f"z, because {chosen.name}, fitted without them, is surely worse for {of}. {why}"


def verdicts(candidate: Candidate, batch: Batch, nodes: Sequence[Hashable]) -> tuple[int, int]:
    """For how many left-out parts of the nodes it is surely better than Z, and surely worse."""
    folds = node_folds(nodes)
    if len(folds) < 2:
        return 0, 0
    hits = hits_of(candidate, held_out(candidate, batch, [folds]), batch)
    gain = hits - (batch.Z.argmax(1) == batch.y)
    lead = np.array([gain[rows].sum() for rows in folds])
    doubt = NODE_DOUBT * np.sqrt([np.abs(gain[rows]).sum() for rows in folds])
    return int(np.sum(lead > doubt)), int(np.sum(-lead > doubt))


def node_folds(nodes: Sequence[Hashable]) -> list[Ints]:
    """The rows of each part of the nodes; no node is in two, and the largest ones are apart.

    >>> [rows.tolist() for rows in node_folds(["a", "b", "a", "c"])]
    [[0, 2], [1], [3]]
    """
    sizes = Counter(nodes)
    place = {node: k % NODE_FOLDS for k, (node, _) in enumerate(sizes.most_common())}
    part = np.array([place[node] for node in nodes], np.int64)
    return [np.flatnonzero(part == k) for k in range(min(NODE_FOLDS, len(sizes)))]


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


def is_applicable(candidate: Candidate, batch: Batch) -> bool:
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
            name=name,
            accuracy=float(hits.mean()),
            behind=float(np.mean(right[leader] - hits)),
            error=float(standard_errors(right[leader] - hits, batch)),
            tier=TIERS[name],
        )
        for name, hits in right.items()
    ]
    return tuple(sorted(rows, key=lambda row: (row.tier, -row.accuracy)))


def choice(table: Sequence[Row], learned: bool) -> tuple[str, str]:
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
    if linear.behind <= LEAD_ERRORS * linear.error + 1e-12:
        return linear.name, f"{linear.name} is {share}; {leader.name} leads {lead}, not enough."
    return leader.name, f"{linear.name} is {share}; {leader.name} leads {lead}."
