"""Chance that can be looked up: random signals as functions of a seed and of time.

A simulator that draws its noise in the order of its questions gives other answers when it is asked
in another order. Here every draw has an address (the seed, a name, a number), so that any moment
of any day can be asked for, forwards, backwards or twice, and is the same.
"""

from __future__ import annotations

import operator
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

GROUP = 64  # knots that are drawn together: a generator costs as much as some thousand numbers


def stream(seed: int, *address: str | int) -> np.random.Generator:
    """The random numbers that live at this address; the same for everybody who asks.

    The address is hashed as a whole, so that neither `("a", 11)` and `("a1", 1)` nor the seeds
    1 and 2 have anything to do with each other.

    >>> draw = stream(7, "street", 3).random()
    >>> draw == stream(7, "street", 3).random(), draw == stream(8, "street", 3).random()
    (True, False)
    """
    # operator.index: a NumPy integer prints otherwise than Python's, and would live elsewhere
    parts = [part if isinstance(part, str) else operator.index(part) for part in address]
    text = repr((operator.index(seed), *parts))
    digest = blake2b(text.encode(), digest_size=16).digest()
    return np.random.default_rng(int.from_bytes(digest, "little"))


def smooth(x: Array) -> Array:
    """0 up to 0, 1 from 1 on, and between them a rise without a kink.

    >>> smooth(np.array([-1.0, 0.0, 0.5, 1.0, 9.0])).tolist()
    [0.0, 0.0, 0.5, 1.0, 1.0]
    """
    x = np.clip(x, 0.0, 1.0)
    return x * x * (3.0 - 2.0 * x)


class Wander:
    """Many signals that wander about 0 with variance 1, each on its own.

    Each is a sum of layers, slow and fast. A layer has random knots at multiples of its period and
    passes smoothly through them; knots belong to the seed, so any stretch of time continues the
    one before it. The blend is divided by its own length, which keeps the variance at 1 between
    the knots as well.

    >>> wander = Wander(7, "gusts", signals=3)
    >>> wander.at(np.arange(5_000.0)).shape
    (5000, 3)
    >>> bool((wander.at(np.array([4_321.0])) == wander.at(np.arange(5_000.0))[4_321]).all())
    True
    """

    def __init__(
        self,
        seed: int,
        name: str,
        signals: int,
        layers: tuple[tuple[float, float], ...] = ((10.0, 0.5), (70.0, 0.5), (900.0, 0.6)),
    ) -> None:
        """`layers`: (period in seconds, weight); weights are scaled to a variance of 1."""
        self._seed, self._name, self._signals = seed, name, signals
        total = sum(weight * weight for _, weight in layers) ** 0.5
        self._layers = [(period, weight / total) for period, weight in layers]

    def at(self, times: Array) -> Array:
        """Every signal at these times: (times, signals)."""
        total = np.zeros((len(times), self._signals))
        for number, (period, weight) in enumerate(self._layers):
            total += weight * self._layer(times / period, number)
        return total

    def _layer(self, position: Array, number: int) -> Array:
        before = np.floor(position).astype(np.int64)
        first, last = int(before.min()), int(before.max()) + 1
        knots = self._knots(number, first, last)
        share = smooth(position - before)
        length = np.sqrt((1.0 - share) ** 2 + share**2)
        left, right = ((1.0 - share) / length)[:, None], (share / length)[:, None]
        return np.asarray(left * knots[before - first] + right * knots[before - first + 1])

    def _knots(self, number: int, first: int, last: int) -> Array:
        groups = range(first // GROUP, last // GROUP + 1)
        drawn = [
            stream(self._seed, self._name, number, group).standard_normal((GROUP, self._signals))
            for group in groups
        ]
        start = first - groups[0] * GROUP
        return np.concatenate(drawn)[start : start + last - first + 1]
