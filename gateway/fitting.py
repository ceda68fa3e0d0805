"""One fit of a change: what the group knew, and the batch, become weights for every column.

Two views of the same columns compete, by how often they were right on held-out instances:

- **survivors**: W^(s) from the statistics of everyone who had the surviving columns; the newcomers'
  columns are X^(a) of the E-stage, learned from the batch alone (the paper's).
- **group**: some members have had all of these columns for long, the newcomers' among them; then W
  for all columns comes from their statistics, and the E-stage only corrects it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from edge_opid.layout.layout import BIAS
from edge_opid.wire import to_bytes

from .estage import LINEAR, BestModel, LinearModel, fit_best, fold, rounded
from .material import FitJob, Floats, Known, batch, known, vanished
from .pooling import Pool, pool
from .registry import ChangeRecord, FitRecord

Rows = dict[str, NDArray[np.float32]]
"""The weights of each column, by its name."""

GROUP_READINGS_PER_COLUMN = 10
"""Statistics of fewer readings than this a column are no knowledge of the newcomers."""


@dataclass(frozen=True)
class View:
    """Which columns' weights come from statistics, and what the E-stage made of the rest."""

    survivors: tuple[str, ...]
    new: tuple[str, ...]
    pool: Pool
    W_s: Floats
    best: BestModel

    @property
    def accuracy(self) -> float:
        """On held-out instances; 0 without any."""
        return float(self.best.hits.mean()) if len(self.best.hits) else 0.0


def fit_change(job: FitJob, now_ms: int) -> FitRecord:
    """Fit the change on its batch, and say whether the result is worth pushing."""
    group = known(job)
    X, y = batch(job)
    views = [view for view in _views(job, group, X, y) if view is not None]
    view = max(views, key=lambda each: (each.accuracy, not each.new))
    W = _matrix(job, view)
    weights = W.astype(np.float32)
    loss = rounded(W, X, y, "float16").loss if job.weights == "float16" and len(y) else 0.0
    return FitRecord(
        job.change.id,
        job.size,
        now_ms,
        view.best.chosen,
        view.best.why,
        _worth_pushing(job, view, X, y),
        tuple(asdict(row) for row in view.best.table),
        view.pool.nodes,
        {**group.refused, **view.pool.refused},
        view.pool.known.readings,
        loss,
        _parts(view, weights),
        view.survivors,
        view.new,
    )


# -- fitting ---------------------------------------------------------------------------------------


def _views(job: FitJob, group: Known, X: Floats, y: NDArray[np.int64]) -> list[View | None]:
    columns = job.change.columns
    paper = _view(job, group, group.survivors, X, y, needed=0)
    if len(group.survivors) == len(columns):
        return [paper]
    needed = GROUP_READINGS_PER_COLUMN * len(columns)
    return [paper, _view(job, group, columns, X, y, needed)]


def _view(
    job: FitJob,
    group: Known,
    survivors: Sequence[str],
    X: Floats,
    y: NDArray[np.int64],
    needed: int,
) -> View | None:
    """The fit with statistics for these columns; None where too few readings know them."""
    gone = vanished(group.members, job.change)
    found = pool(group.members, survivors, len(job.classes), gone)
    if found.known.readings < needed:
        return None
    columns = job.change.columns
    new = tuple(column for column in columns if column not in survivors)
    W_s = found.survivors_weights(job.lam, job.rho)
    Z = X[:, [columns.index(column) for column in survivors]] @ W_s
    Xa = X[:, [columns.index(column) for column in new]]
    seed = job.change.id
    best = fit_best(Z, Xa, y, len(job.classes), seed=seed, candidates=LINEAR)
    return View(tuple(survivors), new, found, W_s, best)


def _matrix(job: FitJob, view: View) -> Floats:
    """One row for each column of the change."""
    bias = view.survivors.index(BIAS)
    rows = fold(view.best.model, view.W_s).matrix(bias_column=bias)
    placed = dict(zip((*view.survivors, *view.new), rows, strict=True))
    return np.array([placed[column] for column in job.change.columns])


def _parts(view: View, weights: NDArray[np.float32]) -> dict[str, bytes]:
    model = view.best.model
    assert isinstance(model, LinearModel)  # LINEAR has no other
    return {
        "W": to_bytes(weights),
        "W_s": to_bytes(view.W_s),
        "V_z": to_bytes(model.V_z),
        "V_a": to_bytes(model.V_a),
        "bias": to_bytes(model.bias),
    }


def _worth_pushing(job: FitJob, view: View, X: Floats, y: NDArray[np.int64]) -> bool:
    """Better than what nodes have, on instances that neither was fitted on.

    The instances since the last push are new to the former model, and were held out from this one.
    """
    if job.previous is None:
        return view.pool.known.readings > 0 or view.best.chosen != "z"
    since = slice(job.previous.size, None)
    W = weights_of(job.previous, len(job.change.columns))
    before = np.mean((X[since] @ W).argmax(1) == y[since])
    return bool(np.mean(view.best.hits[since]) > before)


def weights_of(fit: FitRecord, columns: int) -> NDArray[np.float32]:
    """The folded matrix of a fit, columns × classes."""
    return np.frombuffer(fit.parts["W"], "<f4").reshape(columns, -1)


def rows_of(fit: FitRecord, change: ChangeRecord) -> Rows:
    """The weights of each column, by its name."""
    W = weights_of(fit, len(change.columns))
    return dict(zip(change.columns, W, strict=True))
