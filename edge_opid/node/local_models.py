"""A node's sensors, which have ids, and the memories of what it has learned through them.

A node notices by itself when a sensor falls silent and when it returns; another layout is the
gateway's to order. What that does to the memories is in `memories`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from edge_opid.node.memories import Columns, Learning, Memories
from edge_opid.node.orders import layout_of
from edge_opid.wire import SensorDescription


class LocalModels(Memories):
    """The sensors of a node, by id; the layout of those alive; what was learned on it."""

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
        return self.layout.encode(self.by_role(values), clip_gated=True)

    def encode_full(self, values: Mapping[str, float]) -> Columns:
        """The columns that pushed weights are made for."""
        if not self.silent:
            return self.encode(values)
        return self.full.encode(self.by_role(values), clip_gated=True)

    # -- changes -------------------------------------------------------------------------------

    def obey(
        self,
        sensors: Sequence[SensorDescription],
        vanishing: Sequence[str],
        gate: float,
        carry: float,
    ) -> None:
        """The gateway's next layout."""
        ids = {sensor.id for sensor in sensors}
        silent = tuple(sensor for sensor in self.silent if sensor in ids)
        self.silent = silent if len(silent) < len(ids) else ()  # at least one is waited for
        self._describe(sensors, vanishing, gate)
        self.change(self.full, carry)

    def are(
        self, sensors: Sequence[SensorDescription], vanishing: Sequence[str], gate: float
    ) -> bool:
        """Whether this is what they are already."""
        mine = tuple(self.sensors.values()), self.vanishing, self.gate
        return mine == (tuple(sensors), tuple(vanishing), gate)

    def start_over(self, sensors: Sequence[SensorDescription]) -> None:
        """A better estimate of references and scales, while the warm-up lasts."""
        self._describe(sensors, self.vanishing, self.gate)
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
        described = [
            SensorDescription(**{**plain, "knots": tuple(plain.get("knots", ()))})
            for plain in saved["sensors"]
        ]
        local_models = cls(described, tuple(saved["vanishing"]), saved["gate"], learning)
        local_models.restore(saved)
        return local_models
