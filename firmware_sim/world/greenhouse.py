"""A greenhouse: how are the plants?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from firmware_sim.world.base import World
from firmware_sim.world.catalogue import Catalogued
from firmware_sim.world.chance import Array, smooth
from firmware_sim.world.regimes import Deck, Rounds, daily

WATERED_EVERY_S = 2400.0

CATALOGUE = (
    Catalogued.of("air-temp", "°C", (23.0, 4.0), offset=0.3, noise=0.1, quantum=0.1),
    Catalogued.of("roof-temp", "°C", (27.0, 6.0), gain=1.01, noise=0.2, quantum=0.5),
    Catalogued.of("leaf-temp", "°C", (22.0, 4.0), noise=0.3, quantum=0.1, cross={"light": 0.002}),
    Catalogued.of(
        "humidity", "%", (68.0, 9.0), offset=-2.0, noise=0.8, quantum=0.1, low=0.0, high=100.0
    ),
    Catalogued.of("leaf-wetness", "V", None, gain=0.04, noise=0.05, low=0.0, high=5.0),
    Catalogued.of(
        "co2",
        "ppm",
        (650.0, 120.0),
        gain=0.95,
        noise=12.0,
        quantum=1.0,
        drift_per_day=0.5,
        warm_up_s=180.0,
        cold_offset=250.0,
    ),
    Catalogued.of(
        "soil-a",
        "counts",
        None,
        gain=-9.0,
        offset=1200.0,
        noise=6.0,
        quantum=1.0,
        cross={"soil-temp": 1.5},
    ),
    Catalogued.of("soil-b", "%", (43.0, 9.0), gain=1.1, noise=0.6, quantum=0.1, dropout=0.01),
    Catalogued.of("salinity", "mS/cm", (1.9, 0.35), noise=0.04, quantum=0.01),
    Catalogued.of("soil-temp", "°C", (19.0, 1.5), quantum=0.0625, stuck=2e-5, stuck_at=85.0),
    Catalogued.of("light", "µmol/m²s", (250.0, 250.0), gain=1.08, noise=4.0, quantum=1.0, low=0.0),
    Catalogued.of("airflow", "m/s", (0.45, 0.15), noise=0.02, spike=5e-4, spike_size=1.0, low=0.0),
)


class Greenhouse(World):
    """Nodes in the bays of a greenhouse. Classes: plants that are well, dry, damp, hot.

    Beds are watered about every 40 minutes and dry out between, faster in the sun; once an hour
    the fog nozzles drip, and once the vents jam. Damp leaves are more likely at night, heat by
    day. Soil, air and leaves show it in different ways, and clouds disturb most of them.
    """

    name = "greenhouse"
    calm = "well"
    causes = ("dry", "damp", "hot")
    late_s_max = 120.0  # one bay is watered after the other
    wandering = (*("cloud", *causes), *(entry.role for entry in CATALOGUE))
    catalogue = CATALOGUE

    def __init__(self, seed: int, node: int = 0) -> None:
        cards = ("damp", "hot", "", "", "", "")
        self._deck = Deck(seed, "greenhouse", cards, slot_s=600.0, ramp_s=90.0)
        self._water = Rounds(seed, "water", WATERED_EVERY_S)
        super().__init__(seed, node)

    def _physics(self, times: Array, wander: Mapping[str, Array]) -> dict[str, Array]:
        sun = np.maximum(0.0, daily(times, 13.0)) * np.clip(0.75 + 0.2 * wander["cloud"], 0.1, 1.0)
        causes = self._stress(times, sun, wander)
        return {
            **causes,
            **self._air(causes, sun, times, wander),
            **self._soil(causes, sun, times, wander),
        }

    def _stress(self, times: Array, sun: Array, wander: Mapping[str, Array]) -> dict[str, Array]:
        dried = self._water.since(times) / WATERED_EVERY_S
        raw = {
            "dry": smooth((dried - 0.6 + 0.1 * sun) / 0.3) * (0.8 + 0.1 * sun),
            "damp": 0.8 * self._deck.at(times, "damp") + 0.15 * (1.0 - sun),
            "hot": 0.8 * self._deck.at(times, "hot") + 0.2 * sun,
        }
        return {cause: self._felt(raw[cause], cause, wander) for cause in self.causes}

    def _air(
        self, causes: Mapping[str, Array], sun: Array, times: Array, wander: Mapping[str, Array]
    ) -> dict[str, Array]:
        _, damp, hot = (causes[cause] for cause in self.causes)
        warm = 2.0 * daily(times, 15.0)
        humid = 62.0 - 6.0 * sun + 24.0 * damp - 8.0 * hot + 6.0 * wander["humidity"]
        return {
            "air-temp": 19.0 + warm + 3.0 * sun + 6.0 * hot + 2.0 * wander["air-temp"],
            "roof-temp": 20.0 + warm + 7.0 * sun + 8.0 * hot + 3.0 * wander["roof-temp"],
            "leaf-temp": 18.0 + warm + 3.0 * sun + 5.0 * hot + 2.0 * wander["leaf-temp"],
            "humidity": np.clip(humid, 5.0, 100.0),
            "leaf-wetness": np.maximum(0.0, 12.0 + 45.0 * damp + 14.0 * wander["leaf-wetness"]),
            "co2": np.maximum(200.0, 600.0 - 120.0 * sun + 190.0 * hot + 75.0 * wander["co2"]),
            "light": np.maximum(0.0, 900.0 * sun + 20.0 * wander["light"]),
            "airflow": np.maximum(0.0, 0.55 - 0.3 * hot + 0.1 * wander["airflow"]),
        }

    def _soil(
        self, causes: Mapping[str, Array], sun: Array, times: Array, wander: Mapping[str, Array]
    ) -> dict[str, Array]:
        dry, damp = causes["dry"], causes["damp"]
        return {
            "soil-a": np.clip(46.0 - 26.0 * dry + 1.5 * damp + 4.0 * wander["soil-a"], 0.0, 100.0),
            "soil-b": np.clip(42.0 - 24.0 * dry + 1.5 * damp + 4.0 * wander["soil-b"], 0.0, 100.0),
            "salinity": np.maximum(0.1, 1.5 + 1.1 * dry + 0.2 * wander["salinity"]),
            "soil-temp": 18.5 + daily(times, 18.0) + 0.8 * sun + 0.7 * wander["soil-temp"],
        }
