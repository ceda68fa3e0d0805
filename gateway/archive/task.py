"""The sums of one part: a function of the part and the task, wherever it runs.

Rows come as batches of Arrow, whatever the source. Sensors came and went in the archive, too, so
the sums of each node are kept apart by which sensors it had, judged day by day.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edge_opid.archive.sums import Gatherer, Sums
from edge_opid.archive.tables import Wanted, arrow, batch_block, encoded
from edge_opid.errors import MismatchError
from edge_opid.layout import Layout
from gateway.workers import use_one_blas_thread

DAY_MS = 86_400_000
STRETCH_ROWS = 16_384
MS_FROM = 10**11
"""A number that is a time: seconds since 1970 below this, milliseconds from it on."""
Times = NDArray[np.int64]


class Part(Protocol):
    """Some rows of an archive: a value that travels to whoever reads them."""

    @property
    def rows(self) -> int:
        """About how many."""

    def batches(self) -> Iterator[Any]:
        """They, as record batches of Arrow, always in the same order and batches."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """Everything that the sums of a part depend on, besides the part."""

    layout: Layout
    """Of nodes that the group does not know: a column for each role of the archive."""
    wanted: Wanted
    node: str | None = None
    time: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    """Of nodes that the group knows: the same roles, on their scales."""

    def layout_of(self, node: str) -> Layout:
        """How this node's values are scaled."""
        return self.layouts.get(node, self.layout)


@dataclass(kw_only=True)
class Epoch:
    """A node of the archive while it had these sensors."""

    node: str
    sensors: tuple[str, ...]
    sums: Sums
    from_ms: int | None = None
    until_ms: int | None = None

    @property
    def key(self) -> tuple[str, tuple[str, ...]]:
        """What tells it from the others."""
        return self.node, self.sensors

    def add(self, other: Epoch) -> None:
        """The same sensors of the same node, in another part."""
        self.sums += other.sums
        self.spans(other.from_ms, other.until_ms)

    def spans(self, from_ms: int | None, until_ms: int | None) -> None:
        """It reaches over these moments, too."""
        starts = [each for each in (self.from_ms, from_ms) if each is not None]
        ends = [each for each in (self.until_ms, until_ms) if each is not None]
        self.from_ms, self.until_ms = min(starts, default=None), max(ends, default=None)


def gather_part(part: Part, task: Task) -> list[Epoch]:
    """What the rows of a part say of each node, in the order in which the nodes came."""
    use_one_blas_thread()
    gathering = _Gathering(task)
    for batch in part.batches():
        gathering.add(batch)
    return gathering.epochs()


class _Gathering:
    """The nodes of one part."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._nodes: dict[str, _Node] = {}
        self._gatherers: dict[int, Gatherer] = {}
        """By the layout's id: nodes on the same scales share one, and its buffers."""

    def add(self, batch: Any) -> None:
        columns, classes = batch_block(batch, self._task.wanted)
        times = None if self._task.time is None else times_of(batch, self._task.time)
        for name, rows in self._rows_of_nodes(batch, self._kept(times)):
            node = self._node(name)
            for some in _in_stretches(None if times is None else times[rows], len(classes[rows])):
                block = {each: values[rows][some] for each, values in columns.items()}
                node.add(block, classes[rows][some], None if times is None else times[rows][some])

    def _kept(self, times: Times | None) -> NDArray[np.intp] | None:
        """The rows within the time asked for; None: all."""
        task = self._task
        if times is None or (task.since_ms is None and task.until_ms is None):
            return None
        inside = np.ones(len(times), bool)
        if task.since_ms is not None:
            inside &= times >= task.since_ms
        if task.until_ms is not None:
            inside &= times < task.until_ms
        return np.flatnonzero(inside)

    def _rows_of_nodes(
        self, batch: Any, kept: NDArray[np.intp] | None
    ) -> Iterator[tuple[str, slice | NDArray[np.intp]]]:
        """Each node of the batch and its rows, in their order."""
        if self._task.node is None:
            yield "", slice(None) if kept is None else kept
            return
        names, codes = encoded(batch.column(self._task.node))
        places = np.arange(len(codes)) if kept is None else kept
        order = places[np.argsort(codes[places], kind="stable")]
        ends = np.flatnonzero(np.diff(codes[order])) + 1
        for rows in np.split(order, ends) if len(order) else ():
            code = int(codes[rows[0]])
            name = "" if code < 0 else str(names[code])
            yield name, slice(None) if len(rows) == len(codes) else rows

    def _node(self, name: str) -> _Node:
        if name not in self._nodes:
            layout = self._task.layout_of(name)
            classes = len(self._task.wanted.classes)
            gatherer = self._gatherers.setdefault(id(layout), Gatherer(layout, classes))
            self._nodes[name] = _Node(name, layout, classes, gatherer)
        return self._nodes[name]

    def epochs(self) -> list[Epoch]:
        return [epoch for node in self._nodes.values() for epoch in node.finish()]


