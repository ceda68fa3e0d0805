"""One table, one summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edge_opid.archive.sums import Gatherer
from edge_opid.archive.tables import Wanted, blocks
from edge_opid.layout import Layout
from edge_opid.learner.summary import Summary


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """What a table taught: the two summaries a node sends, and what was left out."""

    summary: Summary
    """Of the readings with a label."""
    everything: Summary
    """Of all readings: how the sensors go together. It has no moments, d×0."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """`non-finite` and `empty` readings, which were left out, and `unknown-label`s."""


def gather(
    table: Any,
    layout: Layout,
    *,
    classes: Sequence[str],
    label: str | None = None,
    columns: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    lam: float = 1.0,
    rho: float = 1.0,
) -> Gathered:
    """Learn a whole table at once, as a learner would row by row.

    `table` is a dict of arrays, or anything with `__arrow_c_stream__` (DuckDB, Polars, pyarrow,
    pandas …), which is read some rows at a time: memory does not grow with it. `layout` says how
    each sensor is scaled. `columns` names the table's column of a sensor where that is not the
    sensor's own name; a sensor for which there is none counts as missing, if it is given as "".
    `label` is the column of the classes' names; `labels` translates them (theirs → ours).

    A value that is missing (NaN, null) counts as its sensor's reference, as for `Layout.encode`.

    >>> from edge_opid import Layout, Sensor
    >>> table = {"temp": [25.0, 15.0, 21.0], "state": ["warm", "cold", None]}
    >>> layout = Layout([Sensor("temp", 20, 5)])
    >>> found = gather(table, layout, classes=("cold", "warm"), label="state")
    >>> found.summary.readings, found.everything.readings, found.summary.moments.tolist()
    (2, 3, [[-1.0, 1.0], [1.0, 1.0]])
    """
    theirs = {name: (columns or {}).get(name, name) for name in layout.names}
    wanted = Wanted(
        sensors={name: column for name, column in theirs.items() if column},
        label=label,
        classes=tuple(classes),
        labels=labels or {},
    )
    gatherer = Gatherer(layout, len(classes))
    for some, codes in blocks(table, wanted):
        gatherer.add(some, codes)
    sums, vanishing = gatherer.sums, layout.vanishing_columns
    return Gathered(
        summary=sums.summary(vanishing, lam, rho),
        everything=sums.everything(vanishing, lam, rho),
        refused={reason: count for reason, count in sums.refused.items() if count},
    )
