"""Few labels and late ones on streams whose sensors change: the node, its peers, and simple rules.

Everyone is asked for the probabilities of a reading before anything is told, and learns a label
when it comes, from the reading as it was. Behind everyone stands the same time layer, fed with what
that method said: so each run gives two rows, alone and *with the layer*, and the gain is the node's
own only where it is ahead of a peer that has the layer, too.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from benchmarks.changes.ours import STEP_MS, OurNode, Restart, ZeroFill
from benchmarks.changes.peers_river import MODELS, RiverPeer
from benchmarks.changes.streams import Row, Stage, StagedStream
from benchmarks.common.few_labels import KNOWN, Flags, Schedule, calibration_error, last_labels
from edge_opid.node.compiled_time_layer import time_layer
from edge_opid.node.effects import Predicted
from edge_opid.node.inputs import apply
from edge_opid.node.journal_records import Accepted, Labelled
from edge_opid.node.scoreboard import PredictorName
from edge_opid.node.time_layer import Evidence
from edge_opid.wire import InstanceId

FIRST = 100
"""Readings after a change that are looked at by themselves."""
SOURCE, BOOT = "s", 1
LAYER = " + layer"


class Contender(Protocol):
    """What goes through a stream with few labels."""

    predictor: PredictorName
    """Who said what was said last: the layer has a sharpness for each."""

    def change(self, stage: Stage) -> None:
        """The next stage begins."""

    def probabilities(self, place: int, row: Row) -> Sequence[float]:
        """What it says of this reading, for each class."""

    def learn(self, place: int, row: Row, label: int) -> None:
        """The label of a reading that was predicted, now or earlier."""


class _Asked(OurNode):
    """A node whose labels come by themselves, named by the instance."""

    predictor = PredictorName.OWN

    def probabilities(self, place: int, row: Row) -> Sequence[float]:
        """What the predictor that is served says, without the node's own layer."""
        self.now = STEP_MS * (place + 1)
        accepted = Accepted(self.now, SOURCE, BOOT, place + 1, self.now, row, None)
        for effect in apply(self.state, accepted):
            if isinstance(effect, Predicted):
                self.predictor = effect.predictor
                return [float(score) for score in effect.scores]
        raise ValueError(f"no prediction for reading {place}")

    def learn(self, place: int, row: Row, label: int) -> None:
        """The node remembers the reading itself."""
        del row
        name = InstanceId(SOURCE, BOOT, place + 1)
        apply(self.state, Labelled(self.now, self.labels[label], name, None))


class AskedNode(_Asked):
    """The node as it is."""


class AskedRestart(_Asked, Restart):
    """Set up anew at every change."""


class AskedZeroFill(_Asked, ZeroFill):
    """Columns of every sensor for ever."""


class AskedPeer(RiverPeer):
    """A peer of river's: its scaler hears every reading, its model the labelled ones."""

    predictor = PredictorName.OWN

    def probabilities(self, place: int, row: Row) -> Sequence[float]:
        """What the model says; it has no idea of classes that it has not seen."""
        del place
        if self.scaled:
            self.scaler.learn_one(row)
        said = self.model.predict_proba_one(self._scaled(row))
        return [float(said.get(k, 0.0)) for k in range(self.stream.classes)]

    def learn(self, place: int, row: Row, label: int) -> None:
        """The reading with its label."""
        del place
        self.model.learn_one(self._scaled(row), label)

    def _scaled(self, row: Row) -> Any:
        return self.scaler.transform_one(row) if self.scaled else row


Maker = Callable[[StagedStream, int], Contender]


def _node(kind: type[_Asked]) -> Maker:
    return lambda stream, _: kind(stream, 1 if stream.setting.binary else stream.setting.knots)


def _peer(model: str, *, anew: bool) -> Maker:
    return lambda stream, seed: AskedPeer(stream, model, seed, anew=anew)


CONTENDERS: dict[str, Maker] = {
    "node": _node(AskedNode),
    "restart": _node(AskedRestart),
    "zero-fill": _node(AskedZeroFill),
    **{model: _peer(model, anew=False) for model in MODELS},
    **{f"{model}, anew": _peer(model, anew=True) for model in MODELS},
}
RULES = ("last label", "majority")


class Behind:
    """The time layer behind a contender, and what both of them took."""

    def __init__(self, contender: Contender, classes: int) -> None:
        self.contender, self.layer = contender, time_layer(classes)
        self.seen: dict[int, tuple[Evidence, Row]] = {}
        self.seconds = [0.0, 0.0]
        self._start = 0.0

    def probabilities(self, place: int, row: Row, labelled: bool) -> tuple[list[float], ...]:
        """Alone, and with the layer."""
        self._begin()
        alone = list(self.contender.probabilities(place, row))
        self._end(0)
        now = STEP_MS * (place + 1)
        seen, told = self.layer.answer(array("d", alone), self.contender.predictor, now)
        self.layer.go_on(seen)
        self._end(1)
        if labelled:
            self.seen[place] = seen, row
        return alone, told

    def learn(self, place: int, label: int) -> None:
        """A label has come."""
        seen, row = self.seen.pop(place)
        self._begin()
        self.contender.learn(place, row, label)
        self._end(0)
        self.layer.learn(seen, label)
        self._end(1)

    def _begin(self) -> None:
        self._start = time.process_time()

    def _end(self, who: int) -> None:
        now = time.process_time()
        self.seconds[who] += now - self._start
        self._start = now


def run(contender: Contender, stream: StagedStream, schedule: Schedule) -> dict[str, Any]:
    """Ask, then teach what is due, every reading once; alone and with the layer."""
    both = Behind(contender, stream.classes)
    told = np.zeros((2, len(stream.y), stream.classes))
    for stage in stream.stages():
        contender.change(stage)
        for place in stage.rows:
            row = stream.row(place, stage.sensors)
            told[:, place] = both.probabilities(place, row, bool(schedule.labelled[place]))
            due = schedule.due(place)
            if due is not None:
                both.learn(due, int(stream.y[due]))
    known = last_labels(stream.y, schedule)[2] >= KNOWN
    found = {}
    for name, said, seconds in zip(("alone", "layer"), told, both.seconds, strict=True):
        judged = judge(said.argmax(1) == stream.y, stream)
        late = known & (said.sum(1) > 0)
        sure, right = said[late].max(1, initial=0.0), (said.argmax(1) == stream.y)[late]
        judged["ece"] = calibration_error(sure, right) if late.sum() > KNOWN else None
        judged["micros"] = 1e6 * seconds / len(stream.y)
        found[name] = judged
    return found


def judge(right: Flags, stream: StagedStream) -> dict[str, Any]:
    """The share that was right, of all readings and of the first after each change."""
    starts = [stage.rows.start for stage in stream.stages() if stage.rows.start]
    first = [right[start : start + FIRST].mean() for start in starts]
    return {
        "whole": float(right.mean()),
        "first": float(np.mean(first)) if first else None,
    }


def rules(stream: StagedStream, schedule: Schedule) -> dict[str, Any]:
    """The no-change classifier and the majority, with the labels known by then."""
    last, most, _ = last_labels(stream.y, schedule)
    said = {"last label": last, "majority": most}
    return {name: judge(guess == stream.y, stream) for name, guess in said.items()}
