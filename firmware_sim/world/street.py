"""Air quality on a street: what is it that one breathes?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from firmware_sim.world.base import World
from firmware_sim.world.catalogue import Catalogued
from firmware_sim.world.chance import Array
from firmware_sim.world.regimes import Deck, busy, daily

CATALOGUE = (
    Catalogued.of("pm1", "µg/m³", (10.0, 6.0), gain=0.9, noise=0.8, quantum=0.1, low=0.0),
    Catalogued.of(
        "pm25", "µg/m³", (15.0, 8.0), noise=1.2, quantum=0.1, low=0.0, cross={"humidity": 0.03}
    ),
    Catalogued.of("pm10", "µg/m³", (32.0, 24.0), gain=1.1, noise=4.0, quantum=1.0, low=0.0),
    Catalogued.of(
        "no2", "mV", None, gain=2.4, offset=220.0, noise=6.0, quantum=0.5, cross={"o3": 0.35}
    ),
    Catalogued.of(
        "co", "ppm", (0.7, 0.4), noise=0.04, quantum=0.01, low=0.0, warm_up_s=600.0, cold_offset=1.5
    ),
    Catalogued.of(
        "o3", "mV", None, gain=3.1, offset=180.0, noise=7.0, cross={"no2": 0.5}, drift_per_day=-0.4
    ),
    Catalogued.of("bc", "µg/m³", (2.2, 1.6), noise=0.25, quantum=0.1, low=0.0, dropout=0.02),
    Catalogued.of("voc", "kΩ", None, gain=-0.25, offset=140.0, noise=3.0, drift_per_day=0.2),
    Catalogued.of("noise", "dB", (57.0, 6.0), noise=0.5, quantum=0.1, spike=5e-4, spike_size=25.0),
    Catalogued.of("temp", "°C", (14.0, 4.0), offset=0.4, quantum=0.0625, stuck=2e-5, stuck_at=85.0),
    Catalogued.of(
        "humidity", "%", (62.0, 11.0), offset=2.5, noise=0.6, quantum=0.1, low=0.0, high=100.0
    ),
    Catalogued.of("wind", "m/s", (2.5, 1.0), gain=0.95, noise=0.1, quantum=0.1, low=0.0),
)


class Street(World):
    """Nodes along a street. Classes: clean air, traffic, wood smoke, dust from building work.

    Traffic has its rush hours at 8 and 17:30, and a jam every hour; smoke and dust come once an
    hour each. Wind dilutes everything, so the same smoke is a different reading on another day.
    Sources overlap in what they emit: fine particles are in all three, and the sensors that tell
    them apart (carbon monoxide, black carbon, coarse particles, noise) are the ones to lose.
    """

    name = "street"
    calm = "clean"
    causes = ("traffic", "smoke", "dust")
    late_s_max = 240.0  # a jam, or a plume, travels along the street
    wandering = (*causes, *(entry.role for entry in CATALOGUE))
    catalogue = CATALOGUE

    def __init__(self, seed: int, node: int = 0) -> None:
        cards = ("traffic", "smoke", "dust", "", "", "")
        self._deck = Deck(seed, "street", cards, slot_s=600.0, ramp_s=60.0)
        super().__init__(seed, node)

    def _physics(self, times: Array, wander: Mapping[str, Array]) -> dict[str, Array]:
        causes = self._sources(times, wander)
        weather = self._weather_of(times, wander)
        return {**causes, **weather, **self._air(causes, weather, wander)}

    def _sources(self, times: Array, wander: Mapping[str, Array]) -> dict[str, Array]:
        rush = busy(times, 8.0, 2.0) + busy(times, 17.5, 2.0)
        day = 0.5 + 0.5 * daily(times, 14.0)
        usual = {"traffic": 0.15 * day + 0.75 * rush, "smoke": 0.12 * (1 - day), "dust": 0.1 * day}
        return {
            cause: self._felt(usual[cause] + 0.8 * self._deck.at(times, cause), cause, wander)
            for cause in self.causes
        }

    def _weather_of(self, times: Array, wander: Mapping[str, Array]) -> dict[str, Array]:
        warm = daily(times, 15.0)
        return {
            "temp": 14.0 + 5.0 * warm + 1.0 * wander["temp"],
            "humidity": np.clip(62.0 - 14.0 * warm + 4.0 * wander["humidity"], 5.0, 100.0),
            "wind": np.maximum(0.2, 2.5 + 0.8 * warm + 0.8 * wander["wind"]),
        }

    def _air(
        self, causes: Mapping[str, Array], weather: Mapping[str, Array], wander: Mapping[str, Array]
    ) -> dict[str, Array]:
        traffic, smoke, dust = (causes[cause] for cause in self.causes)
        thin = 2.2 / (1.0 + 0.5 * weather["wind"])  # about 1 in the usual wind

        def mixed(base: float, sources: Array, unrest: float, name: str) -> Array:
            """Emissions as the wind leaves them, on a background that fluctuates."""
            return np.maximum(0.0, base + thin * sources + unrest * wander[name])

        return {
            "pm1": mixed(6.0, 5.0 * traffic + 16.0 * smoke + 2.0 * dust, 4.0, "pm1"),
            "pm25": mixed(10.0, 6.0 * traffic + 18.0 * smoke + 9.0 * dust, 5.0, "pm25"),
            "pm10": mixed(18.0, 10.0 * traffic + 20.0 * smoke + 60.0 * dust, 16.0, "pm10"),
            "no2": mixed(14.0, 45.0 * traffic + 6.0 * smoke, 13.0, "no2"),
            "co": mixed(0.3, 0.5 * traffic + 0.8 * smoke, 0.25, "co"),
            "o3": mixed(50.0, -22.0 * traffic - 3.0 * smoke, 9.0, "o3"),
            "bc": mixed(0.8, 2.5 * traffic + 3.5 * smoke, 1.2, "bc"),
            "voc": mixed(90.0, 60.0 * traffic + 110.0 * smoke + 15.0 * dust, 45.0, "voc"),
            "noise": 52.0 + 12.0 * traffic + 9.0 * dust + 4.0 * wander["noise"],
        }
