"""One fit of a change: what the group knew, and the batch, become weights for every column.

Two views of the same columns compete, by how often they were right on held-out instances:

- **survivors**: W^(s) from the statistics of everyone who had the surviving columns; the newcomers'
  columns are X^(a) of the E-stage, learned from the batch alone (the paper's).
- **group**: some members have had all of these columns for long, the newcomers' among them; then W
  for all columns comes from their statistics, and the E-stage only corrects it.

Summaries that cannot be right are refused and named; the rest go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
from numpy.typing import NDArray

from edge_opid.errors import OpidError
from edge_opid.layout.layout import BIAS, Layout
from edge_opid.learner import Summary as Statistics
from edge_opid.wire import Summary, WireError, decode, to_bytes

from .estage import LINEAR, BestModel, LinearModel, fit_best, fold, rounded
from .pooling import Member, Pool, pool
from .registry import ChangeRecord, ExampleRecord, FitRecord, LayoutRecord, SummaryRecord
from .registry.columns import column_names, layout_in, role_of

Floats = NDArray[np.float64]
Rows = dict[str, NDArray[np.float32]]
"""The weights of each column, by its name."""

GROUP_READINGS_PER_COLUMN = 10
"""Statistics of fewer readings than this a column are no knowledge of the newcomers."""


@dataclass(frozen=True)
class FitJob:
    """All that a fit depends on."""

    change: ChangeRecord
    size: int
    """How many of the examples, the first ones, the batch has."""
    classes: tuple[str, ...]
    layouts: Mapping[tuple[str, str, int], LayoutRecord]
    """By site, node and version: of every example and every summary."""
    summaries: Sequence[SummaryRecord]
    examples: Sequence[ExampleRecord]
    previous: FitRecord | None
    """The fit that nodes have now."""
    lam: float
    rho: float
    weights: str = "float32"


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


@dataclass
class _Gathered:
    """The change's raw material, checked and in the order of its columns."""

    members: list[Member] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def fit_change(job: FitJob, now_ms: int) -> FitRecord:
    """Fit the change on its batch, and say whether the result is worth pushing."""
    known = _members(job)
    X, y = _batch(job)
    views = [view for view in _views(job, known.members, X, y) if view is not None]
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
        {**known.refused, **view.pool.refused},
        view.pool.known.readings,
        loss,
        _parts(view, weights),
        view.survivors,
        view.new,
    )


# -- what the group knew ---------------------------------------------------------------------------


def _members(job: FitJob) -> _Gathered:
    """Of each node the newest statistics that know every surviving column."""
    found = _Gathered()
    survivors = set(_survivors(job.change))
    newest = sorted(job.summaries, key=lambda each: -each.layout_version)
    for record in newest:
        name = f"{record.site}/{record.node}"
        if name in {member.node for member in found.members}:
            continue
        try:
            member = _member(job, record, name)
        except (OpidError, ValueError) as error:
            found.refused[name] = f"layout {record.layout_version}: {error}"
            continue
        if survivors <= set(member.roles):
            found.members.append(member)
    return found


def _member(job: FitJob, record: SummaryRecord, name: str) -> Member:
    summary = decode(record.payload, Summary)
    layout = job.layouts.get((record.site, record.node, record.layout_version))
    if layout is None:
        raise WireError("layout", f"nobody remembers layout {record.layout_version} of {name}")
    columns = column_names(layout_in(layout, summary.sensors))
    statistics = Statistics(
        0,
        summary.lam,
        summary.rho,
        summary.readings,
        summary.evidence,
        summary.gram_array(),
        summary.moment_array(),
    )
    return Member(name, columns, statistics)


def _survivors(change: ChangeRecord) -> tuple[str, ...]:
    return tuple(column for column in change.columns if role_of(column) not in change.arrived)


def _vanished(members: Sequence[Member], change: ChangeRecord) -> tuple[str, ...]:
    """Retired columns that everybody's statistics have: W^(s) is tied to them by λ (Eq. 2)."""
    if not members:
        return ()
    common = set.intersection(*(set(member.roles) for member in members))
    return tuple(sorted(column for column in common if role_of(column) in change.retired))


# -- the batch -------------------------------------------------------------------------------------


def _batch(job: FitJob) -> tuple[Floats, NDArray[np.int64]]:
    """The examples' columns in the order of the change, and their classes."""
    ready: dict[tuple[str, str, int], tuple[Layout, list[int], dict[str, str]]] = {}
    rows = []
    for example in job.examples[: job.size]:
        key = example.site, example.node, example.layout_version
        if key not in ready:
            ready[key] = _encoder(job, job.layouts[key])
        layout, order, roles = ready[key]
        values = {roles[sensor]: v for sensor, v in example.values.items() if sensor in roles}
        rows.append(layout.encode(values, drop_gated=True)[order])
    X = np.array(rows, float).reshape(len(rows), len(job.change.columns))
    return X, np.array(
        [job.classes.index(each.label) for each in job.examples[: job.size]], np.int64
    )


def _encoder(job: FitJob, record: LayoutRecord) -> tuple[Layout, list[int], dict[str, str]]:
    layout = layout_in(record)
    names = column_names(layout)
    order = [names.index(column) for column in job.change.columns]
    return layout, order, {sensor.id: sensor.role for sensor in record.sensors}


# -- fitting ---------------------------------------------------------------------------------------


def _views(
    job: FitJob, members: Sequence[Member], X: Floats, y: NDArray[np.int64]
) -> list[View | None]:
    change = job.change
    survivors = _survivors(change)
    paper = _view(job, members, survivors, X, y, needed=0)
    if len(survivors) == len(change.columns):
        return [paper]
    needed = GROUP_READINGS_PER_COLUMN * len(change.columns)
    return [paper, _view(job, members, change.columns, X, y, needed)]


def _view(
    job: FitJob,
    members: Sequence[Member],
    survivors: Sequence[str],
    X: Floats,
    y: NDArray[np.int64],
    needed: int,
) -> View | None:
    """The fit with statistics for these columns; None where too few readings know them."""
    gone = _vanished(members, job.change)
    found = pool(members, survivors, len(job.classes), gone)
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
