"""Getting weights ready for int8, of which a whole matrix shares one scale.

One large weight then makes every small one coarse. Two things that change no score help:

1. A layout's constant column is 1 in every reading, and its weights are often the largest by far.
   They go to the operator's own bias, which stays float32.
2. Between the two layers Z may have any unit: multiply a column of W^(s) by f, divide that row of
   V_z by f. So the columns of W^(s) become equally large, and V_z as large as V_a.

`python -m benchmarks.tflite.files` shows what is left: the share of labels that differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edge_opid.layout.layout import BIAS

Floats = NDArray[np.float32]
INT8_MAX = 127  # symmetric: −128 would have no counterpart


@dataclass(frozen=True)
class Layer:
    """x W + bias."""

    W: Floats
    """One row for each column that comes in, one column for each score that goes out."""
    bias: Floats
    """One number for each score."""


def without_constant(layer: Layer, columns: Sequence[str]) -> Layer:
    """The weights of the constant column as part of the bias.

    >>> layer = Layer(np.array([[0.1, 0.2], [5.0, 6.0]], np.float32), np.zeros(2, np.float32))
    >>> light = without_constant(layer, ["temp", "bias"])
    >>> light.W[1].tolist(), light.bias.tolist()
    ([0.0, 0.0], [5.0, 6.0])
    """
    if BIAS not in columns:
        return layer
    row = list(columns).index(BIAS)
    W = layer.W.copy()
    W[row] = 0
    return Layer(W, layer.bias + layer.W[row])


def balanced(first: Layer, last: Layer) -> tuple[Layer, Layer]:
    """The same two layers with another unit for each column of Z between them.

    `last.W` begins with the rows for Z; the rows for new sensors follow, and stay as they are.
    """
    W, bias, V = (each.astype(np.float64) for each in (first.W, first.bias, last.W))
    c = W.shape[1]
    unit = 1 / _or_one(np.abs(W).max(axis=0))
    rows = np.abs(V[:c] / unit[:, None]).max()
    beside = np.abs(V[c:]).max(initial=0) or rows
    unit *= _or_one(rows / _or_one(beside))
    V[:c] /= unit[:, None]
    return Layer(_single(W * unit), _single(bias * unit)), Layer(_single(V), last.bias)


def to_int8(W: Floats) -> tuple[NDArray[np.int8], float]:
    """The nearest whole steps, and what one step is worth.

    >>> steps, scale = to_int8(np.array([[0.5, -1.27]], np.float32))
    >>> steps.tolist(), round(scale, 6)
    ([[50, -127]], 0.01)
    """
    scale = float(np.float32(_or_one(np.abs(W).max() / INT8_MAX)))
    return np.rint(W / np.float32(scale)).astype(np.int8), scale


def _or_one(sizes: ArrayLike) -> NDArray[np.float64]:
    """What may be divided by: where there is nothing to make equal, one will do."""
    return np.where(np.asarray(sizes, np.float64) > np.finfo(np.float32).tiny, sizes, 1.0)


def _single(values: NDArray[np.float64]) -> Floats:
    return values.astype(np.float32)
