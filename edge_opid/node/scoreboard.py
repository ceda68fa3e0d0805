"""Who has been right lately: which predictor to serve, and how far to trust the past.

Every predictor guesses every instance; when the label comes, each is told whether it was right.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

WINDOW = 100  # labelled instances that count as "lately"
PRIOR = 5  # a predictor without a record counts as this many instances at the best one's level
TRIAL = 20  # labelled instances before a new model may be judged against the old one
DOUBT = 2.0  # standard errors that make a difference worth acting on


class Scoreboard:
    """Windowed and long-run accuracy of each predictor, by name.

    >>> board = Scoreboard()
    >>> for truth in (0, 1, 1):
    ...     board.record({"own": 1, "bridge": 0}, truth)
    >>> board.served(["bridge", "own"])
    'own'
    >>> board.record({"own": 1, "bridge": 0, "model": 1}, 1)
    >>> board.served(["model", "bridge", "own"])  # new, and nothing against it yet
    'model'
    """

    def __init__(self) -> None:
        self._recent: dict[str, deque[bool]] = {}
        self._ever: dict[str, list[int]] = {}  # [right, all]

    def record(self, guesses: Mapping[str, int], truth: int) -> None:
        """One labelled instance."""
        for name, guess in guesses.items():
            right = guess == truth
            self._recent.setdefault(name, deque(maxlen=WINDOW)).append(right)
            ever = self._ever.setdefault(name, [0, 0])
            ever[0] += right
            ever[1] += 1

    def seen(self, name: str) -> int:
        """Labelled instances in the window of this predictor."""
        return len(self._recent.get(name, ()))

    def accuracy(self, name: str) -> float | None:
        """The share of recent instances this predictor had right; None without any."""
        window = self._recent.get(name)
        return sum(window) / len(window) if window else None

    def accuracies(self) -> dict[str, float]:
        """Every predictor's recent accuracy."""
        return {name: sum(window) / len(window) for name, window in self._recent.items() if window}

    def served(self, available: Iterable[str]) -> str:
        """The predictor that has been right most often lately; ties go to the first named.

        One without a record is taken to be as good as the best, so that a new model is served
        until its first labels speak against it.
        """
        names = list(available)
        best = max((self.accuracies().get(name, 0.0) for name in names), default=0.0)

        def merit(name: str) -> float:
            window = self._recent.get(name, ())
            return (sum(window) + PRIOR * best) / (len(window) + PRIOR)

        return max(names, key=merit)  # max keeps the first of equals

    def replaced(self, name: str, by: str) -> None:
        """`name` takes the place and the record of `by`, which starts anew."""
        self.forget(name)
        if by in self._recent:
            self._recent[name], self._ever[name] = self._recent.pop(by), self._ever.pop(by)

    def forget(self, name: str) -> None:
        """A predictor is gone, or is another one from now on."""
        self._recent.pop(name, None)
        self._ever.pop(name, None)

    def worse(self, new: str, old: str) -> bool:
        """Whether `new` does markedly worse than `old` over its first labelled instances.

        Judged on as many of the old one's latest instances as the new one has seen, once that
        is enough; the doubt is that of a difference of two shares.
        """
        n = self.seen(new)
        window = list(self._recent.get(old, ()))[-n:] if n else []
        if n < TRIAL or len(window) < TRIAL:
            return False
        mine, theirs = sum(self._recent[new]) / n, sum(window) / len(window)
        spread = mine * (1 - mine) / n + theirs * (1 - theirs) / len(window)
        return theirs - mine > DOUBT * math.sqrt(spread) and theirs > mine

    def carry(self, name: str) -> float:
        """κ: how much of what was learned a learner for the next layout should start from.

        All of it while recent accuracy holds up against the long run. When it has dropped by more
        than two standard errors the stream has drifted, and the old statistics count less: twice
        the doubt over the drop, so a drop of four standard errors carries half.
        """
        right, total = self._ever.get(name, (0, 0))
        recent = self.accuracy(name)
        if recent is None or total < 2 * WINDOW:
            return 1.0
        long_run = right / total
        error = math.sqrt(max(long_run * (1 - long_run), 1 / WINDOW) / self.seen(name))
        drop = (long_run - recent) / error
        return 1.0 if drop <= DOUBT else DOUBT / drop

    def state(self) -> dict[str, Any]:
        """Plain values, for `from_state`."""
        recent = {name: [int(right) for right in window] for name, window in self._recent.items()}
        return {"recent": recent, "ever": {name: list(ever) for name, ever in self._ever.items()}}

    @classmethod
    def from_state(cls, saved: Mapping[str, Any]) -> Scoreboard:
        """The scoreboard that `state` described."""
        board = cls()
        for name, window in saved["recent"].items():
            board._recent[name] = deque(map(bool, window), maxlen=WINDOW)
        board._ever = {name: list(ever) for name, ever in saved["ever"].items()}
        return board
