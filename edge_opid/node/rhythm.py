"""How often each sensor speaks: learned from its own gaps, so that nobody has to say it.

A sensor that speaks by a timer has a rhythm; a door, which speaks when it is opened, has none. The
gaps between a sensor's words are counted by size, in steps of a fifth or so. Its **rhythm** is the
longest size at which they end as at a wall: that long is common, and what is longer is the
exception. Shorter gaps do not matter (many devices report changes between two heartbeats), longer
ones are reports that were missed. A size beyond six hours is a habit of people, not a timer.

From the rhythm follows the **patience**: how long a silence has to be before it means something.
The rule, in the order of the code:

1. at least `SEEN_MIN` gaps are of that size, and at least half of all that are as long or longer;
2. so many periods that gaps as long would be seen once in `DAYS` days, if reports are missed one by
   one as often as they were;
3. at least `BEYOND` times the longest gap that is remembered, and at least `PATIENCE_MIN_MS`.

Without a rhythm there is no patience: nobody is declared dead by a guess.

Time is **listening time**. When nobody speaks, it is the network or the night and no sensor's
fault: then the clock waits, after eight times what it usually takes until somebody speaks. Gaps
are remembered for three or four days of a fast sensor, a slow one's for its last few hundred.

Whole numbers, comparisons and products of floats: the same calls give the same bits everywhere.
Sensors that have always spoken together share one record, so that a reading of 74 sensors costs
what one of a single sensor does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

WEIGHT = 8  # of a gap when it comes; halved thrice it is 1, and once more it is forgotten
HALVE_FROM = 256  # gaps: fewer than this many say too little to forget any
HALVE_AFTER_MS = 86_400_000  # of gaps in sum: a day has its night
REVIEW_EVERY = 16  # gaps between two looks at the rule

SEEN_MIN = 20
WALL_SHARE = 0.5
PERIOD_MAX_MS = 6 * 3_600_000
DAYS = 100.0
BEYOND = 2
PATIENCE_MIN_MS = 20_000
DAY_MS = 86_400_000.0

USUAL_FIRST_MS = 7_500  # until it is known how often somebody speaks: wait for a minute at most
WAIT_MIN_MS = 1_000
WAIT_TIMES = 8


def size_of(gap_ms: int) -> int:
    """The size of a gap in quarters of an octave, counted without logarithms.

    >>> [size_of(gap) for gap in (0, 8, 9, 10, 16, 60_000)]
    [8, 8, 8, 9, 12, 59]
    >>> [longest_of(size) for size in (8, 9, 59)]
    [9, 11, 65535]
    """
    gap = max(8, gap_ms)
    octave = gap.bit_length() - 1
    return 4 * (octave - 1) + (gap >> (octave - 2) & 3)


def longest_of(size: int) -> int:
    """The longest gap of this size."""
    octave, quarter = size // 4 + 1, size % 4
    return ((5 + quarter) << (octave - 2)) - 1


@dataclass(slots=True, eq=False, kw_only=True)
class Rhythm:
    """The gaps of one sensor, or of several that always spoke together."""

    sensors: set[str]
    heard_at: int
    """When it spoke last, in listening time."""
    counts: dict[int, int] = field(default_factory=dict)
    """Size of a gap: `WEIGHT` for each, fading."""
    gaps: int = 0
    span_ms: int = 0
    """The sum of the gaps since the counts were halved."""
    patience_ms: int = 0
    """0: it has no rhythm, or too little of it was heard."""

    def beat(self, now: int) -> None:
        """It spoke."""
        gap, self.heard_at = now - self.heard_at, now
        octave = (gap if gap > 8 else 8).bit_length() - 1  # `size_of`, in place: a reading's path
        size = 4 * (octave - 1) + ((gap if gap > 8 else 8) >> (octave - 2) & 3)
        counts = self.counts
        counts[size] = counts.get(size, 0) + WEIGHT
        self.gaps += 1
        self.span_ms += gap
        if not self.gaps % REVIEW_EVERY:
            self._review()

    def _review(self) -> None:
        if self.span_ms >= HALVE_AFTER_MS and self.gaps >= HALVE_FROM:
            halved = ((size, count // 2) for size, count in self.counts.items())
            self.counts = {size: count for size, count in halved if count}
            self.gaps, self.span_ms = self.gaps // 2 // REVIEW_EVERY * REVIEW_EVERY, 0
        self.patience_ms = patience_of(self.counts)

    def split(self, sensors: set[str]) -> Rhythm:
        """These spoke without the others: from now on they have a rhythm of their own."""
        self.sensors -= sensors
        return Rhythm(
            sensors=sensors,
            heard_at=self.heard_at,
            counts=dict(self.counts),
            gaps=self.gaps,
            span_ms=self.span_ms,
            patience_ms=self.patience_ms,
        )


def patience_of(counts: Mapping[int, int]) -> int:
    """How long a silence has to be before it means something, in ms; 0 where there is no rhythm.

    >>> patience_of({size_of(60_000): 50 * WEIGHT})  # a minute, never missed
    262140
    >>> patience_of({size: 5 * WEIGHT for size in range(40, 100)})  # a door: gaps of every size
    0
    """
    wall = _wall(counts)
    if wall is None:
        return 0
    near, beyond = wall[1] / WEIGHT, wall[2] / WEIGHT
    period_ms = longest_of(wall[0])
    missed = (beyond + 1.0) / (near + beyond + 2.0)
    periods, expected = 1, DAYS * (DAY_MS / period_ms) * missed
    while expected > 1.0 and periods < 64:
        periods, expected = periods + 1, expected * missed
    longest = longest_of(max(counts))
    return max(PATIENCE_MIN_MS, (1 + periods) * period_ms, BEYOND * longest)


def _wall(counts: Mapping[int, int]) -> tuple[int, int, int] | None:
    """The longest size at which gaps end: with how many of it, and how many beyond."""
    beyond = 0
    for size in sorted(counts, reverse=True):
        near = counts[size] + counts.get(size - 1, 0)
        enough = near >= SEEN_MIN * WEIGHT and near >= WALL_SHARE * (near + beyond)
        if enough and longest_of(size) <= PERIOD_MAX_MS:
            return size, near, beyond
        beyond += counts[size]
    return None


class Rhythms:
    """The rhythm of every sensor of a node. Part of the durable state.

    >>> rhythms = Rhythms()
    >>> for minute in range(40):
    ...     rhythms.hear({"temp", "co2"}, 60_000 * minute)
    >>> rhythms.patience_ms("co2"), rhythms.silence_ms("co2")
    (327675, 0)
    >>> for minute in range(40, 45):
    ...     rhythms.hear({"temp"}, 60_000 * minute)
    >>> rhythms.silence_ms("co2")
    300000
    """

    def __init__(self) -> None:
        self._of: dict[str, Rhythm] = {}
        self._time = 0  # listening time
        self._spoke_ms: int | None = None  # when anybody spoke last, by the node's clock
        self._usual16_ms = 16 * USUAL_FIRST_MS  # until somebody speaks; sixteen times the mean

    def hear(self, sensors: set[str] | Mapping[str, Any], now_ms: int) -> None:
        """These sensors have spoken together."""
        if not sensors:
            return
        self._listen(now_ms)
        rhythm = self._of.get(next(iter(sensors)))
        names = sensors if isinstance(sensors, set) else sensors.keys()
        if rhythm is not None and names == rhythm.sensors:
            rhythm.beat(self._time)
        else:
            self._hear_apart(set(names))

    def _hear_apart(self, names: set[str]) -> None:
        new = {name for name in names if name not in self._of}
        known = {id(self._of[name]): self._of[name] for name in names - new}
        for rhythm in known.values():
            speakers = rhythm.sensors & names
            if speakers != rhythm.sensors:
                rhythm = rhythm.split(speakers)  # noqa: PLW2901 - it takes the place of the other
                self._of.update(dict.fromkeys(speakers, rhythm))
            rhythm.beat(self._time)
        if new:
            self._of.update(dict.fromkeys(new, Rhythm(sensors=new, heard_at=self._time)))

    def _listen(self, now_ms: int) -> None:
        """Let listening time pass: not while the clock was set back, and not for ever."""
        passed_ms = 0
        if self._spoke_ms is not None and now_ms > self._spoke_ms:
            longest_ms = max(WAIT_MIN_MS, WAIT_TIMES * self._usual16_ms // 16)
            passed_ms = min(now_ms - self._spoke_ms, longest_ms)
        self._spoke_ms, self._time = now_ms, self._time + passed_ms
        self._usual16_ms += passed_ms - self._usual16_ms // 16

    def patience_ms(self, sensor: str) -> int:
        """How long this sensor may be silent; 0 if nobody knows."""
        rhythm = self._of.get(sensor)
        return 0 if rhythm is None else rhythm.patience_ms

    def silence_ms(self, sensor: str) -> int:
        """How long it has been silent while others spoke, in listening time."""
        rhythm = self._of.get(sensor)
        return 0 if rhythm is None else self._time - rhythm.heard_at

    def keep(self, sensors: Iterable[str]) -> None:
        """Another layout: forget the rhythms of those that are gone."""
        kept = set(sensors)
        self._of = {sensor: rhythm for sensor, rhythm in self._of.items() if sensor in kept}
        for rhythm in self._of.values():
            rhythm.sensors &= kept

    def state(self) -> dict[str, Any]:
        """Plain values, for `restored`."""
        each = {min(rhythm.sensors): rhythm for rhythm in self._of.values()}
        rhythms = [
            [
                sorted(rhythm.sensors),
                rhythm.heard_at,
                sorted(rhythm.counts.items()),
                [rhythm.gaps, rhythm.span_ms, rhythm.patience_ms],
            ]
            for _, rhythm in sorted(each.items())
        ]
        return {"rhythms": rhythms, "clock": [self._time, self._spoke_ms, self._usual16_ms]}

    @classmethod
    def restored(cls, saved: Mapping[str, Any]) -> Self:
        """The rhythms that `state` described."""
        mine = cls()
        for sensors, heard_at, counts, (gaps, span_ms, patience_ms) in saved["rhythms"]:
            rhythm = Rhythm(
                sensors=set(sensors),
                heard_at=heard_at,
                counts=dict(counts),
                gaps=gaps,
                span_ms=span_ms,
                patience_ms=patience_ms,
            )
            mine._of.update(dict.fromkeys(sensors, rhythm))
        mine._time, mine._spoke_ms, mine._usual16_ms = saved["clock"]
        return mine
