"""A node's long memory, as its summaries have it: what it would answer with another sensor.

The gateway asks it while a new sensor speaks beside the one it replaces: with the old sensor's
value in the column, and with the new one's. What a node serves is a mixture of several memories;
this is the one whose sums travel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from edge_opid.errors import OpidError
from edge_opid.layout import Layout
from edge_opid.layout.sensor import Sensor
from edge_opid.learner.statistics import Matrix, solve
from edge_opid.wire import SummaryMessage, decode
from gateway.fitting.job import sums_of
from gateway.fitting.pooling import Member, fault_of
from gateway.registry import LayoutRecord, SummaryRecord
from gateway.registry.columns import columns_of, layout_in

NEW = "new"  # the one sensor of a layout that only knows the new one


@dataclass(frozen=True, eq=False)
class LongMemory:
    """W̃ (Eq. 4), and the layout it is for."""

    layout: Layout
    roles: Mapping[str, str]
    """Of its sensors, by their ids."""
    weights: Matrix

    def agrees(
        self, values: Mapping[str, float], old: str, new: Sensor, value: float
    ) -> bool | None:
        """Whether it answers the same when the new sensor says this in the old one's place.

        None where it cannot tell: it knows no such sensor, the new one would have another number of
        columns, or a value is no number.
        """
        known = {self.roles[sensor]: v for sensor, v in values.items() if sensor in self.roles}
        span = self.layout.spans.get(self.roles.get(old, ""))
        if span is None or len(span) != new.columns:
            return None
        try:
            x = self.layout.encode(known)
            columns = _alone(new, self.layout.gate).encode({NEW: value})[:-1]  # less the bias
        except OpidError:
            return None
        replaced = x.copy()
        replaced[span.start : span.stop] = columns
        return bool((x @ self.weights).argmax() == (replaced @ self.weights).argmax())


@lru_cache(maxsize=256)  # a sensor that has been measured stays as it is
def _alone(new: Sensor, gate: float) -> Layout:
    """A layout of the new sensor and nothing else, for its columns."""
    return Layout([replace(new, name=NEW)], gate=gate)


def long_memory(
    summaries: Iterable[SummaryRecord],
    layouts: Mapping[tuple[str, str, int], LayoutRecord],
    classes: Sequence[str],
) -> LongMemory | None:
    """What a node has last said of itself; None where nothing, or nothing that can be right."""
    newest = max(summaries, key=lambda each: each.layout_version, default=None)
    if newest is None:
        return None
    record = layouts.get((newest.site, newest.node, newest.layout_version))
    try:
        return None if record is None else _solved(newest, record, len(classes))
    except (OpidError, ValueError, np.linalg.LinAlgError):
        return None


def _solved(summary: SummaryRecord, record: LayoutRecord, classes: int) -> LongMemory | None:
    message = decode(summary.payload, SummaryMessage)
    known, _ = sums_of(message)
    layout = layout_in(record, message.sensors)
    if fault_of(Member("", columns_of(record, message.sensors), known, record.gate), classes):
        return None
    W = solve(known.statistics(), layout.vanishing_columns, known.lam, known.rho)[0]
    roles = {each.id: each.role for each in record.sensors if each.id in message.sensors}
    return LongMemory(layout, roles, W) if np.isfinite(W).all() else None
