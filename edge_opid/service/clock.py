"""The clock of a service: the one file of a node that reads clocks."""

from __future__ import annotations

import time
from collections.abc import Callable


class SteadyClock:
    """The wall clock as it was at the start, carried on by the monotonic one.

    Nobody's silence grows or shrinks because somebody sets the wall clock. A `speed` is for
    rehearsals with recorded data: so many seconds pass for each real one.

    >>> seconds = iter([50.0, 50.25, 50.5])
    >>> clock = SteadyClock(wall=lambda: 1_000.0, monotonic=lambda: next(seconds))
    >>> clock.now_ms(), clock.passed_ms()
    (1000250, 500)
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        speed: float = 1.0,
    ) -> None:
        self._wall, self._monotonic, self._speed = wall, monotonic, speed
        self._began_s = monotonic()
        self._offset_s = wall() - self._began_s

    def now_ms(self) -> int:
        """Milliseconds since 1970, as far as this machine knew when the service started."""
        if self._speed == 1.0:
            return int((self._offset_s + self._monotonic()) * 1000)
        passed_s = self._speed * (self._monotonic() - self._began_s)
        return int((self._offset_s + self._began_s + passed_s) * 1000)

    def passed_ms(self) -> int:
        """Milliseconds since the service started, whoever sets the wall clock."""
        return round((self._monotonic() - self._began_s) * 1000)
