"""A week of twenty nodes with twelve sensors each, one reading a second, on simulated time.

    python -m benchmarks.week [--hours 3] [--every 0.25] [--labels 0.1] [--change-every 2]

The fleet is `firmware_sim.simulated.week`: real nodes, sources and gateway (fits included), a
sensor that dies and one that comes every two hours, a power cut or a kill every half hour,
every check of the witness on. It is one process with one thread. Each line is a stretch of
simulated time: how much
faster than real time it was, by the process's own CPU time and by the clock on the wall, the
resident memory, and what is kept of readings. `--hours 168` is the whole week.

CPU time is what one core would take if this were the only work. On a machine with other work it is
still the slower for it: hyperthreads and caches are shared. So a yardstick runs in between, a loop
of plain Python that is always the same: `loops` says how many of them a simulated minute takes,
which should not change as the week goes on, whatever else the machine does.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices: before NumPy is imported

import gc
import logging
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

from benchmarks.common.command import command_line
from benchmarks.common.verdict import verdict
from firmware_sim.simulated.week import WeekFleet, WeekPlan
from gateway.fitting.job import FitJob
from gateway.fitting.worker import Outcome, attempt

AIM = 50.0
HOUR_S = 3_600
SLICE_MS = 60_000  # of simulated time between two looks at the yardstick
SPINS = 12_000


@dataclass(frozen=True)
class Stretch:
    """A part of the week: simulated seconds, and what they took."""

    simulated_s: float
    cpu_s: float
    wall_s: float
    loop_s: float
    """CPU time of one loop of the yardstick."""

    @property
    def ratio(self) -> float:
        """Simulated time over CPU time."""
        return self.simulated_s / self.cpu_s

    @property
    def loops(self) -> float:
        """Of the yardstick, in the time that a simulated minute takes."""
        return 60 / self.ratio / self.loop_s


class TimedFits:
    """The gateway's own fits, and what they take of the time: a change has up to eight."""

    def __init__(self) -> None:
        self.count, self.cpu_s = 0, 0.0

    def __call__(self, job: FitJob, now_ms: int) -> Outcome:
        """As `gateway.fitting.worker.attempt` does."""
        began = time.process_time()
        outcome = attempt(job, now_ms)
        self.count, self.cpu_s = self.count + 1, self.cpu_s + time.process_time() - began
        return outcome


def loop_s() -> float:
    """What the yardstick takes at the moment."""
    began, table = time.process_time(), {}
    for turn in range(SPINS):
        table[turn & 255] = (turn, str(turn))
    return time.process_time() - began


def resident_mb() -> float:
    """What this process takes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise OSError("no VmRSS in /proc/self/status: this benchmark needs Linux")


def stretch(fleet: WeekFleet, until_ms: int) -> Stretch:
    """Live on until then, a slice at a time."""
    simulated_ms, cpu_s, wall_s, loops = until_ms - fleet.clock.now_ms, 0.0, 0.0, []
    while fleet.clock.now_ms < until_ms:
        cpu, wall = time.process_time(), time.perf_counter()
        fleet.clock.run_until(min(fleet.clock.now_ms + SLICE_MS, until_ms))
        cpu_s, wall_s = cpu_s + time.process_time() - cpu, wall_s + time.perf_counter() - wall
        loops.append(loop_s())
    return Stretch(simulated_ms / 1000, cpu_s, wall_s, mean(loops))


def line(fleet: WeekFleet, lived: Stretch) -> str:
    """One stretch for people."""
    kept = "/".join(str(count) for count in fleet.entries().values())
    return (
        f"{fleet.clock.now_ms / 3_600_000:7.2f} h {lived.ratio:7.1f}x"
        f"{lived.simulated_s / lived.wall_s:8.1f}x{lived.loops:8.0f}"
        f"{resident_mb():8.1f} MB  {kept}"
    )


def lived(fleet: WeekFleet, every_s: int) -> list[Stretch]:
    """The whole of it, told as it goes."""
    print("  until       CPU     wall   loops   resident  kept", flush=True)
    found: list[Stretch] = []
    end_ms = fleet.story.until_ms
    for until_ms in (*range(1000 * every_s, end_ms - 500 * every_s, 1000 * every_s), end_ms):
        found.append(stretch(fleet, until_ms))
        print(line(fleet, found[-1]), flush=True)
    return found


def summary(fleet: WeekFleet, found: list[Stretch], closing_s: float) -> list[str]:
    """The figures, with the time in which the fleet agrees and the witness looks at everything."""
    simulated = sum(each.simulated_s for each in found)
    cpu, wall = sum(each.cpu_s for each in found) + closing_s, sum(each.wall_s for each in found)
    ratios, loops = [each.ratio for each in found], [each.loops for each in found]
    readings = sum(len(s.taken) for some in fleet.witness.sources.values() for s in some.values())
    half = len(ratios) // 2 or 1
    return [
        f"{readings:,} readings in {simulated / HOUR_S:g} simulated hours; {cpu:.0f} s of CPU time,"
        f" {1e6 * cpu / readings:.0f} µs a reading; {wall:.0f} s on the wall",
        f"stretches: worst {min(ratios):.1f}x, median {median(ratios):.1f}x,"
        f" best {max(ratios):.1f}x",
        f"loops of the yardstick for a simulated minute: first half {median(loops[:half]):.0f},"
        f" second half {median(loops[-half:]):.0f}",
        f"simulated over wall time: {simulated / wall:.1f}x",
        verdict("simulated over CPU time, one core", simulated / cpu, AIM, at_least=True),
    ]


def main() -> None:
    """Live through it, and print how it went."""
    parser = command_line(__doc__)
    parser.add_argument("--hours", type=float, default=3.0, help="168 is the whole week")
    parser.add_argument("--every", type=float, default=0.25, help="hours between two lines")
    parser.add_argument("--labels", type=float, default=0.1, help="the share of readings with one")
    parser.add_argument("--change-every", type=float, default=2.0, help="hours, in the fleet")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    logging.getLogger("edge_opid").setLevel(logging.CRITICAL)  # power cuts would fill a screen
    print(f"{platform.machine()}, Python {platform.python_version()}")
    seconds, change_s = round(given.hours * HOUR_S), round(given.change_every * HOUR_S)
    plan = WeekPlan(seconds, labels=given.labels, change_every_s=change_s, seed=given.seed)
    fits = TimedFits()
    fleet = WeekFleet(plan, fits)
    gc.collect()
    gc.freeze()  # what was imported stays for good: nobody need look at it again and again
    gc.set_threshold(50_000, 20, 20)  # next to nothing here is a cycle
    began_mb = resident_mb()
    fleet.start()
    found = lived(fleet, round(given.every * HOUR_S))
    before = time.process_time()
    agreed_ms = fleet.finish()
    closing_s = time.process_time() - before
    fleet.gateway.close()
    print(f"\nno promise was broken; all agreed {agreed_ms / 1000:g} s after the last reading")
    print(f"digest {fleet.witness.digest.hex()}, {fleet.clock.events:,} events")
    print(f"kept, at the most: {', '.join(fleet.entries())}")
    print(f"{fits.count} fits of the E-stage took {fits.cpu_s:.1f} s of the CPU time")
    print(f"resident: {began_mb:.1f} MB before, {resident_mb():.1f} MB after")
    print("\n".join(summary(fleet, found, closing_s)))


if __name__ == "__main__":
    main()
