"""The time layer by the C file: the same numbers in one array, and the same bits.

Three calls happen for every reading and label: those are in C (`native/time_layer.h`). What happens
seldom, a change of classes or a label that is taken back, is done by the layer in Python, which is
made of the numbers, and gives them back.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_opid import native
from edge_opid.node.scoreboard import PredictorName
from edge_opid.node.time_layer import (
    AGES,
    IN_ORDER,
    SURE,
    Evidence,
    Floats,
    TimeLayer,
    labels_of,
    order_of_scores,
)

PLACES = {name: place for place, name in enumerate(PredictorName)}
FEATURES = 5
ORDER = 2 * FEATURES + 3 * len(PLACES) + 2 * len(SURE) + 14
"""Where the numbers about the order of scores begin."""
STEPS: Any = native.available.get("compiled")


def time_layer(classes: int) -> TimeLayer:
    """A layer that knows nothing yet: the fastest there is."""
    return TimeLayer(classes) if native.name == "numpy" else CompiledTimeLayer(classes)


def restored_time_layer(saved: Mapping[str, Any]) -> TimeLayer:
    """The layer that `TimeLayer.state` described, to the bit."""
    layer = time_layer(len(saved["frequency"]))
    layer.restore(saved)
    return layer


class CompiledTimeLayer(TimeLayer):
    """A `TimeLayer` whose state is an array of float64, the order of which the C file knows, too.

    >>> layer = CompiledTimeLayer(classes=2)
    >>> for minute in range(300):  # a model that knows nothing, and a class that lasts ten minutes
    ...     seen = layer.evidence([0.5, 0.5], PredictorName.OWN, 60_000 * minute)
    ...     layer.go_on(seen)
    ...     layer.learn(seen, minute // 10 % 2)
    >>> seen = layer.evidence([0.5, 0.5], PredictorName.OWN, 60_000 * 300)
    >>> [round(each, 1) for each in layer.probabilities(seen)]
    [0.1, 0.9]
    """

    def __init__(self, classes: int) -> None:
        self.restore(TimeLayer(classes).state())

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Be what `state` described."""
        self._numbers = array("d", flattened(saved))
        self._blank = array("d", bytes(8 * 5 * (len(saved["frequency"]) + 1)))

    def state(self) -> dict[str, Any]:
        """Plain values, for `restore`."""
        return _named(self._numbers, len(self._blank) // 5 - 1)

    def _in_python(self) -> TimeLayer:
        layer = TimeLayer(len(self._blank) // 5 - 1)
        layer.restore(self.state())
        return layer

    # -- for every reading ---------------------------------------------------------------------

    def answer(
        self, scores: Floats | NDArray[np.floating[Any]], predictor: PredictorName, time_ms: int
    ) -> tuple[Evidence, list[float]]:
        """All that is known of an instance, and how probable each class is. Changes nothing."""
        seen = self._blank[:]
        said: list[float] = STEPS.time_answer(
            self._numbers, seen, PLACES[predictor], scores, time_ms
        )
        return Evidence(predictor, seen), said

    def evidence(self, scores: Floats, predictor: PredictorName, time_ms: int) -> Evidence:
        """All that is known of an instance. Changes nothing."""
        return self.answer(array("d", scores), predictor, time_ms)[0]

    def probabilities(self, seen: Evidence) -> list[float]:
        """How probable each class is: what was found, as surely as such findings were right."""
        return self._in_python().probabilities(seen)

    @property
    def sees_order(self) -> bool:
        """Whether readings follow each other in the order of time, by their scores."""
        return order_of_scores(*self._numbers[ORDER : ORDER + 3]) >= IN_ORDER

    def go_on(self, seen: Evidence) -> None:
        """Count this instance among the last ones from now on."""
        looked = seen.predictor is not PredictorName.FREQUENT
        STEPS.time_go_on(self._numbers, seen.numbers, looked)

    def learn(self, seen: Evidence, truth: int) -> None:
        """The class of an instance is known, now or late."""
        STEPS.time_learn(self._numbers, seen.numbers, PLACES[seen.predictor], truth)

    # -- seldom --------------------------------------------------------------------------------

    @property
    def weights(self) -> list[float]:  # type: ignore[override]  # it is one of the numbers here
        """Of the five kinds of evidence."""
        return list(self._numbers[:FEATURES])

    @property
    def time_ms(self) -> int:
        """Of the last instance."""
        return self._in_python().time_ms

    def take_back(
        self, seen: Evidence, truth: int, since: int, before: tuple[int, Evidence] | None
    ) -> None:
        """A label was a mistake: see `TimeLayer.take_back`."""
        layer = self._in_python()
        layer.take_back(seen, truth, since, before)
        self.restore(layer.state())

    def renew(self, predictor: PredictorName) -> None:
        """Another model answers under this name: see `TimeLayer.renew`."""
        layer = self._in_python()
        layer.renew(predictor)
        self.restore(layer.state())

    def with_classes(self, sources: Sequence[int | None]) -> None:
        """Let class k be the one that was `sources[k]`, or a new one."""
        layer = self._in_python()
        layer.with_classes(sources)
        self.restore(layer.state())

    @property
    def nbytes(self) -> int:
        """Bytes of state, with a number for each class as working space."""
        return len(self._numbers) * self._numbers.itemsize


# -- the order of the numbers: also in native/time_layer.h ---------------------------------------


def flattened(saved: Mapping[str, Any]) -> Iterator[float]:
    """The numbers of a layer's state, in the order of the C file."""
    for each in saved["weights"]:
        yield from each
    for name in PredictorName:
        known = saved["sharpness"].get(name)
        yield from (1.0, *known) if known else (0.0, 0.0, 0.0)
    for table in (saved["record"], saved["against"]):
        for pair in table:
            yield from pair
    yield from saved["kept"]
    label, label_ms, then, learned_ms = saved["label"]
    yield from (label, label_ms, learned_ms is not None, learned_ms or 0)
    yield from saved["readings"]
    yield from saved["order"]
    yield from labels_of(saved)
    yield from saved["frequency"]
    yield from then
    for each in saved["logits"]:
        yield from each
    for ages in saved["held"]:
        for pair in ages:
            yield from pair
    yield from [0.0] * len(saved["frequency"])  # working space


def _named(numbers: array[float], classes: int) -> dict[str, Any]:
    """The state whose numbers these are."""
    rest = iter(numbers)

    def take(count: int) -> list[float]:
        return [next(rest) for _ in range(count)]

    weights = [take(FEATURES), take(FEATURES)]
    sharpness = {name: take(3) for name in PredictorName}
    record, against = [take(2) for _ in SURE], [take(2) for _ in range(2)]
    kept = take(3)
    label, label_ms, learned, learned_ms = map(int, take(4))
    seen, time_ms, rhythm_ms = take(3)
    followed, *order = take(4)
    labels = [int(each) for each in take(2)]
    frequency, then = take(classes), take(classes)
    return {
        "weights": weights,
        "sharpness": {name: rest for name, (known, *rest) in sharpness.items() if known},
        "frequency": frequency,
        "record": record,
        "against": against,
        "label": [label, label_ms, then, learned_ms if learned else None],
        "kept": kept,
        "readings": [int(seen), int(time_ms), rhythm_ms],
        "logits": [take(classes) for _ in range(4)],
        "order": [int(followed), *order],
        "labels": labels,
        "held": [[take(2) for _ in range(AGES)] for _ in range(classes)],
    }
