"""The kernel in NumPy: used where nothing was compiled, for float64, and for batches.

Its functions take the arguments of the compiled kernel's, and keep the same bytes. The letters
are the paper's: A⁻¹ = U diag(v) Uᵀ, B, λ.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .packing import Floats, blocks, padded


def coupling(lam: float, batch: int, together: bool) -> NDArray[np.float64]:
    """K, with which a batch enters A: A += [a b] (K ⊗ I) [a b]ᵀ.

    `a` are the readings on all sensors, `b` the same readings on the survivors. With nothing
    planned to vanish (`together`) there is only `a`, and K = 1.
    """
    K = np.eye(1) if together else np.array([[1 + lam, -lam], [-lam, 1 + lam]])
    return np.asarray(np.kron(K, np.eye(batch)))


def absorb(columns: Floats, v: NDArray[np.float64], rows: Floats, K: NDArray[np.float64]) -> Floats:
    """Adds rowsᵀ K rows to A, in place; returns rows·A⁻¹ as it was before.

    Proposition 2's Woodbury step on the factor, one slab of columns at a time, for any number of
    rows: 2n of them, r×padded(D), for a batch of n readings (the paper's third n columns are
    combinations of the other two). `N` is the inverse of the paper's inner matrix as far as the
    slabs to the left have built it; a slab's part of it is factored by Cholesky, in float64.
    """
    gains = np.zeros_like(rows)
    N = K.copy()
    for slab, block in blocks(columns, len(v)):
        h, here = slab.height, slice(slab.start, slab.stop)
        E = (block @ rows[:, :h].T).astype(np.float64)  # width×r: the rows along each column
        EN = E @ N
        L = np.linalg.cholesky(EN @ E.T + np.diag(1 / v[here]))
        pivots = np.diag(L)
        Q = np.linalg.solve(L / pivots, EN)  # width×r: M⁻¹e of each column in turn
        weighted = v[here, None] * E
        within = np.tril(Q @ weighted.T, -1)  # what a column takes from those left of it
        step = within.astype(block.dtype) @ block
        step += Q.astype(block.dtype) @ gains[:, :h]
        gains[:, :h] += weighted.T.astype(block.dtype) @ block
        block -= step
        v[here] = pivots**-2.0
        scaled = Q / pivots[:, None]
        N -= scaled.T @ scaled
    return gains


def times(columns: Floats, v: NDArray[np.float64], vectors: Floats) -> NDArray[np.float64]:
    """A⁻¹ times `vectors` (D×k), in float64, a slab at a time."""
    size, k = vectors.shape
    tall, out = np.zeros((padded(size), k)), np.zeros((padded(size), k))
    tall[:size] = vectors
    for slab, block in blocks(columns, size):
        wide = block.astype(np.float64)
        along = v[slab.start : slab.stop, None] * (wide @ tall[: slab.height])
        out[: slab.height] += wide.T @ along
    return out[:size]


def fade(v: NDArray[np.float64], B: Floats, decay: float, ceiling: float) -> None:
    """Old readings count `decay` times as much; no variance rises above `ceiling`."""
    if decay != 1.0:
        np.minimum(v / decay, ceiling, out=v)
        B *= B.dtype.type(decay)


def stacked(X: Floats, vanishing: int, size: int) -> Floats:
    """A batch as rows of A: the readings, then (where D > d) the readings of the survivors."""
    n, d = X.shape
    together = size == d
    rows: Floats = np.zeros((n if together else 2 * n, padded(size)), X.dtype)
    rows[:n, :d] = X
    if not together:
        rows[n:, d:size] = X[:, vanishing:]
    return rows


def first_beyond(x: Floats, limit: float) -> int:
    """The first value that is not within ±limit (NaN never is), or −1."""
    bad = ~(np.abs(x) <= limit)
    return int(bad.argmax()) if bad.any() else -1


def learn(
    columns: Floats,
    v: NDArray[np.float64],
    B: Floats,
    work: Floats,  # noqa: ARG001  the compiled kernel's working space
    vanishing: int,
    surviving: int,
    x: Floats,
    label: int,
    lam: float,
    decay: float,
    ceiling: float,
    limit: float,
    scores: NDArray[np.float64] | None,
) -> int:
    """One Woodbury step; see `_compiled.learn`."""
    bad = first_beyond(x, limit)
    if bad >= 0:
        return bad
    rows = stacked(x.astype(columns.dtype)[None], vanishing, len(v))
    fade(v, B, decay, ceiling)
    gains = absorb(columns, v, rows, coupling(lam, 1, together=len(rows) == 1))
    if scores is not None:
        scores[:] = gains[[0, -1], : len(v)].astype(np.float64) @ B
    d = vanishing + surviving
    B[:d, label] += rows[0, :d]
    B[d:, label] += rows[-1, d : len(v)]
    return -1


def predict(
    columns: Floats,
    v: NDArray[np.float64],
    B: Floats,
    work: Floats,  # noqa: ARG001
    vanishing: int,
    surviving: int,
    x: Floats,
    survivors: bool,
    limit: float,
    scores: NDArray[np.float64],
) -> int:
    """The scores of one classifier; see `_compiled.predict`."""
    bad = first_beyond(x, limit)
    if bad >= 0:
        return bad
    vector = np.zeros((len(v), 1))
    start = vanishing + surviving if survivors and vanishing else 0
    vector[start : start + len(x), 0] = x.astype(columns.dtype)
    scores[:] = times(columns, v, vector)[:, 0] @ B
    return -1


@lru_cache(maxsize=8)
def upper(width: int) -> NDArray[np.bool_]:
    """The upper triangle of a width×width matrix, row by row: how a Gram matrix is packed."""
    return np.triu(np.ones((width, width), bool))


def learn_gram(
    gram: Floats, B: Floats, width: int, x: Floats, label: int, decay: float, limit: float
) -> int:
    """G += x xᵀ on the packed upper triangle; see `_compiled.learn_gram`."""
    bad = first_beyond(x, limit)
    if bad >= 0:
        return bad
    x = x.astype(gram.dtype)
    if decay != 1.0:
        gram *= gram.dtype.type(decay)
        B *= B.dtype.type(decay)
    gram += np.outer(x, x)[upper(width)]
    B[:, label] += x
    return -1
