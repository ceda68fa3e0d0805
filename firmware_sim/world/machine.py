"""A machine's vibration: is it running, and what is wrong with it?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from firmware_sim.world.base import World
from firmware_sim.world.catalogue import Catalogued
from firmware_sim.world.chance import Array
from firmware_sim.world.regimes import Deck, daily

MINUTE_S = 60.0

CATALOGUE = (
    Catalogued.of("vib-x", "mm/s", (2.4, 1.0), noise=0.1, quantum=0.01, low=0.0, high=50.0),
    Catalogued.of("vib-y", "mm/s", (2.2, 0.9), noise=0.1, quantum=0.01, low=0.0, high=50.0),
    Catalogued.of("vib-axial", "mm/s", (1.4, 0.5), noise=0.08, quantum=0.01, low=0.0, high=50.0),
    Catalogued.of(
        "envelope",
        "mV",
        None,
        gain=120.0,
        offset=15.0,
        noise=8.0,
        quantum=1.0,
        low=0.0,
        high=4095.0,
    ),
    Catalogued.of("crest", None, (3.6, 0.6), noise=0.08, spike=0.001, spike_size=4.0, low=1.0),
    Catalogued.of("ultrasound", "dB", (42.0, 6.0), noise=0.8, quantum=0.5, drift_per_day=-0.05),
    Catalogued.of(
        "bearing-temp", "°C", (48.0, 5.0), quantum=0.0625, stuck=2e-5, stuck_s=120.0, stuck_at=85.0
    ),
    Catalogued.of("motor-temp", "°C", (55.0, 6.0), gain=1.02, offset=-0.8, quantum=0.25, noise=0.2),
    Catalogued.of("current", "A", (11.0, 4.0), gain=0.97, noise=0.15, quantum=0.05, low=0.0),
    Catalogued.of("speed", "1/min", (1300.0, 400.0), noise=2.0, quantum=1.0, low=0.0),
    Catalogued.of(
        "pressure", "bar", None, gain=0.8, offset=0.5, noise=0.02, cross={"motor-temp": 0.002}
    ),
    Catalogued.of("flow", "l/min", (70.0, 25.0), noise=1.5, quantum=0.5, dropout=0.01, low=0.0),
)


class Machine(World):
    """Nodes along a pump's drive train. Classes: normal, idle, imbalance, a worn bearing.

    Each state but the normal one comes once an hour; the load follows the shifts. A fault shows
    only while the shaft turns, and more under load. An imbalance shakes the machine sideways; a
    worn bearing hardly shakes it, but rattles (envelope, crest), hisses (ultrasound) and, two
    minutes later, gets warm.
    """

    name = "machine"
    calm = "normal"
    causes = ("idle", "imbalance", "bearing")
    late_s_max = 20.0  # along the shaft: hardly at all
    wandering = (*("load", *causes), *(entry.role for entry in CATALOGUE))
    catalogue = CATALOGUE

    def __init__(self, seed: int, node: int = 0) -> None:
        cards = (*self.causes, "", "", "")
        self._deck = Deck(seed, "machine", cards, slot_s=600.0, ramp_s=30.0)
        super().__init__(seed, node)

    def _physics(self, times: Array, wander: Mapping[str, Array]) -> dict[str, Array]:
        causes = {
            cause: self._felt(0.85 * self._deck.at(times, cause), cause, wander)
            for cause in self.causes
        }
        load = np.maximum(0.1, 0.7 + 0.2 * daily(times, 13.0) + 0.12 * wander["load"])
        turning = 1.0 - np.clip(1.2 * self._deck.at(times, "idle"), 0.0, 1.0)
        warm = self._deck.at(times - 2 * MINUTE_S, "bearing")  # heat takes its time
        return {
            **causes,
            "load": load,
            **self._shaking(causes, load, turning, wander),
            **self._running(warm, load, turning, wander),
        }

    def _shaking(
        self, causes: Mapping[str, Array], load: Array, turning: Array, wander: Mapping[str, Array]
    ) -> dict[str, Array]:
        strain = turning * (0.5 + 0.7 * load)  # about 1 at the usual load
        thrown, worn = strain * causes["imbalance"], strain * causes["bearing"]

        def shaken(rest: float, moved: Array, unrest: float, name: str) -> Array:
            return np.maximum(0.0, rest + moved + unrest * (0.3 + 0.7 * turning) * wander[name])

        return {
            "vib-x": shaken(0.2, 1.6 * strain + 1.7 * thrown + 0.3 * worn, 0.75, "vib-x"),
            "vib-y": shaken(0.2, 1.5 * strain + 1.5 * thrown + 0.3 * worn, 0.75, "vib-y"),
            "vib-axial": shaken(0.1, 1.0 * strain + 0.6 * thrown + 0.3 * worn, 0.4, "vib-axial"),
            "envelope": shaken(0.1, 0.5 * strain + 0.1 * thrown + 1.3 * worn, 0.6, "envelope"),
            "crest": shaken(3.0, 0.3 * strain - 0.2 * thrown + 1.1 * worn, 0.5, "crest"),
            "ultrasound": shaken(32.0, 6.0 * strain + 8.0 * worn, 4.0, "ultrasound"),
        }

    def _running(
        self, warm: Array, load: Array, turning: Array, wander: Mapping[str, Array]
    ) -> dict[str, Array]:
        work = turning * load
        return {
            "bearing-temp": 42.0 + 6.0 * load + 6.0 * warm + 3.5 * wander["bearing-temp"],
            "motor-temp": 40.0 + 18.0 * load + 4.0 * turning + 4.0 * wander["motor-temp"],
            "current": np.maximum(0.0, 1.0 + 14.0 * work + 3.5 * wander["current"]),
            "speed": np.maximum(0.0, turning * (1490.0 - 60.0 * load + 25.0 * wander["speed"])),
            "pressure": np.maximum(0.0, 0.4 + 3.5 * work + 0.9 * wander["pressure"]),
            "flow": np.maximum(0.0, 100.0 * work + 18.0 * wander["flow"]),
        }
