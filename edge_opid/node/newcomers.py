"""Sensors that speak and have no column yet.

Somebody has installed a new sensor and it talks already, before the gateway or the configuration
has given it a place. What it says cannot be used yet, and is worth keeping all the same: readings
in which it speaks beside the others tell how it follows from them, so that it needs no label later
(`learner.handover`). So its values stand in the ring of recent instances beside the known ones.

Anybody may send values of sensors that will never have a place: only the 64 heard last are kept,
which are 131 kB in a ring of 256 instances.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

COUNT_MAX = 64
HOLD_MS = 900_000
"""How old a newcomer's value may be beside an instance. It has no rhythm yet to go by."""


class Newcomers:
    """The last value of each, and when it came. Part of the durable state.

    >>> newcomers = Newcomers()
    >>> newcomers.hear({"lux-9": 310.0}, now_ms=1_000)
    >>> newcomers.lately(now_ms=2_000), newcomers.lately(now_ms=2_000_000)
    ({'lux-9': 310.0}, {})
    """

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, int]] = {}  # the one heard longest ago comes first

    def hear(self, values: Mapping[str, float], now_ms: int) -> None:
        """These sensors have spoken, and have no column."""
        for sensor, value in values.items():
            self._last.pop(sensor, None)
            self._last[sensor] = value, now_ms
        while len(self._last) > COUNT_MAX:
            del self._last[next(iter(self._last))]

    def lately(self, now_ms: int) -> dict[str, float]:
        """What they said not long ago."""
        if not self._last:
            return {}
        return {s: v for s, (v, at_ms) in self._last.items() if abs(now_ms - at_ms) <= HOLD_MS}

    def admit(self, sensors: Iterable[str]) -> None:
        """These have columns now."""
        for sensor in sensors:
            self._last.pop(sensor, None)

    def state(self) -> dict[str, Any]:
        """Plain values, for `restored`."""
        return {sensor: list(last) for sensor, last in self._last.items()}

    @classmethod
    def restored(cls, saved: Mapping[str, Any]) -> Self:
        """What `state` described."""
        mine = cls()
        mine._last = {sensor: (value, at_ms) for sensor, (value, at_ms) in saved.items()}
        return mine
