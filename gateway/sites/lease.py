"""Until when this process may act for the sites it holds.

A heartbeat that the database has taken is worth a lease, counted from the moment it was *sent*: by
then nobody can have seen the next one missing. When the lease has run out, everything that was
begun under it is over for good, also if a later heartbeat gets through: another gateway may have
come and gone meanwhile. The next heartbeat begins another term.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

from gateway.store.errors import LeaderError

STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Goes on while the machine sleeps; nobody can set it."""


def steady_s() -> float:
    """Seconds of a clock that only ever goes on, also while this process or the machine sleeps."""
    return time.clock_gettime(STEADY)


class Lease:
    """May we act?

    >>> now = [0.0]
    >>> lease = Lease(4.0, lambda: now[0])
    >>> term = lease.renew(sent_s=0.0)
    >>> now[0] = 3.9
    >>> lease.is_valid(term)
    True
    >>> now[0] = 4.1
    >>> lease.is_valid(term), lease.renew(sent_s=4.0) == term, lease.is_valid(term)
    (False, False, False)
    """

    def __init__(self, lease_s: float, clock: Callable[[], float] = steady_s) -> None:
        self.lease_s, self._clock = lease_s, clock
        self._until_s, self._term = clock() - 1.0, 0
        self._lock = Lock()  # a heartbeat renews it while the sites' threads look

    def now_s(self) -> float:
        """The clock that the lease goes by."""
        return self._clock()

    def renew(self, sent_s: float) -> int:
        """The database has taken the heartbeat of then; the number of the term that goes on."""
        with self._lock:
            if self._clock() > self._until_s:
                self._term += 1
            self._until_s = sent_s + self.lease_s
            return self._term

    def is_valid(self, term: int) -> bool:
        """Whether what was begun in this term may go on."""
        with self._lock:
            return term == self._term and self._clock() <= self._until_s

    def check(self, term: int, site: str) -> None:
        """Raise where it may not."""
        if not self.is_valid(term):
            raise LeaderError(
                f"site {site!r}: no heartbeat has reached the database for {self.lease_s:g} s, so "
                "another gateway may serve it by now: this one does nothing more for it"
            )
