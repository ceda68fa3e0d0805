"""How well a fleet survives its changes: a scenario on simulated time, seed by seed.

In the first 100 labelled readings of each node after each change: how right the served predictions
were, the three models beside them (`firmware_sim.scenario.rivals`), the share of the way from the
one that starts over to the one that keeps all readings, and how many points ours is ahead of the
one that fills with zeros, change by change.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices: before NumPy is imported

import logging
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from statistics import mean, stdev

from benchmarks.common.command import command_line
from firmware_sim.scenario.rivals import ZERO_FILLING
from firmware_sim.scenario.scenario import load_scenario
from firmware_sim.scenario.score import MODELS, SERVED, AfterChange, share_of_the_way
from firmware_sim.simulated.scenario_fleet import play


def changes_of(seed: int, name: str) -> list[AfterChange]:
    """What one seed gives; a broken promise is no figure but an error."""
    logging.getLogger("edge_opid").setLevel(logging.CRITICAL)
    played = play(load_scenario(name), seed)
    if played.outcome.broken is not None:
        raise played.outcome.broken
    return played.score.after_changes()


def line(title: str, changes: Sequence[AfterChange]) -> str:
    """The mean accuracies, and the share of the way between them."""
    means = (mean(change.accuracy[model] for change in changes) for model in MODELS)
    figures = "".join(f"{each:20.3f}" for each in means)
    return f"{title:28} {figures}{share_of_the_way(changes):9.2f}"


def ahead(changes: Sequence[AfterChange]) -> list[float]:
    """Points that ours is ahead of the one that fills with zeros, change by change."""
    return [100 * (each.accuracy[SERVED] - each.accuracy[ZERO_FILLING]) for each in changes]


def main() -> None:
    """The command line."""
    parser = command_line(__doc__)
    parser.add_argument("--scenario", default="rolling_replacement")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    print(f"{'':28} {''.join(f'{each:>20}' for each in MODELS)}    share", flush=True)
    found: list[list[AfterChange]] = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(given.workers, mp_context=context) as pool:
        run = partial(changes_of, name=given.scenario)
        seeds = range(given.first, given.first + given.seeds)
        for seed, changes in zip(seeds, pool.map(run, seeds), strict=True):
            found.append(changes)
            points = " ".join(f"{each:+5.1f}" for each in ahead(changes))
            print(f"{line(f'seed {seed}', changes)}   ahead {points}", flush=True)
    for same in zip(*found, strict=True):
        print(line(same[0].words, same))
    every = [change for changes in found for change in changes]
    print(line("all", every))
    shares = [share_of_the_way(changes) for changes in found]
    spread = stdev(shares) if len(shares) > 1 else 0.0
    print(f"share of the way: mean over seeds {mean(shares):.3f}, standard deviation {spread:.3f}")


if __name__ == "__main__":
    main()
