"""Values of the first readings that no sensor means: codes for "not ready" and "not connected".

A probe that has just been powered says 65535, 85 or −127 a few times, and a scale that takes those
for its range is useless for ever. They are told from a sensor's own values by two things together:

- They are **codes**: one value again and again, or one or two in all. What a sensor measures in
  another state (the light at noon, a heater that is on) has values of many kinds.
- They are **far** from the others: beyond a gap that is wider than all the others span, and several
  times the width in which half of them lie; or, where half of them are the same (a contact, rain),
  many times what they span. A contact that is 1 in a tenth of the readings spans nothing without
  its 1, and keeps it.

More than a quarter of the values is no accident, and is kept. What is set aside has no say in
reference, scale and knots, and counts as missing where these readings are learned. Later values as
far away count as ones at the gate, so that a state that looked like a code is not lost for good.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
SHARE_MAX = 0.25
GAP_HALVES = 5.0
"""In widths of the shortest interval that has half of the values."""
GAP_SPANS = 20.0
"""In spans of all other values, where half of them are the same."""
COPIES = 3
"""How often each code must have come, on the average; one or two values need not …"""
LONE_FROM = 32
"""… of so many values: with fewer, one or two may be all that was seen of another state …"""
LONE_SPANS = 1.5
"""… but may be the tail of a skewed sensor, unless they are so many spans away."""


def sensible(seen: Values) -> NDArray[np.bool_]:
    """Which of the values are the sensor's own; all of them, as a rule.

    >>> first = [65535.0, 65535, 65535, 20, 21.5, 19, 20.5, 22, 18.5, 20.2, 19.7, 21]
    >>> sensible(np.array(first)).tolist().count(False)
    3
    >>> bool(sensible(np.array([0.0, 0, 0, 1, 0, 0, 1, 0])).all())  # a contact
    True
    """
    kept = np.ones(len(seen), bool)
    for _ in range(2):  # what is wrong at one end may hide what is wrong at the other
        for sign in (1.0, -1.0):
            kept &= sign * seen <= _last(np.sort(sign * seen[kept]), len(seen) - int(kept.sum()))
    return kept


def _last(rising: Values, gone: int) -> float:
    """The largest value that is the sensor's own, where `gone` others have been set aside."""
    n, half = len(rising), _half_width(rising)
    kinds, values = _kinds_from(rising), [float(value) for value in rising]
    for place, (value, following) in enumerate(pairwise(values)):
        above = n - 1 - place
        if gone + above > SHARE_MAX * (n + gone):
            continue
        span, away = value - values[0], _spans(kinds[place + 1], above, n + gone)
        if away is None or not max(span, half) > 0:
            continue
        far = max(GAP_HALVES * half, away * span) if half > 0 else GAP_SPANS * span
        if following - value > far:
            return value
    return values[-1] if n else 0.0


def _kinds_from(rising: Values) -> list[int]:
    """Of how many kinds the values from each place on are.

    >>> _kinds_from(np.array([1.0, 1.0, 2.0, 5.0, 5.0]))
    [3, 3, 2, 1, 1]
    """
    new = np.diff(rising, append=np.inf) != 0  # the last of its kind
    return np.cumsum(new[::-1])[::-1].tolist()  # type: ignore[no-any-return]


def _half_width(rising: Values) -> float:
    """The width of the shortest interval with half of the values."""
    n = len(rising)
    count = n // 2 + 1
    return float(np.min(rising[count - 1 :] - rising[: n - count + 1])) if n > 1 else 0.0


def _spans(kinds: int, count: int, of: int) -> float | None:
    """How many spans of the others away such values are codes: fewer if each has come often.

    None where they are of too many kinds to be codes at all.
    """
    if COPIES * kinds <= count:
        return 1.0
    return LONE_SPANS if kinds <= 2 and of >= LONE_FROM else None


def described(name: str, aside: Values, of: int) -> str:
    """In a sentence: how many values, and which.

    >>> described("attic-temp", np.array([85.0, 85.0, -127.0]), 50)
    'attic-temp: 3 of its first 50 values set aside: -127, 85'
    """
    codes: list[Any] = np.unique(aside).tolist()
    some = ", ".join(f"{code:g}" for code in codes[:3]) + (" …" if len(codes) > 3 else "")
    return f"{name}: {len(aside)} of its first {of} values set aside: {some}"
