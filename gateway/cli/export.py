"""`export`: the weights that a change pushed, as a file for NumPy or for TFLite."""

from __future__ import annotations

import io
from argparse import Namespace
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edge_opid.store.whole_file import write_whole
from gateway.cli.changes import find_change
from gateway.cli.context import CommandContext, OperatorError, open_context
from gateway.cli.output import Terminal
from gateway.registry import ChangeRecord, FitRecord

if TYPE_CHECKING:
    from gateway.tflite import WeightType

Floats = NDArray[np.float32]
ROWS = ("bias", "centre", "scale", "kernel")
"""Parts that are one row of numbers; the others have a column for each class, or each landmark's
column."""


@dataclass(frozen=True)
class ExportedPredictor:
    """A pushed fit with a name for every row and every column.

    Scores are x·W for all `columns` of a layout at once, or [x_s W_s, x_a] [V_z; V_a] + bias for
    `survivors` and `new` apart: both are the same predictor. Of a kernel they are
    k(z, S_z) A_s + k(u, S) A_b + bias with z and u from ([x_s W_s, x_a] − centre) / scale.
    """

    names: dict[str, tuple[str, ...]]
    """columns, survivors, new, classes."""
    parts: dict[str, Floats]
    """W, W_s, V_z, V_a, bias; or W_s, centre, scale, support, A_s, A_b, bias, kernel."""


def export(given: Namespace, screen: Terminal) -> int:
    """Write the predictor of a change to a file; a failure leaves none."""
    with open_context(given.config) as context:
        change = find_change(context, given.change)
        fit = _pushed(context, change)
        predictor = predictor_of(change, fit, _classes(context, change))
    data = _npz(predictor) if given.format == "npz" else _tflite(predictor, given.weights)
    write_whole(given.out, data)
    shape = " and ".join(f"{len(predictor.names[what])} {what}" for what in ("columns", "classes"))
    screen.lines([f"{given.out}: {fit.chosen}, fitted on {fit.size}, {shape}, {len(data)} bytes"])
    return 0


def _pushed(context: CommandContext, change: ChangeRecord) -> FitRecord:
    """The fit whose weights nodes have."""
    fits = {fit.size: fit for fit in context.store.fits(change.id)}
    if change.pushed not in fits:
        tried = (
            f"it was fitted on {', '.join(map(str, fits))}"
            if fits
            else "it has not been fitted yet"
        )
        raise OperatorError(f"change {change.id} has pushed no weights: {tried}")
    return fits[change.pushed]


def _classes(context: CommandContext, change: ChangeRecord) -> tuple[str, ...]:
    for group in context.config.groups:
        if group.id == change.group:
            return group.classes
    there = ", ".join(group.id for group in context.config.groups)
    raise OperatorError(
        f"change {change.id} is of group {change.group!r}, and the configuration has {there}: only "
        "there its classes are named"
    )


def predictor_of(
    change: ChangeRecord, fit: FitRecord, classes: tuple[str, ...]
) -> ExportedPredictor:
    """The bytes of a fit as named matrices."""
    parts = {name: np.frombuffer(data, "<f4") for name, data in fit.parts.items()}
    c = len(parts["bias"])
    if c != len(classes):
        raise OperatorError(
            f"change {change.id} was fitted for {c} classes, and its group has {len(classes)} "
            "now: export with the configuration of then"
        )
    widths = {"support": len(parts.get("centre", ()))}
    shaped = {
        name: part if name in ROWS else part.reshape(-1, widths.get(name, c))
        for name, part in parts.items()
    }
    rows = {"columns": change.columns, "survivors": fit.survivors, "new": fit.new}
    names = {what: tuple(map(plain, some)) for what, some in rows.items()}
    return ExportedPredictor({**names, "classes": classes}, shaped)


def plain(column: str) -> str:
    """A column as a node's layout calls it: within one change there is no need for the digest.

    >>> plain("temp#bec1f26f[2]"), plain("co2")
    ('temp[2]', 'co2')
    """
    role, _, rest = column.partition("#")
    return role + rest[rest.index("[") :] if rest else role


def _npz(predictor: ExportedPredictor) -> bytes:
    data = io.BytesIO()
    content: dict[str, Any] = {**predictor.names, **predictor.parts}
    np.savez(data, **content)
    return data.getvalue()


def _tflite(predictor: ExportedPredictor, weights: WeightType) -> bytes:
    from gateway.estage import LinearModel  # noqa: PLC0415 - scikit-learn takes a second to load
    from gateway.tflite import to_tflite  # noqa: PLC0415 - it needs the former

    if "kernel" in predictor.parts:
        raise OperatorError(
            "a kernel has no .tflite form, only models of one matrix have: export it with "
            "--format npz, or fit without kernels (gateway.kernels = false)"
        )
    exact = {name: part.astype(float) for name, part in predictor.parts.items()}
    model = LinearModel(name="exported", V_z=exact["V_z"], V_a=exact["V_a"], bias=exact["bias"])
    names = predictor.names
    return to_tflite(
        exact["W_s"],
        model,
        survivors=names["survivors"],
        new=names["new"],
        classes=names["classes"],
        weights=weights,
    )
