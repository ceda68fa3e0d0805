"""The gateway's clocks: the one file of it that reads them.

The time is the wall clock as it was at the start, carried on by the monotonic one, so that nobody's
silence grows or shrinks by itself. A machine without a clock of its own starts in 1970, or where it
was switched off, and is set when the network answers: then we follow, once, and whoever counts is
told by how much.
"""

from __future__ import annotations

import time
from collections.abc import Callable

STEP_MS = 60_000
"""Less is what clocks differ by, and not worth to be followed."""


class GatewayClock:
    """Carried on, until somebody sets the wall clock.

    >>> wall, passed = [1_000.0], [50.0]
    >>> clock = GatewayClock(lambda: wall[0], lambda: passed[0])
    >>> wall[0], passed[0] = 90_000.25, 50.25
    >>> clock.now_ms(), clock.follow(), clock.now_ms(), clock.follow(), clock.passed_ms()
    (1000250, 89000000, 90000250, 0, 250)
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._began_s = monotonic()
        self._start_ms = int(wall() * 1000)

    def now_ms(self) -> int:
        """Milliseconds since 1970, as far as anybody has told this machine."""
        return self._start_ms + self.passed_ms()

    def passed_ms(self) -> int:
        """Milliseconds of this life: for whatever must go on at its pace, whoever sets the time."""
        return round((self._monotonic() - self._began_s) * 1000)

    def follow(self) -> int:
        """By how much the wall clock was set since the last time, if it was; we go with it."""
        step_ms = int(self._wall() * 1000) - self.now_ms()
        if abs(step_ms) < STEP_MS:
            return 0
        self._start_ms += step_ms
        return step_ms
