"""Time that nobody waits for: a line of events, and a clock that jumps from one to the next.

Everything a simulation does is an event here. Two events of the same millisecond happen in the
order in which they were asked for, so a run is a function of its seed and of nothing else.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random

Call = Callable[[], None]
START_MS = 1_700_000_000_000  # what wall clocks say when a simulation begins: some day in 2023
IN_2040_MS = 2_208_988_800_000


class VirtualClock:
    """A clock that stands still while somebody thinks, and a line of what is to happen.

    >>> clock, heard = VirtualClock(), []
    >>> clock.after(20, lambda: heard.append("second"))
    >>> clock.after(10, lambda: heard.append("first"))
    >>> clock.run_until(15)
    >>> heard, clock.now_ms
    (['first'], 15)
    """

    def __init__(self) -> None:
        self.now_ms = 0
        self.events = 0  # how many have happened: the length of a run, whatever the machine
        self._asked = 0
        self._line: list[tuple[int, int, Call]] = []

    def __len__(self) -> int:
        """How much is to happen."""
        return len(self._line)

    def at(self, when_ms: int, call: Call) -> None:
        """Call this then, or next if that time is over."""
        self._asked += 1
        when_ms = max(when_ms, self.now_ms)
        heapq.heappush(self._line, (when_ms, self._asked, call))

    def after(self, delay_ms: int, call: Call) -> None:
        """Call this so many milliseconds from now."""
        self.at(self.now_ms + delay_ms, call)

    def run_until(self, end_ms: int) -> None:
        """Let everything happen that is due up to this time, and let it be this time."""
        line, pop = self._line, heapq.heappop
        while line and line[0][0] <= end_ms:
            self.now_ms, _, call = pop(line)
            self.events += 1
            call()
        self.now_ms = max(self.now_ms, end_ms)

    def run_for(self, span_ms: int) -> None:
        """The same for a span of time."""
        self.run_until(self.now_ms + span_ms)


class WallClock:
    """What one machine believes the time to be: right at first, and then wherever it is set.

    `jump` is noticed by processes that ask from then on. A node asks once, when it starts, and is
    carried on by the monotonic clock, which never jumps.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._offset_ms = START_MS

    def jump(self, by_ms: int) -> None:
        """Set the clock, forward or back; Linux has no time before 1970."""
        self._offset_ms = max(self._offset_ms + by_ms, -self._clock.now_ms)

    def lose(self, now_ms: int) -> None:
        """A machine without a battery starts with this time, until somebody tells it better."""
        self._offset_ms = now_ms - self._clock.now_ms

    def find(self) -> None:
        """NTP has answered: the time is right."""
        self._offset_ms = START_MS

    def wall(self) -> float:
        """Seconds since 1970, as this machine has it."""
        return (self._clock.now_ms + self._offset_ms) / 1000

    def monotonic(self) -> float:
        """Seconds since the simulation began: no machine can be made to doubt these."""
        return self._clock.now_ms / 1000


def dice(*names: object) -> Random:
    """Chance for one purpose. Another purpose more, or less, changes nothing about this one.

    >>> dice(7, "n1", "disk").random() == dice(7, "n1", "disk").random() != dice(7, "n1").random()
    True
    """
    return Random("/".join(map(str, names)))  # text is hashed by SHA-512, the same in every process
