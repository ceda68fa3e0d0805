"""Reference, scale and knots from the first readings, where nobody could give them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from edge_opid.errors import LayoutError
from edge_opid.layout.layout import Layout
from edge_opid.layout.nonsense import described, sensible
from edge_opid.layout.sensor import Pair, Sensor, knots_within

NORMAL_SPREAD = 3.2897
"""How many standard deviations lie between the 5 % and the 95 % quantile of a normal sensor."""

FLOAT32_MOST = 1e38  # the next power of two has no neighbour above it
SCALE_MIN = float(np.finfo(np.float32).tiny)
"""A smaller scale would be 0 in float32."""


class WarmUp:
    """Holds the first readings, and says what layout they suggest: now, and better later.

    A layout estimated from 8 readings is usable at once; one from 200 knows more of the range.
    So ask for `layout()` whenever `due` is true (at 8, 16, 32 … readings, and when full), make
    a new learner for it and let it learn the `rows()` again. When the warm-up is `full`, its last
    layout is frozen and the warm-up is dropped; until then it takes 4·readings·sensors bytes.

    `knots`: 1 for a linear column; m ≥ 2 for hats at the two ends of the gate and at m − 2
    quantiles of the warm-up. A number for all sensors, or a mapping by name (default 1).

    Codes such as 65535, up to a quarter of a sensor's values, have no say: `aside` names them.

    >>> warmup = WarmUp(["temp", "door"], readings=50)
    >>> for i in range(50):
    ...     warmup.add({"temp": 20 + i % 5, "door": 0.0}, label=0)
    >>> warmup.full, warmup.due
    (True, True)
    >>> warmup.layout().sensors[1]
    Sensor(name='temp', reference=22.0, scale=1.2159, knots=())
    """

    def __init__(
        self,
        names: Iterable[str],
        readings: int = 200,
        knots: int | Mapping[str, int] = 1,
        *,
        first: int = 8,
        gate: float = 8.0,
    ) -> None:
        self.names = tuple(sorted(names))
        if readings < 2 or first < 2:
            raise LayoutError(f"a warm-up needs 2 readings or more, got {readings} and {first}")
        self._again = partial(WarmUp, readings=readings, knots=knots, first=first, gate=gate)
        self._raw = Layout(self.names, gate=gate)  # checks names, and later every reading
        self._knots = {
            name: knots if isinstance(knots, int) else knots.get(name, 1) for name in self.names
        }
        if min(self._knots.values()) < 1:
            raise LayoutError(f"knots must be at least 1, got {self._knots}")
        self._values: NDArray[np.float32] = np.full((readings, len(self.names)), np.nan, np.float32)
        self._labels: list[Any] = []
        self._due_at = min(first, readings)
        self._due = False

    def add(self, values: Mapping[str, float | None], label: Any = None) -> None:
        """Keep one reading. A bad value raises `ReadingError`, and the reading is not kept."""
        if self.full:
            raise LayoutError(f"the warm-up is full: {len(self._labels)} readings")
        self._values[len(self._labels)] = self._raw.standardise(values)
        self._labels.append(label)
        self._due = len(self._labels) == self._due_at
        if self._due:
            self._due_at = min(2 * self._due_at, len(self._values))

    def unlabel(self, values: Mapping[str, float | None], label: Any) -> bool:
        """Let the last reading with these values and this label have none; whether there is one."""
        wanted = self._raw.standardise(values).astype(np.float32)
        for place in reversed(range(len(self._labels))):
            same = np.array_equal(self._values[place], wanted, equal_nan=True)
            if same and self._labels[place] == label:
                self._labels[place] = None
                return True
        return False

    def add_all(self, rows: Iterable[tuple[Mapping[str, float | None], Any]]) -> Self:
        """Keep these readings with their labels, such as another's `rows()`; this warm-up."""
        for values, label in rows:
            self.add(values, label)
        return self

    def with_sensors(self, names: Iterable[str]) -> WarmUp:
        """A warm-up of these sensors, too, which has kept the same readings."""
        return self._again([*self.names, *(set(names) - set(self.names))]).add_all(self.rows())

    @property
    def progress(self) -> str:
        """How far it is, in words."""
        return f"{len(self._labels)} of {len(self._values)} readings"

    @property
    def full(self) -> bool:
        """No more readings are kept: `layout()` is final."""
        return len(self._labels) == len(self._values)

    @property
    def due(self) -> bool:
        """The reading just added makes a new layout worth its while."""
        return self._due

    def values_of(self, name: str) -> NDArray[np.float64]:
        """What a sensor has said so far, in the order it came."""
        return self._seen(name)

    def rows(self) -> Iterator[tuple[dict[str, float], Any]]:
        """The readings kept, with their labels, in the order they came."""
        return self._named(self._values)

    def sensible_rows(self) -> Iterator[tuple[dict[str, float], Any]]:
        """The same, for learning: without the values that are set aside (`aside`)."""
        values = self._values.copy()
        for place, name in enumerate(self.names):
            heard = np.flatnonzero(np.isfinite(values[:, place]))
            values[heard[~sensible(self._seen(name))], place] = np.nan
        return self._named(values)

    def _named(self, rows: NDArray[np.float32]) -> Iterator[tuple[dict[str, float], Any]]:
        for values, label in zip(rows, self._labels, strict=False):
            present = np.isfinite(values)
            yield (
                {n: float(v) for n, v, p in zip(self.names, values, present, strict=True) if p},
                label,
            )

    def layout(self, vanishing: Iterable[str] = (), pairs: Iterable[Pair] = ()) -> Layout:
        """The layout these readings suggest."""
        sensors = [self._estimate(name) for name in self.names]
        return Layout(sensors, vanishing, pairs, gate=self._raw.gate)

    def _seen(self, name: str) -> NDArray[np.float64]:
        column = self._values[: len(self._labels), self.names.index(name)].astype(np.float64)
        return column[np.isfinite(column)]

    @property
    def aside(self) -> dict[str, str]:
        """Sensors some of whose values have no say (`nonsense`), and a sentence about each."""
        found = {}
        for name in self.names:
            seen = self._seen(name)
            kept = sensible(seen)
            if not kept.all():
                found[name] = described(name, seen[~kept], len(seen))
        return found

    def _estimate(self, name: str) -> Sensor:
        return estimated(name, self._seen(name), self._knots[name], self._raw.gate)


