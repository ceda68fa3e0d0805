"""A room: is anybody there, and how many?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from firmware_sim.world.base import World
from firmware_sim.world.catalogue import Catalogued
from firmware_sim.world.chance import Array
from firmware_sim.world.regimes import Deck, daily

CATALOGUE = (
    Catalogued.of("radar", "people", (1.5, 2.0), noise=0.15, quantum=0.1, low=0.0),
    Catalogued.of("thermal", "pixels", (12.0, 7.0), noise=0.5, quantum=1.0, low=0.0),
    Catalogued.of("window", "°C", (18.5, 4.0), noise=0.2, quantum=0.1),
    Catalogued.of("co2", "ppm", (680.0, 190.0), gain=0.97, noise=15.0, quantum=1.0, low=0.0),
    Catalogued.of("sound", "dB", (41.0, 8.0), noise=1.0, quantum=0.1, low=0.0),
    Catalogued.of("power", "W", (90.0, 60.0), noise=3.0, quantum=1.0, low=0.0),
    Catalogued.of("temp", "°C", (21.0, 1.3), offset=0.3, noise=0.1, quantum=0.1),
    Catalogued.of("humidity", "%", (42.0, 5.0), noise=0.6, quantum=0.1, low=0.0, high=100.0),
    Catalogued.of("voc", "kΩ", None, gain=-0.3, offset=160.0, noise=3.0),
    Catalogued.of("light", "lux", (260.0, 150.0), noise=5.0, quantum=1.0, low=0.0),
)


class Room(World):
    """Nodes in the rooms of an office. Classes: empty, somebody at a desk, a meeting, being aired.

    Each comes once an hour, and the rooms of one house have their meetings at about the same time.
    A radar counts people and a thermal camera sees them, both nearly without error, and a sensor at
    the window knows when that is open. Everything else only shows it: people breathe, talk, switch
    things on and warm the air, and an open window undoes it.
    """

    name = "room"
    calm = "empty"
    causes = ("desk", "meeting", "airing")
    late_s_max = 120.0  # one room after the other
    wandering = (*causes, *(entry.role for entry in CATALOGUE))
    catalogue = CATALOGUE

    def __init__(self, seed: int, node: int = 0) -> None:
        cards = (*self.causes, *self.causes, "", "")
        self._deck = Deck(seed, "room", cards, slot_s=600.0, ramp_s=40.0)
        super().__init__(seed, node)

    def _physics(self, times: Array, wander: Mapping[str, Array]) -> dict[str, Array]:
        causes = {
            cause: self._felt(0.9 * self._deck.at(times, cause), cause, wander)
            for cause in self.causes
        }
        desk, meeting, airing = (causes[cause] for cause in self.causes)
        warm, sun = daily(times, 15.0), np.maximum(0.0, daily(times, 13.0))
        people = 1.5 * desk + 5.0 * meeting

        def shown(rest: float, moved: Array, unrest: float, name: str) -> Array:
            return np.maximum(0.0, rest + moved + unrest * wander[name])

        return {
            **causes,
            "radar": shown(0.1, people, 0.15, "radar"),
            "thermal": shown(4.0, 4.5 * people, 0.7, "thermal"),
            "window": 20.5 + 0.5 * warm - 9.0 * airing + 0.6 * wander["window"],
            "co2": shown(520.0, 80.0 * people - 90.0 * airing, 100.0, "co2"),
            "sound": shown(35.0, 8.0 * desk + 15.0 * meeting + 6.0 * airing, 5.0, "sound"),
            "power": shown(35.0, 90.0 * desk + 70.0 * meeting, 40.0, "power"),
            "temp": 20.5 + 0.6 * warm + 0.4 * people - 2.2 * airing + 1.0 * wander["temp"],
            "humidity": 40.0 + 1.6 * people - 6.0 * airing + 3.5 * wander["humidity"],
            "voc": shown(90.0, 38.0 * people - 40.0 * airing, 60.0, "voc"),
            "light": shown(60.0, 170.0 * desk + 170.0 * meeting + 120.0 * sun, 70.0, "light"),
        }
