"""Who has been right lately: which predictor to serve, and how far to trust the past.

Every predictor guesses every instance; when the label comes, each is told whether it was right.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping

WINDOW = 100  # labelled instances that count as "lately"
PRIOR = 5  # a predictor without a record counts as this many instances at the best one's level
TRIAL = 20  # labelled instances before a new model may be judged against the old one
DOUBT = 2.0  # standard errors that make a difference worth acting on


class Scoreboard:
    """The recent accuracy of each predictor, by name.

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
        self._right: dict[str, int] = {}  # how many of them: a sum for each reading would cost more

    def record(self, guesses: Mapping[str, int], truth: int) -> None:
        """One labelled instance."""
        for name, guess in guesses.items():
            window = self._recent.setdefault(name, deque(maxlen=WINDOW))
            gone = window[0] if len(window) == WINDOW else False
            window.append(guess == truth)
            self._right[name] = self._right.get(name, 0) + (guess == truth) - gone

    def seen(self, name: str) -> int:
        """Labelled instances in the window of this predictor."""
        return len(self._recent.get(name, ()))

    def accuracy(self, name: str) -> float | None:
        """The share of recent instances this predictor had right; None without any."""
        seen = self.seen(name)
        return self._right[name] / seen if seen else None

    def accuracies(self) -> dict[str, float]:
        """Every predictor's recent accuracy."""
        return {name: self._right[name] / len(window) for name, window in self._recent.items()}

    def served(self, available: Iterable[str]) -> str:
        """The predictor that has been right most often lately; ties go to the first named.

        One without a record is taken to be as good as the best, so that a new model is served
        until its first labels speak against it.
        """
        names = list(available)
        best = max((self.accuracy(name) or 0.0 for name in names), default=0.0)

        def merit(name: str) -> float:
            return (self._right.get(name, 0) + PRIOR * best) / (self.seen(name) + PRIOR)

        return max(names, key=merit)  # max keeps the first of equals

    def replaced(self, name: str, by: str) -> None:
        """`name` takes the place and the record of `by`, which starts anew."""
        self.forget(name)
        if by in self._recent:
            self._recent[name], self._right[name] = self._recent.pop(by), self._right.pop(by)

    def forget(self, name: str) -> None:
        """A predictor is gone, or is another one from now on."""
        self._recent.pop(name, None)
        self._right.pop(name, None)

    def worse(self, new: str, old: str) -> bool:
        """Whether `new` does markedly worse than `old` over its first labelled instances.

        Judged on as many of the old one's latest instances as the new one has seen, once that
        is enough; the doubt is that of a difference of two shares.
        """
        n = self.seen(new)
        window = list(self._recent.get(old, ()))[-n:] if n else []
        if n < TRIAL or len(window) < TRIAL:
            return False
        mine, theirs = self._right[new] / n, sum(window) / len(window)
        spread = mine * (1 - mine) / n + theirs * (1 - theirs) / len(window)
        return theirs - mine > DOUBT * math.sqrt(spread) and theirs > mine

    def carry(self, own: str = "own", lately: str = "lately") -> float:
        """κ: how much of what was learned a learner for the next layout should start from.

        All of it while the long memory has been at least as right as the short one. Where
        forgetting has paid, the stream drifts and the old statistics are in the way: two standard
        errors to the short memory's favour, and nothing is carried but the weights.
        """
        mine, theirs = self.accuracy(own), self.accuracy(lately)
        n = min(self.seen(own), self.seen(lately))
        if mine is None or theirs is None or n < TRIAL:
            return 1.0
        error = math.sqrt(max(mine * (1 - mine) + theirs * (1 - theirs), 2 / WINDOW) / n)
        return min(1.0, max(0.0, 1 - (theirs - mine) / (DOUBT * error)))

    def state(self) -> dict[str, list[int]]:
        """Plain values, for `from_state`."""
        return {name: [int(right) for right in window] for name, window in self._recent.items()}

    @classmethod
    def from_state(cls, saved: Mapping[str, Iterable[int]]) -> Scoreboard:
        """The scoreboard that `state` described."""
        board = cls()
        for name, window in saved.items():
            board._recent[name] = deque(map(bool, window), maxlen=WINDOW)
            board._right[name] = sum(board._recent[name])
        return board
