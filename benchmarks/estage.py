"""The paper's Table 2 on the sets at hand: every form of the E-stage, and what it is compared with.

    python benchmarks/estage.py [--repeats 10] [--sets dna splice mnist05 mnist035] [--seed 1000]
    python benchmarks/estage.py --speed

The C-stage (λ = ρ = 1) learns the first samples of each class, without keeping them. The
E-stage's n training and n test instances are drawn at random from the rest, equally from each
class (the paper's SVM^(a) at one in c says that its were). Vanished, survived and augmented
columns are the first, middle and last ones. MNIST's pixels are those lit in at least 98 images,
which gives the paper's 455 and 489. The survivors have a constant column, as every node's layout
does; `--no-bias` leaves it out. `fit_best` chooses among the linear forms, unless `--kernel`.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegressionCV

from edge_opid.learner.statistics import Statistics, solve
from gateway.estage import (
    ALL,
    LINEAR,
    fit_best,
    fit_opid,
    fit_opide,
    fit_residual,
    fold,
    imputed_ridge,
    raw_logistic,
    rounded,
    survivors_ridge,
)

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
LAM = RHO = 1.0
Array = Any


@dataclass(frozen=True)
class Setting:
    """One line of the paper's Table 1, and its Table 2: SVM, SVM^(s), SVM^(a), OPIDe, OPID."""

    total: int
    vanished: int
    survived: int
    augmented: int
    paper: dict[int, tuple[float, ...]]


SETTINGS = {
    "dna": Setting(1200, 50, 80, 50, {
        60: (0.7693, 0.8017, 0.3063, 0.9183, 0.9253),
        120: (0.8418, 0.8630, 0.3855, 0.9315, 0.9322),
        240: (0.8732, 0.8890, 0.3778, 0.9385, 0.9343),
        300: (0.8857, 0.8969, 0.3957, 0.9405, 0.9348),
    }),
    "splice": Setting(2240, 10, 40, 10, {
        40: (0.6625, 0.6755, 0.4640, 0.8150, 0.8025),
        80: (0.7512, 0.7597, 0.4680, 0.8122, 0.8050),
        160: (0.8084, 0.8116, 0.4829, 0.8400, 0.8391),
        320: (0.8408, 0.8387, 0.4961, 0.8555, 0.8594),
    }),
    "mnist05": Setting(3200, 114, 228, 113, {
        40: (0.9485, 0.9455, 0.7105, 0.9700, 0.9840),
        80: (0.9630, 0.9633, 0.6403, 0.9868, 0.9888),
        160: (0.9571, 0.9528, 0.6691, 0.9794, 0.9875),
        320: (0.9604, 0.9585, 0.6508, 0.9738, 0.9721),
    }),
    "mnist035": Setting(4800, 123, 245, 121, {
        60: (0.9043, 0.9093, 0.5137, 0.9280, 0.9403),
        120: (0.9233, 0.9240, 0.4852, 0.9458, 0.9497),
        240: (0.9125, 0.9133, 0.4653, 0.9345, 0.9348),
        480: (0.9265, 0.9232, 0.4843, 0.9330, 0.9337),
    }),
}  # fmt: skip


def load(name: str, folder: Path) -> tuple[Array, Array]:
    """All instances of a set, training and test together, and class indices."""
    with np.load(folder / f"{name.replace('mnist05', 'mnist035')}.npz", allow_pickle=False) as file:
        X = np.vstack([file["X_train"], file["X_test"]]).astype(float)
        y = np.concatenate([file["y_train"], file["y_test"]])
    if name == "mnist05":
        X, y = X[y != 3], y[y != 3]
    if name.startswith("mnist"):
        X = X[:, (X > 0).sum(0) >= 98] / 255
    if name == "splice":
        X = (X - 2.5) / 1.5
    return X, np.unique(y, return_inverse=True)[1]


