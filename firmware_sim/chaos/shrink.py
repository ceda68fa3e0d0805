"""A shorter list of faults that still does it: delta debugging, with a bound on its patience.

Halves are left out first, then quarters, and so on down to single faults. Whatever can go without
saving the run goes. Because a fault does the same whichever others there are, most lists end with
one or two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

RUNS_MAX = 120  # at ten runs a second, as long as one is willing to look at a screen

Item = TypeVar("Item")


def shrunk(
    items: Sequence[Item], fails: Callable[[tuple[Item, ...]], bool], runs_max: int = RUNS_MAX
) -> tuple[Item, ...]:
    """The items that are needed for `fails` to stay true, as far as so many tries can tell.

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
