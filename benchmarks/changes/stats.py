"""From counts of right readings to accuracies, paired tests and verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.changes.cells import FIRST, StreamResults
from benchmarks.changes.peers import ANEW, DOUBLE, LIFTED, LINEAR, RIVALS, product
from benchmarks.common.data import Floats
from benchmarks.common.statistics import compared

ALL = "all"
WINDOWS = (*map(str, FIRST), ALL)
JUDGED = ("100", ALL)
"""The windows in which the node had to be first or tied for first."""
SIMPLE = ("restart", "zero-fill")
OPPONENTS = (*SIMPLE, *RIVALS)
"""Everyone the node is measured against; the oracle knows what nobody can."""


def accuracy(results: StreamResults, method: str, seed: int, window: str) -> float:
    """The share of readings that were right: of all, or of the first so many after each change."""
    counts = results.runs[method][seed][window]
    return sum(counts) / (len(counts) * (results.length if window == ALL else int(window)))


def seeds_of(results: StreamResults, methods: Sequence[str]) -> list[int]:
    """The seeds that all of these have been run with."""
    own = [set(results.runs.get(method, {})) for method in methods]
    return sorted(set.intersection(*own)) if own else []


def column(results: StreamResults, method: str, seeds: Sequence[int], window: str) -> Floats:
    """The accuracies of one method, seed by seed."""
    return np.array([accuracy(results, method, seed, window) for seed in seeds])


def best_mode(results: StreamResults, opponent: str, window: str) -> str:
    """Going on through the changes or starting anew: what suits the opponent here.

    Chosen by the very figure that is reported, so that a peer loses nothing by the choice.
    """
    modes = [mode for mode in (opponent, opponent + ANEW) if mode in results.runs]
    seeds = seeds_of(results, modes)
    if len(modes) < 2 or not seeds:
        return modes[0] if modes else opponent
    return max(modes, key=lambda mode: column(results, mode, seeds, window).mean())


@dataclass(frozen=True)
class Duel:
    """The node against one opponent on one stream."""

    method: str
    """The opponent, in the mode that suits it."""
    seeds: int
    ours: float
    theirs: float
    mark: int
    """1, 0, −1: better, tied or worse by the paired t-test."""


def duels(results: StreamResults, window: str) -> list[Duel]:
    """Against everyone who has been measured here."""
    ours, found = product(results.stream), []
    for opponent in OPPONENTS:
        method = best_mode(results, opponent, window)
        seeds = seeds_of(results, [ours, method])
        if not seeds:
            continue
        mine, theirs = (column(results, each, seeds, window) for each in (ours, method))
        mark = compared(mine, theirs)
        found.append(Duel(method, len(seeds), float(mine.mean()), float(theirs.mean()), mark))
    return found


def precision(results: StreamResults) -> list[tuple[str, int, float, float]]:
    """Form, seeds, accuracy in float32, and float32 less float64, over the whole stream."""
    found = []
    for form in (LINEAR, LIFTED):
        seeds = seeds_of(results, [form, form + DOUBLE])
        if not seeds:
            continue
        single, double = (column(results, each, seeds, ALL) for each in (form, form + DOUBLE))
        difference = float((single - double).mean())
        found.append((form, len(seeds), float(single.mean()), difference))
    return found


def stage_accuracies(results: StreamResults, method: str) -> Floats:
    """Stage by stage, the mean over the seeds."""
    counts = [found[ALL] for found in results.runs[method].values()]
    return np.asarray(np.mean(counts, axis=0) / results.length)
