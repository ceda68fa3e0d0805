"""Who has been right lately: which predictor to serve, and how far to trust the past.

Every predictor guesses every instance; when the label comes, each is told whether it was right.
Those on one scale, the node's own learners, are weighed by how far off they were (`Blend`).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

WINDOW = 100  # labelled instances that count as "lately"
ALL = (1 << WINDOW) - 1
TRIAL = 20  # labelled instances before a new model may be judged against the old one
DOUBT = 2.0  # standard errors that make a difference worth acting on
FADING = 0.95  # what an error counts for after each new one: twenty instances
SQUARINGS = 2  # a predictor with twice the error of the best has the weight (1/2)⁴


class PredictorName(StrEnum):
    """Who may answer, as predictions, statuses and snapshots spell it."""

    MODEL = "model"  # the weights that a gateway pushed last
    OWN = "own"  # the node's memories together
    LATELY = "lately"  # the ridge learner that forgets
    BRIDGE = "bridge"  # W^(s), from a change until the memories have caught up
    PREVIOUS = "previous"  # the pushed weights before the last
    FREQUENT = "frequent"  # the most frequent class
    LONG = "long"  # the ridge learner that remembers everything
    LOGISTIC = "logistic"  # the memory that takes small steps
    TFLITE = "tflite"  # a file from outside


PREFERENCE = (
    PredictorName.MODEL,
    PredictorName.OWN,
    PredictorName.LATELY,
    PredictorName.BRIDGE,
    PredictorName.PREVIOUS,
    PredictorName.FREQUENT,
)
"""Those that may be served; between equals, the earlier one is."""

BLENDED = (
    PredictorName.LONG,
    PredictorName.LATELY,
    PredictorName.LOGISTIC,
    PredictorName.BRIDGE,
)
"""Those whose blend is `OWN`."""


class ClassFrequency:
    """How often each class was the label: the predictor `FREQUENT`, which looks at nothing else.

    >>> frequency = ClassFrequency([0, 0])
    >>> for truth in (0, 1, 1, 1):
    ...     frequency.record(truth)
    >>> frequency.shares().tolist()
    [0.25, 0.75]
    """

    def __init__(self, counts: Iterable[int]) -> None:
        self.counts = list(counts)
        self._shares: NDArray[np.float32] | None = None  # derived, until the next label

    def record(self, truth: int) -> None:
        """One labelled instance."""
        self.counts[truth] += 1
        self._shares = None

    def take_back(self, truth: int) -> None:
        """One labelled instance was none of this class."""
        self.counts[truth] = max(0, self.counts[truth] - 1)
        self._shares = None

    @property
    def winner(self) -> int:
        """The most frequent class; of several the first."""
        return self.counts.index(max(self.counts))

    def shares(self) -> NDArray[np.float32]:
        """The share of each class, float32 of shape (c,); zeros before the first label."""
        if self._shares is None:
            total = max(1, sum(self.counts))
            self._shares = np.array(self.counts, np.float32) / np.float32(total)
        return self._shares

    def with_classes(self, sources: Sequence[int | None]) -> None:
        """Let class k be the one that was `sources[k]`, or a new one."""
        self.counts = [0 if k is None else self.counts[k] for k in sources]
        self._shares = None


class Scoreboard:
    """The recent accuracy of each predictor, by name.

    A record is a number whose bits are the last hundred instances, the latest lowest: counting
    and comparing are then one operation each, for every reading of a node.

    >>> own, bridge, model = PredictorName.OWN, PredictorName.BRIDGE, PredictorName.MODEL
    >>> board = Scoreboard()
    >>> for truth in (0, 1, 1, 1, 1, 1, 1, 1, 1):
    ...     board.record({own: 1, bridge: 0}, truth)
    >>> print(board.best([bridge, own]))
    own
    >>> board.record({own: 1, bridge: 0, model: 1}, 1)
    >>> print(board.best([model, bridge, own]))  # new, and nothing against it yet
    model
    """

    def __init__(self) -> None:
        self._recent: dict[PredictorName, int] = {}
        self._seen: dict[PredictorName, int] = {}

    def record(self, guesses: Mapping[PredictorName, int], truth: int) -> None:
        """One labelled instance."""
        recent, seen = self._recent, self._seen
        for name, guess in guesses.items():
            recent[name] = (recent.get(name, 0) << 1 | (guess == truth)) & ALL
            if seen.get(name, 0) < WINDOW:
                seen[name] = seen.get(name, 0) + 1

    def seen(self, name: PredictorName) -> int:
        """Labelled instances in the window of this predictor."""
        return self._seen.get(name, 0)

    def accuracy(self, name: PredictorName) -> float | None:
        """The share of recent instances this predictor had right; None without any."""
        seen = self.seen(name)
        return self._recent[name].bit_count() / seen if seen else None

    def accuracies(self) -> dict[PredictorName, float]:
        """Every predictor's recent accuracy."""
        return {name: bits.bit_count() / self._seen[name] for name, bits in self._recent.items()}

    def _latest(self, name: PredictorName, n: int) -> int:
        """The bits of the last n instances."""
        return self._recent.get(name, 0) & ((1 << n) - 1)

    def best(self, available: Iterable[PredictorName]) -> PredictorName:
        """The first named, unless another one has been right where it was wrong, and often enough.

        Two predictors are compared on the instances that both have seen lately and only one had
        right: by chance alone these fall to either as a coin does. A lead of two standard errors
        counts; to follow every smaller one would be to choose by chance. One without a record is
        not doubted, so that a new model is served until its first labels speak against it.
        """
        first, *others = available
        for name in others:
            if self.is_ahead(name, first):
                first = name
        return first

    def is_ahead(self, name: PredictorName, of: PredictorName) -> bool:
        """Whether `name` was right where `of` was wrong, surely more often than by chance."""
        recent, seen = self._recent, self._seen
        if name not in recent or of not in recent:
            return False
        mine = recent[name]
        only = mine ^ recent[of]  # where one of the two was right …
        if seen[name] != seen[of]:
            only &= (1 << min(seen[name], seen[of])) - 1  # … of what both have seen
        both = only.bit_count()
        lead = 2 * (only & mine).bit_count() - both  # over those that were lost
        return lead > 0 and lead > DOUBT * math.sqrt(both)

    def move(self, name: PredictorName, to: PredictorName) -> None:
        """Give the record of `name` to another one in the place of its own; `name` starts anew."""
        self.forget(to)
        if name in self._recent:
            self._recent[to], self._seen[to] = self._recent.pop(name), self._seen.pop(name)

    def forget(self, name: PredictorName) -> None:
        """A predictor is gone, or is another one from now on."""
        self._recent.pop(name, None)
        self._seen.pop(name, None)

    def is_worse(self, new: PredictorName, old: PredictorName) -> bool:
        """Whether `new` does markedly worse than `old` over its first labelled instances.

        Judged on as many of the old one's latest instances as the new one has seen, once that
        is enough; the doubt is that of a difference of two shares.
        """
        n = self.seen(new)
        m = min(n, self.seen(old))
        if m < TRIAL:
            return False
        mine, theirs = self._latest(new, n).bit_count() / n, self._latest(old, m).bit_count() / m
        spread = mine * (1 - mine) / n + theirs * (1 - theirs) / m
        return theirs - mine > DOUBT * math.sqrt(spread) and theirs > mine

    def carry(self) -> float:
        """κ: how much of what was learned a learner for the next layout should start from.

        All of it while the long memory has been at least as right as the short one. Where
        forgetting has paid, the stream drifts and the old statistics are in the way: two standard
        errors to the short memory's favour, and nothing is carried but the weights.
        """
        long, lately = PredictorName.LONG, PredictorName.LATELY
        mine, theirs = self.accuracy(long), self.accuracy(lately)
        n = min(self.seen(long), self.seen(lately))
        if mine is None or theirs is None or n < TRIAL:
            return 1.0
        error = math.sqrt(max(mine * (1 - mine) + theirs * (1 - theirs), 2 / WINDOW) / n)
        return min(1.0, max(0.0, 1 - (theirs - mine) / (DOUBT * error)))

    def state(self) -> dict[str, list[int]]:
        """Plain values, for `from_state`."""
        return {
            name: [bits >> place & 1 for place in reversed(range(self._seen[name]))]
            for name, bits in self._recent.items()
        }

    @classmethod
    def from_state(cls, saved: Mapping[str, Iterable[int]]) -> Scoreboard:
        """The scoreboard that `state` described."""
        board = cls()
        for name, window in saved.items():
            for right in window:
                board.record({PredictorName(name): 1}, int(right))
        return board


