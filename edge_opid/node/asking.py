"""Which instances are worth a question: those the node is unsure about, so many an hour.

A label costs somebody a look and a tap, so a node asks only as often as it was told it may. The
rule, decided from what the journal knows and nothing else:

1. The **budget** is a bucket that fills by time, up to eight questions or what an hour brings; a
   question empties it by one. So what a quiet night did not need is there in the morning.
2. **Doubt** is 1 less the margin between the two best scores of the model that is served. The
   probabilities that are published would not do: they lean on the last label, and so are surest
   where nobody has looked for a while and the model knows least. Before anything was learned
   doubt is 1.
3. A **threshold** decides which doubts are worth a question. It rises by a share with each that is,
   and falls with the time that each reading brings to the budget: so it follows what doubts are
   like, calm or noisy, and settles where they come as often as the budget allows.

After a change of sensors doubts grow by themselves, and what was saved before is spent then; to
spend more on purpose was no better (decision 38).
"""

from __future__ import annotations

from collections.abc import Sequence

HOUR_MS = 3_600_000
SAVED = 8.0  # questions that may be saved, where an hour brings fewer
START = 0.5  # the threshold of a node that has seen nothing yet
STEP = 0.3  # by which share it rises with each doubt above it
LEAST, MOST = 1e-6, 0.999  # of the threshold: the surest node asks now and then


class Asking:
    """The bucket and the threshold. Part of the durable state.

    >>> asking = Asking()
    >>> asking.decides([0.5, 0.5], now_ms=0, per_hour=1.0)
    True
    >>> asking.decides([0.5, 0.5], now_ms=60_000, per_hour=1.0)  # the budget is spent
    False
    >>> asking.decides([0.5, 0.5], now_ms=3_600_000, per_hour=1.0)
    True
    """

    def __init__(self) -> None:
        self._saved = 1.0  # questions that may be asked now
        self._threshold = START
        self._now_ms = -1

    def decides(self, scores: Sequence[float] | None, now_ms: int, per_hour: float) -> bool:
        """Whether to ask about an instance with these scores; None: nothing is known yet."""
        passed_ms = max(0, now_ms - self._now_ms) if self._now_ms >= 0 else 0
        self._now_ms = now_ms
        gained = per_hour * passed_ms / HOUR_MS
        self._saved = min(max(SAVED, per_hour), self._saved + gained)
        unsure = self._judge(doubt(scores), gained)
        if not unsure or self._saved < 1:
            return False
        self._saved -= 1
        return True

    def _judge(self, doubted: float, gained: float) -> bool:
        unsure = doubted > self._threshold
        moved = 1 + STEP if unsure else 1 - STEP * min(gained, 1.0)
        self._threshold = min(MOST, max(LEAST, self._threshold * moved))
        return unsure

    def state(self) -> list[float]:
        """Plain values, for `restored`."""
        return [self._saved, self._threshold, self._now_ms]

    @classmethod
    def restored(cls, saved: Sequence[float]) -> Asking:
        """What `state` described."""
        mine = cls()
        mine._saved, mine._threshold, now_ms = saved
        mine._now_ms = int(now_ms)
        return mine


def doubt(scores: Sequence[float] | None) -> float:
    """From 0, one class is certain, to 1, two are as likely. Scores are shares, or nearly so.

    >>> doubt([0.75, 0.25]), doubt(None)
    (0.5, 1.0)
    """
    if scores is None:
        return 1.0
    first, second = sorted(scores)[-1:-3:-1]
    return max(0.0, 1 - (first - second))
