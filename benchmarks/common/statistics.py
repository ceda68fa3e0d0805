"""Means, their errors, and the paired test that decides who was better."""

from __future__ import annotations

import numpy as np
from scipy import stats

from benchmarks.common.data import Floats

LEVEL = 0.05
ROUNDING = 1e-9
"""Differences of accuracies below this are none."""


def mean_and_spread(values: Floats) -> tuple[float, float]:
    """Mean and standard deviation; no deviation from one value."""
    return float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0


def error(values: Floats) -> float:
    """One standard error of the mean."""
    return mean_and_spread(values)[1] / float(np.sqrt(max(1, len(values))))


def compared(ours: Floats, theirs: Floats) -> int:
    """1, 0 or −1: significantly better, tied or worse by the paired t-test.

    >>> compared(np.array([0.9, 0.92, 0.91]), np.array([0.8, 0.81, 0.82]))
    1
    >>> compared(np.array([0.9, 0.9]), np.array([0.9, 0.9]))
    0
    """
    difference = ours - theirs
    if len(difference) < 2 or np.abs(difference).max() < ROUNDING:
        return 0
    if np.ptp(difference) < ROUNDING:
        return int(np.sign(difference[0]))
    p = float(stats.ttest_rel(ours, theirs).pvalue)
    return int(np.sign(difference.mean())) if p < LEVEL else 0
