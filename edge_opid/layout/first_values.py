"""Whether a sensor has moved, and what its first values say of its scale.

A scale can be told only of a sensor that moves. One that has said the same value so far (the light
at night, a contact, a probe on the bench) would get an invented scale, and whatever it says later
would be clipped alike. So it waits, without a column, until it `has_moved`; meanwhile nobody waits
for it. Its reference is then the value it rested at: all the readings before are learned as what
they were, since a column that is not there counts as one at its reference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from edge_opid.errors import LayoutError
from edge_opid.layout.nonsense import SHARE_MAX, Values, described, sensible
from edge_opid.layout.sensor import Sensor
from edge_opid.layout.warmup import NORMAL_SPREAD, estimated, floor_of, spread_knots

MOVES = 8
"""Values away from where a sensor rests that tell a scale, or a quarter of the first few."""


def has_moved(seen: Values) -> bool:
    """Whether these values tell a scale.

    Of a contact, whose two values are 0 and 1, one of each does. Two other values may be a sensor
    at rest and a code, unless each has come in more than a quarter of the readings.

    >>> has_moved(np.array([0.0] * 50)), has_moved(np.array([0.0] * 50 + [1.0]))
    (False, True)
    >>> has_moved(np.array([21.0] * 40 + [85.0] * 10))  # a probe on the bench, not yet ready
    False
    >>> has_moved(np.array([0.0] * 50 + [3, 7, 12, 20, 31, 45, 60, 80]))  # sunrise
    True
    """
    kept = seen[sensible(seen)]
    values, counts = np.unique(kept, return_counts=True)
    if len(values) < 2:
        return False
    moved = len(kept) - int(counts.max())
    if len(values) == 2:
        return bool(values.tolist() == [0, 1] or moved > SHARE_MAX * len(kept))
    return moved >= min(MOVES, max(1, len(kept) // 4))


class FirstValues:
    """The first values of one sensor, until they say what its reference and scale are.

    That takes `readings` of them, and that it `has_moved`. Until then at most `readings` are kept:
    those at which it rests make room for the others.

    >>> light = FirstValues("light", readings=20)
    >>> for lux in [0.0] * 500:
    ...     light.add(lux)
    >>> light.ready, str(light)
    (False, 'light, always 0 in 500 values')
    >>> for lux in (5.0, 20, 60, 110, 180, 250, 330, 400):
    ...     light.add(lux)
    >>> light.ready, light.sensor()
    (True, Sensor(name='light', reference=0.0, scale=106.7, knots=()))
    """

    def __init__(self, name: str, readings: int, knots: int = 1, *, gate: float = 8.0) -> None:
        if readings < 2:
            raise LayoutError(f"a sensor needs 2 values or more to be measured, got {readings}")
        self.name, self._readings, self.knots, self._gate = name, readings, knots, gate
        self._values: list[float] = []
        self.heard = 0
        """How many values it has said, those that had to make room included."""
        self.asked_at = 0
        """At how many values somebody was asked to let it in; 0: not yet."""
        self._rest = 0.0  # the value that has come most often
        self._ready = False

    def add(self, value: float) -> None:
        """One value more."""
        self.heard += 1
        kept = float(np.float32(value))
        full = len(self._values) == self._readings
        if full and kept == self._rest:
            return  # it would make room among its like: nearly free, for as long as it rests
        if full:
            self._values.remove(self._rest)
        self._values.append(kept)
        self._settle()

    def _settle(self) -> None:
        self._rest = Counter(self._values).most_common(1)[0][0] if self._values else 0.0
        self._ready = len(self._values) == self._readings and has_moved(np.array(self._values))

    @property
    def ready(self) -> bool:
        """Whether there are enough values, and they tell a scale."""
        return self._ready

    @property
    def full(self) -> bool:
        """Whether there are enough values, though they may not tell a scale."""
        return len(self._values) == self._readings

    @property
    def values(self) -> tuple[float, ...]:
        """Those that are kept, in the order they came."""
        return tuple(self._values)

    @property
    def aside(self) -> str:
        """A sentence about values that have no say, or nothing."""
        seen = np.array(self._values)
        kept = sensible(seen)
        return "" if kept.all() else described(self.name, seen[~kept], len(seen))

    def sensor(self) -> Sensor:
        """What the values kept suggest."""
        seen = np.array(self._values)
        if self.heard > len(self._values):  # it has rested for longer than that
            return self._sensor_at_rest(seen[sensible(seen)])
        return estimated(self.name, seen, self.knots, self._gate)

    def _sensor_at_rest(self, seen: Values) -> Sensor:
        away = np.abs(seen[seen != self._rest] - self._rest)
        scale = float(np.quantile(away, 0.9)) / NORMAL_SPREAD if len(away) else 1.0
        scale = max(float(f"{scale:.5g}"), floor_of(seen))
        knots = spread_knots((seen - self._rest) / scale, self.knots, self._gate)
        return Sensor(self.name, self._rest, scale, knots)

    def __str__(self) -> str:
        """How it stands, for a log or a status."""
        if not self._values:
            return f"{self.name}, no value yet"
        times = "1 value" if self.heard == 1 else f"{self.heard} values"
        if len(set(self._values)) == 1:
            return f"{self.name}, always {self._values[0]:g} in {times}"
        if not self.full:
            return f"{self.name}, {times} of {self._readings}"
        return f"{self.name}, hardly moved in {times}"

    def state(self) -> list[Any]:
        """Plain values, for `restore`."""
        return [self.heard, self.asked_at, list(self._values)]

    def restore(self, saved: Sequence[Any]) -> FirstValues:
        """Be what `state` described, with no more values than there is room for; returns itself."""
        self.heard, self.asked_at, values = saved
        self._values = list(values)[: self._readings]
        self._settle()
        return self
