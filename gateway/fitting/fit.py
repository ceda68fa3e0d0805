"""One fit of a change: what the group knew, and the batch, become weights for every column.

Two views of the same columns compete, by how often they were right on held-out instances:

- **survivors**: W^(s) from the statistics of everyone who had the surviving columns; the newcomers'
  columns are X^(a) of the E-stage, learned from the batch alone (the paper's).
- **group**: some members have had all of these columns for long, the newcomers' among them; then W
  for all columns comes from their statistics, and the E-stage only corrects it.

Held-out instances are no judge where many nodes were heard for a few moments: a hundred nodes fill
a batch within two readings, all at the same time of the same day. What a form learns of that hour
is confirmed by the instances of that hour that were held out, and is wrong an hour later. So, until
one node has brought `MOMENTS_MIN` labelled instances, nothing is chosen: the batch counts as the
next readings of the learner that the pooled statistics are of (`continued`). Everything that the
group knew of the survivors weighs as much as it always did, and the newcomers, which were at their
reference before, begin to be known. It is the same estimate from more readings each time, so it is
pushed without a vote.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edge_opid.errors import MismatchError
from edge_opid.layout.layout import BIAS
from edge_opid.learner.statistics import Statistics, carried, solve
from edge_opid.models.matrix import WEIGHT_MAX
from edge_opid.wire import to_bytes
from gateway.estage import (
    COMPACT,
    LINEAR,
    Batch,
    BestModel,
    KernelModel,
    Row,
    SurvivorColumns,
    column_weights,
    fit_best,
    rounded,
    z_alone,
)
from gateway.fitting.job import (
    FitJob,
    Floats,
    GroupKnowledge,
    batch_columns,
    group_knowledge,
    vanished,
)
from gateway.fitting.kernels import (
    FitNames,
    best_with_kernels,
    exact_row,
    node_form,
    rounding_loss,
    with_row,
)
from gateway.fitting.models import fitted_model, kernel_parts, travels_as
from gateway.fitting.pooling import Pool, pool
from gateway.fitting.witnesses import contradicting
from gateway.registry import FitRecord
from gateway.registry.text import listed

GROUP_READINGS_PER_COLUMN = 10
"""Statistics of fewer readings than this a column are no knowledge of the newcomers."""
CONTINUED = "continued"
MOMENTS_MIN = 30
"""The first batch of a single node, from which a form of the E-stage may be chosen."""


@dataclass(frozen=True, kw_only=True)
class BatchView:
    """Which columns' weights come from statistics, and what the E-stage made of the rest."""

    survivors: tuple[str, ...]
    new: tuple[str, ...]
    pool: Pool
    W_s: Floats
    task: Batch
    """Z and X^(a) of the batch, and its labels."""
    best: BestModel

    @property
    def accuracy(self) -> float:
        """On instances it had not learned from; 0 without any."""
        return float(self.best.hits.mean()) if len(self.best.hits) else 0.0


@dataclass(frozen=True)
class KeptModel:
    """What a record keeps of the chosen model, and what its form costs."""

    parts: dict[str, bytes]
    table: tuple[Row, ...]
    rounding_loss: float
    compact_loss: float = 0.0


def fit_change(job: FitJob, now_ms: int) -> FitRecord:
    """Fit the change on its batch, and say whether the result is worth pushing."""
    group = group_knowledge(job)
    size, job = job.size, _without_contradicting(job, group)
    X, y = batch_columns(job)
    view = max(_views(job, group, X, y), key=lambda each: (each.accuracy, not each.new))
    make = _kept_kernel if view.best.chosen == COMPACT else _kept_matrix
    made = make(job, view, X, y)
    return FitRecord(
        change=job.change.id,
        size=size,
        at_ms=now_ms,
        chosen=view.best.chosen,
        why=_why(view),
        pushed=_worth_pushing(job, view, X, y),
        candidates=tuple(asdict(row) for row in made.table),
        pooled=view.pool.nodes,
        refused={**group.refused, **view.pool.refused},
        readings=view.pool.known.readings,
        rounding_loss=made.rounding_loss,
        parts=made.parts,
        survivors=view.survivors,
        new=view.new,
        compact_loss=made.compact_loss,
    )


