"""`.tflite` files of E-stage fits in both runtimes: size, difference, labels, speed and memory.

    python -m benchmarks.tflite.files [--data FOLDER] [--seeds 3]

A third of each set teaches W^(s) (ridge on the survivors, three quarters of the columns), a tenth
is the labelled batch of the E-stage, the rest is scored: at most 2,000 rows, in float64 here and by
each runtime in its own environment (`make setup` creates them in .venv/litert and .venv/tflite).
Columns are standardised and cut off at ±8, as a layout's gate does.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from sklearn import datasets

from benchmarks.common.command import command_line
from benchmarks.common.data import DATA
from benchmarks.tflite.scores import TIMED, seconds
from edge_opid.models.matrix import CompactModel
from gateway.estage import LINEAR, LinearModel, column_weights, fit_best, fit_opid
from gateway.tflite import WeightType, matrix_to_tflite, to_tflite

SCRIPT = Path(__file__).with_name("scores.py")
EXTRAS = {"litert": "ai_edge_litert", "tflite": "tflite_runtime"}
ROWS_MAX = 2000
FORMS: tuple[WeightType, ...] = ("float32", "int8")
Array = Any


@dataclass(frozen=True)
class TriedPredictor:
    """One predictor, the rows it is tried on, and the truth in float64."""

    name: str
    W_s: Array
    model: LinearModel
    survivors: list[str]
    new: list[str]
    classes: list[str]
    rows: Array
    """Columns in the order a layout has them, which is not the file's: by name."""

    @property
    def columns(self) -> list[str]:
        """The order of the rows."""
        return sorted([*self.survivors, *self.new])

    def parts(self) -> tuple[Array, Array]:
        """X^(s) and X^(a), in float64."""
        places = {name: place for place, name in enumerate(self.columns)}
        rows = self.rows.astype(np.float64)
        return tuple(rows[:, [places[n] for n in names]] for names in (self.survivors, self.new))

    def scores(self) -> Array:
        """What a file must reproduce."""
        Xs, Xa = self.parts()
        return self.model.scores(Xs @ self.W_s, Xa)

    def one_matrix(self) -> Array:
        """One matrix for the columns of the rows."""
        bias = self.survivors.index("bias")
        matrix = column_weights(self.model, self.W_s).matrix(bias_column=bias)
        return matrix[[[*self.survivors, *self.new].index(name) for name in self.columns]]

    def files(self) -> Iterator[tuple[str, bytes]]:
        """The E-stage's two layers, and the one matrix, in float32 and int8."""
        names = {"survivors": self.survivors, "new": self.new, "classes": self.classes}
        for form in FORMS:
            yield f"layers {form}", to_tflite(self.W_s, self.model, **names, weights=form)
            data = matrix_to_tflite(self.one_matrix(), self.columns, self.classes, weights=form)
            yield f"matrix {form}", data


def bundled() -> Iterator[tuple[str, Array, Array]]:
    """The sets that come with scikit-learn."""
    for name in ("wine", "breast_cancer", "digits"):
        yield name, *getattr(datasets, f"load_{name}")(return_X_y=True)


def real(folder: Path) -> Iterator[tuple[str, Array, Array]]:
    """The sets of the data folder, nothing where it is missing."""
    for name in ("dna", "splice", "room_occupancy", "occupancy_detection"):
        path = folder / f"{name}.npz"
        if path.exists():
            with np.load(path, allow_pickle=False) as saved:
                parts = [p for p in ("", "_train", "_test") if f"X{p}" in saved.files]
                X, y = (np.concatenate([saved[w + p] for p in parts]) for w in "Xy")
            yield name, X, y


