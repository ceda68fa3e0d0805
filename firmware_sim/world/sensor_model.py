"""How a sensor sees the truth: its data sheet, and what a data sheet would rather not say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType

from firmware_sim.world.chance import stream
from firmware_sim.world.errors import WorldError

PROBABILITIES = ("dropout", "stuck", "spike")
NEVER_NEGATIVE = ("noise", "quantum", "stuck_s", "spike_size", "warm_up_s", "life_s", "fading_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorModel:
    """One make of sensor: what it measures, and each way in which it is wrong.

    A reading is gain · quantity + offset + Σ factor · other quantity, and errors on top: noise,
    drift since it was installed, the error of a cold start, a spike. What comes out is cut to its
    range and rounded to its quantum; all numbers but `gain` are in the unit of the reading.

    >>> probe = SensorModel(quantity="no2", gain=2.0, offset=30.0, cross={"humidity": 0.1})
    >>> probe.of({"no2": 40.0, "humidity": 50.0})
    115.0
    >>> SensorModel(quantity="no2", dropout=1.5)
    Traceback (most recent call last):
    firmware_sim.world.errors.WorldError: sensor model for 'no2': dropout must be from 0 to 1, \
got 1.5
    """

    quantity: str
    gain: float = 1.0
    offset: float = 0.0
    cross: Mapping[str, float] = field(default_factory=dict, hash=False)  # cross-sensitivity
    noise: float = 0.0  # standard deviation
    drift_per_day: float = 0.0
    quantum: float = 0.0  # the smallest step; 0: none
    low: float = -math.inf  # readings are cut to this range
    high: float = math.inf
    dropout: float = 0.0  # the chance that a reading does not come
    stuck: float = 0.0  # the chance, at each reading, that it freezes …
    stuck_s: float = 300.0  # … for so long, …
    stuck_at: float | None = None  # … at this value; None: at the one it would have given
    spike: float = 0.0  # the chance that a reading is off …
    spike_size: float = 0.0  # … by so much, up or down
    warm_up_s: float = 0.0  # until a cold sensor is right; 0: it starts warm
    cold_offset: float = 0.0  # how wrong it is when it is switched on
    life_s: float = math.inf  # from its installation until its battery is empty
    fading_s: float = 0.0  # before that, readings become rarer and rarer
    period_s: float = 1.0  # one conversion each; chance is drawn once for each

    def __post_init__(self) -> None:
        object.__setattr__(self, "cross", MappingProxyType(dict(self.cross)))
        self._check_numbers()
        for name in PROBABILITIES:
            self._must(0.0 <= getattr(self, name) <= 1.0, name, "from 0 to 1")
        for name in NEVER_NEGATIVE:
            self._must(getattr(self, name) >= 0.0, name, "0 or more")
        self._must(self.period_s > 0.0, "period_s", "above 0")
        self._must(self.gain != 0.0, "gain", "other than 0: it would not see its quantity")
        self._must(self.low < self.high, "low", f"below high = {self.high:g}")

    def of(self, values: Mapping[str, float]) -> float:
        """What a perfect specimen of this make would say."""
        total = self.gain * values[self.quantity] + self.offset
        return total + sum(factor * values[other] for other, factor in self.cross.items())

    def clean(self) -> SensorModel:
        """The same make without its faults: gain and offset only."""
        return SensorModel(
            quantity=self.quantity, gain=self.gain, offset=self.offset, period_s=self.period_s
        )

    def _check_numbers(self) -> None:
        """NaN nowhere, and infinity only where it means never or nowhere."""
        for spec in fields(self):
            value = getattr(self, spec.name)
            if isinstance(value, float | int):
                endless = spec.name in ("low", "high", "life_s") and not math.isnan(value)
                self._must(endless or math.isfinite(value), spec.name, "finite")
        for other, factor in self.cross.items():
            if not math.isfinite(factor):
                raise WorldError(f"{self.title}: cross {other!r} must be finite, got {factor}")

    def _must(self, fine: bool, name: str, what: str) -> None:
        if not fine:
            raise WorldError(f"{self.title}: {name} must be {what}, got {getattr(self, name)}")

    @property
    def title(self) -> str:
        """How errors call it."""
        return f"sensor model for {self.quantity!r}"


def replacement(model: SensorModel, seed: int = 0, name: str = "") -> SensorModel:
    """A sensor of another make for the same quantity: other gain, offset, noise and quantum.

    A classifier that knew the old one is wrong about the new one, even though both are right.
    Whatever is in the unit of the reading changes with the gain, so that the new make is about
    as good; it starts warm, and its battery is full.

    >>> old = SensorModel(quantity="pm25", gain=1.0, noise=2.0, quantum=0.1)
    >>> new = replacement(old)
    >>> new.quantity, new.gain == old.gain, new == replacement(old), new == replacement(old, 1)
    ('pm25', False, True, False)
    """
    chance = stream(seed, "another make", model.quantity, name)
    ratio = float(chance.uniform(1.3, 2.0)) ** float(chance.choice([-1.0, 1.0]))
    grain = max(model.noise, model.quantum, 0.01 * abs(model.gain)) * ratio
    shift = grain * float(chance.uniform(3.0, 10.0) * chance.choice([-1.0, 1.0]))
    made = rescaled(model, ratio, shift)
    return replace(
        made,
        noise=made.noise * float(chance.choice([0.6, 0.8, 1.25, 1.6])),
        quantum=made.quantum * float(chance.choice([0.2, 0.5, 2.0, 5.0])),
        warm_up_s=0.0,
        cold_offset=0.0,
    )


def rescaled(model: SensorModel, ratio: float, shift: float) -> SensorModel:
    """The same sensor in another unit: every reading times `ratio`, plus `shift`.

    >>> celsius = SensorModel(quantity="temp", high=85.0, noise=0.5)
    >>> fahrenheit = rescaled(celsius, 1.8, 32.0)
    >>> fahrenheit.of({"temp": 100.0}), fahrenheit.high, fahrenheit.noise
    (212.0, 185.0, 0.9)
    """
    if not 0.0 < ratio < math.inf:
        raise WorldError(f"{model.title}: ratio must be above 0 and finite, got {ratio}")
    sizes = ("noise", "drift_per_day", "quantum", "spike_size", "cold_offset")
    return replace(
        model,
        gain=model.gain * ratio,
        offset=model.offset * ratio + shift,
        cross={other: factor * ratio for other, factor in model.cross.items()},
        low=model.low * ratio + shift,
        high=model.high * ratio + shift,
        stuck_at=None if model.stuck_at is None else model.stuck_at * ratio + shift,
        **{name: getattr(model, name) * ratio for name in sizes},
    )
