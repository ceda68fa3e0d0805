"""Which sensor is which column: from named values to the numbers a learner takes.

What a layout costs, said before it is paid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_opid.errors import LayoutError, MismatchError
from edge_opid.layout.basis import Vector
from edge_opid.layout.change import Change
from edge_opid.layout.encoder import Encoder
from edge_opid.layout.sensor import Pair, Sensor
from edge_opid.learner.gram import GramLearner
from edge_opid.learner.settings import Settings
from edge_opid.learner.woodbury import WoodburyLearner

BIAS = "bias"
FAR = 1e4
"""Scales within which another layout's values must lie here: squared and summed over a million
readings, they are still solved in float64 beside a ridge of 1."""


@dataclass(frozen=True, init=False)
class Layout:
    """The sensors of a node, and the columns they become.

    Columns come in the order learners want: those that vanish, then those that survive, each
    group by sensor name (so the order in which sensors are listed never matters), last a constant
    1, the bias, which always survives. A sensor not in a reading counts as its reference.

    `sensors`: `Sensor` objects, or names for sensors that are standardised already. `vanishing`:
    names of those planned to die. `pairs`: features of two sensors. `gate`: a value more than this
    many scales from its reference is refused; one absurd reading would spoil the statistics for
    ever, and 8 refuses none of 20,000 normal ones.

    >>> layout = Layout([Sensor("temp", 20, 5), Sensor("co2", 420, 50)], vanishing=["temp"])
    >>> layout.columns
    ('temp', 'co2', 'bias')
    >>> print(layout.encode({"co2": 445.0, "temp": 21.0}))
    [0.2 0.5 1. ]
    >>> layout.encode({"temp": 21.0, "co2": 9000.0})
    Traceback (most recent call last):
    edge_opid.errors.ReadingError: sensor 'co2' is 9000: 171.6 scales from its reference 420, gate 8
    """

    sensors: tuple[Sensor, ...]
    vanishing: frozenset[str] = frozenset()
    pairs: tuple[Pair, ...] = ()
    gate: float = field(default=8.0, kw_only=True)

    def __init__(
        self,
        sensors: Iterable[Sensor | str],
        vanishing: Iterable[str] = (),
        pairs: Iterable[Pair] = (),
        *,
        gate: float = 8.0,
    ) -> None:
        made = (s if isinstance(s, Sensor) else Sensor(s) for s in sensors)
        values = {
            "sensors": tuple(sorted(made, key=lambda sensor: sensor.name)),
            "vanishing": frozenset(vanishing),
            "pairs": tuple(sorted(pairs)),
            "gate": float(gate),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self._check()

    def _check(self) -> None:
        names = self.names
        if not names:
            raise LayoutError("a layout needs at least one sensor")
        if len(set(names)) != len(names) or BIAS in names:
            raise LayoutError(f"sensor names must differ, and none be {BIAS!r}: {list(names)}")
        if len({pair.name for pair in self.pairs}) != len(self.pairs):
            raise LayoutError(f"a pair is listed twice: {[pair.name for pair in self.pairs]}")
        partners = {name for pair in self.pairs for name in (pair.first, pair.second)}
        strangers = sorted((self.vanishing | partners) - set(names))
        if strangers:
            raise LayoutError(f"no sensor {strangers[0]!r} here; there are {list(names)}")
        if not self.gate > 0:
            raise LayoutError(f"gate must be above 0, got {self.gate}")

    # -- columns -------------------------------------------------------------------------------

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The sensors' names, sorted."""
        return tuple(sensor.name for sensor in self.sensors)

    def _vanishes(self, item: Sensor | Pair) -> bool:
        parts = (item.name,) if isinstance(item, Sensor) else (item.first, item.second)
        return not self.vanishing.isdisjoint(parts)

    @cached_property
    def _items(self) -> tuple[Sensor | Pair, ...]:
        """What brings columns, in column order: what vanishes first."""
        listed: tuple[Sensor | Pair, ...] = (*self.sensors, *self.pairs)
        return tuple(sorted(listed, key=lambda item: not self._vanishes(item)))

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """A name for every column, in the order of `encode`."""
        found = [
            item.name if item.columns == 1 else f"{item.name}[{k}]"
            for item in self._items
            for k in range(item.columns)
        ]
        return (*found, BIAS)

    @property
    def width(self) -> int:
        """d: all columns."""
        return len(self.columns)

    @property
    def vanishing_columns(self) -> int:
        """How many columns, the first ones, are planned to vanish."""
        return sum(item.columns for item in self._items if self._vanishes(item))

    @property
    def surviving_columns(self) -> int:
        """How many columns survive, the bias among them."""
        return self.width - self.vanishing_columns

    def cost(self, classes: int) -> Cost:
        """What a learner for this layout takes, to be looked at before it is made.

        >>> lifted = [Sensor(f"s{i}", knots=tuple(range(-4, 4))) for i in range(16)]
        >>> print(Layout(lifted).cost(classes=4))
        16 sensors, 129 columns (0 vanish): WoodburyLearner 46.8 kB, GramLearner 35.6 kB
        """
        return Cost(len(self.sensors), self.vanishing_columns, self.surviving_columns, classes)

    # -- encoding ------------------------------------------------------------------------------

    def encode(
        self,
        values: Mapping[str, float | None],
        *,
        drop_gated: bool = False,
        clip_gated: bool = False,
    ) -> NDArray[np.float32]:
        """The d columns for named values; a sensor that is absent or None counts as its reference.

        A value that is not a finite number, lies beyond the gate, or belongs to no sensor here
        raises a `ReadingError` that names the sensor. So that one mad sensor does not silence the
        others, values beyond the gate count as missing with `drop_gated`, and with `clip_gated` as
        if they were at the gate (beyond `ABSURD` scales as missing, too); `gated` names them.
        """
        return self._encoder.encode(values, drop_gated, clip_gated)

    def standardise(self, values: Mapping[str, float | None]) -> Vector:
        """Every sensor's z, in the order of `names`, NaN where missing; not gated."""
        return self._encoder.standardise(values)[0]

    def gated(self, values: Mapping[str, float | None]) -> tuple[str, ...]:
        """The sensors whose values lie beyond the gate."""
        outside = np.abs(self.standardise(values)) > self.gate
        return tuple(name for name, out in zip(self.names, outside, strict=True) if out)

    @cached_property
    def _encoder(self) -> Encoder:
        return Encoder(self.sensors, self.pairs, self.spans, self.gate)

    @cached_property
    def spans(self) -> dict[str, range]:
        """The columns of each sensor and pair, by name, and of the bias."""
        found, start = {}, 0
        for item in self._items:
            found[item.name] = range(start, start + item.columns)
            start += item.columns
        return {**found, BIAS: range(start, start + 1)}

    # -- the next layout -----------------------------------------------------------------------

    def plan(self, vanishing: Iterable[str]) -> Layout:
        """The same sensors with another set planned to vanish."""
        return Layout(self.sensors, vanishing, self.pairs, gate=self.gate)

    def retire(self, *names: str) -> Layout:
        """Without these sensors, and without the pairs they were part of."""
        strangers = sorted(set(names) - set(self.names))
        if strangers:
            raise LayoutError(f"cannot retire {strangers[0]!r}; there are {list(self.names)}")
        sensors = [sensor for sensor in self.sensors if sensor.name not in names]
        pairs = [pair for pair in self.pairs if not {pair.first, pair.second} & set(names)]
        return Layout(sensors, self.vanishing - set(names), pairs, gate=self.gate)

    def deploy(self, *sensors: Sensor | str) -> Layout:
        """With these sensors in addition."""
        return Layout([*self.sensors, *sensors], self.vanishing, self.pairs, gate=self.gate)

    def change_to(self, new: Layout, replaces: Mapping[str, str] | None = None) -> Change:
        """What is kept, retired and deployed on the way to another layout.

        `replaces` names, for a new sensor, the one that goes and whose columns it continues.
        """
        return Change.between(
            self.spans, new.spans, self.names, new.names, new.vanishing_columns, replaces
        )

    def columns_from(self, other: Layout) -> Vector:
        """T, for which x here = T·x there: another layout's readings, in this one's columns.

        A sensor that is not there counts as missing here. One with another reference or scale is
        moved exactly as long as it is a straight column; hats depend on where they stand.

        >>> there, here = Layout([Sensor("temp", 20, 5)]), Layout([Sensor("temp", 10, 10)])
        >>> T = here.columns_from(there)
        >>> print(T @ there.encode({"temp": 25}), here.encode({"temp": 25}))
        [1.5 1. ] [1.5 1. ]
        """
        if strangers := sorted(set(other.spans) - set(self.spans)):
            raise MismatchError(f"{strangers[0]!r} is there and not here: {list(self.spans)}")
        theirs = {sensor.name: sensor for sensor in other.sensors}
        moved = [(mine, theirs[mine.name]) for mine in self.sensors if mine.name in theirs]
        moved = [(mine, there) for mine, there in moved if mine != there]
        for mine, there in moved:
            if mine.knots or there.knots or self.pairs or other.pairs:
                raise MismatchError(f"only straight columns can be moved: {mine} is {there} there")
        T = np.zeros((self.width, other.width))
        for name, span in other.spans.items():
            T[self.spans[name], span] = 1.0
        for mine, there in moved:
            row, scale = self.spans[mine.name].start, there.scale / mine.scale
            offset = (there.reference - mine.reference) / mine.scale
            if not abs(offset) + other.gate * scale < FAR:
                raise MismatchError(f"too far apart to be added up: {mine} is {there} there")
            T[row, other.spans[mine.name].start] = scale
            T[row, -1] = offset
        return T

    # -- saving --------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON or msgpack."""
        return {
            "sensors": [[s.name, s.reference, s.scale, list(s.knots)] for s in self.sensors],
            "vanishing": sorted(self.vanishing),
            "pairs": [[p.first, p.second, p.features, p.frequency, p.seed] for p in self.pairs],
            "gate": self.gate,
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Layout:
        """The layout that `to_dict` described."""
        sensors = [Sensor(name, at, scale, tuple(k)) for name, at, scale, k in saved["sensors"]]
        pairs = [Pair(*values) for values in saved["pairs"]]
        return cls(sensors, saved["vanishing"], pairs, gate=saved["gate"])


@dataclass(frozen=True, slots=True)
class Cost:
    """The bytes a learner would take; printing it gives one line to read."""

    sensors: int
    vanishing_columns: int
    surviving_columns: int
    classes: int

    @property
    def woodbury_bytes(self) -> int:
        """State of a float32 `WoodburyLearner`."""
        return WoodburyLearner.bytes_for(self._settings)

    @property
    def gram_bytes(self) -> int:
        """State of a float32 `GramLearner`."""
        return GramLearner.bytes_for(self._settings)

    @property
    def _settings(self) -> Settings:
        return Settings(
            vanishing=self.vanishing_columns, surviving=self.surviving_columns, classes=self.classes
        )

    def __str__(self) -> str:
        columns = self.vanishing_columns + self.surviving_columns
        return (
            f"{self.sensors} sensors, {columns} columns ({self.vanishing_columns} vanish): "
            f"WoodburyLearner {self.woodbury_bytes / 1000:.1f} kB, "
            f"GramLearner {self.gram_bytes / 1000:.1f} kB"
        )
