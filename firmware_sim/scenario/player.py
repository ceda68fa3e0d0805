"""Real data drives a fleet: a recording, played back as the sensors of some nodes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from edge_opid.errors import shown
from edge_opid.wire.ids import check_id
from firmware_sim.world.chance import Array
from firmware_sim.world.errors import RecordingError
from firmware_sim.world.recording import Recording


@dataclass(frozen=True, slots=True)
class Played:
    """What the sensors of one node said at one moment, and the class, where it is known."""

    time_s: float
    node: str
    values: Mapping[str, float]
    label: str | None


class Player:
    """Plays a recording: each row is one instance of every node that has sensors in it.

    `nodes` says for each node which column is which of its sensors; a column may serve several
    nodes. Times come from the column `time`, or the rows are `period_s` apart; the first is at 0.
    Rows are played in the order of their time, those of equal time as they stand. `label` is the
    column of the classes, `classes` their names (without it, the cells are the names). A sensor
    without a value is not in the instance; a node without any has none. With `loop` the recording
    begins again, one usual step after its last row, for ever.

    >>> recording = Recording("attic.csv", {
    ...     "at": ["100", "160", "220"], "t1": ["20", "", "22"], "t2": ["18", "19", "20"],
    ...     "people": ["0", "0", "1"],
    ... })
    >>> nodes = {"north": {"t1": "temp-1"}, "south": {"t1": "temp-1", "t2": "temp-2"}}
    >>> player = Player(
    ...     recording, nodes, time="at", label="people", classes={"0": "empty", "1": "in use"}
    ... )
    >>> for played in player:
    ...     print(played.time_s, played.node, played.values, played.label)
    0.0 north {'temp-1': 20.0} empty
    0.0 south {'temp-1': 20.0, 'temp-2': 18.0} empty
    60.0 south {'temp-2': 19.0} empty
    120.0 north {'temp-1': 22.0} in use
    120.0 south {'temp-1': 22.0, 'temp-2': 20.0} in use
    """

    def __init__(
        self,
        recording: Recording,
        nodes: Mapping[str, Mapping[str, str]],
        *,
        time: str | None = None,
        period_s: float | None = None,
        label: str | None = None,
        classes: Mapping[str, str] | None = None,
        loop: bool = False,
    ) -> None:
        _check_nodes(recording, nodes)
        self.loop = loop
        self._times = _times(recording, time, period_s)
        self._order = np.argsort(self._times, kind="stable").tolist()
        used = {column for columns in nodes.values() for column in columns}
        numbers = {column: recording.numbers(column).tolist() for column in used}
        self._nodes = {
            node: [(sensor, numbers[column]) for column, sensor in columns.items()]
            for node, columns in nodes.items()
        }
        self._labels = _labels(recording, label, classes)
        found = sorted({name for name in self._labels if name is not None})
        self.classes = tuple(dict.fromkeys(classes.values())) if classes else tuple(found)

    @property
    def nodes(self) -> dict[str, tuple[str, ...]]:
        """The sensors of each node."""
        return {node: tuple(sensor for sensor, _ in row) for node, row in self._nodes.items()}

    @property
    def lasts_s(self) -> float:
        """From the first row until the recording could begin again: one usual step after the last.

        >>> recording = Recording("a.csv", {"t": ["1", "2", "3"]})
        >>> Player(recording, {"north": {"t": "temp-1"}}, period_s=10.0).lasts_s
        30.0
        """
        times = np.sort(self._times)
        steps = np.diff(times)[np.diff(times) > 0]
        return float(times[-1] - times[0] + (np.median(steps) if len(steps) else 1.0))

    def __iter__(self) -> Iterator[Played]:
        yield from self._round(0.0)
        begins = self.lasts_s
        while self.loop:
            yield from self._round(begins)
            begins += self.lasts_s

    def _round(self, begins: float) -> Iterator[Played]:
        for row in self._order:
            for node, columns in self._nodes.items():
                values = {
                    sensor: cells[row] for sensor, cells in columns if not math.isnan(cells[row])
                }
                if values:
                    time_s = begins + float(self._times[row])
                    yield Played(time_s, node, values, self._labels[row])


def _check_nodes(recording: Recording, nodes: Mapping[str, Mapping[str, str]]) -> None:
    if not nodes or not all(nodes.values()):
        raise RecordingError(f"each node of {recording.name} needs a column, got {shown(nodes)}")
    for node, columns in nodes.items():
        check_id(node, "node")
        sensors = list(columns.values())
        for sensor in sensors:
            check_id(sensor, f"sensor of node {node!r}")
            if sensors.count(sensor) > 1:
                raise RecordingError(
                    f"node {node!r}: sensor {sensor!r} must be one column of {recording.name}, "
                    f"got {[column for column, name in columns.items() if name == sensor]}"
                )


def _times(recording: Recording, time: str | None, period_s: float | None) -> Array:
    """Seconds from the first moment, for every row as it stands in the file."""
    if (time is None) == (period_s is None):
        both = "neither" if time is None else f"time={time!r} and period_s={period_s}"
        raise RecordingError(f"{recording.name} needs a time column or a period_s, got {both}")
    if time is not None:
        seconds = recording.seconds(time)
        return np.asarray(seconds - seconds.min())
    if period_s is None or not 0.0 < period_s < math.inf:
        raise RecordingError(f"period_s of {recording.name} must be above 0, got {period_s}")
    return np.arange(recording.rows, dtype=np.float64) * np.float64(period_s)


def _labels(
    recording: Recording, label: str | None, classes: Mapping[str, str] | None
) -> list[str | None]:
    if label is None:
        if classes is not None:
            raise RecordingError(f"classes of {recording.name} need a label column beside them")
        return [None] * recording.rows
    cells = list(recording.texts(label))
    if classes is None:
        return cells
    for row, cell in enumerate(cells):
        if cell is not None and cell not in classes:
            raise RecordingError(
                f"{recording.where(row)}: column {label!r} must be one of {sorted(classes)}, got "
                f"{shown(cell)}: add it to the classes"
            )
    return [None if cell is None else classes[cell] for cell in cells]