def estimated(name: str, seen: NDArray[np.float64], knots: int, gate: float) -> Sensor:
    """What these values of a sensor suggest; codes among them have no say."""
    seen = seen[sensible(seen)]
    scale = _scale(seen)
    reference = _reference(seen, scale, gate)
    return Sensor(name, reference, scale, spread_knots((seen - reference) / scale, knots, gate))


def _reference(seen: NDArray[np.float64], scale: float, gate: float) -> float:
    """The mean of what was seen, spikes counting as if they were at the gate around the median.

    What is missing counts as the reference, and so does a new sensor in all readings before it
    came: the mean is the guess that leaves the others' weights, and the bias, where they are.
    """
    if not len(seen):
        return 0.0
    middle = float(np.median(seen))
    return float(np.clip(seen, middle - gate * scale, middle + gate * scale).mean())


def _scale(seen: NDArray[np.float64]) -> float:
    """A standard deviation that a few spikes cannot blow up.

    A sensor that rests most of the time (a motion detector) has no spread between its 5 % and 95 %
    quantiles; then all values count. One that never moved gets a quarter of its value, or 1.
    """
    if len(seen) and (width := float(np.subtract(*np.quantile(seen, [0.95, 0.05])))) > 0:
        scale = round(width / NORMAL_SPREAD, 4 - int(np.floor(np.log10(width))))
        return max(floor_of(seen), scale)
    if len(seen) and (deviation := float(seen.std())) > 0:
        return max(floor_of(seen), deviation)
    return max(1.0, abs(float(seen[0])) / 4) if len(seen) else 1.0


def floor_of(seen: NDArray[np.float64]) -> float:
    """The smallest scale that these values can support.

    A quarter of the smallest step between two of them, so that a contact that is seldom 1, or a
    thermometer that flickers by its last digit, is not at the gate with its next step; and what
    float32 can tell apart at their size.

    >>> floor_of(np.array([0.0] * 999 + [1.0]))
    0.25
    """
    steps = np.diff(np.unique(seen))
    largest = min(float(np.abs(seen).max()), FLOAT32_MOST) if len(seen) else 0.0
    rounding = float(np.spacing(np.float32(largest)))
    return max(SCALE_MIN, rounding, float(steps.min()) / 4 if len(steps) else 0.0)


def spread_knots(z: NDArray[np.float64], knots: int, gate: float) -> tuple[float, ...]:
    """The ends of the gate, and quantiles between: where values are dense, so are knots."""
    if knots == 1:
        return ()
    shares = np.linspace(0, 1, knots - 2) if knots > 3 else np.full(knots - 2, 0.5)
    inner = np.round(np.quantile(z, shares), 6).tolist() if len(z) else []
    return knots_within(gate, inner)
