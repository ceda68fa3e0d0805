"""From one reading's named values to its columns, and the guards on the way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_opid import native
from edge_opid.errors import ReadingError, Refusal
from edge_opid.layout.basis import Hats, Vector, Waves
from edge_opid.layout.sensor import Pair, Sensor

ABSURD = 1e6
"""Scales from its reference at which no world, only a fault, can have moved a sensor."""


STEPS: Any = native.available["compiled"] if native.name == "compiled" else None


class Encoder:
    """A layout as arrays, made once, so that a reading costs one call of the C file.

    What is not plain (a pair of sensors, a value that is no float, a name that is not here) goes
    the way of NumPy, which gives the same bits, and knows what to say of it.
    """

    _held: Any = None
    """The arrays as the C file takes them: made when first used, never copied."""

    def __init__(
        self,
        sensors: Sequence[Sensor],
        pairs: Sequence[Pair],
        spans: Mapping[str, range],
        gate: float,
    ) -> None:
        self._gate = gate
        self._names = [sensor.name for sensor in sensors]
        self._references = np.array([sensor.reference for sensor in sensors], np.float64)
        self._scales = np.array([sensor.scale for sensor in sensors], np.float64)
        in_order = sorted(sensors, key=lambda sensor: spans[sensor.name].start)
        self._hats = Hats(in_order, [self._names.index(sensor.name) for sensor in in_order])
        self._hat_columns = _places(in_order, spans)
        self._waves = Waves(pairs, self._names) if pairs else None
        self._wave_columns = _places(pairs, spans)
        self._width = sum(map(len, spans.values()))
        columns = [column for sensor in in_order for column in spans[sensor.name]]
        self._line_columns = np.array(columns, np.intc)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_held"}

    def encode(
        self, values: Mapping[str, float | None]
    ) -> tuple[NDArray[np.float32], tuple[int, ...]]:
        """The columns, and the places of the sensors at or beyond the gate: see `Layout.encode`."""
        if STEPS is not None and self._waves is None:
            if self._held is None:
                self._held = self.held_by(self._names)
            x = np.empty(self._width, np.float32)
            gated = STEPS.encode(self._held, values, x)
            if gated is not None:
                return x, gated
        return self.encode_by_numpy(values)

    def held_by(self, keys: Sequence[str], *, strangers: bool = False) -> Any:
        """For the C file: values under these keys, in the order of the sensors' names.

        With `strangers`, keys that are none of these are passed over.
        """
        return STEPS.hold_layout(
            tuple(keys),
            self._references,
            self._scales,
            np.zeros(len(self._names)),
            *self._hats.lines(self._line_columns),
            self._gate,
            strangers,
        )

    def encode_by_numpy(
        self, values: Mapping[str, float | None]
    ) -> tuple[NDArray[np.float32], tuple[int, ...]]:
        """The same, whatever it is: the specification of the C file's."""
        z, complete = self.standardise(values)
        sizes = np.abs(z)
        gated: tuple[int, ...] = ()
        # fmax passes over the NaN of missing sensors; with none present it is NaN, and not above.
        if np.fmax.reduce(sizes) >= self._gate:
            beyond = sizes >= self._gate
            gated = tuple(np.flatnonzero(beyond).tolist())
            z[beyond & (sizes > ABSURD)], complete = np.nan, False
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
        return x, gated

    def standardise(self, values: Mapping[str, float | None]) -> tuple[Vector, bool]:
        """Every sensor's z, NaN where missing, and whether all are there."""
        raw = [values.get(name) for name in self._names]
        try:
            z = np.array(raw, np.float64)
        except (TypeError, ValueError, OverflowError) as error:
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


def _places(items: Iterable[Sensor | Pair], spans: Mapping[str, range]) -> slice | NDArray[np.intp]:
    """The columns of these items: as a slice where they follow each other, which is faster."""
    columns = [column for item in items for column in spans[item.name]]
    if columns and columns == list(range(columns[0], columns[-1] + 1)):
        return slice(columns[0], columns[-1] + 1)
    return np.array(columns, np.intp)
