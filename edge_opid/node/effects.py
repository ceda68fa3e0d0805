"""What happened when an input was applied: to be published, logged or only counted.

Two effects are for the gateway alone, and what they hold is decided here: the summary of what the
learner knows, and examples. An example is a labelled instance for the gateway's E-stage. The node
has joined, deduplicated and labelled it already, whoever sent the values and whenever the label
came; so it reports it, and the gateway need not listen to every reading.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edge_opid.learner import GramLearner, WoodburyLearner
from edge_opid.node.local_models import LocalModels
from edge_opid.node.recent import Entry
from edge_opid.node.scoreboard import PredictorName
from edge_opid.reasons import NodeReason, Reason
from edge_opid.wire import (
    LIMITS,
    AllReadings,
    Asked,
    Event,
    Example,
    InstanceId,
    Introduction,
    SummaryMessage,
    to_bytes,
)


class Predicted(NamedTuple):
    """A guess about an instance, made before its label was seen."""

    instance: InstanceId
    time_ms: int
    winner: int
    scores: NDArray[np.float32]
    predictor: PredictorName
    model_version: int
    probabilities: list[float] | None = None
    """What the time layer makes of the scores; None where a file from outside has answered."""
    x: NDArray[np.float32] | None = None
    """What it was guessed from, for whoever would guess otherwise: see `external_model`."""
    columns: tuple[str, ...] = ()
    """The names of x; none while references and scales are still being estimated."""
    known: bool = True
    """False while nothing was learned that could tell the classes apart: no label, no model."""


class Noted(NamedTuple):
    """Something to count and, as the table of reasons says, to log.

    `about` is the sensor or the class in question. A `complaint` should not have happened: the
    status shows its sentence for an hour.
    """

    reason: Reason
    why: str = ""
    about: str = ""
    complaint: bool = False


class Forgotten(NamedTuple):
    """A source had to make room for another one."""

    source: str


ENVELOPE_BYTES = 512  # of a summary: its keys, counts and settings

Effect = Predicted | Noted | Forgotten | Event | SummaryMessage | Example | Introduction | Asked


def noted_rescues(sentences: Iterable[str]) -> list[Effect]:
    """What rounding had spoiled, and was mended."""
    return [Noted(NodeReason.NUMBERS_RESCUED, sentence, complaint=True) for sentence in sentences]


def summarised(local_models: LocalModels, layout_version: int) -> list[Effect]:
    """What the learner knows of the present layout, if it is not too wide to travel."""
    learner = local_models.learner
    if learner.readings == 0:
        return []
    if local_models.layout.width > LIMITS.columns_max:
        return [Noted(NodeReason.SUMMARY_TOO_WIDE)]
    silent = local_models.silent
    vanishing = tuple(sensor for sensor in local_models.vanishing if sensor not in silent)
    sensors, everything = tuple(local_models.alive), local_models.everything
    return [summary_message(learner, layout_version, sensors, vanishing, everything)]


def summary_message(
    learner: WoodburyLearner,
    layout_version: int,
    sensors: tuple[str, ...],
    vanishing: tuple[str, ...],
    everything: GramLearner | None = None,
) -> SummaryMessage:
    """What a learner knows, as it travels, and how the sensors go together in all readings."""
    known = learner.summary("float32")
    width, classes = known.moments.shape
    return SummaryMessage(
        layout_version=layout_version,
        width=width,
        classes=classes,
        sensors=sensors,
        vanishing=vanishing,
        lam=known.lam,
        rho=known.rho,
        readings=known.readings,
        evidence=known.evidence,
        gram=to_bytes(known.gram),
        moment=to_bytes(known.moments),
        everything=None if everything is None else all_readings(everything, classes),
    )


def all_readings(everything: GramLearner, classes: int) -> AllReadings | None:
    """The sums over all readings as they travel, 2·d·(d+1) bytes; None where they do not fit.

    Up to 231 columns they do, whatever the names and however many the classes.
    """
    width = everything.settings.width
    numbers = 4 * (width * (width + 1) + width * classes)
    if numbers + width * (LIMITS.id_chars_max + 2) * 2 + ENVELOPE_BYTES > LIMITS.summary_bytes_max:
        return None
    known = everything.summary("float32")
    return AllReadings(readings=known.readings, evidence=known.evidence, gram=to_bytes(known.gram))


@dataclass(slots=True)
class ExampleReporter:
    """How many examples are still owed; each order says it anew. Part of the durable state.

    Only what the present layout can use is reported, and counts:

    - An instance that was joined in a former layout has no values of the sensors just deployed,
      and they are what the batch is for. Its late label is learned, but not reported.
    - An instance may have been open when the order came: values of sensors that have left the
      layout stay out of its example; and where no other is left, there is none.

    >>> reporter = ExampleReporter(owed=1)
    >>> entry = Entry.of(7, (InstanceId("attic", 1, 5),), {"temp": 21.5}, {}, 2)
    >>> [example] = reporter.report(entry, entry.values, "fresh", 2, ["temp", "co2"])
    >>> example.values, example.label, reporter.owed
    ({'temp': 21.5}, 'fresh', 0)
    >>> reporter.report(entry, entry.values, "fresh", 2, ["temp", "co2"])
    []
    """

    owed: int = 0

    def report(
        self,
        entry: Entry,
        values: Mapping[str, float],
        label: str,
        layout_version: int,
        sensors: Collection[str],
    ) -> list[Example]:
        """The example of an instance that was just learned, if it is one that is owed.

        `values` are the entry's, which whoever learned them has at hand; `sensors` are those of
        the layout `layout_version`.
        """
        if not self.owed or entry.layout_version != layout_version:
            return []
        known = {sensor: value for sensor, value in values.items() if sensor in sensors}
        if not known:
            return []
        self.owed -= 1
        number: InstanceId = entry.numbers[-1]  # as in its prediction
        return [Example(number, layout_version, entry.time_ms, known, label)]
