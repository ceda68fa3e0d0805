"""What a fit of a change starts from: the group's statistics, and the batch in columns.

Summaries that cannot be right are refused and named; the rest go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from edge_opid.errors import OpidError
from edge_opid.layout import Layout
from edge_opid.layout.layout import BIAS
from edge_opid.learner import Summary as Statistics
from edge_opid.node.orders import layout_of
from edge_opid.wire import SensorDescription, SummaryMessage, WireError, decode
from gateway.fitting.pooling import Member, fault_of
from gateway.registry import (
    ChangeRecord,
    ExampleRecord,
    FitRecord,
    LayoutRecord,
    NodeKey,
    SummaryRecord,
)
from gateway.registry.archives import ArchiveRecord
from gateway.registry.columns import column_names, columns_of, layout_in, role_of

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class FitJob:
    """All that a fit depends on."""

    change: ChangeRecord
    size: int
    """How many of the examples, the first ones, the batch has."""
    classes: tuple[str, ...]
    layouts: Mapping[tuple[str, str, int], LayoutRecord]
    """By site, node and version: of every example and every summary."""
    summaries: Sequence[SummaryRecord]
    examples: Sequence[ExampleRecord]
    previous: FitRecord | None
    """The fit that nodes have now."""
    lam: float
    rho: float
    newest: Mapping[NodeKey, LayoutRecord] = field(default_factory=dict)
    """Each node's layout of today: to its scales the statistics of before are moved."""
    weights: str = "float32"
    kernels: bool = False
    """Whether a kernel may be chosen, too."""
    archives: Sequence[ArchiveRecord] = ()
    """What operators' archives taught the group."""


# -- what the group knew ---------------------------------------------------------------------------


@dataclass
class GroupKnowledge:
    """The statistics that a fit may pool: one of each node, all with the `survivors`' columns."""

    survivors: tuple[str, ...]
    members: list[Member] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    """Of every member why its summary cannot be right, or nothing: judged once for all pools."""


def group_knowledge(job: FitJob) -> GroupKnowledge:
    """Of each node the newest statistics that have every surviving column.

    Where nobody's have them all (a survivor was silent when the summary was made), the columns that
    somebody's have are the survivors, and the others count as new.
    """
    everything, refused = _all_members(job)
    wanted = [each for each in job.change.columns if role_of(each) not in job.change.arrived]
    shares = [
        (tuple(each for each in wanted if each in member.roles), member.summary.readings)
        for member in everything
    ]
    survivors = max(shares, key=lambda share: (len(share[0]), share[1]), default=((BIAS,), 0))[0]
    found = GroupKnowledge(survivors, refused=refused)
    for member in everything:
        if member.node not in found.faults and set(survivors) <= set(member.roles):
            found.members.append(member)
            found.faults[member.node] = fault_of(member, len(job.classes))
    return found


def _all_members(job: FitJob) -> tuple[list[Member], dict[str, str]]:
    """Every summary that can be read, the newest first, and then those of archives."""
    members, refused = [], {}
    for record in sorted(job.summaries, key=lambda each: -each.layout_version):
        name = f"{record.site}/{record.node}"
        try:
            members.append(_member(job, record, name))
        except (OpidError, ValueError) as error:
            refused[name] = f"layout {record.layout_version}: {error}"
    for archived in job.archives:
        try:
            members.append(_archive_member(archived))
        except (OpidError, ValueError) as error:
            refused[archived.name] = str(error)
    return members, refused


def _archive_member(record: ArchiveRecord) -> Member:
    statistics, everything = sums_of(decode(record.payload, SummaryMessage))
    layout = layout_of(record.sensors, (), record.gate)
    names = column_names(layout)
    return Member(record.name, names, statistics, record.gate, everything, archive=True)


def _member(job: FitJob, record: SummaryRecord, name: str) -> Member:
    summary = decode(record.payload, SummaryMessage)
    layout = job.layouts.get((record.site, record.node, record.layout_version))
    if layout is None:
        raise WireError("layout", f"layout {record.layout_version} of {name} is not recorded")
    statistics, everything = sums_of(summary)
    today = _on_scales_of(layout, job.newest.get((record.site, record.node), layout))
    if today is not layout:
        target = layout_in(today, summary.sensors)
        move = target.move_from(layout_in(layout, summary.sensors))
        classes = statistics.moments.shape[1]
        statistics = statistics.mapped(move.columns, range(classes), classes)
        everything = everything and everything.mapped(move.columns, (), 0)
    return Member(name, columns_of(today, summary.sensors), statistics, layout.gate, everything)


def sums_of(summary: SummaryMessage) -> tuple[Statistics, Statistics | None]:
    """The labelled sums, and those of all readings where there are some."""
    statistics = Statistics(
        vanishing=0,
        lam=summary.lam,
        rho=summary.rho,
        readings=summary.readings,
        evidence=summary.evidence,
        gram=summary.gram_array(),
        moments=summary.moment_array(),
    )
    everything: Statistics | None = None
    if summary.everything is not None:
        everything = replace(
            statistics,
            readings=summary.everything.readings,
            evidence=summary.everything.evidence,
            gram=summary.everything.gram_array(),
            moments=statistics.moments[:, :0],
        )
    return statistics, everything


def _on_scales_of(layout: LayoutRecord, newest: LayoutRecord) -> LayoutRecord:
    """A layout with the scales that the same sensors have today; itself, where they are the same.

    A sensor's scale may have been measured again since. Another sensor in its role is on a scale of
    its own, and z means the same on both.
    """
    today = {(each.id, each.role): each for each in newest.sensors}
    sensors = tuple(today.get((each.id, each.role), each) for each in layout.sensors)
    same = all(_scale_of(a) == _scale_of(b) for a, b in zip(sensors, layout.sensors, strict=True))
    return layout if same else replace(layout, sensors=sensors)


def _scale_of(sensor: SensorDescription) -> tuple[float, float, tuple[float, ...]]:
    return sensor.reference, sensor.scale, sensor.knots


def vanished(members: Sequence[Member], change: ChangeRecord) -> tuple[str, ...]:
    """Retired columns that everybody's statistics have: W^(s) is tied to them by λ (Eq. 2)."""
    if not members:
        return ()
    common = set.intersection(*(set(member.roles) for member in members))
    return tuple(sorted(column for column in common if role_of(column) in change.retired))


# -- the batch -------------------------------------------------------------------------------------


def batch_columns(job: FitJob) -> tuple[Floats, NDArray[np.int64]]:
    """The examples' columns in the order of the change, and their classes."""
    ready: dict[tuple[str, str, int], tuple[Layout, list[int], dict[str, str]]] = {}
    rows = []
    for example in job.examples[: job.size]:
        key = example.site, example.node, example.layout_version
        if key not in ready:
            ready[key] = _encoder(job, job.layouts[key])
        layout, order, roles = ready[key]
        values = {roles[sensor]: v for sensor, v in example.values.items() if sensor in roles}
        rows.append(layout.encode(values)[order])
    X = np.array(rows, float).reshape(len(rows), len(job.change.columns))
    return X, np.array(
        [job.classes.index(each.label) for each in job.examples[: job.size]], np.int64
    )


def _encoder(job: FitJob, record: LayoutRecord) -> tuple[Layout, list[int], dict[str, str]]:
    layout = layout_in(record)
    names = column_names(layout)
    order = [names.index(column) for column in job.change.columns]
    return layout, order, {sensor.id: sensor.role for sensor in record.sensors}
