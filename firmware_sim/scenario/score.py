"""Who was right: the served predictions and the rivals', by node and reading.

The figure that counts looks at the first 100 labelled readings of each node after each change of
its sensors: how much of the way from the restarted model to the best linear one the served
predictions have come. 0 is the restarted model, 1 the best linear one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firmware_sim.scenario.rivals import BEST, RESTARTED, RIVALS
from firmware_sim.scenario.script import Script

SERVED = "edge-opid"
MODELS = (SERVED, *RIVALS)
FIRST = 100  # labelled readings after a change
UNKNOWN = -1


@dataclass(frozen=True)
class AfterChange:
    """How right everybody was in the first labelled readings after one change."""

    at: int
    words: str
    nodes: tuple[str, ...]
    accuracy: Mapping[str, float]
    readings: int


class Score:
    """Filled while a scenario is played; can be asked at any time.

    >>> from firmware_sim.scenario.scenario import load_scenario
    >>> score = Score(Script(load_scenario("one_retire"), seed=7))
    >>> score.served("n1", 0, "clean")
    >>> score.heard, score.missing > 0
    (1, True)
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self._row = {node: row for row, node in enumerate(script.nodes)}
        shape = len(script.nodes), script.scenario.readings
        self.right = {name: np.full(shape, UNKNOWN, dtype=np.int8) for name in MODELS}
        self.known = np.zeros(shape, dtype=bool)
        self.played = 0

    # --- what is said -----------------------------------------------------------------------------

    def served(self, node: str, place: int, label: str) -> None:
        """A node's prediction was heard; a copy changes nothing."""
        truth = self.script.instance(node, place).truth
        self.right[SERVED][self._row[node], place] = label == truth

    def guessed(self, place: int, guesses: Mapping[str, Mapping[str, str]]) -> None:
        """What the rivals say of the instances at this place."""
        for node, row in self._row.items():
            instance = self.script.instance(node, place)
            self.known[row, place] = instance.known
            for name, guess in guesses[node].items():
                self.right[name][row, place] = guess == instance.truth
        self.played = place + 1

    @property
    def heard(self) -> int:
        """Served predictions so far."""
        return int((self.right[SERVED] != UNKNOWN).sum())

    @property
    def missing(self) -> int:
        """Readings without a served prediction so far."""
        return self.right[SERVED].size - self.heard

    # --- how right it was -------------------------------------------------------------------------

    def lately(self, name: str, readings: int = 50) -> float:
        """The share that was right over the last readings of all nodes; NaN before the first."""
        return self.between(name, self.played - readings, self.played)

    def between(self, name: str, begin: int, end: int) -> float:
        """The share that was right from one reading to another; NaN where nobody knows."""
        part = self.right[name][:, max(0, begin) : max(0, end)]
        return _mean(part[part != UNKNOWN])

    def overall(self, name: str) -> float:
        """The share that was right from beginning to end."""
        return _mean(self.right[name][self.right[name] != UNKNOWN])

    def over_time(self, name: str, width: int) -> list[float]:
        """The share that was right in stretches of so many readings."""
        starts = range(0, self.script.scenario.readings, width)
        return [self.between(name, first, first + width) for first in starts]

    def after_changes(self) -> list[AfterChange]:
        """One entry for each moment at which something changed."""
        found = []
        for at in sorted({each.at for each in self.script.announcements}):
            mine = [each for each in self.script.announcements if each.at == at]
            words = ", ".join(dict.fromkeys(each.words for each in mine))
            nodes = tuple(dict.fromkeys(each.node for each in mine))
            accuracy = {name: self._after(name, at, nodes) for name in MODELS}
            found.append(AfterChange(at, words, nodes, accuracy, self._count(at, nodes)))
        return found

    def share_of_the_way(self) -> float:
        """From the restarted model (0) to the best linear one (1), over all changes together."""
        return share_of_the_way(self.after_changes())

    def _places(self, node: str, at: int) -> NDArray[np.int64]:
        """The first labelled readings of a node after a change; those before the next one."""
        row = self._row[node]
        later = [place for place in self.script.changes(node) if place > at]
        end = min(later, default=self.script.scenario.readings)
        known = self.known[row, at:end] & (self.right[SERVED][row, at:end] != UNKNOWN)
        return at + np.flatnonzero(known)[:FIRST]

    def _after(self, name: str, at: int, nodes: Sequence[str]) -> float:
        parts = [self.right[name][self._row[node], self._places(node, at)] for node in nodes]
        return _mean(np.concatenate(parts))

    def _count(self, at: int, nodes: Sequence[str]) -> int:
        return sum(len(self._places(node, at)) for node in nodes)


def share_of_the_way(changes: Sequence[AfterChange]) -> float:
    """Of the mean accuracies; NaN where nothing changed, or nothing was to be gained.

    >>> steps = {SERVED: 0.85, RESTARTED: 0.76, BEST: 0.86}
    >>> round(share_of_the_way([AfterChange(10, "pm25 goes", ("n1",), steps, 100)]), 2)
    0.9
    """
    served, low, high = (
        _mean(np.array([change.accuracy[name] for change in changes]))
        for name in (SERVED, RESTARTED, BEST)
    )
    return (served - low) / (high - low) if high > low else float("nan")


def _mean(values: NDArray[np.int8] | NDArray[np.float64]) -> float:
    return float(np.mean(values)) if values.size else float("nan")
