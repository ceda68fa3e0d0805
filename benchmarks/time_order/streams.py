"""Readings with their times.

Streams in the order of time are real rooms and worlds of the simulator; in shuffled ones, and
only there, neighbours have nothing to do with each other. Choices were made on the development
streams; the others are what the page reports.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.common.data import Floats, Ints
from firmware_sim.world import open_world

Row = dict[str, float]
WORLD_EVERY_S = 10.0
READINGS_MAX, SHUFFLED_READINGS = 4000, 2000
"""The first so many of a stream: a cell is a run of a whole node, and there are many cells."""


@dataclass(frozen=True)
class TimedStream:
    """Readings in order; NaN where a sensor said nothing."""

    name: str
    X: Floats
    y: Ints
    times_ms: Ints
    classes: int
    knots: int
    rho: float
    ordered: bool = True
    """Whether the order is that of time, and not a shuffled one."""

    @property
    def sensors(self) -> tuple[str, ...]:
        """Their ids."""
        return tuple(f"s{place:03}" for place in range(self.X.shape[1]))

    def row(self, place: int, without: Sequence[str] = ()) -> Row:
        """One reading by sensor, without those that said nothing."""
        named = zip(self.sensors, self.X[place].tolist(), strict=True)
        return {name: value for name, value in named if not (math.isnan(value) or name in without)}


def room(folder: Path) -> TimedStream:
    """How many people are in a room: sixteen channels, every half minute."""
    with np.load(folder / "room_occupancy.npz", allow_pickle=False) as file:
        X, y, t = file["X"].astype(float), file["y"].astype(np.int64), file["t"].astype(np.int64)
    return TimedStream("room", X[:READINGS_MAX], y[:READINGS_MAX], 1000 * t, 4, 8, 1.0)


def office(folder: Path, part: str, first: int = 0) -> TimedStream:
    """Whether an office is occupied: five channels, every minute, from the `first` reading on."""
    with np.load(folder / "occupancy_detection.npz", allow_pickle=False) as file:
        X, y, t = (file[f"{what}_{part}"][first : first + READINGS_MAX] for what in "Xyt")
    return TimedStream(
        f"office-{part}", X.astype(float), y.astype(np.int64),
        1000 * t.astype(np.int64), 2, 8, 1.0,
    )  # fmt: skip


def backwards(stream: TimedStream) -> TimedStream:
    """From the last reading to the first: the same rooms, in which other things happen."""
    times = stream.times_ms[0] + stream.times_ms[-1] - stream.times_ms[::-1]
    return replace(stream, X=stream.X[::-1], y=stream.y[::-1], times_ms=times)


def world(name: str, seed: int) -> TimedStream:
    """A node of the simulator's world for eleven hours, a reading every ten seconds."""
    hidden = open_world(name, seed)
    times = 5 * 3600.0 + WORLD_EVERY_S * np.arange(READINGS_MAX)
    truths = hidden.over(times.astype(np.float64))
    columns = [entry.simulated(seed, "n1").read_block(truths) for entry in hidden.catalogue]
    y = np.array([hidden.classes.index(label) for label in hidden.labels(truths)])
    return TimedStream(
        f"{name}-{seed}", np.column_stack(columns), y,
        (1000 * times).astype(np.int64), len(hidden.classes), 8, 1.0,
    )  # fmt: skip


def shuffled(name: str, X: Floats, y: Ints, knots: int, rho: float) -> TimedStream:
    """Rows in a random order that is always the same one, a second apart."""
    order = np.random.default_rng(0).permutation(len(y))[:SHUFFLED_READINGS]
    classes, numbers = np.unique(y, return_inverse=True)
    times = 1000 * np.arange(1, len(order) + 1)
    return TimedStream(
        name, X[order].astype(float), numbers[order].astype(np.int64), times,
        len(classes), knots, rho, ordered=False,
    )  # fmt: skip


def dna(folder: Path) -> TimedStream:
    """Every second base of DNA sequences."""
    X, y = _both(folder / "dna.npz")
    return shuffled("dna", X[:, 30:150:2], y, 1, 100.0)


def splice(folder: Path) -> TimedStream:
    """The twenty bases in the middle."""
    X, y = _both(folder / "splice.npz")
    return shuffled("splice", X[:, 20:40], y, 4, 10.0)


def mnist(folder: Path) -> TimedStream:
    """Handwritten 0, 3 and 5, in pixels far apart."""
    with np.load(folder / "mnist035.npz", allow_pickle=False) as file:
        X, y = file["X_train"].astype(float), file["y_train"]
    lively = X[:500].std(0) > 40
    return shuffled("mnist", X[:, lively][:, ::14], y, 4, 10.0)


def digits(_: Path) -> TimedStream:
    """Ten digits, from scikit-learn."""
    from sklearn.datasets import load_digits  # noqa: PLC0415 - slow, and not always needed

    bundled = load_digits()
    X, y = bundled.data[:, ::2], bundled.target
    return shuffled("digits", X, y, 4, 10.0)


def _both(path: Path) -> tuple[Floats, Ints]:
    with np.load(path, allow_pickle=False) as file:
        return np.vstack([file["X_train"], file["X_test"]]), np.r_[file["y_train"], file["y_test"]]


Maker = Callable[[Path, int], TimedStream]
"""A stream from the folder of the data and the run's number, which makes another world."""


def _office(part: str, first: int, *, back: bool = False) -> Maker:
    def make(folder: Path, _: int) -> TimedStream:
        found = office(folder, part, first)
        return backwards(found) if back else found

    return make


DEVELOPMENT: dict[str, Maker] = {
    "office-train": _office("train", 0),
    "office-train-4000": _office("train", READINGS_MAX),
    "office-test2-4000": _office("test2", READINGS_MAX),
    "office-train-backwards": _office("train", 0, back=True),
    "office-train-4000-backwards": _office("train", READINGS_MAX, back=True),
    "office-test2-4000-backwards": _office("test2", READINGS_MAX, back=True),
    "greenhouse-7": lambda _, number: world("greenhouse", 7 + number),
    "street-7": lambda _, number: world("street", 7 + number),
    "machine-7": lambda _, number: world("machine", 7 + number),
    "digits": lambda folder, _: digits(folder),
}
"""What the choices were made on. The page has the first 4,000 readings of the third file."""
REPORTED: dict[str, Maker] = {
    "room": lambda folder, _: room(folder),
    "office-test": lambda folder, _: office(folder, "test"),
    "office-test2": lambda folder, _: office(folder, "test2"),
    "greenhouse": lambda _, number: world("greenhouse", 101 + number),
    "street": lambda _, number: world("street", 101 + number),
    "machine": lambda _, number: world("machine", 101 + number),
    "dna": lambda folder, _: dna(folder),
    "splice": lambda folder, _: splice(folder),
    "mnist": lambda folder, _: mnist(folder),
}
STREAMS = {**DEVELOPMENT, **REPORTED}
