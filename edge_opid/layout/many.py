"""From columns of many readings to columns of a layout: what `Layout.encode` says, row by row.

An archive holds one array a sensor, and a learner wants one array a column, so nothing is ever
turned round: each sensor's array is standardised, guarded and spread over its hats, a whole block
of readings in one NumPy call. The operations are those of the row-by-row encoder, in its order,
so the numbers are the same to the bit. A node never loads this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_opid.errors import ReadingError, Refusal
from edge_opid.layout.basis import Hats, Vector, Waves
from edge_opid.layout.encoder import ABSURD
from edge_opid.layout.layout import Layout

Block = NDArray[np.float32]


class ManyEncoder:
    """A layout as arrays, for blocks of readings; one thread at a time uses it.

    >>> from edge_opid.layout import Sensor
    >>> encoder = ManyEncoder(Layout([Sensor("temp", 20, 5), Sensor("co2", 420, 50)]))
    >>> print(encoder.encode({"temp": np.array([25.0, np.nan]), "co2": np.array([420, 9e3])}))
    [[0. 8.]
     [1. 0.]
     [1. 1.]]
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._hats = {each.name: Hats([each], [0]) for each in layout.sensors if each.knots}
        self._waves = [(pair, Waves([pair], (pair.first, pair.second))) for pair in layout.pairs]

    def encode(
        self,
        columns: Mapping[str, NDArray[Any]],
        out: Block | None = None,
        heard: NDArray[np.int64] | None = None,
    ) -> Block:
        """The d columns of n readings, d×n; a sensor without an array, and NaN, count as missing.

        `heard` becomes how many values there were of each sensor, in the order of `names`. An
        infinite value, or an array that belongs to no sensor, raises a `ReadingError`.
        """
        n = self._length(columns)
        if out is None:
            out = np.empty((self.layout.width, n), np.float32)
        if heard is None:
            heard = np.empty(len(self.layout.sensors), np.int64)
        standardised: dict[str, Vector] = {}
        for place, sensor in enumerate(self.layout.sensors):
            span = self.layout.spans[sensor.name]
            rows = out[span.start : span.stop]
            values = columns.get(sensor.name)
            if values is None:
                rows[:] = heard[place] = 0
                continue
            z = np.subtract(values, sensor.reference, dtype=np.float64)
            z /= sensor.scale
            heard[place] = self._guard(sensor.name, values, z)
            if self._waves:
                standardised[sensor.name] = z.copy()
            if heard[place] < n:
                z[np.isnan(z)] = 0.0  # missing: as at the reference, where every hat is 0
            if sensor.knots:
                self._hats[sensor.name].spread(z, rows)
            else:
                rows[0] = z
        for pair, waves in self._waves:
            self._spread_waves(pair.first, pair.second, waves, standardised, out)
        out[-1] = 1.0  # the bias
        return out

    def _length(self, columns: Mapping[str, NDArray[Any]]) -> int:
        lengths = {len(values) for values in columns.values()}
        unknown = sorted(set(columns) - set(self.layout.names))
        if unknown:
            there = list(self.layout.names)
            raise ReadingError(
                Refusal("unknown-sensor", f"no sensor {unknown[0]!r} here; there are {there}")
            )
        if len(lengths) > 1:
            raise ReadingError(
                Refusal("width", f"arrays must be of one length, got {sorted(lengths)}")
            )
        return lengths.pop() if lengths else 0

    def _guard(self, name: str, values: NDArray[Any], z: Vector) -> int:
        """Clip z at the gate, in place; what is absurd becomes NaN. How many values are left."""
        gate = self.layout.gate
        if not len(z) or (z.min() > -gate and z.max() < gate):  # false where one is NaN
            return len(z)
        if np.isinf(values).any():
            row = int(np.flatnonzero(np.isinf(values))[0])
            sentence = f"sensor {name!r} is {values[row]} in row {row}: expected a finite number"
            raise ReadingError(Refusal("non-finite", sentence))
        sizes = np.abs(z)
        z[(sizes >= gate) & (sizes > ABSURD)] = np.nan
        np.clip(z, -gate, gate, out=z)  # NaN stays
        return len(z) - int(np.count_nonzero(np.isnan(z)))

    def _spread_waves(
        self, first: str, second: str, waves: Waves, z: Mapping[str, Vector], out: Block
    ) -> None:
        span = self.layout.spans[f"{first}×{second}"]
        if first not in z or second not in z:
            out[span.start : span.stop] = 0.0
            return
        both = np.array([z[first], z[second]])
        out[span.start : span.stop] = np.nan_to_num(waves(both))