def _in_stretches(times: Times | None, rows: int) -> Iterator[slice]:
    """Rows of one day each; of `STRETCH_ROWS` each where there are no times in order."""
    if times is not None and rows and (np.diff(times) >= 0).all():
        edges = np.flatnonzero(np.diff(times // DAY_MS)) + 1
        starts = [0, *edges.tolist()]
    else:
        starts = list(range(0, rows, STRETCH_ROWS))
    yield from (slice(*edge) for edge in zip(starts, [*starts[1:], rows], strict=True))


class _Node:
    """One node of a part: an open stretch of time, and what the closed ones came to.

    A sensor that said nothing in a whole stretch was not there: its column is left out of the sums
    of that stretch. Shorter gaps count as a node counts them, as the sensor's reference.
    """

    def __init__(self, name: str, layout: Layout, classes: int, gatherer: Gatherer) -> None:
        self._name, self._layout, self._classes = name, layout, classes
        self._gatherer = gatherer
        self._epochs: dict[tuple[str, ...], Epoch] = {}
        self._day: int | None = None
        self._open = self._nothing()

    def _nothing(self) -> Epoch:
        sums = Sums.nothing(self._layout, self._classes)
        return Epoch(node=self._name, sensors=self._layout.names, sums=sums)

    def add(
        self, columns: Mapping[str, NDArray[Any]], classes: NDArray[np.int64], times: Times | None
    ) -> None:
        """Rows of one stretch, or of the one that is open."""
        day = None if times is None or not len(times) else int(times[0] // DAY_MS)
        if day is None or day != self._day:
            self._close()
            self._day = day
        self._gatherer.sums = self._open.sums
        self._gatherer.add(columns, classes)
        if times is not None and len(times):
            self._open.spans(int(times.min()), int(times.max()))

    def _close(self) -> None:
        done, sums = self._open, self._open.sums
        if not (sums.readings or sums.others or sums.refused.total()):
            return
        heard = tuple(
            name for name, count in zip(self._layout.names, sums.heard, strict=True) if count
        )
        if len(heard) < len(self._layout.names):
            done.sums, done.sensors = sums.of(self._layout, heard), heard
        if heard in self._epochs:
            self._epochs[heard].add(done)
        else:
            self._epochs[heard] = done
        self._open = self._nothing()

    def finish(self) -> list[Epoch]:
        """What each set of sensors came to, in the order in which they came first."""
        self._close()
        return list(self._epochs.values())


def times_of(batch: Any, name: str) -> Times:
    """A column of moments, in milliseconds since 1970."""
    pa, column = arrow(), batch.column(name)
    if column.null_count:
        raise MismatchError(f"column {name!r} has rows without a time: leave them out")
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        ms = column.cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
        return np.asarray(ms.to_numpy(zero_copy_only=False), np.int64)
    try:
        numbers = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        complaint = f"column {name!r} must hold times or numbers, got {column.type}"
        raise MismatchError(complaint) from error
    return np.asarray(np.where(np.abs(numbers) < MS_FROM, 1000 * numbers, numbers), np.int64)