def fits(name: str, X: Array, y: Array, seed: int) -> Iterator[TriedPredictor]:
    """Two predictors for one split: the best linear one, and OPID (never Z alone)."""
    rng = np.random.default_rng(seed)
    rows, columns = rng.permutation(len(X)), rng.permutation(X.shape[1])
    classes, y = np.unique(y, return_inverse=True)
    c, third, n = len(classes), len(X) // 3, max(60, len(X) // 10)
    learned, batch, rest = rows[:third], rows[third : third + n], rows[third + n :][:ROWS_MAX]
    scale = X[learned].std(0)
    X = np.clip((X - X[learned].mean(0)) / np.where(scale > 0, scale, 1), -8, 8)
    cut = max(1, len(columns) // 4)
    Xs, Xa = np.column_stack([X[:, columns[cut:]], np.ones(len(X))]), X[:, columns[:cut]]
    gram = Xs[learned].T @ Xs[learned] + np.eye(Xs.shape[1])
    W_s = np.linalg.solve(gram, Xs[learned].T @ np.eye(c)[y[learned]])
    new = [f"s{column:03}" for column in columns[:cut]]
    survivors = [*(f"s{column:03}" for column in columns[cut:]), "bias"]
    order = np.argsort([*survivors, *new])
    tried = np.column_stack([Xs, Xa])[rest][:, order].astype(np.float32)
    given = Xs[batch] @ W_s, Xa[batch], y[batch], c
    found = fit_best(*given, seed=seed, candidates=LINEAR).model, fit_opid(*given, seed=seed)
    for kind, model in zip(("best", "opid"), found, strict=True):
        assert isinstance(model, LinearModel)
        named = f"{name} {kind} {seed}"
        yield TriedPredictor(
            named, W_s, model, survivors, new, [f"class {k}" for k in classes], tried
        )


def available(environment: Path, module: str) -> bool:
    """Whether this environment was made, and has its runtime."""
    python = environment / "bin" / "python"
    look = f"import importlib.util as u, sys; sys.exit(u.find_spec('{module}') is None)"
    return python.exists() and not subprocess.run([python, "-c", look], check=False).returncode


def scored(environment: Path, every: Sequence[TriedPredictor]) -> dict[str, Array]:
    """What the runtime of an environment says of all files of all fits."""
    cases: dict[str, Array] = {}
    for fit in every:
        for kind, data in fit.files():
            key = f"{fit.name} {kind}"
            cases[f"{key}|file"] = np.frombuffer(data, np.uint8)
            cases[f"{key}|x"], cases[f"{key}|columns"] = fit.rows, np.array(fit.columns)
            cases[f"{key}|classes"] = np.array(fit.classes)
    with TemporaryDirectory() as folder:
        given, out = Path(folder, "cases.npz"), Path(folder, "scores.npz")
        np.savez(given, **cases)
        command = [environment / "bin" / "python", SCRIPT, given, out]
        subprocess.run(command, check=True, timeout=600)
        with np.load(out, allow_pickle=False) as saved:
            return {key: saved[key] for key in saved.files}


def main() -> None:
    """Print a line for each set and form, then what each runtime costs."""
    parser = command_line(__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    sets = [*bundled(), *real(given.data)]
    every = [fit for each in sets for seed in range(given.seeds) for fit in fits(*each, seed)]
    for extra, module in EXTRAS.items():
        environment = Path(sys.prefix, extra)
        if not available(environment, module):
            print(f"{extra}: {environment} has no {module}; make setup says why")
            continue
        said = scored(environment, every)
        print(f"\n{said['runtime']}, numpy {said['numpy']}: {said['bytes'] / 1e6:.1f} MB resident")
        for name, _, _ in sets:
            for kind in (f"{form} {weights}" for weights in FORMS for form in ("layers", "matrix")):
                print(line(name, kind, [fit for fit in every if fit.name.split()[0] == name], said))


def line(name: str, kind: str, every: Sequence[TriedPredictor], said: dict[str, Array]) -> str:
    """The largest difference and the share of labels over all fits of a set; the first's speed."""
    pairs = [(fit.scores(), said[f"{fit.name} {kind}|scores"]) for fit in every]
    worst = max(np.abs(truth - got).max() for truth, got in pairs)
    agreed = [float(np.mean(truth.argmax(1) == got.argmax(1))) for truth, got in pairs]
    first = every[0]
    size = len(dict(first.files())[kind])
    numpy = CompactModel(0, first.one_matrix().astype(np.float32))
    here, there = seconds(numpy, first.rows[:TIMED]), float(said[f"{first.name} {kind}|seconds"])
    shape = f"{len(first.survivors)}+{len(first.new)}×{len(first.classes)}"
    return (
        f"{name:20} {shape:9} {kind:14} {size:5} bytes  difference {worst:.1e}  "
        f"same label {np.mean(agreed):.2%}, worst fit {min(agreed):.2%}  "
        f"{1e6 * there:.1f} µs (NumPy {1e6 * here:.1f})"
    )


if __name__ == "__main__":
    main()
