"""Which of many things is due: only those are looked at, however many there are."""

from __future__ import annotations

import heapq
from typing import Any, Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Any)
STALE_MAX = 64


class DueTimes(Generic[KeyT]):
    """A time for each key, and the keys whose time has come, the earliest first.

    A heap of times and keys; a key that was given another time leaves its former entry behind,
    which is recognised when it comes up. When most entries are such, the heap is made anew.

    >>> due = DueTimes[str]()
    >>> for key, at_ms in (("b", 20), ("a", 20), ("c", 10), ("b", 30)):
    ...     due.set(key, at_ms)
    >>> due.take(30), due.take(30), due.take(31)
    (['c', 'a'], [], ['b'])
    """

    def __init__(self) -> None:
        self._times: dict[KeyT, int] = {}
        self._heap: list[tuple[int, KeyT]] = []

    def __len__(self) -> int:
        return len(self._times)

    def set(self, key: KeyT, at_ms: int) -> None:
        """Give a key its time, in place of its former one."""
        if self._times.get(key) != at_ms:
            self._times[key] = at_ms
            heapq.heappush(self._heap, (at_ms, key))
            if len(self._heap) > STALE_MAX + 2 * len(self._times):
                self._renew()

    def discard(self, key: KeyT) -> None:
        """It has no time any more."""
        self._times.pop(key, None)

    def first(self, before_ms: float) -> tuple[int, KeyT] | None:
        """The earliest time and its key, if that is before `before_ms`."""
        heap = self._heap
        while heap and heap[0][0] < before_ms:
            at_ms, key = heap[0]
            if self._times.get(key) == at_ms:
                return at_ms, key
            heapq.heappop(heap)
        return None

    def take(self, before_ms: float) -> list[KeyT]:
        """The keys whose time is before that, by time and key; they have none any more."""
        found: list[KeyT] = []
        while (first := self.first(before_ms)) is not None:
            heapq.heappop(self._heap)
            del self._times[first[1]]
            found.append(first[1])
        return found

    def shift(self, step_ms: int) -> None:
        """The clock was set: what is due in a minute is still due in a minute."""
        self._times = {key: at_ms + step_ms for key, at_ms in self._times.items()}
        self._renew()

    def _renew(self) -> None:
        self._heap = [(at_ms, key) for key, at_ms in self._times.items()]
        heapq.heapify(self._heap)
