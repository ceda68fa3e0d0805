"""A third memory of a node: logistic regression on the sensors' values themselves, in small steps.

The two ridge learners solve for all columns at once. That is exact, and with hats it bends; but
early on, with few labels for many columns, a straight line through each sensor, learned in careful
steps, is often the better answer, and it errs elsewhere. In the blend each makes up for the other
(docs/decisions/0014). Beside it, `Sharpness`: the same loss with one weight, which turns any scores
into probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_opid.layout import Layout

Vector = NDArray[np.float64]

STEP = 0.5
"""How far a score moves at first. Of d sensors each weight moves 1/√d of it, as independent steps
add up to √d of one; the next ones shrink with the gradients that the weight has seen."""
HALVINGS = 10
"""exp(s) is taken as (1 + s/2¹⁰)^(2¹⁰), by squaring: the same bits on every CPU and C library."""


class Straight:
    """From a learner's columns to one value a sensor: z, as it was before it became hats.

    Between its end knots a sensor's hats, each times its knot, add up to z. The values have the
    places of the `full` layout, where those of silent sensors, which are not in `layout`, are 0.

    >>> from edge_opid import Layout, Sensor
    >>> layout = Layout([Sensor("temp", 20, 5, knots=(-8, -1, 2, 8)), Sensor("co2", 420, 50)])
    >>> straight = Straight(layout, layout)
    >>> straight.names
    ('co2', 'temp', 'bias')
    >>> print(straight(layout.encode({"temp": 21, "co2": 445})).round(6))
    [0.5 0.2 1. ]
    """

    def __init__(self, layout: Layout, full: Layout) -> None:
        knots = {sensor.name: sensor.knots for sensor in layout.sensors}
        self.names = tuple(full.spans)
        self._places = np.array([self.names.index(name) for name in layout.spans], np.intp)
        self._starts = np.array([span.start for span in layout.spans.values()], np.intp)
        self._knots = np.array([k for name in layout.spans for k in knots.get(name) or (1.0,)])

    def __call__(self, x: NDArray[np.float32]) -> Vector:
        """The values for these columns."""
        values = np.zeros(len(self.names))
        values[self._places] = np.add.reduceat(self._knots * x, self._starts)
        return values


class LogisticMemory:
    """Softmax regression by gradient steps, each weight with a step size of its own (AdaGrad).

    A weight of d moves by (STEP/√d)·g/(1 + √Σg²): by STEP at the most, whatever a sensor says. One
    that leaves takes its weights with it, and one that comes starts at 0; as sensors are centred at
    their means, neither moves the scores of the others' average reading.

    **Cost**: 16 bytes a sensor and class, in float64, and some 30 µs to predict and learn.

    >>> memory = LogisticMemory(("temp", "bias"), classes=2)
    >>> for value in (1.0, -1.0) * 20:
    ...     before = memory.score_then_learn(np.array([value, 1.0]), int(value > 0))
    >>> print(memory.scores(np.array([1.0, 1.0])).round(2))
    [0.05 0.95]
    """

    weights: Vector
    """Sensors × classes, moved by every reading."""
    squares: Vector
    """Σ g² of each weight."""

    def __init__(self, names: Sequence[str], classes: int) -> None:
        self.names = tuple(names)
        self.weights = np.zeros((len(self.names), classes))
        self.squares = np.zeros((len(self.names), classes))
        self._step = STEP / math.sqrt(max(1, len(self.names) - 1))  # the bias is no sensor

    def scores(self, values: Vector) -> Vector:
        """The classes' probabilities."""
        return likely((values[:, None] * self.weights).sum(axis=0))

    def score_then_learn(self, values: Vector, label: int) -> Vector:
        """One labelled reading, and what was said of it before."""
        said = self.scores(values)
        error = said.copy()
        error[label] -= 1
        gradient = values[:, None] * error
        self.squares += gradient * gradient
        self.weights -= self._step * gradient / (1 + np.sqrt(self.squares))
        return said

    def follow(
        self, names: Sequence[str], replaces: Mapping[str, str] | None = None
    ) -> LogisticMemory:
        """The memory for these sensors, from what this one knows of those that remain.

        `replaces` names, for a new sensor, the one whose weights it takes over.
        """
        after = LogisticMemory(names, self.weights.shape[1])
        rows = {name: row for row, name in enumerate(self.names)}
        for row, name in enumerate(after.names):
            before = rows.get((replaces or {}).get(name, name))
            if before is not None:
                after.weights[row] = self.weights[before]
                after.squares[row] = self.squares[before]
        return after

    def add_classes(self, more: int) -> LogisticMemory:
        """The memory with this many classes more, which start with weights of 0."""
        after = LogisticMemory(self.names, self.weights.shape[1] + more)
        after.weights[:, :-more], after.squares[:, :-more] = self.weights, self.squares
        return after

    @property
    def nbytes(self) -> int:
        """Bytes of state."""
        return self.weights.nbytes + self.squares.nbytes

    def state(self) -> dict[str, Any]:
        """Plain values and arrays, for `from_state`."""
        arrays = {"weights": self.weights.copy(), "squares": self.squares.copy()}
        return {"names": list(self.names), **arrays}

    @classmethod
    def from_state(cls, saved: Mapping[str, Any]) -> LogisticMemory:
        """The memory that `state` described, to the bit."""
        memory = cls(saved["names"], saved["weights"].shape[1])
        memory.weights, memory.squares = saved["weights"].copy(), saved["squares"].copy()
        return memory


def likely(scores: Vector) -> Vector:
    """Probabilities in proportion to the exponentials of scores.

    >>> print(likely(np.array([0.0, 1.0, -2000.0])).round(3))
    [0.269 0.731 0.   ]
    """
    # Below −2¹⁰ the power would rise again; what is that far behind counts as nothing.
    grown = np.maximum(1 + (scores - scores.max()) / 2**HALVINGS, 0.0)
    for _ in range(HALVINGS):
        grown *= grown
    return np.asarray(grown / math.fsum(grown.tolist()))


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