def _why(view: BatchView) -> str:
    """Why this form was chosen, and whose readings count for less than they are."""
    less = [
        f"{node} would outweigh the others, so {share:.2g} of its readings count."
        for node, share in view.pool.reduced.items()
    ]
    if view.pool.archived < 1:
        less.append(f"Of the archives' labelled readings {view.pool.archived:.2g} count.")
    return " ".join([view.best.why, *less])


def _without_contradicting(job: FitJob, group: GroupKnowledge) -> FitJob:
    """The job without the instances of nodes whose labels contradict the group; it names them."""
    nodes = [each.owner for each in job.examples[: job.size]]
    gone = vanished(group.members, job.change)
    found = pool(group.members, group.survivors, len(job.classes), gone, group.faults)
    if len(set(nodes)) < 2 or not found.known.readings:
        return job
    X, y = batch_columns(job)
    Xs = X[:, [job.change.columns.index(column) for column in group.survivors]]
    hits = (Xs @ found.survivors_weights(job.lam, job.rho)).argmax(1) == y
    out = contradicting(hits, y, nodes)
    group.refused.update({"/".join(node): why for node, why in out.items()})
    kept = [each for each in job.examples[: job.size] if each.owner not in out]
    return replace(job, examples=kept, size=len(kept))


# -- fitting ---------------------------------------------------------------------------------------


def _views(job: FitJob, group: GroupKnowledge, X: Floats, y: NDArray[np.int64]) -> list[BatchView]:
    """Fits with statistics for the survivors, and for all columns, if enough readings know them."""
    columns, wanted = job.change.columns, [(group.survivors, 0)]
    if len(group.survivors) < len(columns):
        wanted.append((columns, GROUP_READINGS_PER_COLUMN * len(columns)))
    brief = is_too_brief(job)
    gone = () if brief else vanished(group.members, job.change)
    views = []
    for survivors, needed in wanted:
        found = pool(group.members, survivors, len(job.classes), gone, group.faults)
        if found.known.readings >= needed:
            made = _continued(job, found, X, y) if brief else _view(job, found, survivors, X, y)
            views.append(made)
    return views


def _view(
    job: FitJob, found: Pool, survivors: Sequence[str], X: Floats, y: NDArray[np.int64]
) -> BatchView:
    """The fit with statistics for these columns."""
    columns = job.change.columns
    new = tuple(column for column in columns if column not in survivors)
    W_s = found.survivors_weights(job.lam, job.rho)
    Xs = X[:, [columns.index(column) for column in survivors]]
    Xa = X[:, [columns.index(column) for column in new]]
    sure = SurvivorColumns.of(Xs, found.survivors_gram(), found.survivors_ridge(job.rho))
    task, seed = Batch.of(Xs @ W_s, Xa, y, len(job.classes), sure), job.change.id
    nodes = [each.owner for each in job.examples[: job.size]]
    if job.kernels:
        best = best_with_kernels(task, W_s, _fit_names(job, survivors, new), seed, nodes)
    else:
        best = fit_best(
            task.Z,
            Xa,
            y,
            len(job.classes),
            survivors=sure,
            seed=seed,
            candidates=LINEAR,
            nodes=nodes,
        )
    return BatchView(survivors=tuple(survivors), new=new, pool=found, W_s=W_s, task=task, best=best)


def _continued(job: FitJob, found: Pool, X: Floats, y: NDArray[np.int64]) -> BatchView:
    """Those statistics and the batch as one, for all columns."""
    W, best = continued(job, found, X, y)
    task = Batch.of(X @ W, X[:, :0], y, len(job.classes))
    return BatchView(survivors=job.change.columns, new=(), pool=found, W_s=W, task=task, best=best)


def is_too_brief(job: FitJob) -> bool:
    """Whether the batch is of several nodes, and none of them was heard for long."""
    heard = Counter((each.site, each.node) for each in job.examples[: job.size])
    return len(heard) > 1 and max(heard.values()) < MOMENTS_MIN


