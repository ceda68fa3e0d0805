"""A third memory of a node: logistic regression on the sensors' values themselves, in small steps.

The two ridge learners solve for all columns at once. That is exact, and with hats it bends; but
early on, with few labels for many columns, a straight line through each sensor, learned in careful
steps, is often the better answer, and it errs elsewhere. In the blend each makes up for the other
(docs/decisions/0014). Beside it, `Sharpness`: the same loss with one weight, which turns any scores
into probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_opid.layout import Layout
from edge_opid.learner.base import with_columns
from edge_opid.learner.handover import STUDENT
from edge_opid.native.rescue import solved

Vector = NDArray[np.float64]

STEP = 0.5
"""How far a score moves at first. Of d sensors each weight moves 1/√d of it, as independent steps
add up to √d of one; the next ones shrink with the gradients that the weight has seen."""
HALVINGS = 10
"""exp(s) is taken as (1 + s/2¹⁰)^(2¹⁰), by squaring: the same bits on every CPU and C library."""
SLICES = 2**HALVINGS
FEW = 16  # classes up to which plain floats are faster than arrays; the bits are the same


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
        widths = [len(span) for span in layout.spans.values()]
        self._owners = np.repeat(self._places, widths).astype(np.intc)  # of each column

    def __call__(self, x: NDArray[np.float32]) -> Vector:
        """The values for these columns."""
        values = np.zeros(len(self.names))
        np.add.at(values, self._owners, self._knots * x)  # a sensor's columns in their order
        return values

    def held_with(self, memory: LogisticMemory, steps: ModuleType) -> Any:
        """A memory of these values, as the C file takes it: see `WoodburyLearner.held`."""
        return steps.hold_logistic(
            memory.weights,
            memory.squares,
            self._owners,
            self._knots,
            np.zeros(len(self.names)),
            memory.step,
        )

    def gram(self, columns: Vector) -> Vector:
        """The Gram matrix of the values, from that of the columns."""
        summed = self._knots[:, None] * columns * self._knots
        for axis in (0, 1):
            summed = np.add.reduceat(summed, self._starts, axis=axis)
        values = np.zeros((len(self.names), len(self.names)))
        values[np.ix_(self._places, self._places)] = summed
        return values


class LogisticMemory:
    """Softmax regression by gradient steps, each weight with a step size of its own (AdaGrad).

    A weight of d moves by (STEP/√d)·g/(1 + √Σg²): by STEP at the most, whatever a sensor says. One
    that leaves takes its weights with it, and one that comes starts at 0; as sensors are centred at
    their means, neither moves the scores of the others' average reading.

    **Cost**: 16 bytes a sensor and class, in float64.

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
        self.step = STEP / math.sqrt(max(1, len(self.names) - 1))  # the bias is no sensor

    def scores(self, values: Vector) -> Vector:
        """The classes' probabilities."""
        return likely(in_order(values, self.weights))

    def score_then_learn(self, values: Vector, label: int) -> Vector:
        """One labelled reading, and what was said of it before."""
        said = self.scores(values)
        error = said.copy()
        error[label] -= 1
        gradient = values[:, None] * error
        self.squares += gradient * gradient
        self.weights -= self.step * gradient / (1 + np.sqrt(self.squares))
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

    def handed_on(self, gone: Collection[str], gram: Vector) -> Vector:
        """What to add to the weights so that the others say, as well as they can, what these said.

        `gram` is the Gram matrix of the values over all readings: it tells how those that go
        follow from those that stay, as in `learner.handover`.
        """
        stay = [row for row, name in enumerate(self.names) if name not in gone]
        away = [row for row, name in enumerate(self.names) if name in gone]
        added = np.zeros_like(self.weights)
        own = gram[np.ix_(stay, stay)] + STUDENT * np.eye(len(stay))
        added[stay] = solved(own, gram[np.ix_(stay, away)] @ self.weights[away])
        return added

    def bend(self, name: str, slope: float, offset: float) -> None:
        """A new sensor says z where the old one in its role would have said slope·z + offset."""
        row = self.names.index(name)
        self.weights[-1] += offset * self.weights[row]  # the bias
        self.weights[row] *= slope

    def rescale(self, old: Layout, new: Layout, clipped: Collection[str] = ()) -> LogisticMemory:
        """The memory for the same sensors with other references and scales.

        It says what it said. Of a sensor that was clipped it never saw the line go on beyond the
        gate: there it keeps its weight, and says at the new gate what it said at the old.
        """
        after = LogisticMemory(self.names, self.weights.shape[1])
        after.weights, after.squares = self.weights.copy(), self.squares.copy()
        theirs = {sensor.name: sensor for sensor in old.sensors}
        for sensor in new.sensors:
            before = theirs.get(sensor.name, sensor)
            if before == sensor or sensor.name not in self.names:
                continue
            row, wider = self.names.index(sensor.name), sensor.scale / before.scale
            away = (sensor.reference - before.reference) / before.scale
            if sensor.name in clipped:
                wider, away = min(1.0, wider), float(np.clip(away, -old.gate, old.gate))
            after.weights[-1] += away * self.weights[row]  # the bias
            after.weights[row] *= wider
            after.squares[row] /= wider * wider
        return after

    def with_classes(self, sources: Sequence[int | None]) -> LogisticMemory:
        """The memory whose class k continues class `sources[k]`, or starts with weights of 0."""
        after = LogisticMemory(self.names, len(sources))
        after.weights = with_columns(self.weights, sources)
        after.squares = with_columns(self.squares, sources)
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

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as its state: arrays that a file lends for reading become ones to learn in."""
        return LogisticMemory.from_state, (self.state(),)


def in_order(values: NDArray[Any], matrix: NDArray[Any]) -> Vector:
    """Values · matrix in float64, every sum from the first row to the last: as the C file does it.

    >>> print(in_order(np.array([1.0, 2.0]), np.array([[1.0, 0.0], [0.5, 4.0]])))
    [2. 8.]
    """
    products = values[:, None].astype(np.float64) * matrix
    return np.asarray(0.0 + np.cumsum(products, axis=0)[-1])  # no sum begins with −0


def likely(scores: Vector) -> Vector:
    """Probabilities in proportion to the exponentials of scores.

    >>> print(likely(np.array([0.0, 1.0, -2000.0])).round(3))
    [0.269 0.731 0.   ]
    """
    if len(scores) <= FEW:
        return np.array(likely_list(scores.tolist()))
    # Below −2¹⁰ the power would rise again; what is that far behind counts as nothing.
    grown = np.maximum(1 + (scores - scores.max()) / SLICES, 0.0)
    for _ in range(HALVINGS):
        grown *= grown
    return np.asarray(grown / added(grown.tolist()))


def likely_list(scores: Sequence[float]) -> list[float]:
    """`likely` for a few scores.

    >>> [round(each, 3) for each in likely_list([0.0, 1.0, -2000.0])]
    [0.269, 0.731, 0.0]
    """
    best, grown = max(scores), []
    for score in scores:
        power = 1 + (score - best) / SLICES
        if power < 0:
            power = 0.0
        for _ in range(HALVINGS):
            power *= power
        grown.append(power)
    total = added(grown)
    return [each / total for each in grown]


def added(values: Iterable[float]) -> float:
    """Their sum, from the first to the last, each step rounded: what the C file does, to the bit.

    (`sum` compensates for rounding from Python 3.12 on, and `fsum` rounds once.)

    >>> added([0.1] * 10)
    0.9999999999999999
    """
    total = 0.0
    for each in values:
        total += each
    return total


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
        self.t, self._squares = t, squares

    def probabilities(self, scores: NDArray[Any]) -> Vector:
        """A probability for each class."""
        return likely(self.t * scores.astype(np.float64))

    def learn(
        self, scores: Sequence[float] | NDArray[Any], number: int, counts: float = 1.0
    ) -> None:
        """Move t by what the scores said of a reading whose class is now known.

        One that `counts` for a tenth moves it as far as ten of them should together.
        """
        said = [float(score) for score in scores]
        likely = likely_list([self.t * score for score in said])
        slope = said[number] - added(p * score for p, score in zip(likely, said, strict=True))
        step = counts * slope
        self._squares += step * slope
        self.t = min(50.0, max(1.0, self.t + 2 * step / math.sqrt(1 + self._squares)))

    def state(self) -> list[float]:
        """The arguments that make it anew."""
        return [self.t, self._squares]
