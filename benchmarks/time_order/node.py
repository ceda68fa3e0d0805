"""The node on a stream: its durable half, `NodeState`, fed with readings, and labels few and late.

Sockets, signatures and the journal are left out, since they change no prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.common.few_labels import Schedule
from benchmarks.time_order.streams import Row, TimedStream
from edge_opid.config.node import NodeConfig, SensorConfig
from edge_opid.node.effects import Predicted
from edge_opid.node.inputs import apply
from edge_opid.node.journal_records import Accepted, Labelled, Silenced
from edge_opid.node.state import NodeState
from edge_opid.wire import InstanceId

SOURCE, BOOT = "s", 1


@dataclass(frozen=True)
class Death:
    """Sensors that say nothing for some of the readings."""

    sensors: tuple[str, ...]
    rows: range


def config(stream: TimedStream) -> NodeConfig:
    """The configuration for a stream: no scale is known, and no sensor times out."""
    sensors = (SensorConfig(s, knots=stream.knots, timeout_s=1e6) for s in stream.sensors)
    return NodeConfig(
        site="bench", node="n1", classes=tuple(f"c{k}" for k in range(stream.classes)),
        sensors=tuple(sensors), rho=stream.rho,
    )  # fmt: skip


def predictions(
    stream: TimedStream, schedule: Schedule, deaths: Sequence[Death] = ()
) -> list[Predicted]:
    """What the node says of each reading, before its label comes."""
    mine = config(stream)
    state, found = NodeState(mine), []
    for place in range(len(stream.y)):
        gone = {sensor for death in deaths if place in death.rows for sensor in death.sensors}
        for death in deaths:
            if place == death.rows.start:
                apply(state, Silenced(int(stream.times_ms[place]), death.sensors))
        due, now = schedule.due(place), int(stream.times_ms[place])
        label = None if due is None else mine.classes[stream.y[due]]
        row: Row = stream.row(place, tuple(gone))
        at_once = label if due == place else None
        effects = apply(state, Accepted(now, SOURCE, BOOT, place + 1, now, row, at_once))
        found.append(next(each for each in effects if isinstance(each, Predicted)))
        if label is not None and due is not None and due != place:
            apply(state, Labelled(now, label, InstanceId(SOURCE, BOOT, due + 1), None))
    return found
