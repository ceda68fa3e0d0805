"""A warm-up at the wrong hour: what a sensor's scale costs, and what learning it again gets back.

    python -m benchmarks.scales [--data FOLDER] [--seeds 1 2 3] [--labels 1.0]

Each stream begins where its warm-up sees the wrong thing: at night, when a light is constant; in
the first minutes after power-on, when up to a quarter of the values are codes; with a contact that
is still 0; with a sensor that moves first after a day. Four columns, all predict before they learn:

- `frozen`: scales as the first 200 readings suggest them, for good (what was done before);
- `node`, `library`: a node without a gateway, and `edge_opid.Classifier`, as they are;
- `sane`: a node whose references and scales were given, from the whole stream.

Then the difference of node and sane in points, how often values were at the gate, how often a scale
was moved, and which sensors a status named.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.common.command import command_line
from benchmarks.common.data import DATA, Floats, Ints
from benchmarks.common.verdict import verdict
from edge_opid import Classifier, Sensor, WarmUp
from edge_opid.config.node import NodeConfig, SensorConfig
from edge_opid.node.effects import Predicted
from edge_opid.node.inputs import apply
from edge_opid.node.journal_records import Accepted
from edge_opid.node.state import NodeState

WARMUP = 200
DAY = 1440  # readings of a day, one a minute
CODES = (65535.0, 85.0, -127.0)


@dataclass(frozen=True)
class Stream:
    """Readings in time order, a row each, and what was true."""

    name: str
    names: tuple[str, ...]
    X: Floats
    y: Ints
    clean: Floats
    """The same without codes: what sane scales are taken from."""

    def rows(self) -> list[dict[str, float]]:
        """Each reading by name."""
        return [dict(zip(self.names, row, strict=True)) for row in self.X.tolist()]

    def sane(self) -> list[Sensor]:
        """References and scales as somebody who knows the sensors would give them."""
        warmup = WarmUp(self.names, len(self.clean))
        for row in self.clean.tolist():
            warmup.add(dict(zip(self.names, row, strict=True)))
        return list(warmup.layout().sensors)

    def frozen(self) -> list[Sensor]:
        """As the first readings suggest them."""
        warmup = WarmUp(self.names, WARMUP)
        for row in self.X[:WARMUP].tolist():
            warmup.add(dict(zip(self.names, row, strict=True)))
        return list(warmup.layout().sensors)


# -- generated streams: what the constants were chosen on ------------------------------------------


def home(seed: int, days: int = 5) -> tuple[Floats, Ints]:
    """A room by the minute, from midnight: sun, people, lamps, a door, CO₂, heat."""
    rng = np.random.default_rng(seed)
    minutes = np.arange(days * DAY)
    clock = minutes % DAY / 60
    sun = (
        np.maximum(0, np.sin((clock - 7) / 11 * np.pi)) * rng.uniform(0.5, 1, days)[minutes // DAY]
    )
    there = np.zeros(len(minutes), int)
    for day in range(days):
        for _ in range(3):
            start = int(day * DAY + 60 * rng.uniform(8, 18))
            there[start : start + int(rng.uniform(40, 150))] = 1
    lamp = there * (rng.random(len(minutes)) < 0.98)
    light = np.where((sun + lamp) > 0, 150 * sun + 320 * lamp + rng.normal(0, 6, len(minutes)), 0)
    light = np.maximum(0, np.round(light))
    co2, heat = np.empty(len(minutes)), np.empty(len(minutes))
    co2[0], heat[0] = 420, 19
    for i in range(1, len(minutes)):
        co2[i] = co2[i - 1] + 0.02 * (420 - co2[i - 1]) + 8 * there[i] + rng.normal(0, 2)
        heat[i] = heat[i - 1] + 0.01 * (19 + 2 * sun[i] + 1.5 * there[i] - heat[i - 1])
    heat = np.round(heat + rng.normal(0, 0.05, len(minutes)), 1)
    door = (there & (rng.random(len(minutes)) < 0.9)).astype(float)
    return np.column_stack([light, co2, heat, door]), there


HOME = ("light", "co2", "temp", "door")


def generated(seed: int) -> Iterator[Stream]:
    """The four accidents in a generated room."""
    X, y = home(seed)
    yield Stream(f"generated {seed}, from midnight", HOME, X, y, X)
    noon = slice(9 * 60, None)
    yield powered(f"generated {seed}, codes at power-on", HOME, X[noon], y[noon], seed)
    still = X.copy()
    still[:DAY, 0] = 0.0  # behind a blind for a day
    yield Stream(f"generated {seed}, light moves after a day", HOME, still[540:], y[540:], still)
    only = ("co2", "temp", "door")
    yield Stream(f"generated {seed}, a contact", only, X[:, 1:], y, X[:, 1:])


def powered(
    name: str, names: Sequence[str], X: Floats, y: Ints, seed: int, share: float = 0.25
) -> Stream:
    """Codes in up to a quarter of each sensor's first readings, most of them at once."""
    rng, dirty = np.random.default_rng(seed), X.copy()
    for column in range(X.shape[1]):
        places = rng.permutation(WARMUP)[: int(share * WARMUP)]
        dirty[places, column] = CODES[column % len(CODES)]
    return Stream(name, tuple(names), dirty, y, X)


# -- real ones: what is reported -------------------------------------------------------------------


