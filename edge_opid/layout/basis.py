"""From standardised sensor values to columns: the hats and the waves, as arrays."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from math import inf, tau

import numpy as np
from numpy.typing import NDArray

from .sensor import Pair, Sensor

Vector = NDArray[np.float64]


class Hats:
    """All sensors' own columns at once: six numbers a column, and a dozen NumPy calls a reading.

    A hat is the lower of a rising and a falling line, and not below 0. A linear column is a
    rising line alone: its falling line is at infinity, and so is its floor.
    """

    def __init__(self, sensors: Sequence[Sensor]) -> None:
        rows = [row for index, sensor in enumerate(sensors) for row in _lines(index, sensor)]
        table = np.array(rows, np.float64).reshape(-1, 8)
        self._owner = table[:, 0].astype(np.intp)
        self._low, self._high, self._peak, self._rise, self._fall, self._top, self._floor = (
            np.ascontiguousarray(column) for column in table[:, 1:].T
        )
        self._at_reference = self._raw(np.zeros(len(sensors)))

    def __call__(self, z: Vector) -> Vector:
        """The columns for z, one value a sensor, NaN where missing: 0 at the reference."""
        columns = self._raw(z)
        columns -= self._at_reference
        columns[np.isnan(columns)] = 0.0
        return columns

    def _raw(self, z: Vector) -> Vector:
        own = z[self._owner]
        np.maximum(own, self._low, out=own)
        np.minimum(own, self._high, out=own)
        own -= self._peak
        falling = self._top - own * self._fall
        own *= self._rise
        own += 1.0
        np.minimum(own, falling, out=own)
        np.maximum(own, self._floor, out=own)
        return own


def _lines(index: int, sensor: Sensor) -> Iterable[tuple[float, ...]]:
    """(owner, low, high, peak, rise, fall, top, floor) of each of a sensor's columns."""
    knots = sensor.knots
    if not knots:
        yield index, -inf, inf, 1.0, 1.0, 0.0, inf, -inf
        return
    for k, peak in enumerate(knots):
        rise = 1 / (peak - knots[k - 1]) if k > 0 else 0.0
        fall = 1 / (knots[k + 1] - peak) if k + 1 < len(knots) else 0.0
        yield index, knots[0], knots[-1], peak, rise, fall, 1.0, 0.0


class Waves:
    """All pairs' columns at once: cos(a·z₁ + b·z₂ + phase), less its value at the references."""

    def __init__(self, pairs: Sequence[Pair], names: Sequence[str]) -> None:
        rows = [row for pair in pairs for row in _drawn(pair)]
        place = {name: index for index, name in enumerate(names)}
        owners = [(place[p.first], place[p.second]) for p in pairs for _ in range(p.features)]
        self._owners = np.array(owners, np.intp).reshape(-1, 2)
        table = np.array(rows, np.float64).reshape(-1, 3)
        self._numbers, self._phases = table[:, :2].copy(), table[:, 2].copy()
        self._at_reference = np.cos(self._phases)

    def __call__(self, z: Vector) -> Vector:
        """The columns for z, one value a sensor, NaN where missing."""
        waves = np.cos((z[self._owners] * self._numbers).sum(axis=1) + self._phases)
        waves -= self._at_reference
        waves[np.isnan(waves)] = 0.0
        return np.asarray(waves)


def _drawn(pair: Pair) -> Iterable[tuple[float, float, float]]:
    # random.Random and not numpy.random, which costs a node 7 MB when it is first touched.
    draw = random.Random(f"{pair.first}|{pair.second}|{pair.seed}")
    for _ in range(pair.features):
        a, b = draw.gauss(0, pair.frequency), draw.gauss(0, pair.frequency)
        yield a, b, draw.uniform(0, tau)
