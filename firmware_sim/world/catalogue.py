"""The sensors one can buy for a world, as an operator knows them: id, role, unit, data sheet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from edge_opid.config.node import SensorConfig
from edge_opid.wire.ids import check_id
from edge_opid.wire.sensors import SensorDeployed
from firmware_sim.world.errors import WorldError
from firmware_sim.world.sensor import SimulatedSensor
from firmware_sim.world.sensor_model import SensorModel, replacement


@dataclass(frozen=True, slots=True)
class Catalogued:
    """A sensor as it is ordered and installed: what the operator knows of it, and what it is.

    `reference` and `scale` are what a data sheet says about its readings; without them the node
    finds out in its warm-up. The model is the truth, which nobody in the field ever sees.

    >>> model = SensorModel(quantity="pm25", gain=1.1, noise=2.0, quantum=0.1)
    >>> pm = Catalogued("pm25-1", "pm25", "µg/m³", model, reference=15.0, scale=10.0)
    >>> config = pm.config(knots=8)
    >>> config.id, config.role, config.reference, config.scale, config.knots
    ('pm25-1', 'pm25', 15.0, 10.0, 8)
    >>> new = pm.successor()
    >>> new.id, new.deployed(at_ms=3_600_000, replaces=pm.id).replaces
    ('pm25-2', 'pm25-1')
    """

    id: str
    role: str
    unit: str | None  # None for a mere number
    model: SensorModel
    reference: float | None = None
    scale: float | None = None

    def __post_init__(self) -> None:
        check_id(self.id, "catalogued sensor")
        check_id(self.role, f"role of sensor {self.id!r}")
        if (self.reference is None) != (self.scale is None):
            raise WorldError(
                f"sensor {self.id!r} must have reference and scale or neither, got "
                f"{self.reference} and {self.scale}"
            )

    @classmethod
    def of(
        cls, role: str, unit: str | None, sheet: tuple[float, float] | None, **model: Any
    ) -> Catalogued:
        """The first sensor for a role that is named like the quantity it measures.

        `sheet`: reference and scale, if there is a data sheet; `model`: the rest of `SensorModel`.

        >>> entry = Catalogued.of("no2", "mV", None, gain=2.4, offset=220.0)
        >>> entry.id, entry.model.quantity, entry.scale
        ('no2-1', 'no2', None)
        """
        made = SensorModel(quantity=role, **model)
        reference, scale = sheet or (None, None)
        return cls(f"{role}-1", role, unit, made, reference, scale)

    def config(self, knots: int = 1, timeout_s: float = 60.0) -> SensorConfig:
        """The sensor as it stands in a node's configuration."""
        return SensorConfig(
            self.id,
            role=self.role,
            reference=self.reference,
            scale=self.scale,
            knots=knots,
            timeout_s=timeout_s,
        )

    def deployed(self, at_ms: int, replaces: str | None = None) -> SensorDeployed:
        """What the operator says when it joins."""
        return SensorDeployed(
            self.id,
            role=self.role,
            at_ms=at_ms,
            unit=self.unit,
            reference=self.reference,
            scale=self.scale,
            replaces=replaces,
        )

    def simulated(self, seed: int, node: str = "", installed_s: float = 0.0) -> SimulatedSensor:
        """A specimen of it on a node; each node's has chances of its own."""
        name = f"{node}/{self.id}" if node else self.id
        return SimulatedSensor(self.model, seed, name, installed_s)

    def successor(self, seed: int = 0) -> Catalogued:
        """The next sensor for the role, of another make, whose data sheet says something else.

        Ids end in a number, which counts on. The chances of the other make come from the seed
        and the new id, so that a third sensor differs from the second.

        >>> model = SensorModel(quantity="temp", quantum=0.5)
        >>> Catalogued("temp-9", "temp", "°C", model).successor().id
        'temp-10'
        """
        stem, dash, number = self.id.rpartition("-")
        if not dash or not number.isdecimal():
            raise WorldError(
                f"sensor {self.id!r} must end in a number for its successor's to be one more: "
                f"call it '{self.id}-1'"
            )
        name, old = f"{stem}-{int(number) + 1}", self.model
        new = replacement(old, seed, name)
        made = replace(self, id=name, model=new)
        if self.reference is None or self.scale is None:
            return made
        ratio = new.gain / old.gain
        moved = (self.reference - old.offset) * ratio + new.offset
        return replace(made, reference=moved, scale=self.scale * abs(ratio))