class Blend:
    """One answer of several predictors that score alike, the better ones of late counting more.

    To choose the best of a few nearly equal ones by their last hundred hits is to choose by chance,
    and costs about a point; their mean is as good as the best of them, or better. A weight is the
    fourth power of the best one's squared error over one's own: where the world drifts, the
    learner that lags behind soon counts for nothing.

    Where readings follow each other in the order of time (`ordered`) it is the first power. There
    an error says less: when a label is learned its neighbours just have been, which flatters the
    learner that forgets, and the fewer or later the labels are, the older is what they judge.

    >>> blend = Blend()
    >>> long, lately = PredictorName.LONG, PredictorName.LATELY
    >>> scores = {long: np.array([0.2, 0.8]), lately: np.array([0.6, 0.4])}
    >>> print(blend.of(scores).round(3))  # no record yet: the mean
    [0.4 0.6]
    >>> blend.record(scores, 1)
    >>> print(blend.of(scores).round(3))
    [0.2 0.8]
    """

    def __init__(self) -> None:
        self.errors = array("d", bytes(2 * 8 * len(BLENDED)))
        """Faded sums, a pair for each of `BLENDED`: squared errors, and how many. The C file has
        the same order (native/memories.h)."""

    def record(self, scores: Mapping[PredictorName, NDArray[Any]], truth: int) -> None:
        """What each said of an instance, now that its class is known."""
        for name, said in scores.items():
            total, count = self._of(name)
            off = 0.0  # in this order, and not by `sum`: the state is the same bits everywhere
            for k, score in enumerate(said.tolist()):
                off += (score - (k == truth)) * (score - (k == truth))
            self._keep(name, FADING * total + off, FADING * count + 1)

    def of(
        self, scores: Mapping[PredictorName, NDArray[Any]], *, ordered: bool = False
    ) -> NDArray[np.float32]:
        """The weighted mean; one without a record counts as much as the best."""
        records = {name: self._of(name) for name in scores}
        means = {name: total / count for name, (total, count) in records.items() if count}
        best = max(min(means.values(), default=1.0), 1e-9)
        total, blended = 0.0, np.zeros(len(next(iter(scores.values()))))
        for name, said in scores.items():
            weight = best / max(means.get(name, best), best)
            # Not `**`, whose last bit differs between C libraries.
            for _ in range(0 if ordered else SQUARINGS):
                weight *= weight
            total += weight
            blended += weight * said.astype(np.float64)
        return (blended / total).astype(np.float32)

    def forget(self, name: PredictorName) -> None:
        """A predictor is another one from now on."""
        self._keep(name, 0.0, 0.0)

    def _of(self, name: PredictorName) -> tuple[float, float]:
        place = 2 * BLENDED.index(name)
        return self.errors[place], self.errors[place + 1]

    def _keep(self, name: PredictorName, total: float, count: float) -> None:
        place = 2 * BLENDED.index(name)
        self.errors[place], self.errors[place + 1] = total, count

    def state(self) -> dict[str, list[float]]:
        """Plain values, for `from_state`."""
        return {name: list(self._of(name)) for name in BLENDED if self._of(name)[1]}

    @classmethod
    def from_state(cls, saved: Mapping[str, Iterable[float]]) -> Blend:
        """The blend that `state` described."""
        blend = cls()
        for name, (total, count) in saved.items():
            blend._keep(PredictorName(name), total, count)
        return blend
