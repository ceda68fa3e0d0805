"""How long float32 stays right: labels that differ from a float64 solve, form by form.

    python -m benchmarks.precision [--readings 1000000] [--years]

A seeded stream of 40 sensors (12 vanish) whose Gram matrix has condition 1e6. `--years` adds 16
million readings of 12 sensors, with and without the limit on evidence.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.common.command import command_line
from edge_opid import GramLearner, WoodburyLearner

# The same streams and the same float64 solve as the tests; `make` starts us beside them.
oracle: Any = import_module("tests.support.oracle")

CLASSES, LAM = 3, 1.0
Form = tuple[Callable[[Any, Any], None], Callable[[], Any]]
"""Learn a chunk; give W̃ as it is now."""


def learner(kind: Any, shape: tuple[int, int], rho: float, **options: Any) -> Form:
    """One of ours, one reading at a time."""
    made = kind(*shape, CLASSES, rho=rho, **options)
    return lambda X, y: made.learn_many(X, y, batch=1), lambda: made.weights()[0]


def printed(shape: tuple[int, int], rho: float) -> Form:
    """Eq. 10 as printed, NumPy float32."""
    vanishing, surviving = shape
    d, D = vanishing + surviving, vanishing + 2 * surviving
    A_inverse, B = np.eye(D, dtype=np.float32) / np.float32(rho), np.zeros((D, 3), np.float32)
    U = np.zeros((D, 3), np.float32)

    def learn(X: Any, y: Any) -> None:
        for x, label in zip(X, y, strict=True):
            U[:d, 0], U[d:, 1] = x, x[vanishing:]
            U[:, 2] = U[:, 0] - U[:, 1]
            AU = A_inverse @ U
            middle = np.linalg.inv(np.eye(3, dtype=np.float32) + U.T @ AU)
            A_inverse[:] -= AU @ middle @ (U.T @ A_inverse)
            B[:, label] += U[:, 0] + U[:, 1]

    return learn, lambda: (A_inverse.astype(np.float64) @ B)[:d]


def summed(shape: tuple[int, int], rho: float) -> Form:
    """The Gram matrix as a plain float32 sum."""
    d = sum(shape)
    gram, moments = np.zeros((d, d), np.float32), np.zeros((d, CLASSES), np.float32)

    def learn(X: Any, y: Any) -> None:
        for x, label in zip(X, y, strict=True):
            np.add(gram, np.outer(x, x), out=gram)
            moments[:, label] += x

    sums = gram, moments
    return learn, lambda: oracle.eq4_from_sums(
        *(s.astype(float) for s in sums), shape[0], LAM, rho
    )[0]


def wrong(stream: Any, total: int, shape: tuple[int, int], rho: float, form: Form) -> str:
    """The share of labels that differ at the end, or when the form broke down."""
    learn, weights = form
    d = sum(shape)
    gram, moments = np.zeros((d, d)), np.zeros((d, CLASSES))
    done = 0
    for X, y in stream.chunks(total):
        learn(X, y)
        wide = X.astype(np.float64)
        gram += wide.T @ wide
        moments += wide.T @ oracle.one_hot(y, CLASSES)
        done += len(X)
        W = weights()
        if not np.isfinite(W).all():
            return f"NaN or infinite within {done:,}"
    truth = oracle.eq4_from_sums(gram, moments, shape[0], LAM, rho)[0]
    return f"{oracle.disagreement(wide, W.astype(np.float64), truth):.3%}"


def table(total: int) -> None:
    """Every form on the same streams."""
    shape = (12, 28)
    columns = [(rho, offset) for rho in (1.0, 1e-3) for offset in (0.0, 3.0)]
    print(
        f"| labels that differ after {total:,} readings | "
        + " | ".join(f"ρ = {rho:g}, offset {offset:g}" for rho, offset in columns)
        + " |"
    )
    print("|---" * (len(columns) + 1) + "|")
    forms: dict[str, Callable[[float], Form]] = {
        "WoodburyLearner": lambda rho: learner(WoodburyLearner, shape, rho),
        "GramLearner": lambda rho: learner(GramLearner, shape, rho),
        "Eq. 10 as printed, float32": lambda rho: printed(shape, rho),
        "Gram matrix as a float32 sum": lambda rho: summed(shape, rho),
    }
    for name, make in forms.items():
        cells = []
        for rho, offset in columns:
            stream = oracle.Stream(40, condition=1e6, offset=offset)
            cells.append(wrong(stream, total, shape, rho, make(rho)))
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def years() -> None:
    """Sixteen million readings: where float32 sums stand still."""
    stream, shape = oracle.Stream(12, condition=1e4, offset=1.0), (4, 8)
    for name, limit in (("2²²", 2.0**22), ("none", math.inf)):
        for kind in (WoodburyLearner, GramLearner):
            form = learner(kind, shape, 1e-2, evidence_max=limit)
            share = wrong(stream, 16_000_000, shape, 1e-2, form)
            print(
                f"16,000,000 readings, {kind.__name__}, limit on evidence {name}: {share}",
                flush=True,
            )


def main() -> None:
    """Print what was asked for."""
    parser = command_line(__doc__)
    parser.add_argument("--readings", type=int, default=1_000_000)
    parser.add_argument("--years", action="store_true")
    options = parser.parse_args()
    np.seterr(all="ignore")  # the printed form overflows: that is the finding
    table(options.readings)
    if options.years:
        years()


if __name__ == "__main__":
    main()
