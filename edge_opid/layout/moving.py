"""The same sensor with another reference, scale or knots: its columns in terms of the old ones.

A straight column is z = (v − reference)/scale, so another reference and scale is a linear map of
[z, 1]. Hats are piecewise linear in v. A function that is linear between the old knots is known
from its values there, so

- **sums** of the new columns follow from those of the old: each new column is taken as its values
  at the old knots, joined by lines;
- **weights** follow the other way round: what the old ones say at the new knots.

Both are exact where one set of knots is among the other's, and where values were at knots.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edge_opid.layout.basis import Hats, Vector
from edge_opid.layout.sensor import Sensor


def place_columns(T: Vector, rows: range, columns: range, new: Sensor, old: Sensor) -> None:
    """Write into T (x of the new layout = T·x of the old) what concerns this sensor."""
    if not old.knots:
        T[rows.start, columns.start] = old.scale / new.scale
        T[rows.start, -1] = (old.reference - new.reference) / new.scale
    else:
        at_knots = _columns(new, old, old.knots)
        # The old columns are hats less what they are at the reference: 1 − what they rise to.
        T[rows.start : rows.stop, -1] = (1 - _columns(old, old, old.knots).diagonal()) @ at_knots
        T[rows.start : rows.stop, columns.start : columns.stop] = at_knots.T


def place_weights(E: Vector, rows: range, columns: range, new: Sensor, old: Sensor) -> None:
    """Write into E (weights of the new layout = E·weights of the old) what concerns this sensor."""
    if not new.knots and not old.knots:
        E[rows.start, columns.start] = new.scale / old.scale
        E[-1, columns.start] = (new.reference - old.reference) / old.scale
        return
    at_reference, *at_points = _columns(old, new, (0.0, *(new.knots or (1.0,))))
    E[rows.start : rows.stop, columns.start : columns.stop] = at_points - at_reference
    E[-1, columns.start : columns.stop] = at_reference


def _columns(sensor: Sensor, other: Sensor, z: Sequence[float]) -> Vector:
    """A sensor's columns, unclipped, for values that are these z of another: points × columns."""
    hats = Hats([sensor], [0])
    values = other.reference + other.scale * np.array(z)
    return np.array([hats(np.array([(v - sensor.reference) / sensor.scale])) for v in values])