def continued(
    job: FitJob, found: Pool, X: Floats, y: NDArray[np.int64]
) -> tuple[Floats, BestModel]:
    """Weights for every column of the change, and how right the group was before the batch."""
    columns, classes = job.change.columns, len(job.classes)
    places = {role: place for place, role in enumerate(found.roles)}
    sources = [places.get(column) for column in columns]
    before = carried(found.known, sources, 1.0, job.lam, job.rho)
    Y = np.eye(classes)[y]
    batch = Statistics(X.T @ X, X.T @ Y, len(y), float(len(y)))
    known, W = (solve(each, 0, job.lam, job.rho)[0] for each in (before, before + batch))
    hits = np.asarray((X @ known).argmax(1) == y, float)
    nodes = len({(each.site, each.node) for each in job.examples[: job.size]})
    why = (
        f"{CONTINUED}: {len(y)} instances of {nodes} nodes are too few moments to choose by; "
        f"the former weights are right in {100 * hits.mean():.1f} % of them."
    )
    model = replace(z_alone(classes, new=0), name=CONTINUED)
    return W, BestModel(model, (), why, hits)


def _fit_names(job: FitJob, survivors: Sequence[str], new: Sequence[str]) -> FitNames:
    return FitNames(job.change.columns, tuple(survivors), tuple(new), job.classes)


# -- what is kept ----------------------------------------------------------------------------------


def _kept_kernel(job: FitJob, view: BatchView, X: Floats, y: NDArray[np.int64]) -> KeptModel:
    """The parts of a kernel, beside the exact one that it stands for."""
    best, names = view.best, _fit_names(job, view.survivors, view.new)
    assert isinstance(best.model, KernelModel)
    exact = exact_row(best, view.task, job.change.id)
    loss = rounding_loss(best, view.task, node_form(best, view.W_s, names), X, y)
    parts = kernel_parts(view.W_s, best.model)
    return KeptModel(parts, with_row(best.table, exact), loss, -exact.behind)


def _kept_matrix(job: FitJob, view: BatchView, X: Floats, y: NDArray[np.int64]) -> KeptModel:
    """One matrix, and the parts it was made of."""
    W = _matrix(job, view)
    _check_weights(W, view)
    weights = W.astype(np.float32)
    half = travels_as(weights, job.weights) == "float16"
    loss = rounded(W, X, y, "float16").loss if half and len(y) else 0.0
    return KeptModel(_parts(view, weights), view.best.table, loss)


def _matrix(job: FitJob, view: BatchView) -> Floats:
    """One row for each column of the change."""
    bias = view.survivors.index(BIAS)
    rows = column_weights(view.best.model, view.W_s).matrix(bias_column=bias)
    placed = dict(zip((*view.survivors, *view.new), rows, strict=True))
    return np.array([placed[column] for column in job.change.columns])


def _check_weights(W: Floats, view: BatchView) -> None:
    """A node refuses an order with such weights, and then has not even its layout."""
    largest = float(np.abs(W).max())
    if not largest <= WEIGHT_MAX:  # false for NaN, too
        whose = listed(view.pool.nodes)
        sentence = f"weights must be up to {WEIGHT_MAX:g}, got {largest:g}; pooled were {whose}"
        raise MismatchError(sentence)


def _parts(view: BatchView, weights: NDArray[np.float32]) -> dict[str, bytes]:
    """[x_s W_s, x_a] [V_z; V_a] + bias, where W_s has all that the batch taught the survivors."""
    apart = column_weights(view.best.model, view.W_s)
    return {
        "W": to_bytes(weights),
        "W_s": to_bytes(apart.survivors),
        "V_z": to_bytes(np.eye(len(apart.bias))),
        "V_a": to_bytes(apart.new),
        "bias": to_bytes(apart.bias),
    }


def _worth_pushing(job: FitJob, view: BatchView, X: Floats, y: NDArray[np.int64]) -> bool:
    """Better than what nodes have, on instances that neither was fitted on.

    The instances since the last push are new to the former model, and were held out from this one.
    """
    if job.previous is None:
        return view.pool.known.readings > 0 or view.best.chosen != "z"
    if view.best.chosen == CONTINUED:
        return True
    since = np.array([each.place >= job.previous.size for each in job.examples[: job.size]], bool)
    if not since.any():
        return False
    scores = fitted_model(job.previous, job.change).scores(X[since])
    before = np.mean(scores.argmax(1) == y[since])
    return bool(np.mean(view.best.hits[since]) > before)
