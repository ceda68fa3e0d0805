"""What happened when an input was applied: to be published, logged or only counted.

Two effects are for the gateway alone, and what they hold is decided here: the summary of what the
learner knows, and examples. An example is a labelled instance for the gateway's E-stage. The node
has joined, deduplicated and labelled it already, whoever sent the values and whenever the label
came; so it reports it, and the gateway need not listen to every reading.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edge_opid.node.local_models import LocalModels
from edge_opid.node.recent import Entry
from edge_opid.node.scoreboard import PredictorName
from edge_opid.wire import (
    LIMITS,
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
    x: NDArray[np.float32] | None = None
    """What it was guessed from, for whoever would guess otherwise: see `external_model`."""
    columns: tuple[str, ...] = ()
    """The names of x; none while references and scales are still being estimated."""


class Noted(NamedTuple):
    """Something to count, by a short word; a sentence where it should not have happened.

    `log` is for what the status says by itself, for as long as it is so.
    """

    reason: str
    sentence: str = ""
    log: str = ""


class Forgotten(NamedTuple):
    """A source had to make room for another one."""

    source: str


Effect = Predicted | Noted | Forgotten | Event | SummaryMessage | Example | Introduction


def summarised(local_models: LocalModels, layout_version: int) -> list[Effect]:
    """What the learner knows of the present layout, if it is not too wide to travel."""
    learner = local_models.learner
    if learner.readings == 0:
        return []
    if local_models.layout.width > LIMITS.columns_max:
        return [Noted("summary-too-wide")]
    known = learner.summary("float32")
    width, classes = known.moments.shape
    silent = local_models.silent
    summary = SummaryMessage(
        layout_version=layout_version,
        width=width,
        classes=classes,
        sensors=tuple(local_models.alive),
        vanishing=tuple(sensor for sensor in local_models.vanishing if sensor not in silent),
        lam=known.lam,
        rho=known.rho,
        readings=known.readings,
        evidence=known.evidence,
        gram=to_bytes(known.gram),
        moment=to_bytes(known.moments),
    )
    return [summary]


@dataclass(slots=True)
class ExampleReporter:
    """How many examples are still owed; each order says it anew. Part of the durable state.

    Only what the present layout can use is reported, and counts:

    - An instance that was joined in a former layout has no values of the sensors just deployed,
      and they are what the batch is for. Its late label is learned, but not reported.
    - An instance may have been open when the order came: values of sensors that have left the
      layout stay out of its example; and where no other is left, there is none.

    >>> reporter = ExampleReporter(owed=1)
    >>> entry = Entry.of(7, (InstanceId("attic", 1, 5),), {"temp": 21.5}, {}, True, 2)
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
