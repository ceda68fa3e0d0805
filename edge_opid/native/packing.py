"""How a unit upper triangular factor lies in memory: the one place that knows.

C and NumPy work on the same bytes, so a state written by one is read by the other.

**WoodburyLearner**, A⁻¹ = U diag(v) Uᵀ: column j of U is stored from its top down to the end of
its *slab*, a group of 32 neighbouring columns, so that a slab is one dense block (32 × height, a
row of the block being a column of U) that NumPy can multiply, while the C file walks it column by
column. Heights are multiples of 8, the lanes of the C file. About half of D×D is stored:
4·(D²/2 + 16·D) bytes in float32.

>>> packed_size(125) * 4, 125 * 125 * 4
(39424, 62500)

**GramLearner**, G = Lᵀ diag(w) L: the rows of L one after the other, each from its diagonal on,
with w in the place of the ones: d(d+1)/2 numbers, as many as the Gram matrix itself has.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

LANES = 8  # also in _compiled.c
SLAB = 32  # also in _compiled.c; wide enough that NumPy's call overhead is shared by 32 columns

Floats = NDArray[np.floating[Any]]


class Slab(NamedTuple):
    """Columns [start, stop) of U: where the block begins in the packed array, and its height."""

    start: int
    stop: int
    offset: int
    height: int


def padded(n: int) -> int:
    """`n` rounded up to whole groups of lanes."""
    return -(-n // LANES) * LANES


@lru_cache(maxsize=64)
def slabs(size: int) -> tuple[Slab, ...]:
    """The slabs of a size×size factor, from the left."""
    found, offset = [], 0
    for start in range(0, size, SLAB):
        stop, height = min(start + SLAB, size), min(start + SLAB, padded(size))
        found.append(Slab(start, stop, offset, height))
        offset += (stop - start) * height
    return tuple(found)


def packed_size(size: int) -> int:
    """How many numbers a packed factor of size×size takes."""
    last = slabs(size)[-1]
    return last.offset + (last.stop - last.start) * last.height


def blocks(columns: Floats, size: int) -> Iterator[tuple[Slab, Floats]]:
    """Each slab with a view of its block: (stop − start) × height, a row per column of U."""
    for slab in slabs(size):
        width = slab.stop - slab.start
        view = columns[slab.offset : slab.offset + width * slab.height]
        yield slab, view.reshape(width, slab.height)


def pack(factor: Floats, dtype: DTypeLike) -> Floats:
    """The packed form of a dense upper triangular matrix."""
    size = len(factor)
    columns: Floats = np.zeros(packed_size(size), dtype)
    for slab, block in blocks(columns, size):
        rows = min(slab.height, size)
        block[:, :rows] = np.triu(factor[:rows, slab.start : slab.stop], -slab.start).T
    return columns


def unpack(columns: Floats, size: int) -> NDArray[np.float64]:
    """The leading size×size part of a packed factor, dense, in float64.

    >>> U = np.triu(np.arange(9.0).reshape(3, 3))
    >>> bool((unpack(pack(U, np.float32), 3) == U).all())
    True
    """
    factor = np.zeros((size, size))
    for slab, block in blocks(columns, size):
        rows = min(slab.height, size)
        factor[:rows, slab.start : slab.stop] = block[:, :rows].T
    return factor


@lru_cache(maxsize=8)
def upper(width: int) -> NDArray[np.bool_]:
    """The upper triangle of a width×width matrix, as a mask: read row by row, it is packed."""
    return np.triu(np.ones((width, width), bool))


def pack_root(root: Floats, dtype: DTypeLike) -> Floats:
    """The packed factor of G = rootᵀ root, `root` being upper triangular.

    Where nothing has been seen at all, root and factor are zero.
    """
    diagonal = np.diag(root)
    safe = np.where(diagonal == 0, np.inf, diagonal)
    factor = root / safe[:, None]
    np.fill_diagonal(factor, diagonal**2)
    return np.asarray(factor[upper(len(root))], dtype)


def unpack_root(packed: Floats, width: int) -> NDArray[np.float64]:
    """The upper triangular `root` with rootᵀ root = G, dense, in float64.

    >>> root = np.array([[2.0, 6.0], [0.0, 3.0]])
    >>> bool((unpack_root(pack_root(root, np.float32), 2) == root).all())
    True
    """
    factor = np.zeros((width, width))
    factor[upper(width)] = packed
    scales = np.sqrt(np.diag(factor))
    np.fill_diagonal(factor, 1.0)
    return np.asarray(factor * scales[:, None])
