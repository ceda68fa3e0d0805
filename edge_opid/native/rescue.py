"""Decompositions that always answer: a matrix that rounding has spoiled ends no process.

LAPACK refuses a matrix that is not positive definite, or is singular, by a few units in the last
place: two sensors that say the same in large numbers are enough. Here the usual decomposition is
tried first, so that ordinary bits are the ordinary ones; where it fails, the nearest matrix that
has one is taken instead, which is the same one every time. Whoever `watch`es is told in a sentence.

A learner that knows nothing has diagonal matrices. Those are taken apart without LAPACK, to the
same bits: its code, 2 MB of a node's memory, is loaded by the first change of what was learned.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
from numpy.typing import NDArray

from edge_opid.errors import RefusedError

Matrix = NDArray[np.float64]
FLOOR = float(np.finfo(np.float64).eps)
"""The smallest eigenvalue that a float64 matrix of size 1 can tell from rounding."""

_told: ContextVar[list[str] | None] = ContextVar("told", default=None)


class NumbersError(RefusedError, ArithmeticError):
    """Numbers that no decomposition can help: not finite."""

    def __init__(self, sentence: str) -> None:
        super().__init__("nonfinite", sentence)


@contextmanager
def watch() -> Iterator[list[str]]:
    """Every rescue within the block, in a sentence each.

    >>> with watch() as told:
    ...     print(solved(np.ones((2, 2)), np.ones((2, 1))).round(3).tolist())
    [[0.5], [0.5]]
    >>> print(told[0])
    a singular 2×2 system was solved by least squares: larger ρ or smaller values are safer
    """
    found: list[str] = []
    token = _told.set(found)
    try:
        yield found
    finally:
        _told.reset(token)


def _tell(sentence: str) -> None:
    told, advice = _told.get(), "larger ρ or smaller values are safer"
    if told is None:
        warnings.warn(f"{sentence}: {advice}", RuntimeWarning, stacklevel=4)
    else:
        told.append(f"{sentence}: {advice}")


def _check(A: NDArray[np.floating]) -> None:
    if not np.isfinite(A).all():
        raise NumbersError(f"a {len(A)}×{len(A)} matrix must be finite to be solved, and is not")


def is_diagonal(A: NDArray[np.floating]) -> bool:
    """Whether everything beside the diagonal is zero."""
    return bool(np.count_nonzero(A) == np.count_nonzero(A.diagonal()))


def definite_root(A: Matrix) -> Matrix:
    """An upper triangular root with rootᵀ root = A, for A positive definite up to rounding."""
    _check(A)
    if is_diagonal(A) and (A.diagonal() > 0).all():
        return np.diag(np.sqrt(A.diagonal()))
    try:
        return np.asarray(np.linalg.cholesky(A).T)
    except np.linalg.LinAlgError:
        pass
    values, vectors = np.linalg.eigh(A)
    floor = max(len(A) * FLOOR * float(np.abs(values).max()), float(np.finfo(float).tiny))
    _tell(f"a {len(A)}×{len(A)} matrix was not positive definite and was mended")
    return triangular((vectors * np.sqrt(np.maximum(values, floor))).T)


def inverse(A: Matrix) -> Matrix:
    """A⁻¹ of a matrix that has one.

    >>> inverse(np.diag([2.0, 4.0])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    return np.diag(1 / A.diagonal()) if is_diagonal(A) else np.asarray(np.linalg.inv(A), np.float64)


def solved(A: NDArray[np.floating], B: NDArray[np.floating]) -> Matrix:
    """A⁻¹B; the shortest of the best answers where A is singular."""
    _check(A)
    try:
        return np.asarray(np.linalg.solve(A, B), np.float64)
    except np.linalg.LinAlgError:
        pass
    _tell(f"a singular {len(A)}×{len(A)} system was solved by least squares")
    return np.asarray(np.linalg.lstsq(A, B, rcond=None)[0], np.float64)


def triangular(rows: NDArray[np.floating]) -> Matrix:
    """The upper triangular root with rootᵀ root = rowsᵀ rows: R of a QR decomposition.

    A column that depends on those before it would leave a zero on the diagonal with a row that is
    not zero, which no unit triangular factor can express. A billionth of the largest value, added
    to every column on its own, prevents that; it changes rowsᵀ rows by 1e-18 of its size.
    """
    guard = 1e-9 * np.abs(rows).max(initial=0.0) * np.eye(rows.shape[1])
    return np.asarray(np.linalg.qr(np.vstack([rows, guard]), mode="r"), np.float64)
