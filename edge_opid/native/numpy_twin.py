"""The hot steps in NumPy: used where nothing was compiled, for float64, and for batches.

Its functions take the arguments of the C file's, and keep the same bytes. The letters
are the paper's: A⁻¹ = U diag(v) Uᵀ, B, λ.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from edge_opid.native.packing import SLAB, Floats, blocks, pack_root, padded, unpack_root
from edge_opid.native.rescue import definite_root, solved, triangular


@lru_cache(maxsize=8)
def inner(lam: float, batch: int, together: bool) -> NDArray[np.float64]:
    """M = K⁻¹ ⊗ I, where a batch enters A as A += [a b] (K ⊗ I) [a b]ᵀ.

    `a` are the readings on all sensors, `b` the same readings on the survivors, and K couples
    them: [1+λ, −λ; −λ, 1+λ]. With nothing planned to vanish (`together`), `a` is all, and K = 1.
    """
    K = np.eye(1) if together else np.array([[1 + lam, -lam], [-lam, 1 + lam]])
    return np.asarray(np.kron(solved(K, np.eye(len(K))), np.eye(batch)))


def absorb(columns: Floats, v: NDArray[np.float64], rows: Floats, M: NDArray[np.float64]) -> Floats:
    """Adds rowsᵀ M⁻¹ rows to A, in place; returns rows·A⁻¹ as it was before.

    Proposition 2's Woodbury step on the factor, one slab of columns at a time, for any number of
    rows: 2n of them, r×padded(D), for a batch of n readings (the paper's third n columns are
    combinations of the other two, so its 3n×3n inverse is that of a 2n×2n matrix, M).
    """
    gains = np.zeros_like(rows)
    for slab, block in blocks(columns, len(v)):
        h, here = slab.height, slice(slab.start, slab.stop)
        E = (block @ rows[:, :h].T).astype(np.float64)  # width×r: the rows along each column
        weighted = v[here, None] * E
        Q = _directions(E, weighted, v[here], M)
        within = (Q @ weighted.T) * _below(len(E))  # what a column takes from those left of it
        step = within.astype(block.dtype) @ block
        step += Q.astype(block.dtype) @ gains[:, :h]
        gains[:, :h] += weighted.T.astype(block.dtype) @ block
        np.subtract(block, step, out=block)
        v[here] /= 1 + (weighted * Q).sum(axis=1)
        M = M + E.T @ weighted
    return gains


def _directions(
    E: NDArray[np.float64], weighted: NDArray[np.float64], v: NDArray[np.float64], M: Floats
) -> NDArray[np.float64]:
    """M⁻¹e for each row e of E in turn, where M grows by v·e·eᵀ from one to the next.

    For one reading M is 1×1 or 2×2, and all its values are cumulative sums. For a batch the same
    follows from the Cholesky factor of E M⁻¹ Eᵀ + diag(1/v).
    """
    if E.shape[1] > 2:
        EN = solved(M, E.T).T
        L = definite_root(EN @ E.T + np.diag(1 / v)).T
        return solved(L / np.diag(L), EN)
    growth = np.zeros((len(E) + 1, M.size))
    growth[0] = M.ravel()
    np.multiply(weighted[:, :, None], E[:, None, :], out=growth[1:].reshape(len(E), *M.shape))
    grown = np.cumsum(growth, axis=0)[:-1].T  # entries of M as each column finds it
    if E.shape[1] == 1:
        return np.asarray(E / grown.T)
    m11, m12, _, m22 = grown
    e1, e2 = E.T
    found = np.array([m22 * e1 - m12 * e2, m11 * e2 - m12 * e1]) / (m11 * m22 - m12**2)
    return np.asarray(found.T)


@lru_cache(maxsize=SLAB)
def _below(width: int) -> NDArray[np.float64]:
    return np.tril(np.ones((width, width)), -1)


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
    work: Floats,  # noqa: ARG001  the C file's working space
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
    gains = absorb(columns, v, rows, inner(lam, 1, together=len(rows) == 1))
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


def absorb_gram(packed: Floats, X: Floats, decay: float = 1.0) -> None:
    """G ← decay·G + XᵀX on the packed factor, in place, by a QR decomposition in float64."""
    root = np.sqrt(decay) * unpack_root(packed, X.shape[1])
    packed[:] = pack_root(triangular(np.vstack([root, X])), packed.dtype)


def learn_gram(
    packed: Floats, B: Floats, width: int, x: Floats, label: int, decay: float, limit: float
) -> int:
    """One reading into the packed Gram factor; see `_compiled.learn_gram`."""
    bad = first_beyond(x, limit)
    if bad >= 0:
        return bad
    rest, left, start = x.astype(packed.dtype), 1.0, 0
    B *= B.dtype.type(decay)
    B[:, label] += rest
    for column in range(width):  # each row takes its share of the reading and hands on the rest
        row = packed[start : start + width - column]
        start += len(row)
        share, weight = float(rest[0]), decay * float(row[0])
        total = weight + left * share**2
        row[0], rest = total, rest[1:] - rest[0] * row[1:] if total > 0 else rest[1:]
        if total > 0:
            row[1:] += packed.dtype.type(left * share / total) * rest
            left *= weight / total
    return -1
