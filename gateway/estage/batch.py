"""The labelled batch an E-stage fit starts from, and the folds it is judged by."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edge_opid.errors import RefusedError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class BatchError(RefusedError, ValueError):
    """The labelled batch is at fault: other lengths, labels out of range, numbers not finite."""

    def __init__(self, sentence: str) -> None:
        super().__init__("batch", sentence)


@dataclass(frozen=True)
class SurvivorColumns:
    """The surviving sensors' own columns, and how sure the C-stage is of their weights."""

    Xs: Floats
    """n×d_s: the columns that Z = X^(s) W^(s) was made of."""
    precision: Floats
    """d_s×d_s: G_ss + ρI of the C-stage, positive definite."""

    @classmethod
    def of(cls, Xs: ArrayLike, gram: ArrayLike, rho: float) -> SurvivorColumns:
        """From the survivors' part of the Gram matrix; ρ as W^(s) was solved with."""
        gram = np.array(gram, float)
        return cls(np.array(Xs, float), gram + rho * np.eye(len(gram)))

    def take(self, rows: Ints) -> SurvivorColumns:
        """These instances only."""
        return SurvivorColumns(self.Xs[rows], self.precision)


@dataclass(frozen=True)
class Batch:
    """n labelled instances: what the survivors say, what the new sensors say, and what is true.

    >>> batch = Batch.of([[0.9, 0.1], [0.2, 0.8]], [[5.0], [7.0]], [0, 1], classes=2)
    >>> batch.n, batch.classes, batch.new
    (2, 2, 1)
    """

    Z: Floats
    """X^(s) W^(s), n×c: the C-stage's scores for the survivors."""
    Xa: Floats
    """The new sensors' columns, n×d_a; d_a may be 0."""
    y: Ints
    """Class indices, n."""
    classes: int
    survivors: SurvivorColumns | None = None
    """What Z was made of, where the caller has it."""

    @classmethod
    def of(
        cls,
        Z: ArrayLike,
        Xa: ArrayLike,
        y: ArrayLike,
        classes: int,
        survivors: SurvivorColumns | None = None,
    ) -> Batch:
        """A batch in float64, or a `BatchError` that says what does not fit."""
        batch = cls(np.array(Z, float), np.array(Xa, float), np.array(y, int), classes, survivors)
        shapes = batch.Z.shape, batch.Xa.shape, batch.y.shape
        n = len(batch.y) if batch.y.ndim == 1 else -1
        if classes < 2 or batch.Xa.ndim != 2 or shapes != ((n, classes), (n, batch.new), (n,)):
            raise BatchError(
                f"need Z n×c, Xa n×d_a and y n for c = {classes} ≥ 2 classes, got {shapes}"
            )
        if not (np.isfinite(batch.Z).all() and np.isfinite(batch.Xa).all()):
            raise BatchError("Z and Xa must be finite, and are not")
        if survivors is not None:
            check_survivors(survivors, n)
        if n and not 0 <= batch.y.min() <= batch.y.max() < classes:
            raise BatchError(f"labels must be 0…{classes - 1}, got {batch.y.min()}…{batch.y.max()}")
        return batch

    @property
    def n(self) -> int:
        """How many instances."""
        return len(self.y)

    @property
    def new(self) -> int:
        """d_a: how many columns the new sensors have."""
        return int(self.Xa.shape[1])

    @cached_property
    def Y(self) -> Floats:
        """The labels, one-hot: n×c."""
        return np.eye(self.classes)[self.y]

    @cached_property
    def columns(self) -> Floats:
        """[Z, X^(a)], n×(c + d_a)."""
        return np.hstack([self.Z, self.Xa])

    def take(self, rows: Ints) -> Batch:
        """These instances only."""
        survivors = None if self.survivors is None else self.survivors.take(rows)
        return Batch(self.Z[rows], self.Xa[rows], self.y[rows], self.classes, survivors)

    @cached_property
    def groups(self) -> Ints:
        """Which instances are copies of each other: equal numbers for equal rows, 0…G − 1."""
        rows = np.column_stack([self.columns, self.y])
        return np.asarray(np.unique(rows, axis=0, return_inverse=True)[1], np.int64).reshape(-1)


def check_survivors(survivors: SurvivorColumns, n: int) -> None:
    """Refuse columns that are not the batch's, or a precision that is not theirs."""
    Xs, precision = survivors.Xs, survivors.precision
    width = Xs.shape[1] if Xs.ndim == 2 else -1
    if Xs.shape != (n, width) or precision.shape != (width, width):
        raise BatchError(
            f"need Xs {n}×d_s and precision d_s×d_s, got {Xs.shape} and {precision.shape}"
        )
    if not (np.isfinite(Xs).all() and np.isfinite(precision).all()):
        raise BatchError("Xs and its precision must be finite, and are not")


def standard_errors(differences: Floats, batch: Batch) -> Floats:
    """Of the means of …×n differences, where copies of a row are one observation with more weight.

    >>> batch = Batch.of(np.eye(2)[[0, 1]], np.zeros((2, 0)), [0, 1], classes=2)
    >>> float(standard_errors(np.array([0.0, 1.0]), batch))
    0.5
    """
    order = np.argsort(batch.groups, kind="stable")
    first = np.flatnonzero(np.diff(batch.groups[order], prepend=-1))
    off = differences - differences.mean(-1, keepdims=True)
    off, count = np.add.reduceat(off[..., order], first, axis=-1), len(first)
    return np.asarray(np.sqrt(np.sum(off * off, -1) * count / max(1, count - 1)) / batch.n)


def stratified_folds(batch: Batch, folds: int, seed: int) -> list[Ints]:
    """The held-out rows of each fold: every class spread evenly, copies of a row never parted.

    A copy in the training part would make cross-validation an open-book exam. Classes are dealt
    one after the other, so a fold differs from another by at most one group of each class and
    no fold stays empty while another has two.

    >>> batch = Batch.of(np.eye(2)[[0, 0, 1, 1]], np.arange(4.0)[:, None], [0, 0, 1, 1], 2)
    >>> [sorted(batch.y[held].tolist()) for held in stratified_folds(batch, 2, seed=0)]
    [[0, 1], [0, 1]]
    """
    first = np.unique(batch.groups, return_index=True)[1]
    count = min(folds, len(first))
    shuffled = np.random.default_rng(seed).permutation(first)
    dealt = shuffled[np.argsort(batch.y[shuffled], kind="stable")]
    fold_of_group = np.empty(len(first), np.int64)
    fold_of_group[batch.groups[dealt]] = np.arange(len(dealt)) % max(count, 1)
    fold_of_row = fold_of_group[batch.groups]
    return [np.flatnonzero(fold_of_row == fold) for fold in range(count)]
