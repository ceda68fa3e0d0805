"""The first readings of a node whose sensors were configured without reference or scale."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from edge_opid.config.node import NodeSettings
from edge_opid.layout import FirstValues, WarmUp
from edge_opid.layout.first_values import has_moved
from edge_opid.node.configuration import described, measured
from edge_opid.wire import SensorDescription


class NodeWarmUp:
    """A `WarmUp` over the node's sensors, which keeps what the operator gave.

    It is durable: its rows are part of the state, and adding them again restores it.
    """

    def __init__(self, settings: NodeSettings, without: Collection[str] = ()) -> None:
        self._settings = settings
        self._sensors = [sensor for sensor in settings.sensors if sensor.id not in without]
        knots = {sensor.id: sensor.knots for sensor in self._sensors}
        readings = settings.warmup_readings
        self._warmup = WarmUp(list(knots), readings, knots, gate=settings.gate)
        self._given = all(s.reference is not None and s.knots == 1 for s in self._sensors)
        self.usable = self._given
        """Whether the last look at the readings has told the scale of anybody."""

    @classmethod
    def needed(cls, settings: NodeSettings) -> Self | None:
        """A warm-up where something is left to estimate, else None."""
        warmup = cls(settings)
        return None if warmup.over else warmup

    @property
    def over(self) -> bool:
        """The last layout has been estimated, or nothing is left to estimate."""
        return self._warmup.full or self._given

    def add(self, values: Mapping[str, float], label: int | None) -> bool:
        """Keep a reading; whether a better layout is due."""
        known = {sensor: values[sensor] for sensor in self._warmup.names if sensor in values}
        self._warmup.add(known, label)
        due = self._warmup.due
        if due:  # who moved in eight readings may have rested in the next eight
            self.usable = self._given or bool(self.estimated())
        return due

    def unlabel(self, values: Mapping[str, float], label: int) -> bool:
        """Let a kept reading have no label after all; whether it was found."""
        known = {sensor: values[sensor] for sensor in self._warmup.names if sensor in values}
        return self._warmup.unlabel(known, label)

    @property
    def progress(self) -> str:
        """How far it is, in words."""
        return self._warmup.progress

    @property
    def names(self) -> tuple[str, ...]:
        """The sensors that it is about."""
        return self._warmup.names

    def rows(self) -> Iterator[tuple[dict[str, float], int | None]]:
        """The readings kept so far, with their labels."""
        return self._warmup.rows()

    def sensible_rows(self) -> Iterator[tuple[dict[str, float], int | None]]:
        """The same without values that have no say: a code counts as missing."""
        return self._warmup.sensible_rows()

    def aside(self) -> list[str]:
        """A sentence for each sensor some of whose first values have no say."""
        return list(self._warmup.aside.values())

    def guessed(self) -> tuple[SensorDescription, ...]:
        """Sensors as they must do until the first estimate: not used for learning."""
        return tuple(
            described(replace(sensor, reference=0.0, scale=1.0)) for sensor in self._sensors
        )

    def estimated(self) -> tuple[SensorDescription, ...]:
        """Sensors with what was given, and what the readings suggest for those that have moved."""
        estimates = {sensor.name: sensor for sensor in self._warmup.layout().sensors}
        gate, resting = self._settings.gate, self.resting()
        moved = [sensor for sensor in self._sensors if sensor.id not in resting]
        return tuple(measured(each, estimates[each.id], gate) for each in moved)

    def resting(self) -> dict[str, list[float]]:
        """Sensors without a given scale that have not moved so far, and what they have said."""
        values = {s.id: self._warmup.values_of(s.id) for s in self._sensors if s.scale is None}
        return {sensor: seen.tolist() for sensor, seen in values.items() if not has_moved(seen)}

    def under(
        self, settings: NodeSettings, sources: Sequence[int | None], without: Collection[str] = ()
    ) -> NodeWarmUp:
        """A warm-up of the same readings under other settings: class k was class `sources[k]`."""
        other = NodeWarmUp(settings, without)
        places = {source: place for place, source in enumerate(sources)}
        for row, label in self.rows():
            if not other._warmup.full:
                other.add(row, None if label is None else places.get(label))
        return other

    def state(self) -> dict[str, Any]:
        """The rows, for `restored`."""
        return {"rows": [[row, label] for row, label in self.rows()]}

    @classmethod
    def restored(
        cls, saved: Mapping[str, Any], settings: NodeSettings, without: Collection[str] = ()
    ) -> Self:
        """The warm-up that `state` described, of the sensors but those in `without`."""
        mine = cls(settings, without)
        for row, label in saved["rows"]:
            mine.add(row, label)
        return mine


class SensorsMeasured:
    """Sensors without columns: they came into the file later, or did not move in the warm-up.

    Each is heard, and joins the layout when it has said as much as a warm-up takes, and has moved:
    before, no scale can be told. `until` names for each the sensor that it replaces, and that stays
    until then ("" for nobody).

    >>> from edge_opid.config.node import SensorConfig
    >>> door = SensorConfig("door")
    >>> settings = NodeSettings(
    ...     site="farm", node="n1", classes=("a", "b"), sensors=(door,), warmup_readings=2
    ... )
    >>> measuring = SensorsMeasured(settings, {"door": ""})
    >>> measuring.hear({"door": 1.0, "temp": 20.0}), measuring.hear({"door": 3.0})
    (['door'], ['door'])
    >>> [(sensor.id, sensor.reference) for sensor in measuring.measured()]
    [('door', 2.0)]
    """

    def __init__(self, settings: NodeSettings, until: Mapping[str, str]) -> None:
        self._settings, self.until = settings, dict(until)
        self._sensors = {s.id: s for s in settings.sensors if s.id in until}
        self._first = {
            s.id: FirstValues(s.id, settings.warmup_readings, s.knots, gate=settings.gate)
            for s in self._sensors.values()
        }

    def __bool__(self) -> bool:
        return bool(self._first)

    def hear(self, values: Mapping[str, float]) -> list[str]:
        """Keep the values of those that are measured; who they were."""
        heard = [id_ for id_ in self._first if id_ in values]
        for id_ in heard:
            self._first[id_].add(values[id_])
        return heard

    def measured(self) -> list[SensorDescription]:
        """Those that have said enough, and moved; with a given scale only knots are to be told."""
        return [
            measured(self._sensors[id_], first.sensor(), self._settings.gate)
            for id_, first in self._first.items()
            if first.ready or (first.full and self._sensors[id_].scale is not None)
        ]

    def resting(self) -> list[str]:
        """A line for each that has not said enough, or has not moved."""
        return [str(first) for first in self._first.values() if not first.ready]

    def with_resting(self, resting: Mapping[str, Sequence[float]]) -> SensorsMeasured:
        """The same, and sensors that have not moved so far, with what they have said."""
        other = self.under(self._settings, {**self.until, **dict.fromkeys(resting, "")})
        for id_, values in resting.items():
            for value in values:
                other._first[id_].add(value)
        return other

    def may_ask(self, sensor: str) -> bool:
        """Whether a gateway is to be asked to let it in: at twice as many values each time."""
        first = self._first[sensor]
        if first.asked_at and first.heard < 2 * first.asked_at:
            return False
        first.asked_at = first.heard
        return True

    def without(self, sensors: Collection[str]) -> SensorsMeasured:
        """The same, but for these, which have joined."""
        until = {id_: until for id_, until in self.until.items() if id_ not in sensors}
        return self.under(self._settings, until)

    def under(self, settings: NodeSettings, until: Mapping[str, str]) -> SensorsMeasured:
        """What was said by those that are still to be measured, under other settings."""
        other = SensorsMeasured(settings, until)
        for id_, first in other._first.items():
            if id_ in self._first:
                first.restore(self._first[id_].state())
        return other

    def state(self) -> dict[str, Any]:
        """Plain values, for `restored`."""
        first = {id_: each.state() for id_, each in self._first.items()}
        return {"until": self.until, "first": first}

    @classmethod
    def restored(cls, saved: Mapping[str, Any], settings: NodeSettings) -> SensorsMeasured:
        """What `state` described."""
        mine = cls(settings, saved["until"])
        for id_, each in saved["first"].items():
            mine._first[id_].restore(each)
        return mine
