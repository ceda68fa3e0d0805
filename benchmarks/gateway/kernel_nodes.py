"""What a kernel on landmarks costs a node: accuracy against the exact kernel, bytes, microseconds.

    python -m benchmarks.gateway.kernel_nodes [--data FOLDER] [--draws 5]

Half of the columns, drawn by a seed, survive from a C-stage of 1,000 readings; the others are new,
and there is a batch of 240. Accuracy is on 1,000 other instances, and on held-out folds of the
batch, which is what a gateway reports; the mean of the draws. One BLAS thread.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy

import timeit
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.common.command import command_line
from benchmarks.common.data import DATA
from edge_opid.models import model_from_weights
from edge_opid.wire import Matrix, Weights
from gateway.estage import (
    LINEAR,
    Batch,
    KernelModel,
    KernelOpid,
    LandmarkOpid,
    column_weights,
    fit_best,
    hits_on,
)
from gateway.estage.tuning import tuned
from gateway.fitting.models import FittedKernel, kernel_parts

Floats = NDArray[np.float64]
READINGS, N, FRESH = 1000, 240, 1000
COUNTS = (16, 32, 64)


@dataclass(frozen=True)
class KernelDraw:
    """A C-stage that is over, a batch, and instances nobody has seen."""

    W_s: Floats
    batch: Batch
    fresh: Batch
    X: Floats
    """The batch's columns: survivors, the constant one last, then the new ones."""


def loaded(folder: Path, name: str) -> tuple[Floats, NDArray[np.int64]]:
    """All instances of a set in units of their spread, and their classes from 0."""
    with np.load(folder / f"{name}.npz") as saved:
        if "X" in saved.files:
            X, y = saved["X"], saved["y"]
        else:
            X = np.vstack([saved["X_train"], saved["X_test"]])
            y = np.concatenate([saved["y_train"], saved["y_test"]])
    spread = X.std(0)
    scaled = (X - X.mean(0)) / np.where(spread > 0, spread, 1.0)
    return scaled, np.unique(y, return_inverse=True)[1]


def draw(X: Floats, y: NDArray[np.int64], seed: int) -> KernelDraw:
    """One change of sensors."""
    rng = np.random.default_rng(seed)
    rows, columns = rng.permutation(len(y)), rng.permutation(X.shape[1])
    X, y, c = X[rows][:, columns], y[rows], int(y.max()) + 1
    half = X.shape[1] // 2
    Xs, Xa = np.column_stack([X[:, :half], np.ones(len(y))]), X[:, half:]
    old, new = Xs[:READINGS], slice(READINGS, READINGS + N)
    later = slice(READINGS + N, READINGS + N + FRESH)
    W_s = np.linalg.solve(old.T @ old + np.eye(half + 1), old.T @ np.eye(c)[y[:READINGS]])
    batch, fresh = (Batch.of(Xs[at] @ W_s, Xa[at], y[at], c) for at in (new, later))
    return KernelDraw(np.asarray(W_s, float), batch, fresh, np.hstack([Xs[new], Xa[new]]))


def measured(made: KernelDraw, seed: int) -> dict[str, tuple[float, ...]]:
    """For each form: held-out accuracy, accuracy on fresh instances, bytes, µs a score."""
    batch, width = made.batch, made.X.shape[1]
    data = batch.Z, batch.Xa, batch.y, batch.classes
    names = [f"s{place}" for place in range(width)]
    survivors = len(made.W_s)
    best = fit_best(*data, seed=seed, candidates=LINEAR)
    W = column_weights(best.model, made.W_s).matrix(bias_column=survivors - 1)
    weights = Weights("matrix", {"W": Matrix.of(W)})
    found = {"one matrix": (best.hits.mean(), right(best.model, made), *cost(weights, made))}
    exact = tuned(KernelOpid(), batch, 5, seed)
    found["exact kernel"] = (hits_on(KernelOpid(), batch, seed).mean(), right(exact, made), 0, 0)
    for count in COUNTS:
        candidate = LandmarkOpid(count=count)
        model = tuned(candidate, batch, 5, seed)
        assert isinstance(model, KernelModel)
        parts = kernel_parts(made.W_s, model)
        small = FittedKernel(parts, names, names[:survivors], names[survivors:])
        hits = hits_on(candidate, batch, seed).mean()
        found[f"{count} landmarks"] = (hits, right(model, made), *cost(small.weights(names), made))
    return {name: tuple(map(float, each)) for name, each in found.items()}


def right(model: object, made: KernelDraw) -> float:
    """The share of fresh instances that a model gets right."""
    fresh = made.fresh
    scores = model.scores(fresh.Z, fresh.Xa)  # type: ignore[attr-defined]
    return float(np.mean(scores.argmax(1) == fresh.y))


def cost(weights: Weights, made: KernelDraw) -> tuple[int, float]:
    """The bytes of all matrices, and the µs a node takes for one score."""
    node = model_from_weights(weights, 1, made.X.shape[1], made.batch.classes)
    x = made.X[0].astype(np.float32)
    taken = min(timeit.repeat(lambda: node.scores(x), number=500, repeat=7)) / 500
    return sum(len(each.data) for each in weights.matrices.values()), 1e6 * taken


def main() -> None:
    """Print a table for each set."""
    given = command_line(__doc__)
    given.add_argument("--data", type=Path, default=DATA)
    given.add_argument("--draws", type=int, default=5)
    options = given.parse_args()
    for name in ("room_occupancy", "splice"):
        X, y = loaded(options.data, name)
        total: dict[str, list[tuple[float, ...]]] = defaultdict(list)
        for seed in range(options.draws):
            for form, figures in measured(draw(X, y, seed), seed).items():
                total[form].append(figures)
        print(f"{name}, {X.shape[1]} columns, {y.max() + 1} classes, {options.draws} draws")
        print(f"{'':14} held-out   fresh   bytes   µs a score")
        for form, rows in total.items():
            held, fresh, size, taken = np.mean(rows, axis=0)
            print(f"{form:14} {held:8.3f} {fresh:7.3f} {size:7.0f} {taken:12.1f}")


if __name__ == "__main__":
    main()
