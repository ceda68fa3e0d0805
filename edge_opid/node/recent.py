"""The last instances, for labels that come late.

A label names its instance by the number of any reading in it, or by a time. It is learned once: the
next one for the same instance is refused, and so is one for an instance that is not here, or not
here any more. What was learned is remembered, for whoever takes a label back. This is part of the
durable state: the same calls find the same instances.

Names of sensors repeat from instance to instance, so they are kept once: 256 instances of 75
sensors are 0.3 MB; as dicts, their values alone would be 0.9.

Anybody may send labels that fit nothing, so a look must not cost a walk along the ring: instances
are found in an index by number, and in a list sorted by time.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from struct import pack, unpack
from typing import Any, NamedTuple

from edge_opid.errors import Refusal
from edge_opid.node.scoreboard import PredictorName
from edge_opid.node.time_layer import Evidence
from edge_opid.reasons import NodeReason
from edge_opid.wire import InstanceId

SIZE = 256  # four minutes at one instance a second


class Lesson(NamedTuple):
    """A label that was learned: what it takes to take it back (see `unlearning`)."""

    label: int
    """The class; −1 for one that is gone."""
    place: int
    """The how manieth label it was."""
    generation: int
    """Of the sums it went into."""


@dataclass(slots=True, eq=False, kw_only=True)
class Entry:
    """One instance, what each predictor said of it, and its label, once that was learned.

    The values are raw. A label may come when the layout is another: `layout_version` says which
    one they were joined in.
    """

    time_ms: int
    numbers: tuple[InstanceId, ...]
    sensors: tuple[str, ...]
    readings: array[float]  # float64, one for each of `sensors`: replay needs the same bits
    guesses: dict[PredictorName, int]  # predictor → index of the class
    lesson: Lesson | None = None  # None: no label yet
    layout_version: int = 0
    ages_ms: array[int] | None = None  # how old each value was, where some were held
    newcomers: tuple[str, ...] = ()  # who spoke without having a column …
    beside: array[float] | None = None  # … and what they said
    evidence: Evidence | None = None  # what the time layer will learn from; None: nothing

    @classmethod
    def of(
        cls,
        time_ms: int,
        numbers: tuple[InstanceId, ...],
        values: Mapping[str, float],
        guesses: dict[PredictorName, int],
        layout_version: int = 0,
        ages_ms: array[int] | None = None,
        beside: Mapping[str, float] | None = None,
        evidence: Evidence | None = None,
    ) -> Entry:
        """An entry from values by sensor; `beside` are those of newcomers."""
        return cls(
            time_ms=time_ms,
            numbers=numbers,
            sensors=tuple(values),
            readings=array("d", tuple(values.values())),  # half the time of an iterator
            guesses=guesses,
            layout_version=layout_version,
            ages_ms=ages_ms,
            newcomers=tuple(beside or ()),
            beside=array("d", beside.values()) if beside else None,
            evidence=evidence,
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
    >>> entry = recent.check(first)
    >>> entry.values, entry.guesses
    ({'temp': 21.5}, {<PredictorName.OWN: 'own'>: 0})
    >>> recent.teach(entry, 0)
    >>> print(recent.check(first).reason)  # its label has been learned
    label-already-labelled
    >>> print(recent.check(time_ms=5_000, tolerance_ms=500))
    no recent instance within 500 ms of 5000
    """

    def __init__(self, size: int = SIZE) -> None:
        if size < 1:
            raise ValueError(f"size must be 1 or more, got {size}")
        self._size = size
        self._entries: deque[Entry] = deque()
        self._remembered = 0  # so far: the place of an entry among all there ever were
        self.lessons = 0
        """Labels learned so far."""
        self._by_number: dict[tuple[str, int, int], Entry] = {}  # a tuple's hash costs less
        self._by_time: list[tuple[int, int, Entry]] = []  # time, place, entry; sorted

    def __len__(self) -> int:
        return len(self._entries)

    def values(self) -> Iterator[dict[str, float]]:
        """The values of each instance by sensor, the oldest first."""
        return (entry.values for entry in self._entries)

    def remember(self, entry: Entry) -> None:
        """Keep an instance."""
        entries = self._entries
        if entries:
            last = entries[-1]
            if last.sensors == entry.sensors:
                entry.sensors = last.sensors  # one tuple for all of them
            if last.newcomers == entry.newcomers:
                entry.newcomers = last.newcomers
            if len(entries) == self._size:
                self._forget_oldest()
        entries.append(entry)
        for number in entry.numbers:
            self._by_number[number.source, number.boot, number.seq] = entry
        timed = entry.time_ms, self._remembered, entry
        if self._by_time and timed < self._by_time[-1]:
            insort(self._by_time, timed)
        else:
            self._by_time.append(timed)  # as nearly always
        self._remembered += 1

    def _forget_oldest(self) -> None:
        place = self._remembered - len(self._entries)
        entry = self._entries.popleft()
        for number in entry.numbers:
            key = number.source, number.boot, number.seq
            later = self._by_number.pop(key, None)
            if later is not None and later is not entry:  # with the same number
                self._by_number[key] = later
        oldest = self._by_time[0][2] is entry  # in time, too: as nearly always
        del self._by_time[0 if oldest else bisect_left(self._by_time, (entry.time_ms, place))]

    def with_all(self, sensors: Collection[str]) -> list[dict[str, float]]:
        """The values of the instances in which each of these has one, newcomers' values too."""
        wanted, found = set(sensors), []
        for each in self._entries:
            if wanted.issubset((*each.sensors, *each.newcomers)):
                beside = dict(zip(each.newcomers, each.beside or (), strict=True))
                found.append({**beside, **each.values})
        return found

    def answered_with_all(
        self, sensors: Collection[str], layout_version: int
    ) -> list[tuple[dict[str, float], int]]:
        """The same before this layout, while some of these were newcomers, and what was served."""
        wanted, found = set(sensors), []
        for each in self._entries:
            who = each.evidence.predictor if each.evidence else PredictorName.OWN
            overlaps = wanted.intersection(each.newcomers) and each.layout_version != layout_version
            if (
                overlaps
                and who in each.guesses
                and wanted.issubset((*each.sensors, *each.newcomers))
            ):
                beside = dict(zip(each.newcomers, each.beside or (), strict=True))
                found.append(({**beside, **each.values}, each.guesses[who]))
        return found

    def find(self, instance: InstanceId) -> Entry | None:
        """The instance to which this reading belongs; the later one if there are two."""
        return self._by_number.get((instance.source, instance.boot, instance.seq))

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
        entry, which = self.look_up(instance, time_ms, tolerance_ms)
        if entry is None:
            return Refusal(NodeReason.LABEL_UNKNOWN_INSTANCE, f"no recent instance {which}")
        if entry.lesson is not None:
            return Refusal(
                NodeReason.LABEL_ALREADY_LABELLED, f"the instance {which} already has a label"
            )
        return entry

    def teach(self, entry: Entry, label: int, generation: int = 0) -> None:
        """The label of an instance was learned, into the sums of this generation."""
        self.lessons += 1
        entry.lesson = Lesson(label, self.lessons, generation)

    def look_up(
        self, instance: InstanceId | None, time_ms: int | None, tolerance_ms: int
    ) -> tuple[Entry | None, str]:
        """The instance of this number or time, if it is here; and which one was meant, in words."""
        if instance is not None:
            return self.find(instance), f"with number {spelled(instance)}"
        if time_ms is None:
            raise ValueError("a label needs an instance or a time_ms, got neither")
        found = self.find_time(time_ms, tolerance_ms)
        return found, f"within {tolerance_ms} ms of {time_ms}"

    def between(self, from_ms: int, until_ms: int) -> list[Entry]:
        """Instances of these times, in the order of their times."""
        first = bisect_left(self._by_time, (from_ms,))
        last = bisect_left(self._by_time, (until_ms + 1,))
        return [entry for _, _, entry in self._by_time[first:last]]

    def unlearned_between(self, from_ms: int, until_ms: int) -> list[Entry]:
        """Those of them that nobody has labelled."""
        return [entry for entry in self.between(from_ms, until_ms) if entry.lesson is None]

    @property
    def begins_ms(self) -> int | None:
        """The time of the first instance that is still here."""
        return self._by_time[0][0] if self._by_time else None

    def last_labelled(self) -> list[Entry]:
        """The instance whose label was learned last, if it is here."""
        places = [(each.lesson.place, at) for at, each in enumerate(self._entries) if each.lesson]
        return [self._entries[max(places)[1]]] if places else []

    def nearest_lesson(self, time_ms: int) -> tuple[int, Evidence] | None:
        """The labelled instance nearest to a time: its class, and what was known then."""
        taught = [
            (abs(each.time_ms - time_ms), -each.lesson.place, each.lesson.label, each.evidence)
            for each in self._entries
            if each.lesson is not None and each.lesson.label >= 0 and each.evidence is not None
        ]
        if not taught:
            return None
        _, _, label, evidence = min(taught, key=lambda each: each[:2])
        return label, evidence

    def with_classes(self, sources: Sequence[int | None]) -> None:
        """Let class k be the one that was `sources[k]`; guesses of a class that is gone go, too."""
        places = {source: place for place, source in enumerate(sources)}
        for entry in self._entries:
            found = {name: places.get(guess) for name, guess in entry.guesses.items()}
            entry.guesses = {name: guess for name, guess in found.items() if guess is not None}
            entry.evidence = None
            if entry.lesson is not None:
                entry.lesson = entry.lesson._replace(label=places.get(entry.lesson.label, -1))

    def resize(self, size: int) -> None:
        """Keep this many from now on; the oldest go at once."""
        self._size = size
        while len(self._entries) > size:
            self._forget_oldest()

    def state(self) -> dict[str, Any]:
        """All entries in values that msgpack knows; each set of sensors is spelled once."""
        parts = self.parts()
        return {**parts, "entries": [made() for made in parts["entries"]]}

    def parts(self) -> dict[str, Any]:
        """The same, each entry as a function that makes it: see `NodeState.parts`."""
        used = dict.fromkeys(each.sensors for each in self._entries)  # a set that keeps its order
        layouts = {sensors: place for place, sensors in enumerate(used)}
        entries = [partial(_plain, each, layouts[each.sensors]) for each in self._entries]
        names = [list(each) for each in layouts]
        return {"sensors": names, "entries": entries, "lessons": self.lessons}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], size: int = SIZE) -> Recent:
        """The ring that `state` describes; a smaller one keeps the newest.

        >>> recent = Recent()
        >>> recent.remember(Entry.of(7, (InstanceId("a", 1, 1),), {"t": 0.1}, {}))
        >>> Recent.from_state(recent.state()).state() == recent.state()
        True
        """
        recent = cls(size)
        recent.lessons = state["lessons"]
        layouts = [tuple(each) for each in state["sensors"]]
        for time_ms, numbers, place, data, guesses, *rest in state["entries"]:
            lesson, version, ages, new, beside, seen = rest
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
                    lesson=Lesson(*lesson) if lesson else None,
                    layout_version=version,
                    ages_ms=array("I", unpack(f"<{len(ages) // 4}I", ages)) if ages else None,
                    newcomers=tuple(new),
                    beside=array("d", beside) if beside else None,
                    evidence=Evidence.restored(seen) if seen else None,
                )
            )
        return recent


def _plain(entry: Entry, layout: int) -> list[Any]:
    numbers = [[each.source, each.boot, each.seq] for each in entry.numbers]
    data = pack(f"<{len(entry.readings)}d", *entry.readings)
    ages = b"" if entry.ages_ms is None else pack(f"<{len(entry.ages_ms)}I", *entry.ages_ms)
    newcomers = list(entry.newcomers), list(entry.beside or ())
    seen = entry.evidence.plain() if entry.evidence else None
    rest = entry.lesson, entry.layout_version, ages, *newcomers, seen
    return [entry.time_ms, numbers, layout, data, dict(entry.guesses), *rest]


def spelled(instance: InstanceId) -> str:
    """A number as people write it."""
    return f"{instance.source}/{instance.boot}/{instance.seq}"
