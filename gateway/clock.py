"""The gateway's clock: a steady one that follows when somebody sets the wall clock.

A node never follows: it measures only how long its sensors are silent. A gateway compares its time
with dates (a sensor's end of life) and with its database. A machine without a clock of its own
starts in 1970, or where it was switched off, and is set when the network answers: then the gateway
follows, once, and tells whoever counts by how much.
"""

from __future__ import annotations

from edge_opid.service.clock import SteadyClock

STEP_MS = 60_000
"""Clocks differ by less than this anyway: a smaller step is not followed."""


class GatewayClock(SteadyClock):
    """A steady clock, until somebody sets the wall clock.

    >>> wall, passed = [1_000.0], [50.0]
    >>> clock = GatewayClock(lambda: wall[0], lambda: passed[0])
    >>> wall[0], passed[0] = 90_000.25, 50.25
    >>> clock.now_ms(), clock.follow(), clock.now_ms(), clock.follow(), clock.passed_ms()
    (1000250, 89000000, 90000250, 0, 250)
    """

    def follow(self) -> int:
        """Go with the wall clock; by how much it was set since the last time, 0 if it was not."""
        step_ms = int(self._wall() * 1000) - self.now_ms()
        if abs(step_ms) < STEP_MS:
            return 0
        self._offset_s += step_ms / 1000
        return step_ms
