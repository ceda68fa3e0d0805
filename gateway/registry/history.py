"""What was, for whoever looks later: accuracy and counts by the minute, and sensors' lives. No I/O.

A node says how it is twice a minute. The first status of each minute becomes one sample: how
accurate it was on its last labels (`best_accuracy`), and how many readings, learned labels and
refusals came since the last sample. The samples of an hour are one record, which is packed: sixty
places for four numbers are 480 bytes, and a fraction of that compressed. After `MINUTES_KEPT_H`
hours a store keeps only the hour's mean and sums.

A sensor's life is a record for every change of its state.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar, NamedTuple

from edge_opid.node.scoreboard import PredictorName
from edge_opid.reasons import TABLES, NodeReason
from edge_opid.wire import Status
from gateway.registry.lifecycle import SensorState

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
MINUTES_KEPT_H = 90 * 24
HOURS_KEPT_H = 2 * 365 * 24
NodeKey = tuple[str, str]
LIVES_KEPT = 1_000
"""Events of one node's sensors: one that comes and goes all day must not fill a disk."""
UNKNOWN = 0xFFFF
MOST = UNKNOWN - 1
SCALE = 10_000
"""Accuracy is kept to a hundredth of a per cent."""
_PLACES = struct.Struct("<240H")
_NOTED = struct.Struct("<I4H")  # a minute since 1970, and its sample
REFUSING = frozenset(
    reason.value
    for table in TABLES
    for reason in table
    if any(word in reason.event for word in ("refused", "ignored", "dropped"))
)
"""The counters of a node that count what it did not take."""


class Sample(NamedTuple):
    """One minute of one node. No accuracy: it has no label yet."""

    accuracy: float | None
    readings: int
    learned: int
    refused: int


