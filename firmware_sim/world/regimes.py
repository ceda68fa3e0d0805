"""What happens when: times of day, events that are dealt like cards, and events that come round."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from firmware_sim.world.chance import Array, smooth, stream

DAY_S = 86_400.0


def hour_of(times: Array) -> Array:
    """The hour of the day, from 0 to 24: time 0 is a midnight."""
    return np.asarray(times % DAY_S / 3600.0)


def daily(times: Array, peak_hour: float) -> Array:
    """A wave with the period of a day: 1 at its peak, −1 twelve hours later.

    >>> daily(np.array([14.0, 2.0]) * 3600, peak_hour=14).tolist()
    [1.0, -1.0]
    """
    return np.asarray(np.cos((times / DAY_S - peak_hour / 24.0) * 2.0 * np.pi))


def busy(times: Array, peak_hour: float, half_width_h: float) -> Array:
    """A hump once a day: 1 at its peak, 0 beyond its half width, round the clock.

    >>> busy(np.array([8.0, 8.5, 9.0, 20.0]) * 3600, peak_hour=8, half_width_h=1).tolist()
    [1.0, 0.5, 0.0, 0.0]
    """
    apart = np.abs((hour_of(times) - peak_hour + 12.0) % 24.0 - 12.0)
    return smooth(1.0 - apart / half_width_h)


class Deck:
    """Events dealt like cards: each round of slots has every card once, in an order of its own.

    Drawn independently, an event might stay away for a day, and a learner would never meet its
    class; from a deck it comes once a round, and yet nobody knows when. An event begins and ends
    inside its slot, so that the slots need not know each other.

    >>> deck = Deck(7, "faults", ("worn", "loose", "", ""), slot_s=600, ramp_s=30)
    >>> hour = deck.at(np.arange(3600.0), "worn")
    >>> 0.1 < float((hour > 0.5).mean()) < 0.4, deck.cards
    (True, ('worn', 'loose', '', ''))
    """

    def __init__(
        self, seed: int, name: str, cards: Sequence[str], slot_s: float, ramp_s: float
    ) -> None:
        """`cards`: what may happen in a slot; an empty name for a slot without an event."""
        self.cards = tuple(cards)
        self._seed, self._name = seed, name
        self._slot_s, self._ramp_s = slot_s, ramp_s
        self._deal = lru_cache(maxsize=8)(self._dealt)

    def at(self, times: Array, card: str) -> Array:
        """How strong this event is: 0 without it, from 0.8 to 1.2 in its midst."""
        slots = np.floor(times / self._slot_s).astype(np.int64)
        total = np.zeros(len(times))
        for number in np.unique(slots // len(self.cards)).tolist():
            order, begins, ends, strengths = self._deal(number)
            for place in np.flatnonzero(order == card):
                slot_begins = (number * len(self.cards) + place) * self._slot_s
                since = times - slot_begins - begins[place]
                until = slot_begins + ends[place] - times
                shape = smooth(since / self._ramp_s) * smooth(until / self._ramp_s)
                total += strengths[place] * shape
        return total

    def _dealt(self, number: int) -> tuple[Array, Array, Array, Array]:
        """The cards of one round in their order, and when in its slot each begins and ends."""
        chance = stream(self._seed, self._name, number)
        count = len(self.cards)
        return (
            chance.permutation(np.array(self.cards)),
            self._slot_s * chance.uniform(0.0, 0.1, count),
            self._slot_s * chance.uniform(0.9, 1.0, count),
            chance.uniform(0.8, 1.2, count),
        )


class Rounds:
    """Something that comes round about every `period_s`, never quite on time: an irrigation.

    >>> since = Rounds(7, "water", period_s=2400).since(np.arange(0.0, 86_400, 60))
    >>> bool(since.min() >= 0), bool(since.max() < 2 * 2400)
    (True, True)
    """

    def __init__(self, seed: int, name: str, period_s: float) -> None:
        self._seed, self._name, self._period_s = seed, name, period_s
        self._when = lru_cache(maxsize=64)(self._moment)

    def since(self, times: Array) -> Array:
        """Seconds since it last came."""
        turns = np.floor(times / self._period_s).astype(np.int64)
        near = np.unique([turns - 1, turns]).tolist()
        moments = np.array([self._when(turn) for turn in near])
        latest = np.searchsorted(moments, times, side="right") - 1
        return np.asarray(times - moments[latest])

    def _moment(self, turn: int) -> float:
        late = stream(self._seed, self._name, turn).uniform(0.0, 0.3)
        return (turn + float(late)) * self._period_s
