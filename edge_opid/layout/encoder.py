"""From one reading's named values to its columns, and the guards on the way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from edge_opid.errors import ReadingError, Refusal
from edge_opid.layout.basis import Hats, Vector, Waves
from edge_opid.layout.sensor import Pair, Sensor

ABSURD = 1e6
"""Scales from its reference at which no world, only a fault, can have moved a sensor."""


class Encoder:
    """A layout as arrays, made once, so that a reading costs a few NumPy calls."""

    def __init__(
        self,
        sensors: Sequence[Sensor],
        pairs: Sequence[Pair],
        spans: Mapping[str, range],
        gate: float,
    ) -> None:
        self._sensors, self._gate = sensors, gate
        self._names = [sensor.name for sensor in sensors]
        self._references = np.array([sensor.reference for sensor in sensors])
        self._scales = np.array([sensor.scale for sensor in sensors])
        in_order = sorted(sensors, key=lambda sensor: spans[sensor.name].start)
        self._hats = Hats(in_order, [self._names.index(sensor.name) for sensor in in_order])
        self._hat_columns = _places(in_order, spans)
        self._waves = Waves(pairs, self._names) if pairs else None
        self._wave_columns = _places(pairs, spans)
        self._width = sum(map(len, spans.values()))

    def encode(
        self, values: Mapping[str, float | None], drop: bool, clip: bool
    ) -> NDArray[np.float32]:
        """The columns; see `Layout.encode`."""
        z, complete = self.standardise(values)
        sizes = np.abs(z)
        # fmax passes over the NaN of missing sensors; with none present it is NaN, and not above.
        if np.fmax.reduce(sizes) > self._gate:
            outside = sizes > self._gate
            if not drop and not clip:
                raise self._gated(values, z, int(outside.argmax()))
            lost = outside if drop else sizes > ABSURD
            z[lost], complete = np.nan, False
            np.clip(z, -self._gate, self._gate, out=z)  # NaN stays
        x = np.empty(self._width, np.float32)
        if self._waves is not None:
            x[self._wave_columns] = np.nan_to_num(self._waves(z))
        if not complete:
            z[np.isnan(z)] = 0.0  # missing: as at the reference, where every hat is 0
        if isinstance(self._hat_columns, slice):
            self._hats(z, out=x[self._hat_columns])
        else:
            x[self._hat_columns] = self._hats(z)
        x[-1] = 1.0  # the bias
        return x

    def standardise(self, values: Mapping[str, float | None]) -> tuple[Vector, bool]:
        """Every sensor's z, NaN where missing, and whether all are there."""
        raw = [values.get(name) for name in self._names]
        try:
            z = np.array(raw, np.float64)
        except (TypeError, ValueError) as error:
            raise ReadingError(Refusal("type", f"{error} in {dict(values)}")) from error
        present = len(raw) - raw.count(None)
        if np.count_nonzero(np.isfinite(z)) != present:
            raise self._non_finite(raw, z)
        if present != len(values):
            self._refuse_unknown(values)
        z -= self._references
        z /= self._scales
        return z, present == len(raw)

    def _refuse_unknown(self, values: Mapping[str, float | None]) -> None:
        unknown = sorted(set(values) - set(self._names))
        if unknown:
            sentence = f"no sensor {unknown[0]!r} here; there are {self._names}"
            raise ReadingError(Refusal("unknown-sensor", sentence))

    def _non_finite(self, raw: list[float | None], z: Vector) -> ReadingError:
        bad = next(i for i, v in enumerate(raw) if v is not None and not np.isfinite(z[i]))
        sentence = f"sensor {self._names[bad]!r} is {raw[bad]}: expected a finite number"
        return ReadingError(Refusal("non-finite", sentence))

    def _gated(self, values: Mapping[str, float | None], z: Vector, bad: int) -> ReadingError:
        sensor = self._sensors[bad]
        sentence = (
            f"sensor {sensor.name!r} is {values[sensor.name]:g}: {abs(z[bad]):.1f} scales from "
            f"its reference {sensor.reference:g}, gate {self._gate:g}"
        )
        return ReadingError(Refusal("gate", sentence))


def _places(items: Iterable[Sensor | Pair], spans: Mapping[str, range]) -> slice | NDArray[np.intp]:
    """The columns of these items: as a slice where they follow each other, which is faster."""
    columns = [column for item in items for column in spans[item.name]]
    if columns and columns == list(range(columns[0], columns[-1] + 1)):
        return slice(columns[0], columns[-1] + 1)
    return np.array(columns, np.intp)