class Counted(NamedTuple):
    """How far the counters of a node's process had come at the last sample."""

    readings: int
    learned: int
    refused: int

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> Counted:
        """From a status."""
        refused = sum(count for name, count in counts.items() if name in REFUSING)
        return cls(counts.get(NodeReason.READINGS, 0), counts.get(NodeReason.LEARNED, 0), refused)

    def since(self, before: Counted) -> tuple[int, int, int]:
        """What came since; a process that began anew has counted from nothing.

        >>> Counted(10, 2, 0).since(Counted(7, 2, 0)), Counted(4, 0, 0).since(Counted(7, 2, 0))
        ((3, 0, 0), (4, 0, 0))
        """
        if self.readings < before.readings:
            return self.readings, self.learned, self.refused
        return (
            self.readings - before.readings,
            max(0, self.learned - before.learned),
            max(0, self.refused - before.refused),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HourRecord:
    """One hour of a node: the mean of its accuracy, and sums."""

    KEY: ClassVar[tuple[str, ...]] = ("site", "node", "hour")
    site: str
    node: str
    hour: int
    """Hours since 1970."""
    accuracy: float | None = None
    readings: int = 0
    learned: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MinutesRecord(HourRecord):
    """One hour of a node, by the minute; the mean and the sums stand beside it."""

    minutes: bytes = b""

    def with_sample(self, minute: int, sample: Sample) -> MinutesRecord:
        """The record with this minute of the hour, 0 to 59.

        >>> hour = MinutesRecord(site="s", node="n", hour=0)
        >>> hour = hour.with_sample(3, Sample(0.75, 60, 2, 0)).with_sample(4, Sample(0.25, 5, 0, 1))
        >>> hour.accuracy, hour.readings, hour.refused, dict(hour.samples())[3]
        (0.5, 65, 1, Sample(accuracy=0.75, readings=60, learned=2, refused=0))
        """
        return self.with_numbers([(minute, _numbers(sample))])

    def with_numbers(self, samples: Iterable[tuple[int, Sequence[int]]]) -> MinutesRecord:
        """The record with these minutes of the hour, each four numbers as they are packed."""
        places = self._places()
        for minute, numbers in samples:
            places[minute::60] = numbers
        known, *counts = (
            [each for each in places[60 * n : 60 * n + 60] if each != UNKNOWN] for n in range(4)
        )
        readings, learned, refused = map(sum, counts)
        return replace(
            self,
            accuracy=sum(known) / len(known) / SCALE if known else None,
            readings=readings,
            learned=learned,
            refused=refused,
            minutes=zlib.compress(_PLACES.pack(*places), 6),
        )

    def samples(self) -> Iterator[tuple[int, Sample]]:
        """The minutes that there are, with their place in the hour."""
        places = self._places()
        for minute in range(60):
            accuracy, readings, learned, refused = places[minute::60]
            if readings != UNKNOWN:
                known = None if accuracy == UNKNOWN else accuracy / SCALE
                yield minute, Sample(known, readings, learned, refused)

    def _places(self) -> list[int]:
        if not self.minutes:
            return [UNKNOWN] * 240
        return list(_PLACES.unpack(zlib.decompress(self.minutes, bufsize=_PLACES.size)))

    def whole(self) -> HourRecord:
        """What is kept of it for long."""
        return HourRecord(**{each.name: getattr(self, each.name) for each in fields(HourRecord)})


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeRecord:
    """A sensor came into a state."""

    KEY: ClassVar[tuple[str, ...]] = ("site", "node", "sensor", "at_ms", "state")
    site: str
    node: str
    sensor: str
    at_ms: int
    state: SensorState
    role: str
    replaces: str | None = None
    reason: str = ""


def best_accuracy(accuracy: Mapping[str, float]) -> float | None:
    """That of the pushed model or the node's own answer, whichever is better; None before a label.

    A status does not say which predictor was served; it is nearly always one of these two. Others,
    as `previous`, may have been right nine times of ten labels and never served.

    >>> best_accuracy({"own": 0.8, "model": 0.9, "previous": 0.95}), best_accuracy({})
    (0.9, None)
    """
    usual = PredictorName.MODEL, PredictorName.OWN
    return max((accuracy[name] for name in usual if name in accuracy), default=None)


def _numbers(sample: Sample) -> tuple[int, int, int, int]:
    """A sample as four numbers of 16 bits."""
    accuracy = UNKNOWN if sample.accuracy is None else round(SCALE * sample.accuracy)
    readings, learned, refused = (min(each, MOST) for each in sample[1:])
    return accuracy, readings, learned, refused


class Chronicle:
    """The samples of every node that are in no record yet; of the life of one gateway.

    Packing and saving a sample takes as long as all else that a status causes. So it waits, in a
    dozen bytes, until its node is written down anyway (`registry.heard`).
    """

    def __init__(self, hours: Mapping[NodeKey, MinutesRecord]) -> None:
        self._hours = dict(hours)
        self._counted: dict[NodeKey, Counted] = {}
        self._minute: dict[NodeKey, int] = {}
        self._noted: dict[NodeKey, bytes] = {}

    def note(self, key: NodeKey, status: Status, now_ms: int) -> None:
        """Take a sample, unless this minute has one."""
        minute = now_ms // MINUTE_MS
        if self._minute.get(key) == minute:
            return
        self._minute[key] = minute
        counted = Counted.of(status.counts)
        came = counted.since(self._counted.get(key, counted))
        self._counted[key] = counted
        numbers = _numbers(Sample(best_accuracy(status.accuracy), *came))
        self._noted[key] = self._noted.get(key, b"") + _NOTED.pack(minute % 2**32, *numbers)

    def take(self, key: NodeKey) -> list[MinutesRecord]:
        """The hours of a node that have samples more than before."""
        hours: dict[int, list[tuple[int, Sequence[int]]]] = {}
        for at, *numbers in _NOTED.iter_unpack(self._noted.pop(key, b"")):
            hour, minute = divmod(at, 60)
            hours.setdefault(hour, []).append((minute, numbers))
        return [self._record(key, hour, samples) for hour, samples in sorted(hours.items())]

    def _record(
        self, key: NodeKey, hour: int, samples: Iterable[tuple[int, Sequence[int]]]
    ) -> MinutesRecord:
        record = self._hours.get(key)
        if record is None or record.hour != hour:
            record = MinutesRecord(site=key[0], node=key[1], hour=hour)
        self._hours[key] = record = record.with_numbers(samples)
        return record

    def forget(self, key: NodeKey) -> None:
        """Nothing was ever heard of this node."""
        for each in (self._hours, self._counted, self._minute, self._noted):
            each.pop(key, None)
