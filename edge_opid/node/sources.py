"""What a node remembers of each source: how far it was applied, and how far its former boots were.

A source's boots only rise: a reading of a lower boot is never applied again. But a card that was
away while another one sent under the same name may come back with readings of a lower boot, some
of them applied before the change. So the last number of the last few boots is kept: it tells those
readings, which must not be applied twice, from the rest, which must not be lost.

Every source costs a place in every snapshot, and names are cheap to invent. So there are places for
so many; when all are taken and another source speaks, one is forgotten:

1. of those that never brought a value of a known sensor, the one heard longest ago: a number that
   moved nothing cannot be learned twice;
2. else the source heard longest ago, if that is a day ago or more. If it comes back in the middle
   of a boot, the node waits for its missing numbers for a minute and then goes on where it is; what
   it sends again because an acknowledgement was lost is then applied again;
3. else nobody, and the new source is refused until one of the others has been silent for a day.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

SOURCES_MAX = 256
FORMER_MAX = 8  # boots of a source; a card that comes back after more than these is not remembered
SILENT_MS = 86_400_000  # longer than a script is away for a restart, a flat battery, a bad network


class SourceRegister:
    """The numbers of every source: part of the state, moved by nothing but accepted readings.

    >>> register = SourceRegister()
    >>> register.record("attic", boot=7, seq=12)
    >>> register.record("attic", boot=9, seq=1)
    >>> register.expected
    {'attic': (9, 2)}
    >>> [register.last_of("attic", boot) for boot in (7, 8, 9)]
    [12, 0, 1]
    """

    def __init__(self, sources_max: int = SOURCES_MAX) -> None:
        self.expected: dict[str, tuple[int, int]] = {}
        """source: (newest boot, next sequence number); the one heard longest ago comes first"""
        self._former: dict[str, dict[int, int]] = {}  # source: boot: last number, oldest first
        self._heard_ms: dict[str, int] = {}
        self._useful: dict[str, bool] = {}  # whether it ever brought a value of a known sensor
        self._sources_max = sources_max

    def record(
        self, source: str, boot: int, seq: int, now_ms: int = 0, *, useful: bool = True
    ) -> str | None:
        """A reading was applied. Returns the source that had to be forgotten for it, if any."""
        forgotten = None if source in self.expected else self._make_room(now_ms)
        known_boot, next_seq = self.expected.pop(source, (boot, 1))
        if known_boot != boot:
            former = self._former.setdefault(source, {})
            former[known_boot] = next_seq - 1
            if len(former) > FORMER_MAX:
                del former[next(iter(former))]
        self.expected[source] = (boot, seq + 1)
        self._heard_ms[source] = now_ms
        self._useful[source] = useful or self._useful.get(source, False)
        return forgotten

    def last_of(self, source: str, boot: int) -> int:
        """The last number applied of this boot; 0 if it has applied, or remembers, none."""
        known_boot, next_seq = self.expected.get(source, (boot, 1))
        if known_boot == boot:
            return next_seq - 1
        return self._former.get(source, {}).get(boot, 0)

    def admits(self, source: str, now_ms: int) -> bool:
        """Whether there is a place for this source, or one can be made."""
        return source in self.expected or not self._full or self._spare(now_ms) is not None

    @property
    def _full(self) -> bool:
        return len(self.expected) >= self._sources_max

    def _spare(self, now_ms: int) -> str | None:
        """Whom to forget first; None if nobody may be."""
        for source in self.expected:
            if not self._useful[source]:
                return source
        oldest = next(iter(self.expected))
        return oldest if now_ms - self._heard_ms[oldest] >= SILENT_MS else None

    def _make_room(self, now_ms: int) -> str | None:
        spare = self._spare(now_ms) if self._full else None
        if spare is not None:
            del self.expected[spare], self._heard_ms[spare], self._useful[spare]
            self._former.pop(spare, None)
        return spare

    def state(self) -> dict[str, Any]:
        """Plain values, for `restored`."""
        return {
            "expected": {source: list(number) for source, number in self.expected.items()},
            "former": {source: list(each.items()) for source, each in self._former.items()},
            "heard": self._heard_ms,
            "useful": self._useful,
        }

    @classmethod
    def restored(cls, saved: Mapping[str, Any]) -> Self:
        """The register that `state` described."""
        mine = cls()
        mine.expected = {source: (boot, seq) for source, (boot, seq) in saved["expected"].items()}
        mine._former = {source: dict(map(tuple, each)) for source, each in saved["former"].items()}
        mine._heard_ms, mine._useful = dict(saved["heard"]), dict(saved["useful"])
        return mine
