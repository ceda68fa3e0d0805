"""What happened when an input was applied: for the world to hear, or to be counted."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edge_opid.node.local_models import LocalModels
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
    predictor: str
    model_version: int
    x: NDArray[np.float32] | None = None
    """What it was guessed from, for whoever would guess otherwise: see `serving`."""
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
    summary = SummaryMessage(
        layout_version=layout_version,
        width=width,
        classes=classes,
        sensors=tuple(local_models.alive),
        vanishing=tuple(
            sensor for sensor in local_models.vanishing if sensor not in local_models.silent
        ),
        lam=known.lam,
        rho=known.rho,
        readings=known.readings,
        evidence=known.evidence,
        gram=to_bytes(known.gram),
        moment=to_bytes(known.moments),
    )
    return [summary]
