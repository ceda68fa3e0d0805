"""A pushed model is tried on what this node has seen before it is served.

A signature says who fitted a model, not what on: the labels may be those of one node that lies or
is broken, and a node that gets no labels itself would serve it for good. So the node keeps its last
labelled instances, and asks a new model about them.

They may be older than the layout: what a retired sensor said is left out, and a new one counts as
its reference, so that a good model may well know less of them than of what comes next. It is
judged only by what the node's own learners make of the same columns: where they are right in most
of the instances, and the model is wrong in most of those, surely not by chance, it **contradicts**
them. It then starts with these instances as its record instead of with none, and is the last to be
served: labels have to speak for it first, as surely as they would have to for any other change of
mind. Decision 19 has the figures.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from struct import pack, unpack
from typing import Any

from edge_opid.models import HeldModel
from edge_opid.node.local_models import LocalModels
from edge_opid.node.scoreboard import DOUBT, TRIAL

KEPT = 64  # labelled instances: 38 kB with 75 sensors, and enough to tell a contradiction


@dataclass(frozen=True, slots=True)
class Doubt:
    """Which order brought the doubted model, and how it did on the labelled instances.

    >>> print(Doubt(7, right=3, own=55, of=64))
    model 7 is doubted: right in 3 of 64, the node itself in 55
    """

    version: int
    right: int
    own: int
    of: int

    def __str__(self) -> str:
        score = f"right in {self.right} of {self.of}, the node itself in {self.own}"
        return f"model {self.version} is doubted: {score}"  # a line of a status is short


class Trial:
    """The last labelled instances, values raw and by sensor. Part of the durable state.

    >>> trial = Trial()
    >>> trial.remember({"temp": 21.5}, 1)
    >>> list(trial.rows())
    [({'temp': 21.5}, 1)]
    """

    def __init__(self) -> None:
        self._kept: deque[tuple[tuple[str, ...], array[float], int]] = deque(maxlen=KEPT)

    def remember(self, values: Mapping[str, float], truth: int) -> None:
        """Keep an instance whose label has come; the oldest gives way."""
        sensors = tuple(values)
        if self._kept and self._kept[-1][0] == sensors:
            sensors = self._kept[-1][0]  # one tuple for all of them
        self._kept.append((sensors, array("d", values.values()), truth))

    def rows(self) -> Iterator[tuple[dict[str, float], int]]:
        """The values of each, and its class, the oldest first."""
        for sensors, values, truth in self._kept:
            yield dict(zip(sensors, values, strict=True)), truth

    def state(self) -> list[list[Any]]:
        """Plain values, for `restored`; each set of sensors is spelled where it begins."""
        found, last = [], None
        for sensors, values, truth in self._kept:
            data = pack(f"<{len(values)}d", *values)
            found.append([None if sensors == last else list(sensors), data, truth])
            last = sensors
        return found

    @classmethod
    def restored(cls, saved: Sequence[Sequence[Any]]) -> Trial:
        """The instances that `state` described."""
        trial, sensors = cls(), ()
        for spelled, data, truth in saved:
            sensors = sensors if spelled is None else tuple(spelled)
            values = unpack(f"<{len(sensors)}d", data)
            trial.remember(dict(zip(sensors, values, strict=True)), truth)
        return trial


def tried(
    model: HeldModel, trial: Trial, local_models: LocalModels
) -> tuple[Doubt | None, list[bool]]:
    """The doubt about a model, if there is one, and in which of the instances it is right."""
    right, own = [], []
    for values, truth in trial.rows():
        right.append(int(model.scores(local_models.encode_full(values)).argmax()) == truth)
        own.append(int(local_models.own(local_models.encode(values)).argmax()) == truth)
    if not contradicts(right, own):
        return None, right
    return Doubt(model.version, sum(right), sum(own), len(own)), right


def contradicts(right: Sequence[bool], own: Sequence[bool]) -> bool:
    """Whether a model, right in these instances, contradicts the learners, right in those.

    >>> contradicts([True] * 4 + [False] * 26, [True] * 24 + [False] * 6)
    True
    >>> contradicts([True] * 14 + [False] * 16, [True] * 24 + [False] * 6)  # worse, no more
    False
    """
    n, known = len(own), sum(own)
    if n < TRIAL or 2 * known <= n:
        return False
    shared = sum(a and b for a, b in zip(right, own, strict=True))
    lost, won = known - shared, sum(right) - shared
    return 2 * shared < known and lost - won > DOUBT * math.sqrt(lost + won)
