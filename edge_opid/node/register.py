"""What a node remembers of each source: how far it was applied, and how far its former boots were.

A source's boots only rise: a reading of a lower boot is never applied again. But a card that was
away while another one sent under the same name may come back with readings of a lower boot, some
of them applied before the change. So the last number of the last few boots is kept: it tells those
readings, which must not be applied twice, from the rest, which must not be lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

FORMER_MAX = 8  # boots of a source; a card that comes back after more than these is not remembered


class Register:
    """The numbers of every source: part of the state, moved by nothing but accepted readings.

    >>> register = Register()
    >>> register.accepted("attic", boot=7, seq=12)
    >>> register.accepted("attic", boot=9, seq=1)
    >>> register.expected
    {'attic': (9, 2)}
    >>> [register.last_of("attic", boot) for boot in (7, 8, 9)]
    [12, 0, 1]
    """

    def __init__(self) -> None:
        self.expected: dict[str, tuple[int, int]] = {}
        """source: (newest boot, next sequence number)"""
        self._former: dict[str, dict[int, int]] = {}  # source: boot: last number, oldest first

    def accepted(self, source: str, boot: int, seq: int) -> None:
        """A reading was applied."""
        known_boot, next_seq = self.expected.get(source, (boot, 1))
        if known_boot != boot:
            former = self._former.setdefault(source, {})
            former[known_boot] = next_seq - 1
            if len(former) > FORMER_MAX:
                del former[next(iter(former))]
        self.expected[source] = (boot, seq + 1)

    def last_of(self, source: str, boot: int) -> int:
        """The last number applied of this boot; 0 if it has applied, or remembers, none."""
        known_boot, next_seq = self.expected.get(source, (boot, 1))
        if known_boot == boot:
            return next_seq - 1
        return self._former.get(source, {}).get(boot, 0)

    def state(self) -> dict[str, Any]:
        """Plain values, for `restored`."""
        return {
            "expected": {source: list(number) for source, number in self.expected.items()},
            "former": {source: list(each.items()) for source, each in self._former.items()},
        }

    @classmethod
    def restored(cls, saved: Mapping[str, Any]) -> Self:
        """The register that `state` described."""
        mine = cls()
        mine.expected = {source: (boot, seq) for source, (boot, seq) in saved["expected"].items()}
        mine._former = {source: dict(map(tuple, each)) for source, each in saved["former"].items()}
        return mine
