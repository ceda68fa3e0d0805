"""How long the E-stage's fits take, and what float16 and landmarks cost in accuracy.

    python -m benchmarks.gateway.estage

n = 300 instances, 80 survivors, d_a = 50 new columns, c = 3 classes, one BLAS thread. Accuracy on
real data is in `benchmarks/paper/__main__.py`.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegressionCV

from benchmarks.common.verdict import verdict
from gateway.estage import (
    LINEAR,
    Batch,
    KernelOpid,
    LandmarkOpid,
    SurvivorColumns,
    column_weights,
    fit_best,
    fit_opid,
    fit_opide,
    fit_update,
    hits_on,
    rounded,
)

N, SURVIVORS, NEW, CLASSES = 300, 80, 50, 3
FASTER_MIN, BEST_SECONDS_MAX = 20.0, 10.0


@dataclass(frozen=True)
class Task:
    """A made-up change of sensors: classes that are Gaussian in every column."""

    Xs: NDArray[np.float64]
    Xa: NDArray[np.float64]
    y: NDArray[np.int64]
    gram: NDArray[np.float64]
    W_s: NDArray[np.float64]

    @property
    def batch(self) -> tuple[Any, Any, Any, int]:
        """Z, X^(a), labels, classes."""
        return self.Xs @ self.W_s, self.Xa, self.y, CLASSES

    @property
    def survivors(self) -> SurvivorColumns:
        """What a gateway knows of them."""
        return SurvivorColumns.of(self.Xs, self.gram, 1.0)


def task(seed: int = 0, readings: int = 2000) -> Task:
    """A C-stage of `readings` and a batch of N, from one seed."""
    rng = np.random.default_rng(seed)
    middle = 0.2 * rng.normal(size=(CLASSES, SURVIVORS + NEW))
    y = rng.integers(0, CLASSES, readings + N)
    X = middle[y] + rng.normal(size=(len(y), SURVIVORS + NEW))
    old, new = X[:readings, :SURVIVORS], X[readings:]
    gram = old.T @ old
    W_s = np.linalg.solve(gram + np.eye(SURVIVORS), old.T @ np.eye(CLASSES)[y[:readings]])
    return Task(new[:, :SURVIVORS], new[:, SURVIVORS:], y[readings:], gram, np.asarray(W_s, float))


def timed(call: Callable[[], object], runs: int) -> float:
    """The fastest of some runs, in seconds, after one to warm up."""
    call()
    taken = []
    for _ in range(runs):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return min(taken)


def speeds(made: Task) -> None:
    """Every fit's time, and the two aims."""
    rows = np.hstack([made.batch[0], made.Xa])
    peer = LogisticRegressionCV(
        Cs=10, cv=5, max_iter=1000, l1_ratios=(0,), use_legacy_attributes=False, scoring="accuracy"
    )
    reference = timed(lambda: peer.fit(rows, made.y), 3)
    print(f"LogisticRegressionCV, 10 costs, 5 folds: {1e3 * reference:.0f} ms")
    best = timed(lambda: fit_best(*made.batch, survivors=made.survivors), 1)
    opid = timed(lambda: fit_opid(*made.batch), 15)
    for name, taken in (
        ("fit_opid", opid),
        ("fit_update", timed(lambda: fit_update(*made.batch, made.survivors), 15)),
        ("fit_opide", timed(lambda: fit_opide(*made.batch), 3)),
        ("fit_best, kernels too", best),
    ):
        print(f"{name}: {1e3 * taken:.1f} ms")
    print(verdict("times as fast, fit_opid", reference / opid, FASTER_MIN, at_least=True))
    print(verdict("seconds, fit_best", best, BEST_SECONDS_MAX, at_least=False))


def sizes(made: Task) -> None:
    """What the small forms cost in accuracy, on the batch itself and on held-out folds of it."""
    best = fit_best(*made.batch, survivors=made.survivors, candidates=LINEAR)
    rows = np.column_stack([made.Xs, made.Xa, np.ones(N)])
    half = rounded(column_weights(best.model, made.W_s).matrix(), rows, made.y)
    print(f"{best.chosen} in float16: {half.matrix.nbytes} bytes, accuracy {-half.loss:+.4f}")
    batch = Batch.of(*made.batch)
    exact = hits_on(KernelOpid(), batch, seed=0).mean()
    for count in (8, 32):
        gain = hits_on(LandmarkOpid(count=count), batch, seed=0).mean() - exact
        print(f"kernel, {count} landmarks: accuracy {gain:+.4f}")


if __name__ == "__main__":
    made_up = task()
    speeds(made_up)
    sizes(made_up)
