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
from edge_opid.layout.change import Change, Move
from edge_opid.layout.encoder import Encoder
from edge_opid.layout.moving import place_columns, place_weights
from edge_opid.layout.sensor import Pair, Sensor
from edge_opid.learner.gram import GramLearner
from edge_opid.learner.settings import Settings
from edge_opid.learner.woodbury import WoodburyLearner

BIAS = "bias"
GATE = 8.0
"""How many scales from its reference a value is believed, unless somebody says otherwise."""
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
    many scales from its reference counts as one at the gate; one absurd reading would spoil the
    statistics for ever, and 8 clips none of 20,000 normal ones.

    >>> layout = Layout([Sensor("temp", 20, 5), Sensor("co2", 420, 50)], vanishing=["temp"])
    >>> layout.columns
    ('temp', 'co2', 'bias')
    >>> print(layout.encode({"co2": 445.0, "temp": 21.0}))
    [0.2 0.5 1. ]
    >>> mad = {"temp": 21.0, "co2": 9000.0}
    >>> print(layout.encode(mad), layout.gated(mad))
    [0.2 8.  1. ] ('co2',)
    """

    sensors: tuple[Sensor, ...]
    vanishing: frozenset[str] = frozenset()
    pairs: tuple[Pair, ...] = ()
    gate: float = field(default=GATE, kw_only=True)

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

    def encode(self, values: Mapping[str, float | None]) -> NDArray[np.float32]:
        """The d columns for named values; a sensor that is absent or None counts as its reference.

        A value that is not a finite number, or belongs to no sensor here, raises a `ReadingError`
        that names the sensor. One beyond the gate does not silence the others: it counts as a
        value at the gate, and beyond 10⁶ scales, where only a fault can be, as missing. `gated`
        names such sensors, for whoever would rather leave them out.
        """
        return self.encoder.encode(values)[0]

    def encode_many(self, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """What `encode` says of n readings, n×d, from an array a sensor; NaN counts as missing.

        >>> layout = Layout([Sensor("temp", 20, 5)])
        >>> print(layout.encode_many({"temp": np.array([25.0, 10.0])}))
        [[ 1.  1.]
         [-2.  1.]]
        """
        from edge_opid.layout.many import ManyEncoder  # noqa: PLC0415 - a node does without

        return ManyEncoder(self).encode(columns).T

    def encode_and_gate(
        self, values: Mapping[str, float | None]
    ) -> tuple[NDArray[np.float32], tuple[str, ...]]:
        """What `encode` and `gated` say, for the price of one."""
        x, places = self.encoder.encode(values)
        return x, tuple(self.names[place] for place in places)

    def standardise(self, values: Mapping[str, float | None]) -> Vector:
        """Every sensor's z, in the order of `names`, NaN where missing; not gated."""
        return self.encoder.standardise(values)[0]

    def gated(self, values: Mapping[str, float | None]) -> tuple[str, ...]:
        """The sensors whose values lie at the gate or beyond."""
        outside = np.abs(self.standardise(values)) >= self.gate
        return tuple(name for name, out in zip(self.names, outside, strict=True) if out)

    @cached_property
    def encoder(self) -> Encoder:
        """The layout as arrays, made once."""
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
        moved exactly as long as it is a straight column; hats depend on where they stand, and are
        moved by `move_from`, as well as it can be done.

        >>> there, here = Layout([Sensor("temp", 20, 5)]), Layout([Sensor("temp", 10, 10)])
        >>> T = here.columns_from(there)
        >>> print(T @ there.encode({"temp": 25}), here.encode({"temp": 25}))
        [1.5 1. ] [1.5 1. ]
        """
        move = self.move_from(other)
        if not move.exact:
            theirs = {sensor.name: sensor for sensor in other.sensors}
            bent = self.columns[move.bent[0]].partition("[")[0]
            mine = next(sensor for sensor in self.sensors if sensor.name == bent)
            there = theirs[bent]
            raise MismatchError(f"only straight columns can be moved: {mine} is {there} there")
        return move.columns

    def move_from(self, other: Layout) -> Move:
        """How sums and weights of another layout's columns become those of this one's.

        Straight columns are moved exactly, and so are hats wherever these knots stand where those
        did; between its knots a hat is taken as the line between their values. What was clipped
        there stays clipped, and what was missing stays at the reference it had there.
        """
        if strangers := sorted(set(other.spans) - set(self.spans)):
            raise MismatchError(f"{strangers[0]!r} is there but not here: {list(self.spans)}")
        theirs = {sensor.name: sensor for sensor in other.sensors}
        T, E = np.zeros((self.width, other.width)), np.zeros((self.width, other.width))
        for name, span in other.spans.items():
            here = self.spans[name]
            if len(here) == len(span):
                T[here, span] = E[here, span] = 1.0
        bent: list[int] = []
        for mine in self.sensors:
            there = theirs.get(mine.name)
            if there is None or there == mine:
                continue
            if self.pairs or other.pairs or (mine.knots and not there.knots):
                raise MismatchError(f"only straight columns can be moved: {mine} is {there} there")
            self._check_near(mine, there, other.gate)
            rows, columns = self.spans[mine.name], other.spans[mine.name]
            T[rows.start : rows.stop, columns.start : columns.stop] = 0.0
            E[rows.start : rows.stop, columns.start : columns.stop] = 0.0
            place_columns(T, rows, columns, mine, there)
            place_weights(E, rows, columns, mine, there)
            bent += [*rows] if mine.knots or there.knots else []
        return Move(columns=T, weights=E, bent=tuple(bent), vanishing=self.vanishing_columns)

    def _check_near(self, mine: Sensor, there: Sensor, gate: float) -> None:
        """Values of the other layout must be numbers here that float64 sums can hold."""
        if mine.knots:
            return  # a hat is 1 at most
        offset = abs(there.reference - mine.reference) / mine.scale
        widest = max(gate, GATE)  # the sums may be of a time before somebody made it narrow
        if not offset + widest * there.scale / mine.scale < FAR:
            raise MismatchError(f"too far apart to be added up: {mine} is {there} there")

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
