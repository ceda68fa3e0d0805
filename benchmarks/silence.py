"""When is a sensor dead? The rule of its own rhythm beside a fixed timeout of 60 s.

    python -m benchmarks.silence [--seeds 100 101 102 103] [--days 8] [--data FOLDER]

Homes of generated sensors speak for some days, with an outage of the whole network on each of them;
then one sensor after the other dies. For each kind of sensor: false alarms a sensor-day (it was
declared silent, and then spoke), and how long its death went unnoticed (median, worst, and in how
many cases it was never noticed within `WATCH_H` hours). The last home is the occupancy data: CO₂
each minute, light every five, temperature, humidity, light and presence when they change.

The constants of `edge_opid.node.rhythm` were chosen on seeds 0 to 3 and on the part `train` of the
occupancy data; other seeds, and the part `test2`, are what is reported.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median

import numpy as np

from benchmarks.common.command import command_line
from benchmarks.common.data import DATA
from edge_opid.node.rhythm import Rhythms

DAY_S = 86_400.0
FIXED_S = 60.0
WATCH_H = 48
Times = list[float]
Generator = Callable[[Random, float], Times]
Records = dict[str, tuple["Record", "Record"]]
"""Kind of sensor: its own rhythm, and 60 s."""


def timer(period_s: float, jitter: float = 0.0, missed: float = 0.0) -> Generator:
    """A timer with some jitter, some of whose reports are lost on the way."""

    def times(rng: Random, until_s: float) -> Times:
        at, found = rng.random() * period_s, []
        while at < until_s:
            if rng.random() >= missed:
                found.append(at + rng.random() * jitter * period_s)
            at += period_s
        return sorted(found)

    return times


def heartbeat(period_s: float, changes_s: float, missed: float = 0.0) -> Generator:
    """Speaks on change, and after so long without one."""

    def times(rng: Random, until_s: float) -> Times:
        at, found = 0.0, []
        while at < until_s:
            at += min(period_s, 10.0 + rng.expovariate(1 / changes_s))
            if rng.random() >= missed:
                found.append(at)
        return found

    return times


def _by_day(at_s: float) -> bool:
    return 7.0 <= at_s % DAY_S / 3600 < 22.5


def door(uses_an_hour: float = 1.5) -> Generator:
    """Opened and closed by people who sleep, and who are away for some days now and then."""

    def times(rng: Random, until_s: float) -> Times:
        away = {day for day in range(int(until_s // DAY_S) + 1) if rng.random() < 0.15}
        at, found = 0.0, []
        while at < until_s:
            at += rng.expovariate(uses_an_hour / 3600)
            if _by_day(at) and at // DAY_S not in away:
                found += [at, at + 2 + rng.expovariate(1 / 20)]
        return sorted(found)

    return times


def motion() -> Generator:
    """Bursts of words, minutes to hours apart, none at night."""

    def times(rng: Random, until_s: float) -> Times:
        at, found = 0.0, []
        while at < until_s:
            at += 60 * math.exp(rng.gauss(2.0, 1.3))
            if _by_day(at):
                burst = at
                for _ in range(rng.randint(2, 12)):
                    found.append(burst)
                    burst += 5 + rng.expovariate(1 / 20)
        return sorted(found)

    return times


def daylight(period_s: float = 30.0) -> Generator:
    """Speaks when the light has changed: all day long, and not at night."""

    def times(rng: Random, until_s: float) -> Times:
        at, found = 0.0, []
        while at < until_s:
            at += period_s * (0.7 + 0.9 * rng.random())
            if _by_day(at):
                found.append(at)
        return found

    return times


SECONDS = {
    "every second": timer(1.0, 0.1),
    "every second, 5 % lost": timer(1.0, 0.1, 0.05),
    "every 10 s": timer(10.0, 0.05, 0.01),
    "door": door(),
}
HOME = {
    "every minute": timer(60.0, 0.03, 0.005),
    "every 5 min, jitter": timer(300.0, 0.3, 0.02),
    "battery, 20 min": timer(1200.0, 0.02, 0.05),
    "battery, 20 min, 20 % lost": timer(1200.0, 0.02, 0.2),
    "battery, 1 h": timer(3600.0, 0.02, 0.1),
    "on change, or hourly": heartbeat(3600.0, 1500.0, 0.02),
    "on change, or after 10 min": heartbeat(600.0, 120.0, 0.02),
    "door": door(),
    "motion": motion(),
    "daylight": daylight(),
}
BATTERIES = {
    "battery, 20 min": timer(1200.0, 0.02, 0.05),
    "battery, 30 min": timer(1800.0, 0.1, 0.1),
    "battery, 1 h": timer(3600.0, 0.02, 0.1),
    "door": door(0.5),
}
HOMES = {"workshop": SECONDS, "home": HOME, "batteries": BATTERIES}


def occupancy(data: Path, part: str) -> dict[str, Times]:
    """When the sensors of a real office would have spoken."""
    saved = np.load(data / "occupancy_detection.npz", allow_pickle=False)
    at = (saved[f"t_{part}"] - saved[f"t_{part}"][0]).astype(float)
    x = dict(zip(map(str, saved["feature_names"]), saved[f"X_{part}"].T, strict=True))
    x["presence"] = saved[f"y_{part}"].astype(float)

    def changed(name: str, step: float) -> Times:
        found, said = [], math.inf
        for when, value in zip(at.tolist(), x[name].tolist(), strict=True):
            if abs(value - said) >= step:
                found.append(when)
                said = value
        return found

    return {
        "CO2 each minute": at.tolist(),
        "light every 5 min": at[::5].tolist(),
        "temperature on change": changed("Temperature", 0.1),
        "humidity on change": changed("Humidity", 0.25),
        "light on change": changed("Light", 10.0),
        "presence on change": changed("presence", 1.0),
    }


@dataclass
class Record:
    """How one rule did with one kind of sensor."""

    days: float = 0.0
    alarms: int = 0
    delays_s: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        noticed = [each for each in self.delays_s if each < math.inf]
        never = len(self.delays_s) - len(noticed)
        said = f"{_spelled(median(noticed))} / {_spelled(max(noticed))}" if noticed else "–"
        missed = f", never in {never} of {len(self.delays_s)}" if never else ""
        return f"{self.alarms / self.days:.3f} | {said}{missed}"


def _spelled(seconds: float) -> str:
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def merged(home: dict[str, Times]) -> Iterator[tuple[float, str]]:
    """What everybody says, in order."""
    return heapq.merge(*([(at, name) for at in times] for name, times in home.items()))


def without(times: Times, outages: list[tuple[float, float]]) -> Times:
    """What gets through a network that is away now and then."""
    return [at for at in times if not any(start <= at < end for start, end in outages)]


def watch(home: dict[str, Times], days: float, records: Records) -> None:
    """Everybody lives for some days, and then each sensor dies in a world of its own."""
    rhythms, latest = Rhythms(), 0.0
    heard: dict[str, float] = {}
    end_s = days * DAY_S
    stream = list(merged(home))
    living = [event for event in stream if event[0] < end_s]
    for at, name in living:
        ours, fixed = records[name]
        patience = rhythms.patience_ms(name)
        ours.alarms += bool(patience and rhythms.silence_ms(name) > patience)
        fixed.alarms += latest - heard.get(name, latest) > FIXED_S
        rhythms.hear({name}, int(1000 * at))
        heard[name] = latest = at
    saved, tail = rhythms.state(), [event for event in stream if event[0] >= end_s]
    for name in home:
        ours, fixed = records[name]
        ours.days, fixed.days = ours.days + days, fixed.days + days
        died = heard.get(name, 0.0)
        mourning = Rhythms.restored(saved)
        noticed, noticed_fixed = math.inf, math.inf
        for at, other in tail:
            if other == name:
                continue
            mourning.hear({other}, int(1000 * at))
            patience = mourning.patience_ms(name)
            if patience and mourning.silence_ms(name) > patience:
                noticed = min(noticed, at - died)
            if at - died > FIXED_S:
                noticed_fixed = min(noticed_fixed, at - died)
            if noticed < math.inf and noticed_fixed < math.inf:
                break
        ours.delays_s.append(noticed)
        fixed.delays_s.append(noticed_fixed)


def outages(rng: Random, until_s: float) -> list[tuple[float, float]]:
    """One a day, of a minute to half an hour."""
    starts = [rng.uniform(day, day + 1) * DAY_S for day in range(int(until_s // DAY_S))]
    return [(start, start + rng.uniform(60, 1800)) for start in starts]


def measure(seeds: list[int], days: float, data: Path, part: str) -> dict[str, Records]:
    """Every home, of all seeds together."""
    found: dict[str, Records] = {}
    until_s = days * DAY_S + WATCH_H * 3600
    for title, kinds in HOMES.items():
        span = min(days, 2.0) if title == "workshop" else days
        last_s = until_s - (days - span) * DAY_S
        records = found.setdefault(title, defaultdict(lambda: (Record(), Record())))
        for seed in seeds:
            rng = Random(f"{title} {seed}")
            away = outages(rng, last_s)
            home = {name: without(make(rng, last_s), away) for name, make in kinds.items()}
            watch(home, span, records)
    if (data / "occupancy_detection.npz").exists():
        title = f"occupancy data, {part}"
        records = found.setdefault(title, defaultdict(lambda: (Record(), Record())))
        home = occupancy(data, part)
        last = max(home["CO2 each minute"]) / DAY_S
        watch(home, last - WATCH_H / 24, records)
    return found


def main() -> None:
    """Print one table a home."""
    parser = command_line(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 101, 102, 103])
    parser.add_argument("--days", type=float, default=8.0)
    parser.add_argument("--part", default="test2")
    parser.add_argument("--data", type=Path, default=DATA)
    options = parser.parse_args()
    found = measure(options.seeds, options.days, options.data, options.part)
    for title, records in found.items():
        print(f"\n### {title}\n")
        print(
            "| sensor | own rhythm: alarms a day | noticed after, median / worst |"
            " 60 s: alarms a day | noticed after |"
        )
        print("|---|---|---|---|---|")
        for name, (ours, fixed) in records.items():
            print(f"| {name} | {ours} | {fixed} |")


if __name__ == "__main__":
    main()
