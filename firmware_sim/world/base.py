"""The hidden truth that sensors look at, and the labels that follow from it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from typing import ClassVar

import numpy as np

from edge_opid.errors import shown
from firmware_sim.world.catalogue import Catalogued
from firmware_sim.world.chance import Array, Wander, stream
from firmware_sim.world.errors import WorldError
from firmware_sim.world.truth import Truth, Truths

BLOCK_S = 1024  # computed at once, on a grid of seconds: some 3 ms for all quantities of a node
SPARSE = 16  # fewer times a block than this are computed one by one
BLOCKS_KEPT = 4  # per node: the one in use, its neighbours, and a late question


class World(ABC):
    """A place with a physical truth, which is a function of the seed, the node and the time.

    Nodes of one world (one seed) live through the same events and weather, each a little later,
    stronger or weaker, and with fluctuations of its own: what one learns helps the others. Time is
    in seconds from a midnight on. Between whole seconds the truth is interpolated.

    Some quantities are causes, which no sensor sees directly: traffic, smoke, a worn bearing. The
    class is the strongest cause above `threshold`, and `calm` where there is none.

    Cost: about 3 µs for `at`, and as much again for its share of the block it comes from.

    >>> from firmware_sim.world import open_world
    >>> street = open_world("street", seed=7)
    >>> morning = street.at(8 * 3600.0)
    >>> street.label(morning), morning == street.at(8 * 3600.0)
    ('traffic', True)
    >>> neighbour = open_world("street", seed=7, node=1).at(8 * 3600.0)
    >>> street.label(neighbour), neighbour == morning
    ('traffic', False)
    """

    name: ClassVar[str]
    calm: ClassVar[str]  # the class where no cause is strong
    causes: ClassVar[tuple[str, ...]]  # quantities that are classes, too
    wandering: ClassVar[tuple[str, ...]]  # signals that fluctuate on their own
    shared: ClassVar[float] = 0.3  # the share of that variance that all nodes have in common
    late_s_max: ClassVar[float]  # how much later the last node meets an event
    threshold: ClassVar[float] = 0.5
    catalogue: ClassVar[tuple[Catalogued, ...]]  # the sensors one can buy for it

    def __init__(self, seed: int, node: int = 0) -> None:
        if node < 0:
            raise WorldError(f"node of world {self.name!r} must be 0 or more, got {node}")
        self.seed, self.node = seed, node
        self._late_s = self.late_s_max * self._own("late") if node else 0.0
        self._feels = {cause: 0.85 + 0.3 * self._own(cause) for cause in self.causes}
        count = len(self.wandering)
        self._weather = Wander(seed, f"{self.name} weather", count)
        self._eddies = Wander(seed, f"{self.name} eddies {node}", count)
        self._block = lru_cache(maxsize=BLOCKS_KEPT)(self._computed)
        self.quantities = tuple(self._physics(np.zeros(1), self._fluctuations(np.zeros(1))))

    @abstractmethod
    def _physics(self, times: Array, wander: Mapping[str, Array]) -> dict[str, Array]:
        """Every quantity at these times, from the fluctuations at these times."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""
        return (self.calm, *self.causes)

    def at(self, time_s: float) -> Truth:
        """The truth at one time."""
        # whole seconds first: a hair before midnight, divmod by 1024 would say 1024 s into a block
        second = math.floor(time_s)
        share = time_s - second
        number, place = divmod(second, BLOCK_S)
        block = self._block(number)
        values = block[place]
        if share:
            values = values + share * (block[place + 1] - values)
        return Truth(time_s, dict(zip(self.quantities, values.tolist(), strict=True)))

    def over(self, times_s: Array) -> Truths:
        """The truth at many times, to the bit what `at` says of each."""
        times = np.asarray(times_s, dtype=np.float64)
        seconds = np.floor(times)
        shares = (times - seconds)[:, None]
        numbers, places = np.divmod(seconds.astype(np.int64), BLOCK_S)
        blocks = np.unique(numbers)
        if SPARSE * len(blocks) > len(times):  # minutes apart: not worth whole blocks
            found = self._at_seconds(seconds)
            if shares.any():
                found = found + shares * (self._at_seconds(seconds + 1.0) - found)
            return Truths(times, dict(zip(self.quantities, found.T, strict=True)))
        found = np.empty((len(times), len(self.quantities)))
        for number in blocks:
            chosen, block = numbers == number, self._block(int(number))
            before, after = block[places[chosen]], block[places[chosen] + 1]
            found[chosen] = before + shares[chosen] * (after - before)
        return Truths(times, dict(zip(self.quantities, found.T, strict=True)))

    def label(self, truth: Truth) -> str:
        """The class that follows from the truth."""
        strongest = max(self.causes, key=truth.values.__getitem__)
        return strongest if truth.values[strongest] > self.threshold else self.calm

    def labels(self, truths: Truths) -> list[str]:
        """The class at each of many times."""
        strengths = np.stack([truths.values[cause] for cause in self.causes])
        found = np.where(strengths.max(axis=0) > self.threshold, strengths.argmax(axis=0) + 1, 0)
        return [self.classes[number] for number in found]

    def sensor(self, role: str) -> Catalogued:
        """The catalogue's sensor for a role.

        >>> from firmware_sim.world import open_world
        >>> open_world("street", seed=7).sensor("pm25").unit
        'µg/m³'
        """
        for entry in self.catalogue:
            if entry.role == role:
                return entry
        roles = [entry.role for entry in self.catalogue]
        raise WorldError(f"world {self.name!r} has no sensor for {shown(role)}; it has {roles}")

    def _own(self, what: str) -> float:
        """A number from 0 to 1 that belongs to this node: how near it is to something."""
        return float(stream(self.seed, self.name, "place", self.node, what).random())

    def _felt(self, strength: Array, cause: str, wander: Mapping[str, Array]) -> Array:
        """A cause as this node feels it: stronger or weaker than others do, and never steady."""
        return np.maximum(0.0, self._feels[cause] * strength + 0.04 * wander[cause])

    def _fluctuations(self, times: Array) -> dict[str, Array]:
        common = self.shared**0.5 * self._weather.at(times)
        own = (1.0 - self.shared) ** 0.5 * self._eddies.at(times)
        return dict(zip(self.wandering, (common + own).T, strict=True))

    def _computed(self, number: int) -> Array:
        """(BLOCK_S + 1, quantities): the last row is the first of the next block."""
        return self._at_seconds(number * BLOCK_S + np.arange(BLOCK_S + 1.0))

    def _at_seconds(self, seconds: Array) -> Array:
        """(seconds, quantities), without interpolation."""
        times = seconds - self._late_s
        physics = self._physics(times, self._fluctuations(times))
        return np.column_stack([physics[quantity] for quantity in self.quantities])
