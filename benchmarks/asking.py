"""Which instances are worth a question: the node's own rule against labels drawn at random.

    python -m benchmarks.asking [--budget 0.01] [--seeds 6] [--streams room …] [--data FOLDER]

Every stream is predicted reading by reading, and a hundredth of the readings is labelled: those the
node asks about, or as many drawn at random; the label comes before the next reading. In the third
quarter a third of the sensors says nothing, and then returns: two changes. The seed decides where a
stream in time begins, or how the rows of another are shuffled, which sensors die, and what is drawn
at random.

What is compared: accuracy over the whole stream, and over the first 200 readings after the changes;
differences are paired by seed, with a standard error. Choices were made on the development streams
of `benchmarks.time_order`; those reported here are others.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.common.command import add_json_option, command_line, write_json
from benchmarks.common.data import DATA
from benchmarks.common.statistics import error
from benchmarks.time_order.node import BOOT, SOURCE, config
from benchmarks.time_order.streams import REPORTED, STREAMS, TimedStream
from edge_opid.config.node import NodeConfig
from edge_opid.node.effects import Effect, Predicted
from edge_opid.node.inputs import apply
from edge_opid.node.journal_records import Accepted, Labelled, Silenced
from edge_opid.node.state import NodeState
from edge_opid.wire import Asked, InstanceId

AFTER = 200  # readings after a change that are judged by themselves
HOUR_MS = 3_600_000
Chooser = Callable[[Sequence[Effect]], bool]


class Run(NamedTuple):
    """What became of one stream."""

    whole: float
    after: float
    labels: int


def variant(stream: TimedStream, seed: int) -> TimedStream:
    """The stream from another beginning on, or in another order."""
    n = len(stream.y)
    if not stream.ordered:
        order = np.random.default_rng([seed, 1]).permutation(n)
        return replace(stream, X=stream.X[order], y=stream.y[order])
    begin = 137 * seed % (n // 5)
    return replace(stream, X=stream.X[begin:], y=stream.y[begin:], times_ms=stream.times_ms[begin:])


def asked(effects: Sequence[Effect]) -> bool:
    """Whether the node asks."""
    return any(isinstance(each, Asked) for each in effects)


def drawn(budget: float, seed: int) -> Chooser:
    """At random, as often as the budget says."""
    chance = np.random.default_rng([seed, 2])
    return lambda _: bool(chance.random() < budget)


def run(stream: TimedStream, mine: NodeConfig, chooses: Chooser, seed: int) -> Run:
    """Predict every reading, and label those that are chosen."""
    state, n, quarter = NodeState(mine), len(stream.y), len(stream.y) // 4
    sensors = np.random.default_rng([seed, 3]).permutation(stream.sensors).tolist()
    gone = tuple(sensors[: max(1, len(sensors) // 3)])
    right, labels = np.zeros(n, bool), 0
    for place in range(n):
        now = int(stream.times_ms[place])
        if place == 2 * quarter:
            apply(state, Silenced(now, gone))
        row = stream.row(place, gone if 2 * quarter <= place < 3 * quarter else ())
        effects = apply(state, Accepted(now, SOURCE, BOOT, place + 1, now, row, None))
        made = next(each for each in effects if isinstance(each, Predicted))
        right[place] = made.known and made.winner == stream.y[place]
        if chooses(effects):
            labels += 1
            truth = mine.classes[stream.y[place]]
            apply(state, Labelled(now, truth, InstanceId(SOURCE, BOOT, place + 1)))
    changes = [slice(at, at + AFTER) for at in (2 * quarter, 3 * quarter)]
    after = float(np.concatenate([right[each] for each in changes]).mean())
    return Run(float(right.mean()), after, labels)


def compared(stream: TimedStream, budget: float, seed: int) -> tuple[Run, Run]:
    """The node's questions, and as many labels at random."""
    here = variant(stream, seed)
    mine = config(here)
    every_ms = float(np.median(np.diff(here.times_ms)))
    asking = replace(mine, asks_per_hour=budget * HOUR_MS / every_ms)
    own = run(here, asking, asked, seed)
    return own, run(here, mine, drawn(budget, seed), seed)


def row(name: str, pairs: Sequence[tuple[Run, Run]]) -> str:
    """One line of the table."""
    own, random = (np.array([each[k] for each in pairs]) for k in (0, 1))
    cells = []
    for column in (0, 1):
        gain = 100 * (own[:, column] - random[:, column])
        cells.append(
            f"{random[:, column].mean():.3f} | {own[:, column].mean():.3f} | "
            f"{gain.mean():+.1f} ± {error(gain):.1f}"
        )
    labels = f"{random[:, 2].mean():.0f} / {own[:, 2].mean():.0f}"
    return f"| {name} | {labels} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = command_line(__doc__)
    parser.add_argument("--budget", type=float, default=0.01, help="of the readings")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--streams", nargs="*", default=list(REPORTED), metavar="NAME")
    parser.add_argument("--data", type=Path, default=DATA)
    add_json_option(parser)
    options = parser.parse_args()
    print(
        "| stream | labels | random | asked | gain | random, after | asked, after | gain, after |"
    )
    print("|---|---|---|---|---|---|---|---|")
    figures, everything = {}, []
    for name in options.streams:
        pairs = [
            compared(STREAMS[name](options.data, seed), options.budget, seed)
            for seed in range(options.seeds)
        ]
        print(row(name, pairs), flush=True)
        figures[name] = pairs
        everything += pairs
    print(row("all", everything))
    write_json(options.json, figures)


if __name__ == "__main__":
    main()
