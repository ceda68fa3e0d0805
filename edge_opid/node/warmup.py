"""The first readings of a node whose sensors were configured without reference or scale."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np

from edge_opid.config.node import NodeConfig
from edge_opid.layout import WarmUp
from edge_opid.wire import SensorDescription


class NodeWarmUp:
    """A `WarmUp` over the node's sensors, which keeps what the operator gave.

    It is durable: its rows are part of the state, and adding them again restores it.
    """

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        knots = {sensor.id: sensor.knots for sensor in config.sensors}
        readings = config.warmup_readings
        self._warmup = WarmUp(list(knots), readings, knots, gate=config.gate)
        self.usable = False
        """Whether a first layout has been estimated."""

    @classmethod
    def needed(cls, config: NodeConfig) -> Self | None:
        """A warm-up where something is left to estimate, else None."""
        given = all(
            s.reference is not None and s.scale is not None and s.knots == 1 for s in config.sensors
        )
        return None if given else cls(config)

    @property
    def over(self) -> bool:
        """The last layout has been estimated."""
        return self._warmup.full

    def add(self, values: Mapping[str, float], label: int | None) -> bool:
        """Keep a reading; whether a better layout is due."""
        known = {sensor: values[sensor] for sensor in self._warmup.names if sensor in values}
        self._warmup.add(known, label)
        self.usable |= self._warmup.due
        return self._warmup.due

    def rows(self) -> Iterator[tuple[dict[str, float], int | None]]:
        """The readings kept so far, with their labels."""
        return self._warmup.rows()

    def sensible_rows(self) -> Iterator[tuple[dict[str, float], int | None]]:
        """The same without values that have no say: a code counts as missing."""
        return self._warmup.sensible_rows()

    def aside(self) -> list[str]:
        """A sentence for each sensor some of whose first values have no say."""
        return list(self._warmup.aside.values())

    def guessed(self) -> tuple[SensorDescription, ...]:
        """Sensors as they must do until the first estimate: not used for learning."""
        return tuple(
            SensorDescription(id=s.id, role=s.role, reference=0.0, scale=1.0, timeout_s=s.timeout_s)
            for s in self._config.sensors
        )

    def estimated(self) -> tuple[SensorDescription, ...]:
        """Sensors with what was given, and what the readings suggest for the rest."""
        estimates = {sensor.name: sensor for sensor in self._warmup.layout().sensors}
        found = []
        for sensor in self._config.sensors:
            guess = estimates[sensor.id]
            reference = guess.reference if sensor.reference is None else sensor.reference
            scale = guess.scale if sensor.scale is None else sensor.scale
            knots = self._moved(guess.knots, guess.reference, guess.scale, reference, scale)
            found.append(
                SensorDescription(
                    id=sensor.id,
                    role=sensor.role,
                    reference=reference,
                    scale=scale,
                    timeout_s=sensor.timeout_s,
                    knots=knots,
                )
            )
        return tuple(found)

    def _moved(
        self, knots: tuple[float, ...], at: float, unit: float, reference: float, scale: float
    ) -> tuple[float, ...]:
        """Inner knots in the units that were given; the ends stay at the gate.

        What is next to each other there may be the same here, as far as float32 can tell.
        """
        gate = self._config.gate
        inner = [((knot * unit + at) - reference) / scale for knot in knots[1:-1]]
        distinct: dict[float, float] = {}
        for knot in (-gate, gate, *(k for k in inner if abs(k) < gate)):
            distinct.setdefault(float(np.float32(knot)), knot)
        return tuple(sorted(distinct.values())) if knots else ()

    def state(self) -> dict[str, Any]:
        """The rows, for `restored`."""
        return {"rows": [[row, label] for row, label in self.rows()]}

    @classmethod
    def restored(cls, saved: Mapping[str, Any], config: NodeConfig) -> Self:
        """The warm-up that `state` described."""
        mine = cls(config)
        for row, label in saved["rows"]:
            mine.add(row, label)
        return mine
