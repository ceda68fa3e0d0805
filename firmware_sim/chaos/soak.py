"""Many seeds: `python -m firmware_sim.chaos.soak --seeds 0:10000`.

One seed prints its digest. A seed that fails prints which promise was broken, a shrunk list of
faults, and the command that repeats it. `--plant NAME` takes a precaution away to see it found,
`--faults LIST` puts another list in the place of the seed's own.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import TypeVar

from firmware_sim.chaos.faults import Fault, listed, parsed
from firmware_sim.chaos.fleet import Outcome, SimFleet
from firmware_sim.chaos.planted import PLANTS, planted

SHARE = 8  # seeds that a worker takes at a time
SHOWN_MAX = 5  # failures that are shrunk and printed; the rest are counted
RUNS_MAX = 120  # of a shrinking: at ten a second, as long as one is willing to look at a screen

Item = TypeVar("Item")


def shrunk(
    items: Sequence[Item], fails: Callable[[tuple[Item, ...]], bool], runs_max: int = RUNS_MAX
) -> tuple[Item, ...]:
    """The items that are needed for `fails` to stay true, as far as so many tries can tell.

    Delta debugging: halves are left out first, then quarters, and so on down to single items.
    Whatever can go without saving the run goes. Because a fault does the same whichever others
    there are, most lists end with one or two.

    >>> shrunk([1, 2, 3, 4, 5, 6, 7, 8], lambda some: {3, 8} <= set(some))
    (3, 8)
    >>> shrunk([1, 2, 3], lambda some: True)
    ()
    """
    kept, runs = tuple(items), 0
    size = len(kept)
    while kept and size:
        before = kept
        for start in range(0, len(before), size):
            piece = before[start : start + size]
            fewer = tuple(each for each in kept if each not in piece)
            if runs < runs_max and len(fewer) < len(kept):
                runs += 1
                kept = fewer if fails(fewer) else kept
        size = size // 2 if kept == before or size > len(kept) else min(size, len(kept))
    return kept


def run_seed(seed: int, faults: Sequence[Fault] | None = None, plant: str | None = None) -> Outcome:
    """One run in this process."""
    logging.getLogger("edge_opid").setLevel(logging.CRITICAL)  # faults would fill a screen
    with planted(plant):
        return SimFleet(seed, faults).run()


def run_seeds(
    seeds: Iterable[int], workers: int = 1, plant: str | None = None
) -> Iterator[Outcome]:
    """The outcomes in the order of the seeds, from so many processes."""
    run = partial(run_seed, plant=plant)
    if workers <= 1:
        yield from map(run, seeds)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        yield from pool.map(run, seeds, chunksize=SHARE)


def shortest(outcome: Outcome, plant: str | None = None) -> tuple[Fault, ...]:
    """As few of its faults as break the same promise."""
    assert outcome.broken is not None
    promise = outcome.broken.promise

    def fails(faults: tuple[Fault, ...]) -> bool:
        broken = run_seed(outcome.seed, faults, plant).broken
        return broken is not None and broken.promise == promise

    return shrunk(outcome.faults, fails)


def command(seed: int, faults: Sequence[Fault], plant: str | None = None) -> str:
    """What to type to see it again."""
    planting = f" --plant {plant}" if plant else ""
    options = f"--seeds {seed}{planting} --faults {listed(faults)!r}"
    return f"python -m firmware_sim.chaos.soak {options}"


def told(outcome: Outcome, plant: str | None = None) -> str:
    """What a person wants to know about a run."""
    line = f"seed {outcome.seed} digest {outcome.digest}"
    if outcome.broken is None:
        return f"{line} agreed after {outcome.agreed_ms / 1000:g} s"
    few = shortest(outcome, plant)
    faults = "\n".join(f"    {fault}" for fault in few) or "    none"
    again = command(outcome.seed, few, plant)
    return (
        f"{line} FAILED\n  {outcome.broken}\n"
        f"  faults ({len(few)} of {len(outcome.faults)}):\n{faults}\n  repeat: {again}"
    )


def soak(
    seeds: range, workers: int, plant: str | None, faults: str | None, *, every: bool = False
) -> int:
    """Run them all, print what is to be said, with `every` a line for each; the exit code."""
    say = partial(print, flush=True, file=sys.stdout)
    if faults is not None:
        outcomes = iter([run_seed(seed, parsed(faults), plant) for seed in seeds])
    else:
        outcomes = run_seeds(seeds, workers, plant)
    broken: Counter[str] = Counter()
    for outcome in outcomes:
        if outcome.broken is not None:
            broken[outcome.broken.promise] += 1
        if len(seeds) == 1 or (outcome.broken and broken.total() <= SHOWN_MAX):
            say(told(outcome, plant))
        elif every:
            say(f"seed {outcome.seed} digest {outcome.digest}")
    say(f"{len(seeds)} seeds, {broken.total()} failed {dict(broken) or ''}")
    return 1 if broken else 0


def _range(text: str) -> range:
    first, _, end = text.partition(":")
    return range(int(first), int(end) if end else int(first) + 1)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="firmware_sim.chaos.soak", description=__doc__)
    parser.add_argument("--seeds", type=_range, default=range(10_000), help="first:end, or one")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--plant", choices=list(PLANTS))
    parser.add_argument("--faults", help="at:kind:target:for:detail, separated by commas")
    parser.add_argument("--digests", action="store_true", help="a line for every seed")
    given = parser.parse_args()
    return soak(given.seeds, given.workers, given.plant, given.faults, every=given.digests)


if __name__ == "__main__":
    sys.exit(main())
