"""The clock of a service: the one file of a node that reads clocks."""

from __future__ import annotations

import time
from collections.abc import Callable


class SteadyClock:
    """The wall clock as it was at the start, carried on by the monotonic one.

    Nobody's silence grows or shrinks because somebody sets the wall clock.

    >>> seconds = iter([50.0, 50.25, 50.5])
    >>> clock = SteadyClock(wall=lambda: 1_000.0, monotonic=lambda: next(seconds))
    >>> clock.now_ms(), clock.passed_ms()
    (1000250, 500)
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._began_s = monotonic()
        self._offset_s = wall() - self._began_s

    def now_ms(self) -> int:
        """Milliseconds since 1970, as far as this machine knew when the service started."""
        return int((self._offset_s + self._monotonic()) * 1000)

    def passed_ms(self) -> int:
        """Milliseconds since the service started, whoever sets the wall clock."""
        return round((self._monotonic() - self._began_s) * 1000)
