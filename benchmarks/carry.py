"""How much of the past a learner should inherit when sensors change: all, nothing, or the rule.

    python -m benchmarks.carry [--data FOLDER]

Streams whose window of sensors slides: a third of the sensors is replaced at every change.
Prequential accuracy over the first 100 readings after each change, and over everything, for a fixed
carry of 0 and 1, for a restart, and for what a node does: it serves the better of a long and a
short memory, and carries as much as their records suggest.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.command import command_line
from benchmarks.common.data import DATA
from edge_opid.node.local_models import LocalModels
from edge_opid.node.memories import Learning
from edge_opid.node.scoreboard import PredictorName, Scoreboard
from edge_opid.wire import SensorDescription

AFTER = 100  # readings after a change that the first column is about
Policy = Callable[[Scoreboard], float | None]
POLICIES: dict[str, Policy] = {
    "restart": lambda _: None,
    "carry 0: W^(s) as centre": lambda _: 0.0,
    "carry 1": lambda _: 1.0,
    "the node": Scoreboard.carry,
}


@dataclass(frozen=True)
class SlidingStream:
    """Readings in order, with the number of sensors alive at a time and between changes."""

    name: str
    X: Any
    y: Any
    alive: int
    stage: int

    def stages(self) -> Iterator[tuple[list[int], range]]:
        """The sensors alive and the readings of each stage: a third of the sensors is new."""
        step, total = max(1, self.alive // 3), self.X.shape[1]
        for number, start in enumerate(range(0, len(self.y), self.stage)):
            sensors = [(number * step + offset) % total for offset in range(self.alive)]
            yield sensors, range(start, min(start + self.stage, len(self.y)))


def described(stream: SlidingStream, sensors: list[int]) -> list[SensorDescription]:
    """References and scales from the first 200 readings of the stream, for all policies alike."""
    at, scale = stream.X[:200].mean(0), stream.X[:200].std(0)
    names = [f"s{i:03}" for i in sensors]
    return [
        SensorDescription(
            id=name, role=name, reference=float(at[i]), scale=float(scale[i]) or 1.0, timeout_s=60.0
        )
        for i, name in zip(sensors, names, strict=True)
    ]


def run(stream: SlidingStream, policy: Policy) -> tuple[float, float]:
    """(accuracy in the first readings after a change, accuracy over everything)."""
    learning = Learning(int(stream.y.max()) + 1, 1.0, 1.0, 1.0)
    board, local_models = Scoreboard(), None
    hits, early = [], []
    for sensors, readings in stream.stages():
        layout, carry = described(stream, sensors), policy(board)
        if local_models is None or carry is None:
            local_models = LocalModels(layout, (), 8.0, learning)
        else:
            local_models.obey(layout, (), 8.0, carry)
        for place, i in enumerate(readings):
            x = local_models.encode({f"s{s:03}": float(stream.X[i, s]) for s in sensors})
            guesses = {name: int(found.argmax()) for name, found in local_models.scores(x).items()}
            own, lately = PredictorName.OWN, PredictorName.LATELY
            served = board.best([own, lately]) if policy is Scoreboard.carry else own
            truth = int(stream.y[i])
            local_models.learn(x, truth)
            board.record(guesses, truth)
            hits.append(guesses[served] == truth)
            if readings.start > 0 and place < AFTER:
                early.append(hits[-1])
    return float(np.mean(early)), float(np.mean(hits))


def streams(folder: Path) -> Iterator[SlidingStream]:
    """Steady ones (shuffled) and drifting ones (in time order)."""
    rng = np.random.default_rng(0)
    dna = np.load(folder / "dna.npz", allow_pickle=False)
    X, y = np.vstack([dna["X_train"], dna["X_test"]]), np.r_[dna["y_train"], dna["y_test"]] - 1
    order = rng.permutation(len(y))
    yield SlidingStream("DNA, shuffled", X[order], y[order], alive=90, stage=400)
    splice = np.load(folder / "splice.npz", allow_pickle=False)
    X = np.vstack([splice["X_train"], splice["X_test"]])
    y = (np.r_[splice["y_train"], splice["y_test"]] > 0).astype(int)
    order = rng.permutation(len(y))
    yield SlidingStream("Splice, shuffled", X[order], y[order], alive=30, stage=400)
    digits = np.load(folder / "mnist035.npz", allow_pickle=False)
    keep = rng.permutation(len(digits["y_train"]))[:4000]
    X = digits["X_train"][keep].astype(float)
    y = np.searchsorted([0, 3, 5], digits["y_train"][keep])
    X = X[:, X[:200].std(0) > 40][:, ::3]
    yield SlidingStream("MNIST 0/3/5, shuffled", X, y, alive=60, stage=400)
    room = np.load(folder / "room_occupancy.npz", allow_pickle=False)
    yield SlidingStream("Room occupancy, time order", room["X"], room["y"], alive=9, stage=600)
    office = np.load(folder / "occupancy_detection.npz", allow_pickle=False)
    yield SlidingStream(
        "Occupancy, time order", office["X_train"], office["y_train"], alive=3, stage=600
    )


def main() -> None:
    """One row a stream."""
    parser = command_line(__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    options = parser.parse_args()
    print("| first 100 after a change / all | " + " | ".join(POLICIES) + " |")
    print("|---" * (len(POLICIES) + 1) + "|")
    for stream in streams(options.data):
        cells = ["{:.3f} / {:.3f}".format(*run(stream, policy)) for policy in POLICIES.values()]
        print(f"| {stream.name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
