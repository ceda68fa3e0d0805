"""One physical sensor: a model, a seed, a day of installation, and what it says of the truth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firmware_sim.world.chance import Array, stream
from firmware_sim.world.errors import WorldError
from firmware_sim.world.regimes import DAY_S
from firmware_sim.world.sensor_model import SensorModel
from firmware_sim.world.truth import Truth, Truths

Numbers = NDArray[np.int64]

BLOCK = 1024  # conversions whose chances are drawn together
HELD_MAX = 64  # frozen stretches that are remembered: more than any one block has


class SimulatedSensor:
    """A specimen of a model, with chances of its own: `read` gives a value, or None for none.

    All chance is a function of the seed, the name and the number of the conversion (the time in
    units of `period_s`), so readings may be asked for in any order and twice. One thing depends on
    the order: a sensor that froze without `stuck_at` holds the value of the first reading that
    is asked of that frozen stretch. A stretch ends with its block of 1,024 conversions at the
    latest. Age counts from `installed_s`; before that, and after its life, the sensor says nothing.

    Cost: about 1 µs a reading, and a tenth of that for its share of the block.

    >>> truth = Truth(10.0, {"temp": 21.37})
    >>> model = SensorModel(quantity="temp", offset=0.5, noise=0.1, quantum=0.25, life_s=3600)
    >>> sensor = SimulatedSensor(model, seed=7, name="attic")
    >>> sensor.read(truth, 10.0), sensor.read(truth, 3600.0)
    (22.0, None)
    """

    def __init__(
        self, model: SensorModel, seed: int, name: str = "", installed_s: float = 0.0
    ) -> None:
        self.model, self.seed, self.name, self.installed_s = model, seed, name, installed_s
        self.dies_s = installed_s + model.life_s
        self._cross = tuple(model.cross.items())
        self._number: int | None = None  # of the block below
        self._extra: list[float] = []  # what is added to the truth, by conversion; NaN: no reading
        self._frozen: list[int] = []  # the conversion that froze it, or −1
        self._held: dict[int, float] = {}  # what it froze at, by that conversion

    def read(self, truth: Truth, time_s: float) -> float | None:
        """What the sensor says at this time, or None: dropped, not there yet, or dead."""
        if not self.installed_s <= time_s < self.dies_s:
            return None
        # 0.3 / 0.1 is a hair below 3: without the millionth the third reading would be the second
        number, place = divmod(math.floor(time_s / self.model.period_s + 1e-6), BLOCK)
        if number != self._number:
            self._extra, self._frozen = (part.tolist() for part in self._chances(number))
            self._number = number
        extra, froze = self._extra[place], self._frozen[place]
        if math.isnan(extra):
            return None
        value = self._rounded(self._seen(truth.values) + extra)
        return value if froze < 0 else self._hold(froze, value)

    def read_block(self, truths: Truths) -> Array:
        """The same for many times at once; NaN where `read` gives None.

        >>> truths = Truths(np.arange(4.0), {"temp": np.array([20.0, 20.5, 21.0, 21.5])})
        >>> model = SensorModel(quantity="temp", gain=10.0, life_s=3.0)
        >>> print(SimulatedSensor(model, seed=2).read_block(truths))
        [200. 205. 210.  nan]
        """
        times = truths.times_s
        extra, frozen = self._gathered(np.floor(times / self.model.period_s + 1e-6).astype(int))
        extra[(times < self.installed_s) | (times >= self.dies_s)] = np.nan
        values = np.clip(self._seen(truths.values) + extra, self.model.low, self.model.high)
        if self.model.quantum:
            values = np.rint(values / self.model.quantum) * self.model.quantum
        alive = ~np.isnan(values)
        for froze in np.unique(frozen[alive & (frozen >= 0)]):
            stretch = alive & (frozen == froze)
            values[stretch] = self._hold(int(froze), float(values[stretch][0]))
        return np.asarray(values)

    def _seen(self, values: Mapping[str, Any]) -> Any:
        """The truth through this make: for one time, or for an array of them."""
        try:
            total = self.model.gain * values[self.model.quantity] + self.model.offset
            for other, factor in self._cross:
                total = total + factor * values[other]
        except KeyError as error:
            raise WorldError(
                f"sensor {self.name!r} sees {error}, and the truth has only {sorted(values)}: "
                f"give it another model, or another world"
            ) from error
        return total

    def _rounded(self, value: float) -> float:
        model = self.model
        value = min(max(value, model.low), model.high)
        return round(value / model.quantum) * model.quantum if model.quantum else value

    def _hold(self, froze: int, value: float) -> float:
        if self.model.stuck_at is not None:
            return self.model.stuck_at
        if froze not in self._held and len(self._held) >= HELD_MAX:
            del self._held[next(iter(self._held))]  # the oldest
        return self._held.setdefault(froze, value)

    # -- chance ----------------------------------------------------------------------------------

    def _gathered(self, conversions: Numbers) -> tuple[Array, Numbers]:
        """The chances of these conversions, from as many blocks as they lie in."""
        numbers, places = np.divmod(conversions, BLOCK)
        extra, frozen = np.empty(len(places)), np.empty(len(places), dtype=np.int64)
        for number in np.unique(numbers):
            chosen = numbers == number
            drawn = self._chances(int(number))
            extra[chosen], frozen[chosen] = (part[places[chosen]] for part in drawn)
        return extra, frozen

    def _chances(self, number: int) -> tuple[Array, Numbers]:
        """What is added to each reading of a block (NaN: it does not come), and what froze it."""
        model = self.model
        chance = stream(self.seed, "sensor", self.name, number)
        conversions = number * BLOCK + np.arange(BLOCK)
        age = np.maximum(0.0, conversions * model.period_s - self.installed_s)
        extra = model.noise * chance.standard_normal(BLOCK) + model.drift_per_day * (age / DAY_S)
        lost, freezes, spikes, up = chance.random((4, BLOCK))
        extra += np.where(spikes < model.spike, model.spike_size, 0.0) * np.sign(up - 0.5)
        if model.warm_up_s:
            extra += model.cold_offset * np.maximum(0.0, 1.0 - age / model.warm_up_s)
        extra[lost < self._losing(age)] = np.nan
        return extra, self._stretches(conversions, freezes < model.stuck)

    def _losing(self, age: Array) -> Array | float:
        """The chance that a reading does not come; it grows to 1 while the battery fades."""
        model = self.model
        if not model.fading_s or math.isinf(model.life_s):
            return model.dropout
        faded = np.clip(1.0 - (model.life_s - age) / model.fading_s, 0.0, 1.0)
        return np.asarray(model.dropout + (1.0 - model.dropout) * faded)

    def _stretches(self, conversions: Numbers, freezes: NDArray[np.bool_]) -> Numbers:
        """For each conversion, the one at which the sensor froze, or −1 where it is not frozen."""
        frozen = np.full(BLOCK, -1, dtype=np.int64)
        length = max(1, math.ceil(self.model.stuck_s / self.model.period_s))
        for place in np.flatnonzero(freezes):
            if frozen[place] < 0:  # a frozen sensor cannot freeze again
                frozen[place : place + length] = conversions[place]
        return frozen
