"""Streams in which sensors die and others are born, again and again: who is alive when.

A window slides over the sensors of a real data set. At every change a third of the sensors alive is
replaced, and a sensor that is gone never returns. The seed decides the order of the sensors and,
where the set is not a time series, the order of the rows; of a time series, where it starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.common.data import Floats, Ints
from benchmarks.paper.data import load

MEASURED = 200
"""Readings before a change in which a new sensor already speaks, so that its range is known."""
Row = dict[str, float]


@dataclass(frozen=True)
class StreamSetting:
    """How a data set becomes streams."""

    title: str
    alive: int
    """Sensors at a time."""
    stages: int
    length: int
    """Readings between two changes."""
    knots: int
    """Hats a sensor where the learner is lifted; as many as 160 columns allow, 8 at most."""
    every: int = 1
    """Of the set's columns, use every so-many-th: neighbouring pixels say the same."""
    timed: bool = False
    """The order of the rows is that of time."""
    binary: bool = False
    """Nothing to lift: a sensor has two values."""

    @property
    def replaced(self) -> int:
        """Sensors that a change replaces."""
        return max(1, self.alive // 3)

    @property
    def sensors(self) -> int:
        """Sensors that are alive at some time."""
        return self.alive + (self.stages - 1) * self.replaced

    @property
    def readings(self) -> int:
        """The stream's length."""
        return self.stages * self.length


STREAMS = {
    "dna": StreamSetting("DNA", 60, 7, 400, 2, binary=True),
    "splice": StreamSetting("Splice", 20, 7, 400, 7),
    "mnist05": StreamSetting("MNIST 0/5", 25, 7, 400, 6, every=6),
    "mnist035": StreamSetting("MNIST 0/3/5", 25, 7, 400, 6, every=6),
    "usps035": StreamSetting("USPS 0/3/5", 25, 7, 250, 6, every=3),
    "satimage": StreamSetting("Satimage", 12, 7, 400, 8),
    "digits": StreamSetting("digits 0–9", 21, 7, 250, 7),
    "room": StreamSetting("Room occupancy", 6, 6, 1400, 8, timed=True),
}
"""The sets of the comparison; those without data are left out, and said to be."""


@dataclass(frozen=True)
class Stage:
    """The sensors alive and the readings while they are."""

    sensors: tuple[str, ...]
    rows: range


@dataclass(frozen=True)
class StagedStream:
    """Readings in order, and the stages they fall into."""

    name: str
    setting: StreamSetting
    X: Floats
    y: Ints
    classes: int
    """Labels are 0 … classes − 1."""

    def stages(self) -> Iterator[Stage]:
        """From the first window to the last."""
        mine = self.setting
        for number in range(mine.stages):
            first = number * mine.replaced
            names = tuple(sensor_name(first + place) for place in range(mine.alive))
            yield Stage(names, range(number * mine.length, (number + 1) * mine.length))

    def row(self, place: int, sensors: Sequence[str]) -> Row:
        """One reading of these sensors, by name."""
        return {name: float(self.X[place, int(name[1:])]) for name in sensors}

    def before(self, stage: Stage) -> list[Row]:
        """What the next stage's sensors said just before it: values without labels."""
        rows = range(max(0, stage.rows.start - MEASURED), stage.rows.start)
        return [self.row(place, stage.sensors) for place in rows]


def sensor_name(place: int) -> str:
    """The name of the sensor in this column of the stream.

    >>> sensor_name(7)
    's007'
    """
    return f"s{place:03}"


def shortened(setting: StreamSetting) -> StreamSetting:
    """Two changes soon after each other, for a quick look.

    >>> shortened(STREAMS["room"]).readings
    750
    """
    return replace(setting, stages=3, length=250)


def arranged(
    name: str, data: tuple[Floats, Ints], seed: int, *, short: bool = False
) -> StagedStream:
    """The stream of this seed."""
    setting, (X, y) = STREAMS[name], data
    setting = shortened(setting) if short else setting
    rng = np.random.default_rng(seed)
    sensors = rng.permutation(X.shape[1])[: setting.sensors]
    start = int(rng.integers(len(y) - setting.readings + 1)) if setting.timed else 0
    rows = np.arange(len(y)) if setting.timed else rng.permutation(len(y))
    rows = rows[start : start + setting.readings]
    return StagedStream(name, setting, X[np.ix_(rows, sensors)], y[rows], len(np.unique(y)))


def streams_data(names: Sequence[str], folder: Path) -> dict[str, tuple[Floats, Ints]]:
    """The data of these streams; what is missing is named and left out."""
    found = {}
    for name in names:
        data = _read(name, folder)
        if data is None:
            print(f"{STREAMS[name].title}: no data in {folder}, left out")
            continue
        X, y = data[0][:, :: STREAMS[name].every], data[1]
        if X.shape[1] < STREAMS[name].sensors or len(y) < STREAMS[name].readings:
            raise ValueError(f"{name}: {X.shape} is too small for {STREAMS[name]}")
        found[name] = X, y
    return found


def _read(name: str, folder: Path) -> tuple[Floats, Ints] | None:
    if name == "digits":
        from sklearn.datasets import load_digits  # noqa: PLC0415 - slow, and not always needed

        bundled = load_digits()
        return bundled.data, bundled.target.astype(np.int64)
    if name != "room":
        return load(name, folder, network=False)
    path = folder / "room_occupancy.npz"
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as file:
        return file["X"].astype(float), file["y"].astype(np.int64)
