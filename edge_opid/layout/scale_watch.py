"""Whether the scales of sensors prove wrong in use, and which ones would be right.

A scale is measured by the first readings, which seldom show the whole range: a warm-up at night
knows nothing of the sun. What proves it wrong, and what is done:

1. **At the gate.** `GATED` values at or beyond it, and one reading in `ONE_IN` lately. If they are
   of several kinds, the scale grows, at least twofold, until they lie half-way to the gate. If they
   are not, they may be codes (a probe without power says 85): that is said, and nothing is moved.
2. **Drift.** The mean of two windows in a row, each `WINDOW` readings, is more than `DRIFT` scales
   from the reference. The reference moves there, and the scale grows until the old reference is
   within half the gate of the new one.

A scale never shrinks by itself, and grows at least twofold at the gate; after a drift both places
are well within `DRIFT`. So nothing oscillates, and a sensor whose range spans twenty binary orders
is moved twenty times in its life. `remeasure` is for whoever wants a smaller one.

All of it is a function of the values that came, in order: replay gives the same scales.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edge_opid.layout.nonsense import Values, sensible
from edge_opid.layout.sensor import Sensor, knots_within

GATED = 8
ONE_IN = 32
RECENT = 256
"""Readings in the share of those at the gate; then all of them count half."""
KINDS = 4
"""Different values of a sensor that is no code: the codes that are known come in three kinds."""
FAR_KEPT = 32
EVERY = 16
"""Of so many readings one is enough to tell a mean."""
WINDOW = 1024
DRIFT = 5.0
SCALE_MAX = float(np.finfo(np.float32).max)
"""A wider scale could not be described to anybody: the sensor keeps the one it has."""


class ScaleWatch:
    """Counts what is at the gate, by sensor, and remembers enough to tell a better scale.

    **Cost**: 128 bytes for a sensor that was ever at the gate, and two numbers for each.

    >>> watch, light = ScaleWatch(), Sensor("light", reference=0.0, scale=1.0)
    >>> for lux in (40.0, 80, 120, 160, 200, 240, 280, 320):
    ...     suspicious = watch.note({"light": lux}, gated=["light"])
    >>> watch.counts
    {'light': 8}
    >>> watch.better(light, gate=8.0)
    Sensor(name='light', reference=0.0, scale=62.5, knots=())
    """

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        """Values at or beyond the gate, by sensor; it never goes down."""
        self._readings = 0  # in the share below
        self._lately: dict[str, int] = {}
        self._far: dict[str, deque[float]] = {}
        self._since = 0  # the window of the means began
        self._sums: dict[str, list[float]] = {}  # sum and number of values
        self._before: dict[str, float] = {}  # the means of the window before

    def note(self, values: Mapping[str, float], gated: Collection[str] = ()) -> bool:
        """One reading, and who of it was at the gate or beyond; whether to look at the scales."""
        self._readings += 1
        self._since += 1
        if self._readings == RECENT:
            self._readings //= 2
            self._lately = {name: n // 2 for name, n in self._lately.items() if n > 1}
        for name in gated:
            self.counts[name] = self.counts.get(name, 0) + 1
            self._lately[name] = self._lately.get(name, 0) + 1
            self._far.setdefault(name, deque(maxlen=FAR_KEPT)).append(values[name])
        if self._since % EVERY == 0:
            for name, value in values.items():
                sums = self._sums.setdefault(name, [0.0, 0])
                sums[0] += value
                sums[1] += 1
        return bool(gated) or self._since >= WINDOW

    @property
    def suspects(self) -> tuple[str, ...]:
        """Sensors that are at the gate too often."""
        return tuple(n for n in self._lately if self._is_suspect(n))

    def _is_suspect(self, name: str) -> bool:
        lately = self._lately.get(name, 0)
        return lately >= GATED and ONE_IN * lately >= self._readings

    def take_wrong(self, sensors: Sequence[Sensor], gate: float, *, gated: bool) -> list[Sensor]:
        """Which of these have a wrong scale, as they should be; where `note` says to look.

        `gated`: whether somebody was at the gate just now.
        """
        drifted = self.take_drifted(sensors, gate)
        if not gated or not self.suspects:
            return drifted
        return drifted + [found for each in sensors if (found := self.better(each, gate))]

    def better(self, sensor: Sensor, gate: float) -> Sensor | None:
        """The scale that what was at the gate asks for; None where it is right, or they are codes.

        The sensor's counts for this begin anew.
        """
        if not self._is_suspect(sensor.name):
            return None
        seen = np.array(self._far[sensor.name])
        seen = seen[sensible(seen)]
        if len(np.unique(seen)) < KINDS:
            return None
        reach = float(np.quantile(np.abs(seen - sensor.reference), 0.75))
        scale = float(f"{max(2 * sensor.scale, reach / (gate / 2)):.5g}")
        if scale > SCALE_MAX:
            return None
        self.forget(sensor.name)
        return widened(sensor, sensor.reference, scale, gate, seen)

    def take_drifted(self, sensors: Iterable[Sensor], gate: float) -> list[Sensor]:
        """Where the means of sensors have gone, at the end of a window: mostly nowhere."""
        if self._since < WINDOW:
            return []
        means = {name: total / n for name, (total, n) in self._sums.items() if n}
        before, self._before = self._before, means
        self._since, self._sums = 0, {}
        found = []
        for sensor in sensors:
            name, limit = sensor.name, DRIFT * sensor.scale
            away = [mean[name] - sensor.reference for mean in (before, means) if name in mean]
            if len(away) == 2 and (min(away) > limit or max(away) < -limit):
                reference = float(f"{(before[name] + means[name]) / 2:.5g}")
                apart = abs(reference - sensor.reference)
                scale = max(sensor.scale, float(f"{apart / (gate / 2):.5g}"))
                if scale <= SCALE_MAX:
                    found.append(widened(sensor, reference, scale, gate, np.zeros(0)))
                    self.forget(name)
        return found

    def forget(self, name: str) -> None:
        """The sensor has another scale: what was far may be near."""
        for kept in (self._lately, self._far, self._sums, self._before):
            kept.pop(name, None)

    def keep_only(self, names: Collection[str]) -> None:
        """Other sensors are none of ours any more."""
        for name in {*self.counts, *self._sums, *self._before} - set(names):
            self.forget(name)
            self.counts.pop(name, None)

    def doubt(self, name: str) -> str:
        """A sentence about a sensor that is at the gate too often, and is not moved."""
        values = sorted(set(self._far[name]))
        some = ", ".join(f"{value:g}" for value in values[:3]) + (" …" if len(values) > 3 else "")
        return f"{name}: {self._lately[name]} of its last values at the gate: {some}"

    def state(self) -> dict[str, Any]:
        """Plain values, for `restored`."""
        return {
            "counts": self.counts,
            "recent": [self._readings, self._lately],
            "far": {name: list(values) for name, values in self._far.items()},
            "window": [self._since, self._sums, self._before],
        }

    @classmethod
    def restored(cls, saved: Mapping[str, Any]) -> ScaleWatch:
        """The watch that `state` described."""
        mine = cls()
        mine.counts = dict(saved["counts"])
        mine._readings, mine._lately = saved["recent"][0], dict(saved["recent"][1])
        mine._far = {name: deque(kept, maxlen=FAR_KEPT) for name, kept in saved["far"].items()}
        since, sums, before = saved["window"]
        mine._since, mine._before = since, dict(before)
        mine._sums = {name: list(each) for name, each in sums.items()}
        return mine


def widened(sensor: Sensor, reference: float, scale: float, gate: float, far: Values) -> Sensor:
    """The sensor with another reference and a wider scale.

    With hats it keeps as many. Half of the inner ones stay where they were, so that what was
    learned is moved exactly; the others go to where it was clipped.
    """
    if not sensor.knots:
        return replace(sensor, reference=reference, scale=scale)
    inner = [sensor.reference + sensor.scale * knot for knot in sensor.knots[1:-1]]
    new = len(inner) // 2 if len(far) else 0
    kept = [inner[i] for i in np.linspace(0, len(inner) - 1, len(inner) - new).round().astype(int)]
    outside = far[np.abs(far - sensor.reference) > -sensor.knots[0] * sensor.scale]
    if new and len(outside):
        kept += np.quantile(outside, np.linspace(0.2, 0.8, new)).tolist()
    z = {float(np.float32((value - reference) / scale)) for value in kept}
    return replace(sensor, reference=reference, scale=scale, knots=knots_within(gate, z))
