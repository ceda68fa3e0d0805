"""A node's sensors, which have ids, and the memories of what it has learned through them.

A node notices by itself when a sensor falls silent and when it returns; another layout is the
gateway's to order. What that does to the memories is in `memories`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edge_opid.errors import MismatchError
from edge_opid.layout import Move
from edge_opid.node.configuration import description
from edge_opid.node.memories import STEPS, Columns, Learning, Memories, Together
from edge_opid.node.orders import layout_of
from edge_opid.wire import SensorDescription


class LocalModels(Memories):
    """The sensors of a node, by id; the layout of those alive; what was learned on it."""

    _layout_held: tuple[Any, ...] | None = None
    """The layout for the C file, with what it was made of."""

    def __init__(
        self,
        sensors: Sequence[SensorDescription],
        vanishing: Sequence[str],
        gate: float,
        learning: Learning,
    ) -> None:
        self._describe(sensors, vanishing, gate)
        super().__init__(self.full, learning)

    def _describe(
        self, sensors: Sequence[SensorDescription], vanishing: Sequence[str], gate: float
    ) -> None:
        self.sensors = {sensor.id: sensor for sensor in sensors}
        self.vanishing, self.gate = tuple(vanishing), gate
        self.full = layout_of(sensors, vanishing, gate)

    @property
    def alive(self) -> Collection[str]:
        """The sensors that are expected to speak."""
        if not self.silent:
            return self.sensors.keys()
        return [sensor for sensor in self.sensors if sensor not in self.silent]

    def role(self, sensor: str) -> str:
        """The name of a sensor's columns, which a replacement takes over."""
        return self.sensors[sensor].role

    def by_role(self, values: Mapping[str, float]) -> dict[str, float]:
        """The values of living sensors, by the role that names their columns."""
        roles, silent = self.sensors, self.silent
        return {roles[s].role: v for s, v in values.items() if s in roles and s not in silent}

    def encode(self, values: Mapping[str, float]) -> Columns:
        """The learner's columns; a value beyond the gate counts as one at the gate."""
        return self.encode_and_gate(values)[0]

    def encode_and_gate(self, values: Mapping[str, float]) -> tuple[Columns, tuple[str, ...]]:
        """The learner's columns, and the sensors whose values are at the gate or beyond."""
        if STEPS is not None and not self.layout.pairs:
            held, width = self._held_layout()
            x = np.empty(width, np.float32)
            places = STEPS.encode(held, values, x)
            if places is not None:
                names = self.layout.names
                return x, self._ids([names[place] for place in places]) if places else ()
        x, roles = self.layout.encode_and_gate(self.by_role(values))
        return x, self._ids(roles)

    def _ids(self, roles: Sequence[str]) -> tuple[str, ...]:
        return tuple(sensor.id for sensor in self.sensors.values() if sensor.role in roles)

    def _held_layout(self) -> tuple[Any, int]:
        """The layout for the C file, its values under the sensors' ids; others' are passed over.

        And how many columns it has.
        """
        of = self._layout_held
        if of is None or of[0] is not self.layout or of[1] is not self.sensors:
            ids = {sensor.role: sensor.id for sensor in self.sensors.values()}
            keys = [ids[role] for role in self.layout.names]
            held = self.layout.encoder.held_by(keys, strangers=True)
            of = self._layout_held = self.layout, self.sensors, (held, self.layout.width)
        found: tuple[Any, int] = of[2]
        return found

    def __getstate__(self) -> dict[str, Any]:
        """Copied without what is held for the C file, which a copy makes anew."""
        kept = super().__getstate__()
        kept.pop("_layout_held", None)
        return kept

    def encode_full(self, values: Mapping[str, float]) -> Columns:
        """The columns that pushed weights are made for."""
        if not self.silent:
            return self.encode(values)
        return self.full.encode(self.by_role(values))

    # -- changes -------------------------------------------------------------------------------

    def obey(
        self,
        sensors: Sequence[SensorDescription],
        vanishing: Sequence[str],
        gate: float,
        carry: float,
        continues: Mapping[str, str] | None = None,
        instances: Sequence[Mapping[str, float]] = (),
    ) -> Move | None:
        """The next layout; `continues` gives, for a new role, the one whose columns it takes over.

        A sensor that stays and has another scale is moved to it; another one in its role continues
        its columns, which are in units of its own scale. `instances`, in which both the sensors so
        far and the new ones have values, tell how these follow from those. Returns the move, where
        other scales are all that changes.
        """
        move = self.take_scales({sensor.id: sensor for sensor in sensors})
        if move and self.are(sensors, vanishing, gate):
            return move
        old = [self.encode(values) for values in instances]  # while the silent ones still are
        ids = {sensor.id for sensor in sensors}
        silent = tuple(sensor for sensor in self.silent if sensor in ids)
        self.silent = silent if len(silent) < len(ids) else ()  # at least one is waited for
        self._describe(sensors, vanishing, gate)
        target = self._without_silent()
        new = [target.encode(self.by_role(values)) for values in instances]
        together = Together(np.array(old), np.array(new)) if instances else None
        self.change(self.full, carry, continues, together)
        return None

    def reconfigure(
        self,
        sensors: Sequence[SensorDescription],
        vanishing: Sequence[str],
        gate: float,
        carry: float,
        continues: Mapping[str, str],
        instances: Sequence[Mapping[str, float]] = (),
    ) -> bool:
        """The sensors as the operator has them now; whether the layout is another one.

        Other scales, timeouts or another gate leave it as it is. A sensor that was silent when
        another one took over from it is taken back first: its columns go to its heir.
        """
        roles = {sensor.id: sensor.role for sensor in self.sensors.values()}
        self.take_scales({s.id: replace(s, role=roles.get(s.id, s.role)) for s in sensors})
        full, ids = layout_of(sensors, vanishing, gate), {sensor.id for sensor in sensors}
        same = (full.columns, full.vanishing) == (self.full.columns, self.full.vanishing)
        if ids == self.sensors.keys() and same:
            self._describe(sensors, vanishing, gate)
            self.set_gate(gate)
            return False
        inherited = {*full.names, *continues.values()}
        heirless = [s for s in self.silent if s not in ids and self.role(s) in inherited]
        if heirless:
            self.take_back(heirless)
        self.obey(sensors, vanishing, gate, carry, continues, instances)
        return True

    def take_scales(
        self, wanted: Mapping[str, SensorDescription], clipped: Collection[str] = ()
    ) -> Move | None:
        """Move the sensors that stay to these scales, and say how weights follow.

        What cannot be moved, because the scales are too far apart, is forgotten: its columns start
        anew with the next `obey`.
        """
        stay = [s for s in self.sensors.values() if _is_same_thing(s, wanted.get(s.id))]
        moved = {s.id: wanted[s.id] for s in stay if _scale_of(s) != _scale_of(wanted[s.id])}
        if not moved:
            return None
        try:
            return self.rescale_sensors(moved, clipped)
        except MismatchError:
            left = [sensor for sensor in self.sensors.values() if sensor.id not in moved]
            if left:
                silent = tuple(s for s in self.silent if s not in moved)
                self.silent = silent if len(silent) < len(left) else ()  # one has to be waited for
                self._describe(left, [s for s in self.vanishing if s not in moved], self.gate)
                self.change(self.full, carry=1.0)
            else:
                self._begin()  # there was nothing else to know
            return None

    def rescale_sensors(
        self, moved: Mapping[str, SensorDescription], clipped: Collection[str] = ()
    ) -> Move:
        """The same sensors with other references, scales or knots: see `Memories.rescale`."""
        sensors = [moved.get(sensor.id, sensor) for sensor in self.sensors.values()]
        full = layout_of(sensors, self.vanishing, self.gate)
        move = self.rescale(full, [self.role(sensor) for sensor in clipped])
        self._describe(sensors, self.vanishing, self.gate)
        return move

    def are(
        self, sensors: Sequence[SensorDescription], vanishing: Sequence[str], gate: float
    ) -> bool:
        """Whether this is what they are already."""
        mine = tuple(self.sensors.values()), self.vanishing, self.gate
        return mine == (tuple(sensors), tuple(vanishing), gate)

    def start_over(
        self,
        sensors: Sequence[SensorDescription],
        vanishing: Sequence[str] | None = None,
        gate: float | None = None,
    ) -> None:
        """A better estimate of references and scales, while the warm-up lasts."""
        vanishing = self.vanishing if vanishing is None else vanishing
        self._describe(sensors, vanishing, self.gate if gate is None else gate)
        self._begin()

    # -- saving --------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Plain values and arrays, for `restored`."""
        return {
            "sensors": [sensor.plain() for sensor in self.sensors.values()],
            "vanishing": self.vanishing,
            "gate": self.gate,
            **super().state(),
        }

    @classmethod
    def restored(cls, saved: Mapping[str, Any], learning: Learning) -> LocalModels:
        """The local_models that `state` described."""
        described = [description(plain) for plain in saved["sensors"]]
        local_models = cls(described, tuple(saved["vanishing"]), saved["gate"], learning)
        local_models.restore(saved)
        return local_models


def _is_same_thing(one: SensorDescription, other: SensorDescription | None) -> bool:
    return other is not None and (one.id, one.role) == (other.id, other.role)


def _scale_of(sensor: SensorDescription) -> tuple[float, float, tuple[float, ...]]:
    return sensor.reference, sensor.scale, sensor.knots
