"""The last instances, for labels that come late.

A label names its instance by the number of any reading in it, or by a time. It is learned once: the
next one for the same instance is refused, and so is one for an instance that is not here, or not
here any more. This is part of the durable state: the same calls find the same instances.

Names of sensors repeat from instance to instance, so they are kept once: 256 instances of 75
sensors are 0.3 MB; as dicts, their values alone would be 0.9.

Anybody may send labels that fit nothing, so a look must not cost a walk along the ring: instances
are found in an index by number, and in a list sorted by time.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from struct import pack, unpack
from typing import Any

from edge_opid.errors import Refusal
from edge_opid.node.scoreboard import PredictorName
from edge_opid.wire import InstanceId

SIZE = 256  # four minutes at one instance a second


@dataclass(slots=True, eq=False, kw_only=True)
class Entry:
    """One instance, what each predictor said of it, and whether its label was learned.

    The values are raw. A label may come when the layout is another: `layout_version` says which
    one they were joined in.
    """

    time_ms: int
    numbers: tuple[InstanceId, ...]
    sensors: tuple[str, ...]
    readings: array[float]  # float64, one for each of `sensors`: replay needs the same bits
    guesses: dict[PredictorName, int]  # predictor → index of the class
    learned: bool = False
    layout_version: int = 0

    @classmethod
    def of(
        cls,
        time_ms: int,
        numbers: tuple[InstanceId, ...],
        values: Mapping[str, float],
        guesses: Mapping[PredictorName, int],
        learned: bool = False,
        layout_version: int = 0,
    ) -> Entry:
        """An entry from values by sensor."""
        packed = array("d", values.values())
        ids, sensors = tuple(numbers), tuple(values)
        return cls(
            time_ms=time_ms,
            numbers=ids,
            sensors=sensors,
            readings=packed,
            guesses=dict(guesses),
            learned=learned,
            layout_version=layout_version,
        )

    @property
    def values(self) -> dict[str, float]:
        """The values by sensor, in the order they came."""
        return dict(zip(self.sensors, self.readings, strict=True))


class Recent:
    """A ring of instances: the oldest gives way.

    >>> recent = Recent(size=2)
    >>> first = InstanceId("attic", 1, 1)
    >>> recent.remember(Entry.of(1_000, (first,), {"temp": 21.5}, {PredictorName.OWN: 0}))
    >>> entry = recent.claim(first)
    >>> entry.values, entry.guesses
    ({'temp': 21.5}, {<PredictorName.OWN: 'own'>: 0})
    >>> print(recent.claim(first).reason)  # its label has been learned
    already-labelled
    >>> print(recent.claim(time_ms=5_000, tolerance_ms=500))
    no recent instance within 500 ms of 5000
    """

    def __init__(self, size: int = SIZE) -> None:
        if size < 1:
            raise ValueError(f"size must be 1 or more, got {size}")
        self._size = size
        self._entries: deque[Entry] = deque()
        self._remembered = 0  # so far: the place of an entry among all there ever were
        self._by_number: dict[InstanceId, Entry] = {}
        self._by_time: list[tuple[int, int, Entry]] = []  # time, place, entry; sorted

    def __len__(self) -> int:
        return len(self._entries)

    def remember(self, entry: Entry) -> None:
        """Keep an instance; `learned` if its label came with it."""
        if self._entries and self._entries[-1].sensors == entry.sensors:
            entry.sensors = self._entries[-1].sensors  # one tuple for all of them
        if len(self._entries) == self._size:
            self._forget_oldest()
        self._entries.append(entry)
        self._by_number.update(dict.fromkeys(entry.numbers, entry))
        insort(self._by_time, (entry.time_ms, self._remembered, entry))
        self._remembered += 1

    def _forget_oldest(self) -> None:
        place = self._remembered - len(self._entries)
        entry = self._entries.popleft()
        for number in entry.numbers:
            if self._by_number.get(number) is entry:  # else a later instance has the same number
                del self._by_number[number]
        del self._by_time[bisect_left(self._by_time, (entry.time_ms, place))]

    def find(self, instance: InstanceId) -> Entry | None:
        """The instance to which this reading belongs; the later one if there are two."""
        return self._by_number.get(instance)

    def find_time(self, time_ms: int, tolerance_ms: int) -> Entry | None:
        """The instance nearest in time, within the tolerance; of two as near, the later."""
        before = self._last_at(time_ms)
        above = bisect_left(self._by_time, (time_ms + 1,))
        after = self._last_at(self._by_time[above][0]) if above < len(self._by_time) else None
        found = [each for each in (after, before) if each is not None]
        nearest = min(found, key=lambda each: abs(each.time_ms - time_ms), default=None)
        if nearest is None or abs(nearest.time_ms - time_ms) > tolerance_ms:
            return None
        return nearest

    def _last_at(self, time_ms: int) -> Entry | None:
        """The instance of this time, or else of the time before; of several the last to come."""
        place = bisect_right(self._by_time, (time_ms, self._remembered))
        return self._by_time[place - 1][2] if place else None

    def check(
        self, instance: InstanceId | None = None, time_ms: int | None = None, tolerance_ms: int = 0
    ) -> Entry | Refusal:
        """The instance that a label is meant for, or why it cannot be learned. Changes nothing."""
        if instance is not None:
            entry, which = self.find(instance), f"with number {_spelled(instance)}"
        elif time_ms is not None:
            entry = self.find_time(time_ms, tolerance_ms)
            which = f"within {tolerance_ms} ms of {time_ms}"
        else:
            raise ValueError("a label needs an instance or a time_ms, got neither")
        if entry is None:
            return Refusal("unknown-instance", f"no recent instance {which}")
        if entry.learned:
            return Refusal("already-labelled", f"the instance {which} has a label already")
        return entry

    def claim(
        self, instance: InstanceId | None = None, time_ms: int | None = None, tolerance_ms: int = 0
    ) -> Entry | Refusal:
        """As `check`; an instance that is found counts as learned from now on."""
        found = self.check(instance, time_ms, tolerance_ms)
        if isinstance(found, Entry):
            found.learned = True
        return found

    def state(self) -> dict[str, Any]:
        """All entries in values that msgpack knows; each set of sensors is spelled once."""
        used = dict.fromkeys(each.sensors for each in self._entries)  # a set that keeps its order
        layouts = {sensors: place for place, sensors in enumerate(used)}
        entries = [_plain(each, layouts[each.sensors]) for each in self._entries]
        return {"sensors": [list(each) for each in layouts], "entries": entries}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], size: int = SIZE) -> Recent:
        """The ring that `state` describes; a smaller one keeps the newest.

        >>> recent = Recent()
        >>> recent.remember(Entry.of(7, (InstanceId("a", 1, 1),), {"t": 0.1}, {}, learned=True))
        >>> Recent.from_state(recent.state()).state() == recent.state()
        True
        """
        recent = cls(size)
        layouts = [tuple(each) for each in state["sensors"]]
        for time_ms, numbers, place, data, guesses, learned, layout_version in state["entries"]:
            ids = tuple(InstanceId(*each) for each in numbers)
            readings = array("d", unpack(f"<{len(layouts[place])}d", data))
            said = {PredictorName(name): guess for name, guess in guesses.items()}
            recent.remember(
                Entry(
                    time_ms=time_ms,
                    numbers=ids,
                    sensors=layouts[place],
                    readings=readings,
                    guesses=said,
                    learned=learned,
                    layout_version=layout_version,
                )
            )
        return recent


def _plain(entry: Entry, layout: int) -> list[Any]:
    numbers = [[each.source, each.boot, each.seq] for each in entry.numbers]
    data = pack(f"<{len(entry.readings)}d", *entry.readings)
    rest = entry.learned, entry.layout_version
    return [entry.time_ms, numbers, layout, data, dict(entry.guesses), *rest]


def _spelled(instance: InstanceId) -> str:
    return f"{instance.source}/{instance.boot}/{instance.seq}"
