"""Kernels among the candidates of a fit: what an order has room for, and only if nodes take it.

1. How many landmarks: as many as the largest order for these columns has room for, however long
   its sensors' names, and no more than nodes take.
2. The candidate is the compact form itself (`kernel.landmark`). It is chosen by the same rule as
   every other, by its own held-out hits, so it wins only where no single matrix comes close.
3. If it wins, the exact kernel is judged on the same folds: the difference is what being compact
   costs, and is reported with the fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from edge_opid.layout.layout import BIAS
from edge_opid.models.landmark_kernel import LANDMARKS_MAX
from edge_opid.models.matrix import ModelError
from edge_opid.wire import LIMITS, Desired, SensorDescription, WireError, encode
from gateway.estage import (
    COMPACT,
    LINEAR,
    Batch,
    BestModel,
    KernelModel,
    KernelOpid,
    LandmarkOpid,
    Row,
    fit_best,
    hits_on,
)
from gateway.estage.batch import standard_errors
from gateway.estage.kernel.landmark import FLOAT_BYTES, landmarks_that_fit
from gateway.estage.selection import KERNEL_TIER
from gateway.fitting.job import Floats
from gateway.fitting.models import FittedKernel, kernel_parts
from gateway.registry.columns import role_of

MATRIX_BYTES = 96
"""Of a matrix besides its numbers: its name, its shape and the keys of both, rounded up."""


@dataclass(frozen=True)
class FitNames:
    """What the rows and columns of a fit are called."""

    columns: tuple[str, ...]
    survivors: tuple[str, ...]
    new: tuple[str, ...]
    classes: tuple[str, ...]


# -- 1: the room -----------------------------------------------------------------------------------


def landmarks_for(names: FitNames, batch: Batch) -> int:
    """How many landmarks an order for these columns can carry; 0 where it cannot carry one."""
    others = len(names.columns) * len(names.classes) + len(names.new)
    room = bytes_left(names.columns, names.classes) - FLOAT_BYTES * others - 8 * MATRIX_BYTES
    return min(LANDMARKS_MAX, landmarks_that_fit(batch, room))


@lru_cache(maxsize=64)
def bytes_left(columns: tuple[str, ...], classes: tuple[str, ...]) -> int:
    """The bytes that are left for weights in the largest order with these columns.

    One fit serves a whole cohort, and may be made before the last node has joined it: so ids and
    units are taken to be as long as they may be, and every sensor to be expected to go.
    """
    widths = Counter(role_of(column) for column in columns if column != BIAS)
    sensors = tuple(
        SensorDescription(
            id=f"{place:0{LIMITS.id_chars_max}}",
            role=role,
            reference=0.5,
            scale=0.5,
            timeout_s=0.5,
            knots=tuple(map(float, range(width))) if width > 1 else (),
            unit="u" * LIMITS.text_bytes_max,
        )
        for place, (role, width) in enumerate(widths.items())
    )
    ids, top = tuple(sensor.id for sensor in sensors), LIMITS.integer_max
    name, most = "n" * LIMITS.id_chars_max, LIMITS.gather_max
    largest = Desired(
        site=name,
        node=name,
        version=top,
        layout_version=top,
        sensors=sensors,
        vanishing=ids,
        gate=0.5,
        classes=classes,
        gather=most,
    )
    try:
        return LIMITS.payload_bytes_max - len(encode(largest))
    except WireError:
        return 0  # not even the layout is sure to fit


# -- 2: the choice ---------------------------------------------------------------------------------


def best_with_kernels(
    batch: Batch, W_s: Floats, names: FitNames, seed: int, nodes: Sequence[Hashable] | None = None
) -> BestModel:
    """The best of the linear forms and the compact kernel; a kernel only if nodes would take it."""
    task = batch.Z, batch.Xa, batch.y, batch.classes
    fit = partial(fit_best, *task, survivors=batch.survivors, seed=seed, nodes=nodes)
    count = landmarks_for(names, batch)
    if count:
        best = fit(candidates=(*LINEAR, LandmarkOpid(count=count)))
        if best.chosen != COMPACT or fits_nodes(best, W_s, names):
            return best
    return fit(candidates=LINEAR)


def fits_nodes(best: BestModel, W_s: Floats, names: FitNames) -> bool:
    """Whether a node would take it: columns of almost no spread can make scores overflow."""
    try:
        node_form(best, W_s, names).node_model()
    except (ModelError, WireError):
        return False
    return True


def node_form(best: BestModel, W_s: Floats, names: FitNames) -> FittedKernel:
    """The chosen kernel in float32, as it is kept and pushed."""
    assert isinstance(best.model, KernelModel)
    parts = kernel_parts(W_s, best.model)
    return FittedKernel(parts, names.columns, names.survivors, names.new)


# -- 3: the price ----------------------------------------------------------------------------------


def exact_row(best: BestModel, batch: Batch, seed: int) -> Row:
    """The exact kernel on the folds that the compact one was chosen by: it cannot be pushed.

    It may be ahead of the most accurate candidate, and is then behind by less than 0.
    """
    hits = hits_on(KernelOpid(), batch, seed)
    behind = best.hits - hits
    error = float(standard_errors(behind, batch))
    return Row(
        name="kernel",
        accuracy=float(hits.mean()),
        behind=float(behind.mean()),
        error=error,
        tier=KERNEL_TIER,
    )


def rounding_loss(
    best: BestModel, batch: Batch, form: FittedKernel, X: Floats, y: NDArray[np.int64]
) -> float:
    """The accuracy on the batch that float32, as nodes compute, gives up."""
    exact = best.scores(batch.Z, batch.Xa).argmax(1)
    return float(np.mean(exact == y) - np.mean(form.scores(X).argmax(1) == y))


def with_row(table: Sequence[Row], row: Row) -> tuple[Row, ...]:
    """The table in its order: simplest first, then the most accurate."""
    return tuple(sorted([*table, row], key=lambda each: (each.tier, -each.accuracy)))
