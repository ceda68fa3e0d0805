"""How sure a classifier is: probabilities instead of scores."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_opid.node.logistic import Vector, likely


class Sharpness:
    """Makes probabilities of scores: softmax(t·scores), with t learned from how right they were.

    Least squares scores lie between 0 and 1, and say which class, but not how surely. One number
    for all classes, moved by every label down the gradient of the log-loss, says the latter.

    >>> sharpness = Sharpness()
    >>> scores = np.array([0.7, 0.3])
    >>> for _ in range(100):
    ...     sharpness.learn(scores, 0)
    >>> print(sharpness.probabilities(scores).round(2))
    [0.97 0.03]
    """

    def __init__(self, t: float = 4.0, squares: float = 0.0) -> None:
        self._t, self._squares = t, squares

    def probabilities(self, scores: NDArray[Any]) -> Vector:
        """A probability for each class."""
        return likely(self._t * scores.astype(np.float64))

    def learn(self, scores: NDArray[Any], number: int) -> None:
        """Move t by what the scores said of a reading whose class is now known."""
        slope = float(scores[number] - self.probabilities(scores) @ scores)
        self._squares += slope * slope
        self._t = min(50.0, max(1.0, self._t + 2 * slope / math.sqrt(1 + self._squares)))

    def state(self) -> list[float]:
        """The arguments that make it anew."""
        return [self._t, self._squares]
