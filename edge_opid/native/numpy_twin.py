"""The hot steps in NumPy: used where nothing was compiled, for float64, and for batches.

Its functions take the arguments of the C file's, and keep the same bytes: arrays and settings are
held once (`hold_ridge`, `hold_gram`), and a step is told of the reading alone. The letters
are the paper's: A⁻¹ = U diag(v) Uᵀ, B, λ.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edge_opid.native.packing import SLAB, Floats, blocks, pack_root, padded, unpack_root
from edge_opid.native.rescue import definite_root, solved, triangular

GRAM_NOISE = 8  # times the rounding of a reading's largest value; also in _compiled.c


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


class Ridge(NamedTuple):
    """The arrays and settings of a WoodburyLearner."""

    columns: Floats
    v: NDArray[np.float64]
    B: Floats
    work: Floats  # the C file's working space
    vanishing: int
    surviving: int
    lam: float
    decay: float
    ceiling: float
    limit: float


hold_ridge = Ridge


def learn(ridge: Ridge, x: Floats, label: int, scores: NDArray[np.float64] | None) -> int:
    """One Woodbury step; see `_compiled.learn`."""
    columns, v, B = ridge.columns, ridge.v, ridge.B
    bad = first_beyond(x, ridge.limit)
    if bad >= 0:
        return bad
    rows = stacked(x.astype(columns.dtype)[None], ridge.vanishing, len(v))
    fade(v, B, ridge.decay, ridge.ceiling)
    gains = absorb(columns, v, rows, inner(ridge.lam, 1, together=len(rows) == 1))
    if scores is not None:
        scores[:] = gains[[0, -1], : len(v)].astype(np.float64) @ B
    d = ridge.vanishing + ridge.surviving
    B[:d, label] += rows[0, :d]
    B[d:, label] += rows[-1, d : len(v)]
    return -1


def predict(ridge: Ridge, x: Floats, survivors: bool, scores: NDArray[np.float64]) -> int:
    """The scores of one classifier; see `_compiled.predict`."""
    bad = first_beyond(x, ridge.limit)
    if bad >= 0:
        return bad
    vector = np.zeros((len(ridge.v), 1))
    start = ridge.vanishing + ridge.surviving if survivors and ridge.vanishing else 0
    vector[start : start + len(x), 0] = x.astype(ridge.columns.dtype)
    scores[:] = times(ridge.columns, ridge.v, vector)[:, 0] @ ridge.B
    return -1


def absorb_gram(packed: Floats, X: Floats, decay: float = 1.0) -> None:
    """G ← decay·G + XᵀX on the packed factor, in place, by a QR decomposition in float64."""
    root = np.sqrt(decay) * unpack_root(packed, X.shape[1])
    packed[:] = pack_root(triangular(np.vstack([root, X])), packed.dtype)


class Gram(NamedTuple):
    """The arrays and settings of a GramLearner."""

    packed: Floats
    B: Floats
    work: Floats  # the C file's working space, one number a column
    decay: float
    limit: float


hold_gram = Gram


def learn_gram(gram: Gram, x: Floats, label: int) -> int:
    """One reading into the packed Gram factor; see `_compiled.learn_gram`."""
    packed, B, width, decay = gram.packed, gram.B, len(gram.work), gram.decay
    bad = first_beyond(x, gram.limit)
    if bad >= 0:
        return bad
    rest, left, start = x.astype(packed.dtype), 1.0, 0
    kind = np.finfo(packed.dtype)
    # Below, a column holds nothing but rounding that those before do not say: no divisor.
    least = (GRAM_NOISE * float(kind.eps) * float(np.abs(rest).max())) ** 2
    B *= B.dtype.type(decay)
    B[:, label] += rest
    for column in range(width):  # each row takes its share of the reading and hands on the rest
        row = packed[start : start + width - column]
        start += len(row)
        share, weight = float(rest[0]), decay * float(row[0])
        total = weight + left * share**2
        counts = total >= least and packed.dtype.type(total) >= kind.tiny
        row[0] = total if counts else weight
        rest = rest[1:] - rest[0] * row[1:] if counts else rest[1:]
        if counts:
            row[1:] += packed.dtype.type(left * share / total) * rest
            left *= weight / total
    return -1
