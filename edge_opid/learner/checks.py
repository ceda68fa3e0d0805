"""The guards: what a reading must be before a learner looks at it."""

from __future__ import annotations

import math
import operator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from edge_opid.errors import ReadingError, Refusal
from edge_opid.learner.settings import Settings
from edge_opid.native.numpy_twin import first_beyond
from edge_opid.native.packing import Floats


def as_values(x: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """`x` as a contiguous float array of this shape, copied only where it has to be.

    >>> as_values([1.0, 2.0], (3,))
    Traceback (most recent call last):
    edge_opid.errors.ReadingError: expected 3 values, got 2
    """
    if not (isinstance(x, np.ndarray) and x.dtype.char in "fd" and x.flags.c_contiguous):
        try:
            x = np.ascontiguousarray(x, np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            refusal = Refusal("type", f"expected {shape[-1]} numbers: {error}")
            raise ReadingError(refusal) from error
    if x.shape != shape:
        raise ReadingError(Refusal("width", _width_sentence(x.shape, shape)))
    return x


def _width_sentence(got: tuple[int, ...], expected: tuple[int, ...]) -> str:
    if len(got) != len(expected):
        return f"expected an array of shape {expected}, got {got}"
    if got[0] != expected[0] and len(expected) == 2:
        return f"expected {expected[0]} readings, one per label, got {got[0]}"
    return f"expected {expected[-1]} values, got {got[-1]}"


def as_label(y: Any, classes: int) -> int:
    """`y` as a class index.

    >>> as_label(3, classes=3)
    Traceback (most recent call last):
    edge_opid.errors.ReadingError: label must be 0..2, got 3
    """
    try:
        label = operator.index(y)
    except TypeError as error:
        raise ReadingError(Refusal("label", f"label must be a class index, got {y!r}")) from error
    if not 0 <= label < classes:
        raise ReadingError(Refusal("label", f"label must be 0..{classes - 1}, got {label}"))
    return label


def beyond(x: Floats, column: int, limit: float) -> ReadingError:
    """The error for the value in this column, which is not a number within the limit.

    >>> print(beyond(np.array([0.0, float("nan")]), 1, 1e6))
    column 1 is nan: expected a finite number
    """
    value = float(x[column])
    if not math.isfinite(value):
        return ReadingError(
            Refusal("non-finite", f"column {column} is {value}: expected a finite number")
        )
    sentence = (
        f"column {column} is {value:g}: expected at most {limit:g} in size; scale it (Layout)"
    )
    return ReadingError(Refusal("limit", sentence))


def as_batch(X: ArrayLike, y: ArrayLike, settings: Settings) -> tuple[Floats, list[int]]:
    """n×d readings and n labels, every one of them fit to be learned."""
    labels = [as_label(label, settings.classes) for label in np.asarray(y).tolist()]
    rows = as_values(X, (len(labels), settings.width))
    bad = first_beyond(rows.ravel(), settings.limit)
    if bad >= 0:
        number, column = divmod(bad, settings.width)
        refusal = beyond(rows[number], column, settings.limit).refusal
        raise ReadingError(replace(refusal, sentence=f"reading {number}: {refusal}"))
    return rows, labels