@dataclass(frozen=True)
class World:
    """A set after its C-stage: the survivors' weights, and what is left for the E-stage."""

    classes: int
    Xs: Array
    Xa: Array
    y: Array
    rest: Array
    W_s: Array
    ridge: Array
    imputed: tuple[Array, Array]

    def draws(self, n: int, repeats: int, seed: int) -> Iterator[tuple[Array, Array]]:
        """Training and test rows: 2n of the rest, as many of each class, split at random."""
        for repeat in range(repeats):
            rng = np.random.default_rng(seed + repeat)
            members = [self.rest[self.y[self.rest] == k] for k in range(self.classes)]
            pool = [rng.permutation(rows)[: 2 * n // self.classes] for rows in members]
            rows = rng.permutation(np.concatenate(pool))
            yield rows[:n], rows[n:]


def compress(name: str, folder: Path, bias: bool) -> World:
    """The C-stage of one set."""
    setting, (X, y) = SETTINGS[name], load(name, folder)
    classes, dv = int(y.max()) + 1, setting.vanished
    end = dv + setting.survived
    first = [np.flatnonzero(y == k)[: setting.total // classes] for k in range(classes)]
    learned = np.concatenate(first)
    both = np.hstack([X[:, :end], np.ones((len(X), int(bias)))])
    seen, target = both[learned], np.eye(classes)[y[learned]]
    known = Statistics(seen.T @ seen, seen.T @ target, len(seen), float(len(seen)))
    kept = range(dv, both.shape[1])
    return World(
        classes, both[:, dv:], X[:, end : end + setting.augmented], y,
        np.setdiff1d(np.arange(len(y)), learned),
        solve(known, dv, LAM, RHO)[1],
        survivors_ridge(known, kept, RHO),
        imputed_ridge(known, kept, seen.mean(0), RHO),
    )  # fmt: skip


def once(world: World, train: Array, test: Array, seed: int, kernel: bool) -> dict[str, Any]:
    """Test accuracy of every method for one draw; the chosen form, float16's cost, seconds."""
    Xs, Xa, y, c = world.Xs, world.Xa, world.y, world.classes
    Z = Xs @ world.W_s
    batch = Z[train], Xa[train], y[train], c
    raw = Xs[train], Xa[train], y[train], c

    def right(scores: Array) -> float:
        return float(np.mean(scores.argmax(1) == y[test]))

    W, bias = world.imputed
    found: dict[str, Any] = {
        "Z alone": right(Z[test]),
        "ridge": right(Xs[test] @ world.ridge),
        "imputed": right(Xs[test] @ W + bias),
    }
    for name, columns in (("SVM", "both"), ("SVM(s)", "survivors"), ("SVM(a)", "new")):
        found[name] = right(raw_logistic(*raw, columns, seed=seed).scores(Xs[test], Xa[test]))  # type: ignore[arg-type]
    printed = fit_opid(*batch, penalty="printed", seed=seed)
    found["printed"] = right(printed.scores(Z[test], Xa[test]))
    found["residual"] = right(fit_residual(*batch, seed=seed).scores(Z[test], Xa[test]))
    found["OPIDe"] = right(fit_opide(*batch, seed=seed).scores(Z[test], Xa[test]))
    found["OPID"] = right(fit_opid(*batch, seed=seed).scores(Z[test], Xa[test]))
    start = time.perf_counter()
    best = fit_best(*batch, seed=seed, candidates=ALL if kernel else LINEAR)
    found["seconds"] = time.perf_counter() - start
    found["best"], found["chosen"] = right(best.scores(Z[test], Xa[test])), best.chosen
    if best.chosen != "kernel":
        matrix = fold(best.model, world.W_s).matrix()
        rows = np.column_stack([Xs[test], Xa[test], np.ones(len(test))])
        found["float16"] = rounded(matrix, rows, y[test]).loss
    return found


METHODS = (
    "Z alone", "ridge", "imputed", "SVM", "SVM(s)", "SVM(a)",
    "printed", "residual", "OPIDe", "OPID", "best",
)  # fmt: skip


def report(name: str, n: int, runs: list[dict[str, Any]]) -> tuple[bool, bool]:
    """Print one cell; True, True where both promises hold."""
    columns = {method: np.array([run[method] for run in runs]) for method in METHODS}
    mean = {method: values.mean() for method, values in columns.items()}

    def error(values: Array) -> float:
        return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0

    rival = max(("OPID", "OPIDe"), key=lambda method: mean[method])
    beyond = columns["best"] - columns["Z alone"]
    over_z = bool(mean["best"] >= mean["Z alone"] - 1e-12)
    over_rival = bool(mean["best"] >= mean[rival] - error(columns[rival]))
    svm = "/".join(f"{value:.3f}" for value in SETTINGS[name].paper[n][:3])
    paper = "/".join(f"{value:.3f}" for value in SETTINGS[name].paper[n][3:])
    chosen = [run["chosen"] for run in runs]
    tally = ", ".join(f"{what} {chosen.count(what)}" for what in sorted(set(chosen)))
    half = np.mean([run.get("float16", 0.0) for run in runs])
    print(
        f"| {name} {n} | " + " | ".join(f"{mean[method]:.3f}" for method in METHODS)
        + f" | {svm} | {paper}"
        f" | {'yes' if over_z else 'NO'} {beyond.mean():+.4f} ± {error(beyond):.4f}"
        f" | {'yes' if over_rival else 'NO'} {mean['best'] - mean[rival]:+.4f} ± "
        f"{error(columns[rival]):.4f} | {tally} | {half:+.4f}"
        f" | {max(run['seconds'] for run in runs):.1f} |",
        flush=True,
    )  # fmt: skip
    return over_z, over_rival


def timed(call: Callable[[], object], runs: int) -> float:
    """The fastest of some runs, in seconds, after one to warm up."""
    call()
    taken = []
    for _ in range(runs):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return min(taken)


def speed() -> None:
    """How long fits take for n = 300, d_a = 50, c = 3, beside one LogisticRegressionCV."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    Z, Xa = np.eye(3)[y] + rng.normal(size=(300, 3)), rng.normal(size=(300, 50))
    Xa[:, 0] += y
    rows = np.hstack([Z, Xa])
    peer = LogisticRegressionCV(
        Cs=10, cv=5, max_iter=1000, l1_ratios=(0,), use_legacy_attributes=False, scoring="accuracy"
    )
    reference = timed(lambda: peer.fit(rows, y), 3)
    print(f"LogisticRegressionCV, 10 costs, 5 folds: {1e3 * reference:.0f} ms")
    for fit, runs in ((fit_opid, 15), (fit_residual, 15), (fit_opide, 3), (fit_best, 1)):
        taken = timed(lambda fit=fit: fit(Z, Xa, y, 3), runs)  # type: ignore[misc]
        print(f"{fit.__name__}: {1e3 * taken:.1f} ms, {reference / taken:.1f}× as fast")


def main() -> None:
    """Run the cells that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--sets", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--no-bias", action="store_true")
    parser.add_argument("--kernel", action="store_true", help="let fit_best choose kernels too")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--speed", action="store_true", help="only the times of the fits")
    options = parser.parse_args()
    if options.speed:
        speed()
        return
    heads = (
        "set, n", *METHODS, "paper SVM/(s)/(a)", "paper OPIDe/OPID",
        "best ≥ Z", "best ≥ OPID(e) − SE", "chosen", "float16 loss", "s",
    )  # fmt: skip
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    verdicts = []
    for name in options.sets:
        world = compress(name, options.data, not options.no_bias)
        for n in SETTINGS[name].paper:
            draws = enumerate(world.draws(n, options.repeats, options.seed), options.seed)
            runs = [once(world, *draw, seed, options.kernel) for seed, draw in draws]
            verdicts.append(report(name, n, runs))
    over_z, over_rival = (sum(column) for column in zip(*verdicts, strict=True))
    print(f"fit_best ≥ Z alone in {over_z} of {len(verdicts)} cells, ", end="")
    print(f"≥ the better of OPID and OPIDe − one standard error in {over_rival}")


if __name__ == "__main__":
    main()
