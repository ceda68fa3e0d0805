"""How long to wait before the next attempt to connect."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Bounded exponential delays with full jitter.

    A thousand nodes lose the same broker in the same second. Were each to wait exactly 1, 2, 4 s,
    they would come back as one wave; a delay drawn evenly between 0 and the bound spreads them.

    >>> backoff = Backoff(first_s=1.0, most_s=60.0, draw=lambda low, high: high)
    >>> [backoff.next_delay_s() for _ in range(8)]
    [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    >>> backoff.reset()
    >>> backoff.next_delay_s()
    1.0
    """

    first_s: float
    most_s: float
    draw: Callable[[float, float], float] = field(default=random.uniform)
    attempts: int = 0

    def next_delay_s(self) -> float:
        """Draw the next delay; the bound doubles until it reaches `most_s`."""
        bound = min(self.most_s, self.first_s * 2.0 ** min(self.attempts, 32))
        self.attempts += 1
        return self.draw(0.0, bound)

    def reset(self) -> None:
        """The last connection was a good one: start again from the first bound."""
        self.attempts = 0
