"""A pushed model is tried on what this node has seen before it is served.

A signature says who fitted a model, not what on: the labels may be those of one node that lies or
is broken, and a node that gets no labels itself would serve it for good. So the node keeps its last
labelled instances, and asks a new model about them.

They may be older than the layout. What a sensor said passes to the one that takes over its role, in
units of their scales, as what was learned from it does; what another retired one said is left out,
and a new one counts as its reference, so that a good model may well know less of them than of what
comes next. It is judged only by what the node's own learners make of the same columns: where they
are right in most of the instances, and the model is wrong in most of those, surely not by chance,
it **contradicts** them. It then starts with these instances as its record instead of with none, and
is the last to be served: labels have to speak for it first, as surely as they would have to for any
other change of mind. Decision 19 has the figures.

The first model for a new layout may know nothing of the new sensors: nobody has labelled them yet.
A node that has heard them beside the old ones does. It asks the model about those instances, too;
where its own memories say more often what was served then, they are served, until labels speak for
the model (docs/decisions/0034).
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from struct import pack, unpack
from typing import Any

from edge_opid.models import HeldModel
from edge_opid.models.matrix import CompactModel
from edge_opid.node.local_models import LocalModels
from edge_opid.node.scoreboard import DOUBT, TRIAL
from edge_opid.wire import SensorDescription

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
        self._retired: dict[str, tuple[str, float, float]] = {}  # role, reference and scale

    def remember(self, values: Mapping[str, float], truth: int) -> None:
        """Keep an instance whose label has come; the oldest gives way."""
        self.keep(tuple(values), array("d", values.values()), truth)

    def keep(self, sensors: tuple[str, ...], readings: array[float], truth: int) -> None:
        """The same, of values that are an array already, which nobody changes any more."""
        if self._kept and self._kept[-1][0] == sensors:
            sensors = self._kept[-1][0]  # one tuple for all of them
        self._kept.append((sensors, readings, truth))

    def forget(self, values: Mapping[str, float], truth: int) -> None:
        """Drop an instance whose label was a mistake, if it is among them."""
        wanted = tuple(values), array("d", values.values()), truth
        for place in reversed(range(len(self._kept))):
            if self._kept[place] == wanted:
                del self._kept[place]
                return

    def rows(self) -> Iterator[tuple[dict[str, float], int]]:
        """The values of each, and its class, the oldest first."""
        for sensors, values, truth in self._kept:
            yield dict(zip(sensors, values, strict=True)), truth

    def follow(
        self,
        before: Mapping[str, SensorDescription],
        now: Mapping[str, SensorDescription],
        unlike: Collection[str] = (),
    ) -> None:
        """Let what a retired sensor said count as said by the one that has its role now.

        Unless that one says something else: `unlike` are such roles.
        """
        for sensor in before.values():
            if sensor.id not in now:
                self._retired[sensor.id] = sensor.role, sensor.reference, sensor.scale
        heirs = {sensor.role: sensor for sensor in now.values() if sensor.id not in before}
        heirs = {role: heir for role, heir in heirs.items() if role not in unlike}
        for old, (role, reference, scale) in list(self._retired.items()):
            if old in now:
                del self._retired[old]
            elif role in heirs:
                del self._retired[old]
                self._hand_on(old, reference, scale, heirs[role])
        said = {sensor for sensors, _, _ in self._kept for sensor in sensors}
        self._retired = {old: kept for old, kept in self._retired.items() if old in said}

    def _hand_on(self, old: str, reference: float, scale: float, heir: SensorDescription) -> None:
        for place, (sensors, values, truth) in enumerate(self._kept):
            if old not in sensors or heir.id in sensors:
                continue
            at, moved = sensors.index(old), values[:]
            moved[at] = heir.reference + (values[at] - reference) / scale * heir.scale
            self._kept[place] = (*sensors[:at], heir.id, *sensors[at + 1 :]), moved, truth

    def with_classes(self, sources: Sequence[int | None]) -> None:
        """Let class k be the one that was `sources[k]`; instances of a class that is gone go."""
        places = {source: place for place, source in enumerate(sources)}
        kept = [(names, values, places[k]) for names, values, k in self._kept if k in places]
        self._kept = deque(kept, maxlen=KEPT)

    def state(self) -> dict[str, Any]:
        """Plain values, for `restored`; each set of sensors is spelled where it begins."""
        found, last = [], None
        for sensors, values, truth in self._kept:
            data = pack(f"<{len(values)}d", *values)
            found.append([None if sensors == last else list(sensors), data, truth])
            last = sensors
        return {"kept": found, "retired": [[old, *kept] for old, kept in self._retired.items()]}

    @classmethod
    def restored(cls, saved: Mapping[str, Any]) -> Trial:
        """The instances that `state` described."""
        trial, sensors = cls(), ()
        trial._retired = {old: tuple(kept) for old, *kept in saved["retired"]}
        for spelled, data, truth in saved["kept"]:
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


def knows_less(
    model: HeldModel, overlap: Sequence[tuple[Mapping[str, float], int]], local_models: LocalModels
) -> bool:
    """Whether a model knows less of new sensors than the memories, which have heard them before.

    It does if it has no weight for one of them, or was made for the sensor before in the role of
    one that says something else; and if it says less often than the memories what was served while
    old and new ones spoke together. `overlap` are those instances, and the answers.
    """
    if len(overlap) < TRIAL or not _is_ignorant(model, local_models):
        return False
    same = own = 0
    for values, answer in overlap:
        same += int(model.scores(local_models.encode_full(values)).argmax()) == answer
        own += int(local_models.own(local_models.encode(values)).argmax()) == answer
    return own > same


def _is_ignorant(model: HeldModel, local_models: LocalModels) -> bool:
    if local_models.unlike:
        return True
    spans = local_models.full.spans.values()
    return isinstance(model, CompactModel) and not all(model.W[span].any() for span in spans)


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
