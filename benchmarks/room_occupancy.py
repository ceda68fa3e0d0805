"""How many people are in the room: sixteen real channels, in time order, predict then learn.

    python -m benchmarks.room_occupancy [--data FOLDER] [--seeds 1 2 3]
    python -m benchmarks.room_occupancy --labels    # few labels, and late ones

The lifted learner (8 knots a channel, frozen by a warm-up of 200 readings) beside river's adaptive
random forest with ten trees, on the same readings in one run: prequential accuracy and processor
time a reading (others may be using the machine). Everything counts, the warm-up too; nothing is
tuned on the stream.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy

import importlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.changes import few_labels_page
from benchmarks.common.command import command_line
from benchmarks.common.data import DATA
from benchmarks.common.verdict import verdict
from edge_opid import Layout, WarmUp, WoodburyLearner

CLASSES = 4
Row = dict[str, float]


class LiftedLearner:
    """A warm-up, the layout it suggests, and a learner: what a node does at first."""

    def __init__(self, names: Sequence[str], knots: int = 8, rho: float = 0.3) -> None:
        self.warmup: WarmUp | None = WarmUp(names, readings=200, knots=knots)
        self.rho = rho
        self.seen: list[int] = []
        self._start(Layout(names))

    def _start(self, layout: Layout) -> None:
        self.layout = layout
        self.learner = WoodburyLearner(0, layout.width, CLASSES, rho=self.rho)

    def predict_then_learn(self, row: Row, label: int) -> int:
        """The class predicted for this row before its label was seen."""
        if self.warmup is None:
            return int(self.learner.score_then_learn(self._encoded(row), label)[0].argmax())
        if self.learner.readings:
            guess = int(self.learner.score_then_learn(self._encoded(row), label)[0].argmax())
        else:  # no layout yet: say what has been most frequent
            guess = max(range(CLASSES), key=self.seen.count)
            self.seen.append(label)
        self._warm(self.warmup, row, label)
        return guess

    def _encoded(self, row: Row) -> np.ndarray:
        x, gated = self.layout.encode_and_gate(row)
        if gated:  # decision 3's rule, which the printed figures are of
            x = self.layout.encode({name: v for name, v in row.items() if name not in gated})
        return x

    def _warm(self, warmup: WarmUp, row: Row, label: int) -> None:
        """Start again with a better layout, and learn what is kept, whenever that is due."""
        warmup.add(row, label)
        if not warmup.due:
            return
        self._start(warmup.layout())
        for values, known in warmup.rows():
            self.learner.learn_one(self._encoded(values), known)
        if warmup.full:
            self.warmup = None


@dataclass(frozen=True)
class Result:
    """How often one contender was right, and the processor time a reading took."""

    name: str
    hits: list[bool]
    micros: float

    def __str__(self) -> str:
        parts = [f"{np.mean(self.hits[:n]):.4f}" for n in (500, 4000, len(self.hits))]
        return f"| {self.name} | {' | '.join(parts)} | {self.micros:.0f} |"


def run(name: str, step: Callable[[Row, int], Any], rows: list[Row], labels: list[int]) -> Result:
    """Feed every reading once, in order."""
    start = time.process_time()
    hits = [step(row, label) == label for row, label in zip(rows, labels, strict=True)]
    return Result(name, hits, (time.process_time() - start) / len(rows) * 1e6)


def forest(seed: int) -> Callable[[Row, int], Any]:
    """River's adaptive random forest, ten trees."""
    model = importlib.import_module("river.forest").ARFClassifier(n_models=10, seed=seed)

    def step(row: Row, label: int) -> Any:
        guess = model.predict_one(row)
        model.learn_one(row, label)
        return guess

    return step


def few_labels(folder: Path) -> None:
    """The node and its peers at four label rates and three delays, into the page of these."""
    with np.load(folder / "room_occupancy.npz", allow_pickle=False) as file:
        data = {"room-all": (file["X"].astype(float), file["y"].astype(np.int64))}
    with np.load(folder / "occupancy_detection.npz", allow_pickle=False) as file:
        data["office-all"] = file["X_test"].astype(float), file["y_test"].astype(np.int64)
    out = Path(__file__).resolve().parent / "results"
    few_labels_page.measure(data, out / "few_labels", seeds=1, quick=False)
    print(few_labels_page.report(out))


def main() -> None:
    """Run both, print the table, and judge the two aims."""
    parser = command_line(__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--labels", action="store_true", help="few labels, and late ones")
    options = parser.parse_args()
    if options.labels:
        few_labels(options.data)
        return
    saved = np.load(options.data / "room_occupancy.npz", allow_pickle=False)
    names = [str(name) for name in saved["feature_names"]]
    rows = [dict(zip(names, map(float, x), strict=True)) for x in saved["X"]]
    labels = [int(y) for y in saved["y"]]
    linear = LiftedLearner(names, knots=1)
    results = [run("edge-opid, linear", linear.predict_then_learn, rows, labels)]
    ours, trees = [], []
    for seed in options.seeds:  # in turns, and ours three times a turn: it is over in a moment
        for _ in range(3):
            lifted = LiftedLearner(names)
            ours.append(run("edge-opid, 8 knots", lifted.predict_then_learn, rows, labels))
        trees.append(run(f"river ARF, 10 trees, seed {seed}", forest(seed), rows, labels))
    micros = float(np.median([result.micros for result in ours]))
    results.insert(0, replace(ours[0], micros=micros))
    print("| prequential accuracy | first 500 | first 4,000 | all | µs a reading |")
    print("|---|---|---|---|---|")
    print("\n".join(map(str, [*results, *trees])))
    dropped = sum(len(lifted.layout.gated(row)) for row in rows) / len(rows) / len(names)
    print(f"\n{lifted.layout.cost(CLASSES)}; {dropped:.1%} of values gated")
    best = max(float(np.mean(result.hits)) for result in trees)
    faster = float(np.median([result.micros for result in trees])) / micros
    gap = float(np.mean(ours[0].hits)) - best
    print(verdict("accuracy, ours − best forest", gap, -0.005, at_least=True))
    print(verdict("time of a forest / ours", faster, 30, at_least=True))


if __name__ == "__main__":
    main()