def recorded(folder: Path) -> Iterator[Stream]:
    """Occupancy detection (labels corrected) and Room Occupancy, each begun at the wrong hour."""
    file = np.load(folder / "occupancy_detection.npz", allow_pickle=False)
    names = tuple(str(name) for name in file["feature_names"])
    for part in ("train", "test2"):
        X, y = file[f"X_{part}"].astype(float), file[f"y_{part}"]
        night = first_rest(X[:, names.index("Light")], WARMUP)
        yield Stream(f"occupancy {part}, at night", names, X[night:], y[night:], X)
        yield powered(f"occupancy {part}, codes", names, X, y, seed=1)
        still, day = X.copy(), slice(0, DAY)
        still[day, names.index("Light")] = 0.0
        yield Stream(f"occupancy {part}, light after a day", names, still, y, X)
    file = np.load(folder / "room_occupancy.npz", allow_pickle=False)
    names = tuple(str(name) for name in file["feature_names"])
    X, y = file["X"].astype(float), file["y"]
    lights = [place for place, name in enumerate(names) if "Light" in name]
    night = first_rest(X[:, lights].sum(1), WARMUP)
    yield Stream("room, at night", names, X[night:], y[night:], X)
    yield powered("room, codes", names, X, y, seed=2)
    motion = [place for place, name in enumerate(names) if "PIR" in name]
    resting = first_rest(X[:, motion].sum(1), WARMUP)
    yield Stream("room, motion is 0", names, X[resting:], y[resting:], X)
    still = X.copy()
    still[:DAY, lights[0]] = 0.0
    yield Stream("room, a light after a day", names, still, y, X)


def first_rest(values: Floats, readings: int) -> int:
    """Where the values first stay at 0 for so long."""
    rests = np.convolve(values == 0, np.ones(readings, int), "valid")
    return int(np.flatnonzero(rests == readings)[0])


# -- who predicts ----------------------------------------------------------------------------------


@dataclass
class Outcome:
    """How often it was right after the warm-up, and what it said of its scales."""

    accuracy: float
    gated: int = 0
    moves: int = 0
    named: tuple[str, ...] = ()


def by_library(stream: Stream, labelled: Sequence[bool], knots: int) -> Outcome:
    """`Classifier`, told nothing."""
    classifier, hits = Classifier(knots=knots), []
    for row, truth, told in zip(stream.rows(), stream.y.tolist(), labelled, strict=True):
        hits.append(classifier.predict_one(row) == truth)
        if told:
            classifier.learn_one(row, truth)
    return Outcome(float(np.mean(hits[WARMUP:])))


def by_node(
    stream: Stream, labelled: Sequence[bool], knots: int, given: Sequence[Sensor] | None = None
) -> Outcome:
    """A node without a gateway, each reading an instance of its own."""
    known = {sensor.name: sensor for sensor in given or ()}
    ids = {name: f"s{place}" for place, name in enumerate(stream.names)}
    sensors = tuple(
        SensorConfig(
            ids[name],
            reference=known[name].reference if name in known else None,
            scale=known[name].scale if name in known else None,
            knots=knots,
        )
        for name in stream.names
    )
    classes = tuple(f"c{k}" for k in range(int(stream.y.max()) + 1))
    config = NodeConfig(site="bench", node="n1", classes=classes, sensors=sensors)
    state, hits, moves = NodeState(config), [], 0
    named: set[str] = set()
    for place, (row, truth) in enumerate(zip(stream.rows(), stream.y.tolist(), strict=True)):
        values = {ids[name]: value for name, value in row.items()}
        label = classes[truth] if labelled[place] else None
        now = 60_000 * (place + 1)
        for effect in apply(state, Accepted(now, "box", 1, place + 1, now, values, label)):
            if isinstance(effect, Predicted):
                hits.append(effect.winner == truth)
            elif getattr(effect, "reason", "") == "scale-moved":
                moves += 1
        named.update([*state.scales.troubles(), *state.measuring.resting()])
    gated = sum(state.scales.counts.values())
    words = {word for line in named for word in re.findall(r"\bs\d+\b", line)}
    said = tuple(sorted(name for name, sensor in ids.items() if sensor in words))
    return Outcome(float(np.mean(hits[WARMUP:])), gated, moves, said)


def main() -> None:
    """Every stream, a line each; then whether each is within a point or named."""
    parser = command_line(__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument("--labels", type=float, default=1.0, help="the share of labelled readings")
    parser.add_argument("--knots", type=int, default=1)
    parser.add_argument("--only", default="", help="streams whose names have this")
    given = parser.parse_args()
    streams = [each for seed in given.seeds for each in generated(seed)]
    streams += recorded(given.data) if given.data.exists() else []
    print(f"{'stream':42} frozen  node   library  sane    points  gated  moves  named")
    verdicts = []
    for stream in streams:
        if given.only in stream.name:
            verdicts.append(report(stream, given.labels, given.knots))
    print("\n".join(["", *verdicts]))


def report(stream: Stream, share: float, knots: int) -> str:
    """Print a line; the verdict."""
    labelled = (np.random.default_rng(7).random(len(stream.y)) < share).tolist()
    runs: list[Callable[[], Outcome]] = [
        lambda: by_node(stream, labelled, knots, stream.frozen()),
        lambda: by_node(stream, labelled, knots),
        lambda: by_library(stream, labelled, knots),
        lambda: by_node(stream, labelled, knots, stream.sane()),
    ]
    frozen, node, library, sane = (run() for run in runs)
    points = 100 * (node.accuracy - sane.accuracy)
    print(
        f"{stream.name:42} {frozen.accuracy:.4f}  {node.accuracy:.4f}  {library.accuracy:.4f}  "
        f"{sane.accuracy:.4f}  {points:+.2f}  {node.gated:6d} {node.moves:5d}   "
        f"{', '.join(node.named)}",
        flush=True,
    )
    note = f"; named: {', '.join(node.named)}" if node.named else ""
    return verdict(f"{stream.name}, points of sane scales{note}", points, -1.0, at_least=True)


if __name__ == "__main__":
    main()
