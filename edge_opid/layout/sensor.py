"""One sensor: what its zero and its unit are, and the basis it brings."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from edge_opid.errors import LayoutError


@dataclass(frozen=True, slots=True)
class Sensor:
    """A named sensor with its frozen reference, scale and knots.

    A value v becomes z = (v − reference) / scale; a missing value counts as the reference. Both
    are frozen when the sensor is deployed, because statistics of a moving unit cannot be added.

    Without knots the sensor brings one column, z itself. With m knots (in units of z, rising) it
    brings m columns, one *hat* each: 1 at its own knot, falling to 0 at the neighbouring ones, flat
    beyond the ends. A linear learner on hats is a piecewise-linear function of the sensor.

    >>> Sensor("co2", reference=420, scale=25).columns
    1
    >>> Sensor("co2", reference=420, scale=25, knots=(-8, -1, 0, 1, 8)).columns
    5
    """

    name: str
    reference: float = 0.0
    scale: float = 1.0
    knots: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.name or len(self.name) > 64:
            raise LayoutError(f"sensor name must have 1..64 characters, got {self.name!r}")
        if not math.isfinite(self.reference):
            raise LayoutError(f"sensor {self.name!r}: reference must be finite: {self.reference}")
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise LayoutError(f"sensor {self.name!r}: scale must be above 0, got {self.scale}")
        object.__setattr__(self, "knots", tuple(float(knot) for knot in self.knots))
        self._check_knots()

    def _check_knots(self) -> None:
        if len(self.knots) == 1:
            raise LayoutError(f"sensor {self.name!r}: give no knots (linear) or two and more")
        rising = all(left < right for left, right in pairwise(self.knots))
        if not rising or not all(map(math.isfinite, self.knots)):
            raise LayoutError(f"sensor {self.name!r}: knots must rise and be finite: {self.knots}")

    @property
    def columns(self) -> int:
        """How many columns the sensor brings, and takes with it."""
        return len(self.knots) or 1


def knots_within(gate: float, inner: Iterable[float]) -> tuple[float, ...]:
    """The ends of the gate, and those between them that float32 can tell apart.

    >>> knots_within(100.0, (-3.0, 50.0, 50.000001, 120.0))
    (-100.0, -3.0, 50.0, 100.0)
    """
    distinct: dict[float, float] = {}
    for knot in (-gate, gate, *(each for each in inner if abs(each) < gate)):
        distinct.setdefault(float(np.float32(knot)), knot)
    return tuple(sorted(distinct.values()))


@dataclass(frozen=True, slots=True, order=True)
class Pair:
    """Features of two sensors together, which vanish with either.

    Each is a cosine wave across the plane of the two sensors' z, of random direction, length
    and phase (drawn once, from the names and `seed`, so that every node draws the same): what one
    sensor means may then depend on the other. Missing either value, they are 0.
    """

    first: str
    second: str
    features: int = 8
    frequency: float = 1.0
    """Standard deviation of the wave numbers, per unit of z: higher bends more sharply."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.first == self.second:
            raise LayoutError(f"a pair needs two sensors, got {self.first!r} twice")
        if self.features < 1 or not self.frequency > 0:
            raise LayoutError(
                f"pair {self.name}: features must be at least 1 and frequency above 0, "
                f"got {self.features} and {self.frequency}"
            )
        if self.first > self.second:  # the order in which a pair is named does not matter
            first, second = self.second, self.first
            object.__setattr__(self, "first", first)
            object.__setattr__(self, "second", second)

    @property
    def name(self) -> str:
        """How the pair's columns are called."""
        return f"{self.first}×{self.second}"

    @property
    def columns(self) -> int:
        """How many columns the pair brings."""
        return self.features
