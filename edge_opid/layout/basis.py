"""From standardised sensor values to columns: the hats and the waves, as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf, tau
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_opid.layout.sensor import Pair, Sensor

Vector = NDArray[np.float64]


class Hats:
    """All sensors' own columns at once: six numbers a column, and five NumPy calls a reading.

    A hat is the lower of a rising and a falling line, and not below 0. A linear column is a
    rising line alone: its falling line is at infinity, and so is its floor.
    """

    def __init__(self, sensors: Sequence[Sensor], places: Sequence[int]) -> None:
        """`places[i]` is where z holds the value of `sensors[i]`."""
        rows = [row for place, s in zip(places, sensors, strict=True) for row in _lines(place, s)]
        table = np.array(rows, np.float64).reshape(-1, 6).T
        self._owner = table[0].astype(np.intp)
        self._slopes, self._offsets = table[[1, 3]], table[[2, 4]]  # rising, falling
        self._floor = table[5].copy()
        centre = self(np.zeros(len(sensors)))
        self._offsets -= centre
        self._floor -= centre

    def __call__(self, z: Vector, out: NDArray[np.float32] | None = None) -> NDArray[Any]:
        """The columns for z, one value a sensor: exactly 0 at the reference."""
        lines = self._slopes * z[self._owner]
        lines += self._offsets
        lower = np.minimum(lines[0], lines[1], out=lines[0])
        return np.asarray(np.maximum(lower, self._floor, out=out))

    def spread(self, z: Vector, out: NDArray[np.float32]) -> None:
        """The columns of one sensor for many z: a row of `out` each, the same numbers."""
        rising, falling = self._slopes[:, :, None] * z
        rising += self._offsets[0][:, None]
        falling += self._offsets[1][:, None]
        np.minimum(rising, falling, out=rising)
        np.maximum(rising, self._floor[:, None], out=out)

    def lines(self, columns: NDArray[np.intc]) -> tuple[NDArray[Any], ...]:
        """For the C file: whose line goes to which column, and the lines."""
        lines = map(np.ascontiguousarray, (self._slopes, self._offsets, self._floor))
        return self._owner.astype(np.intc), columns, *lines


def _lines(index: int, sensor: Sensor) -> Iterable[tuple[float, ...]]:
    """(owner, rise, left, fall, right, floor) of each of a sensor's columns.

    The lines are rise·z + left and fall·z + right, both 1 at the column's own knot. Beyond the
    ends one of the two is flat, and with it the hat.
    """
    knots = sensor.knots
    if not knots:
        yield index, 1.0, 0.0, 0.0, inf, -inf
        return
    for k, peak in enumerate(knots):
        rise = 1 / (peak - knots[k - 1]) if k > 0 else 0.0
        fall = 1 / (peak - knots[k + 1]) if k + 1 < len(knots) else 0.0
        yield index, rise, 1 - rise * peak, fall, 1 - fall * peak, 0.0


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
        """The columns for z, one value a sensor: 0 at the references, NaN where either z is.

        With a row of values a sensor, a row a column.
        """
        if z.ndim > 1:
            first, second = self._owners.T
            a, b = self._numbers.T[:, :, None]
            waves = np.cos(z[first] * a + z[second] * b + self._phases[:, None])
            return np.asarray(waves - self._at_reference[:, None])
        waves = np.cos((z[self._owners] * self._numbers).sum(axis=1) + self._phases)
        return np.asarray(waves - self._at_reference)


def _drawn(pair: Pair) -> Iterable[tuple[float, float, float]]:
    # Not numpy.random, which costs a node 7 MB when it is first touched.
    from random import Random  # noqa: PLC0415 - only where there are pairs: 0.2 MB

    draw = Random(f"{pair.first}|{pair.second}|{pair.seed}")
    for _ in range(pair.features):
        a, b = draw.gauss(0, pair.frequency), draw.gauss(0, pair.frequency)
        yield a, b, draw.uniform(0, tau)
