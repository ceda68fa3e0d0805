"""E-stage predictors as `.tflite` files: what goes in, what is refused, which graph it becomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from edge_opid.errors import RefusedError, shown
from edge_opid.models.matrix import WEIGHT_MAX
from edge_opid.models.tflite import COLUMNS, NEW, SCORES, SEPARATOR, SURVIVORS, sealed
from gateway.estage import LinearModel
from gateway.tflite.flat import to_bytes
from gateway.tflite.graph import Graph, Op, Step, Tensor
from gateway.tflite.rounding import Floats, Layer, balanced, to_int8, without_constant

WeightType = Literal["float32", "int8"]


class ExportError(RefusedError, ValueError):
    """What was given cannot become a file, and none was made."""

    def __init__(self, sentence: str) -> None:
        super().__init__("export", sentence)


def to_tflite(
    W_s: ArrayLike,
    model: LinearModel,
    *,
    survivors: Sequence[str],
    new: Sequence[str],
    classes: Sequence[str],
    weights: WeightType = "float32",
) -> bytes:
    """The predictor [x_s W^(s), x_a] V + bias, as the bytes of a file.

    `survivors` names the rows of `W_s` (d_s×c), `new` those of the model's V_a, `classes` the
    columns of both. x_s and x_a are two inputs; without new sensors there is one. A layout's
    constant column is a survivor like any other.

    >>> from gateway.estage import z_alone
    >>> names = {"survivors": ["temp", "bias"], "new": ["co2"], "classes": ["fresh", "stale"]}
    >>> data = to_tflite([[1.0, -1.0], [0.5, 0.5]], z_alone(classes=2, new=1), **names)
    >>> data[4:8], len(data) < 1500
    (b'TFL3', True)
    """
    _check(weights, classes, survivors=survivors, new=new)
    c = len(classes)
    V = [_matrix(model.V_z, "V_z", c, c), _matrix(model.V_a, "V_a", len(new), c)]
    bias = _matrix(np.reshape(model.bias, (1, -1)), "the bias", 1, c)
    first = Layer(_matrix(W_s, "W^(s)", len(survivors), c), np.zeros(c, np.float32))
    last = Layer(np.vstack(V), bias[0])
    if weights == "int8":
        first, last = balanced(without_constant(first, survivors), last)
    return sealed(to_bytes(_two_layers(first, last, survivors, new, classes, weights)))


def matrix_to_tflite(
    W: ArrayLike, columns: Sequence[str], classes: Sequence[str], *, weights: WeightType = "float32"
) -> bytes:
    """The predictor x W, all parts multiplied out (`column_weights`), as the bytes of a file.

    `columns` names the rows of W in the order of the layout, the constant column among them.

    >>> data = matrix_to_tflite([[1.0, -1.0], [0.5, 0.5]], ["temp", "bias"], ["fresh", "stale"])
    >>> data[4:8]
    b'TFL3'
    """
    _check(weights, classes, columns=columns)
    c = len(classes)
    layer = Layer(_matrix(W, "W", len(columns), c), np.zeros(c, np.float32))
    if weights == "int8":
        layer = without_constant(layer, columns)
    x = _named(COLUMNS, columns)
    step = _connected(x, layer, _named(SCORES, classes), "W", weights)
    return sealed(to_bytes(Graph((x,), (step,), _description(weights))))


# --- what is refused ------------------------------------------------------------------------------


def _check(weights: WeightType, classes: Sequence[str], **inputs: Sequence[str]) -> None:
    """Words and names; `new` alone may be empty."""
    if weights not in get_args(WeightType):
        known = " or ".join(map(repr, get_args(WeightType)))
        raise ExportError(f"weights must be {known}, got {shown(weights)}")
    _check_names("classes", classes)
    for kind, names in inputs.items():
        if names or kind != "new":
            _check_names(kind, names)
    _check_names("columns", [name for names in inputs.values() for name in names])


def _check_names(kind: str, names: Sequence[str]) -> None:
    if isinstance(names, str) or not names:
        raise ExportError(f"{kind} must be a list of at least one name, got {shown(names)}")
    for name in names:
        if not isinstance(name, str) or not name or not name.isprintable():
            raise ExportError(
                f"{kind} must be printable lines, since a line break separates the names in the "
                f"file, got {shown(name)}: rename it"
            )
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise ExportError(f"{kind} must differ from each other, got {shown(twice)} twice")


def _matrix(values: ArrayLike, name: str, rows: int, columns: int) -> Floats:
    """A float32 matrix of the shape that the names say, and of numbers that a node would take."""
    exact = np.asarray(values, np.float64)
    if exact.shape != (rows, columns):
        got = "×".join(map(str, exact.shape))
        raise ExportError(f"{name} must be {rows}×{columns}, as the names are, got {got}")
    within = np.abs(exact) <= WEIGHT_MAX  # false for NaN, too
    if not within.all():
        worst = f"{exact[~within][0]:g}: fit it again"
        raise ExportError(f"{name} must be finite and within ±{WEIGHT_MAX:g}, got {worst}")
    return exact.astype(np.float32)


# --- the graphs -----------------------------------------------------------------------------------


def _two_layers(
    first: Layer,
    last: Layer,
    survivors: Sequence[str],
    new: Sequence[str],
    classes: Sequence[str],
    weights: WeightType,
) -> Graph:
    x_s, scores = _named(SURVIVORS, survivors), _named(SCORES, classes)
    Z = Tensor("Z", (1, len(classes)))
    steps = [_connected(x_s, first, Z, "W_s", weights)]
    if not new:
        steps.append(_connected(Z, last, scores, "V", weights))
        return Graph((x_s,), tuple(steps), _description(weights))
    x_a = _named(NEW, new)
    both = Tensor("Z and new", (1, len(classes) + len(new)))
    steps.append(Step(Op.CONCATENATION, (Z, x_a), both))
    steps.append(_connected(both, last, scores, "V", weights))
    return Graph((x_s, x_a), tuple(steps), _description(weights))


def _named(kind: str, names: Sequence[str]) -> Tensor:
    """An input or output that says in its own name what it holds: every runtime shows names."""
    return Tensor(SEPARATOR.join([kind, *names]), (1, len(names)))


def _connected(x: Tensor, layer: Layer, out: Tensor, name: str, weights: WeightType) -> Step:
    """A layer of the graph. TFLite keeps weights transposed: one row for each output."""
    W = layer.W.T
    stored = Tensor(name, W.shape, W)
    if weights == "int8":
        stored = Tensor(name, W.shape, *to_int8(W))
    bias = Tensor(f"bias of {name}", layer.bias.shape, layer.bias)
    return Step(Op.FULLY_CONNECTED, (x, stored, bias), out)


def _description(weights: WeightType) -> str:
    return f"edge-opid: class scores from sensor columns, {weights} weights"
