"""What the wire says about sensors: how one is described, and what happens to it in its life."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from struct import pack
from typing import Annotated, ClassVar

from edge_opid.errors import WireError
from edge_opid.wire.limits import LIMITS
from edge_opid.wire.messages import Message
from edge_opid.wire.schema import Checked, Id, Line, Many, Millis, NumberField, Positive, Real

Knots = Annotated[tuple[float, ...], Many(NumberField(), LIMITS.knots_max)]


def check_knots(knots: tuple[float, ...], where: str) -> None:
    """No knots at all (a linear sensor), or at least two that float32 can tell apart."""
    if len(knots) == 1:
        raise WireError(
            "content", f"{where} must have none or at least 2, got 1: remove it, or add one"
        )
    for lower, higher in pairwise(knots):
        if lower >= higher or pack("<f", lower) == pack("<f", higher):
            raise WireError("content", f"{where} must increase in float32, got {lower}, {higher}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorDescription(Checked):
    """One sensor of a layout: its column, how its values are scaled, when it counts as silent.

    Without a `timeout_s` the node goes by the sensor's own rhythm.

    The `id` is the physical thing, the `role` what it measures: columns are roles, so that a
    replacement can take over the history of the sensor it replaces. A value counts as
    (value − reference) / scale, spread over hats at `knots` if there are any.
    """

    kind: ClassVar[str] = "sensor"
    id: Id
    role: Id
    reference: Real
    scale: Positive
    timeout_s: Positive | None = None
    knots: Knots = ()
    unit: Line | None = None

    def check_together(self) -> None:
        """The knots make sense."""
        check_knots(self.knots, "sensor.knots")

    @property
    def columns(self) -> int:
        """How many columns the sensor takes at most.

        >>> from dataclasses import replace
        >>> straight = SensorDescription(id="t1", role="temp", reference=20.0, scale=5.0)
        >>> straight.columns, replace(straight, knots=(-1.0, 0.0, 1.0)).columns
        (1, 3)
        """
        return max(1, len(self.knots))


@dataclass(frozen=True, slots=True)
class SensorRetired(Message):
    """A sensor is gone for good: an operator says so, or its planned end of life came."""

    kind: ClassVar[str] = "sensor-retired"
    sensor: Id
    at_ms: Millis
    reason: Line


@dataclass(frozen=True, slots=True)
class SensorSilent(Message):
    """A sensor has sent nothing for longer than its timeout."""

    kind: ClassVar[str] = "sensor-silent"
    sensor: Id
    at_ms: Millis
    last_heard_ms: Millis


@dataclass(frozen=True, slots=True)
class SensorReturned(Message):
    """A silent sensor reports again, before it was retired."""

    kind: ClassVar[str] = "sensor-returned"
    sensor: Id
    at_ms: Millis


@dataclass(frozen=True, slots=True)
class SensorRemeasured(Message):
    """An operator asks for a sensor's scale to be measured again; it stays in use meanwhile."""

    kind: ClassVar[str] = "sensor-remeasured"
    sensor: Id
    at_ms: Millis


@dataclass(frozen=True, slots=True)
class ScaleMeasured(Message):
    """A node has measured a sensor's reference and scale again, as the old ones proved wrong.

    The gateway decides: a node whose layout was ordered does not change it itself.
    """

    kind: ClassVar[str] = "scale-measured"
    sensor: Id
    _: KW_ONLY
    at_ms: Millis
    reference: Real
    scale: Positive
    knots: Knots = ()

    def check_together(self) -> None:
        """The knots make sense."""
        check_knots(self.knots, f"{self.kind}.knots")


@dataclass(frozen=True, slots=True)
class SensorDeployed(Message):
    """A sensor joins. Whatever the operator leaves out (None), the gateway finds out.

    With `replaces` it takes over the column and the history of another sensor; at its
    `end_of_life_ms` it is retired automatically.

    >>> SensorDeployed("pm-9", role="pm25", at_ms=0, replaces="pm-9")
    Traceback (most recent call last):
    ...
    edge_opid.errors.WireError: sensor-deployed.replaces must be another sensor, got 'pm-9' \
for sensor 'pm-9'
    """

    kind: ClassVar[str] = "sensor-deployed"
    sensor: Id
    _: KW_ONLY
    role: Id
    at_ms: Millis
    unit: Line | None = None
    reference: Real | None = None
    scale: Positive | None = None
    knots: Knots = ()
    timeout_s: Positive | None = None
    replaces: Id | None = None
    end_of_life_ms: Millis | None = None

    def check_together(self) -> None:
        """The knots make sense, and no sensor replaces itself."""
        check_knots(self.knots, f"{self.kind}.knots")
        if self.replaces == self.sensor:
            raise WireError(
                "content",
                f"{self.kind}.replaces must be another sensor, got {self.replaces!r} "
                f"for sensor {self.sensor!r}",
            )


Event = (
    SensorRetired
    | SensorSilent
    | SensorReturned
    | SensorDeployed
    | SensorRemeasured
    | ScaleMeasured
)
