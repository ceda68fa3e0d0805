"""Who is alive: a gateway counts its heartbeats in its row, and others see whether they go on.

No clock is compared with another machine's, and none can be set: what is measured is how long *we*
have seen a count stand still, by our own steady clock. A gateway acts for at most its lease after a
heartbeat; it is dead to others `DEAD_LEASES` times its lease after they first saw its last one. So
it has stopped before anybody takes its place. No I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

DEAD_LEASES = 1.5
"""The half is for a message that was on its way to the broker, and for clocks that run unevenly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A gateway that shares the sites, as its row says."""

    name: str
    """Of this life: a gateway that is started again is another member."""
    host: str
    pid: int
    key: str
    """The public key of its orders."""
    lease_s: float
    sites: tuple[str, ...]
    """What it is configured for."""
    since_ms: int
    """By the database's clock, as the next; for people."""
    seen_ms: int
    beat: int

    @property
    def process(self) -> str:
        """What it is called in our sentences."""
        return f"process {self.pid} on {self.host!r}"


class Census:
    """What one gateway has seen of the others.

    >>> census = Census()
    >>> row = Member(name="a", host="pi", pid=7, key="", lease_s=4.0, sites=("x",), since_ms=0,
    ...              seen_ms=0, beat=3)
    >>> [bool(census.look([row], asked_s, asked_s + 0.1)) for asked_s in (0.0, 6.0, 6.2)]
    [True, True, False]
    """

    def __init__(self) -> None:
        self._seen: dict[
            str, tuple[int, float]
        ] = {}  # the last count, and when we had first read it

    def look(self, rows: Iterable[Member], asked_s: float, read_s: float) -> dict[str, Member]:
        """The living ones, by name; the rows were asked for and read at these moments."""
        rows = list(rows)
        for row in rows:
            if self._seen.get(row.name, (None,))[0] != row.beat:
                self._seen[row.name] = row.beat, read_s
        self.forget(self._seen.keys() - {row.name for row in rows})
        return {row.name: row for row in rows if not self._is_dead(row, asked_s)}

    def _is_dead(self, row: Member, asked_s: float) -> bool:
        """Whether its count stood still all the time between two looks far enough apart."""
        _, first_s = self._seen[row.name]
        return asked_s - first_s > DEAD_LEASES * row.lease_s

    def forget(self, names: Collection[str]) -> None:
        """Their rows are gone."""
        for name in names:
            del self._seen[name]
