"""Few labels and late ones: who gets to know which label when, and what a run is judged by.

One axis for every benchmark: a share of the readings is labelled, and a label comes before the next
reading or some readings late.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.common.data import Floats, Ints

Flags = NDArray[np.bool_]
RATES = (1.0, 0.1, 0.02, 0.005)
"""The share of readings that are ever labelled."""
DELAYS = (0, 10, 100)
"""Readings after which a label comes: 0 is before the next one."""
BINS = 15
KNOWN = 200
"""Labels after which probabilities are judged."""
AFTER = 200
"""Readings after a change that are judged by themselves."""
THRESHOLDS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


@dataclass(frozen=True)
class Schedule:
    """Which readings are labelled, and after which reading each label is known."""

    labelled: NDArray[np.bool_]
    delay: int

    @classmethod
    def drawn(cls, readings: int, rate: float, delay: int, seed: int) -> Schedule:
        """Each reading is labelled with this probability; the first never is left out."""
        chosen = np.random.default_rng([seed, round(1000 * rate)]).random(readings) < rate
        chosen[0] = True
        return cls(chosen, delay)

    def due(self, place: int) -> int | None:
        """The reading whose label comes after this one was predicted."""
        earlier = place - self.delay
        return earlier if earlier >= 0 and self.labelled[earlier] else None


def calibration_error(sure: Floats, right: Flags, bins: int = BINS) -> float:
    """The expected calibration error, in bins of equal mass.

    >>> calibration_error(np.array([0.75] * 4), np.array([True, True, True, False]), bins=1)
    0.0
    """
    parts = np.array_split(np.argsort(sure, kind="stable"), bins)
    gaps = [abs(sure[p].mean() - right[p].mean()) * len(p) for p in parts if len(p)]
    return float(sum(gaps) / len(sure))


def last_labels(y: Ints, schedule: Schedule) -> tuple[Ints, Ints, Ints]:
    """Before each reading: the last label known, the most frequent one, and how many were known.

    Class 0 is said before the first.
    """
    last, most, known = (np.zeros(len(y), np.int64) for _ in range(3))
    counts = np.zeros(int(y.max()) + 1, np.int64)
    label = 0
    for place in range(len(y)):
        last[place], most[place], known[place] = label, counts.argmax(), counts.sum()
        due = schedule.due(place)
        if due is not None:
            label = int(y[due])
            counts[label] += 1
    return last, most, known


def kappa(accuracy: float, last: float) -> float:
    """κ-temporal: the share of the last label's mistakes that is avoided; below 0: added.

    >>> round(kappa(0.95, 0.9), 3)
    0.5
    """
    return (accuracy - last) / (1 - last) if last < 1 else 0.0


def coverage(sure: Floats, right: Flags) -> dict[str, list[float]]:
    """For each threshold: the share of readings as sure as that, and their accuracy."""
    found = {}
    for threshold in THRESHOLDS:
        kept = sure >= threshold
        found[str(threshold)] = [float(kept.mean()), float(right[kept].mean()) if kept.any() else 1]
    return found
