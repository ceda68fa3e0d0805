"""Values sampled together become one instance.

Sensors of one place often speak by themselves, each on its own topic. The rules, in order:

1. A reading without values (its sender has lost it) adds nothing.
2. The open instance closes before a reading is added when its time is over, when it already has a
   value of one of these sensors, when the sender's times are more than the window apart, or when it
   would hold more sensors than the wire allows.
3. It closes with the reading that completes it: every sensor alive now has a value.
4. Otherwise it closes when the window is over, counted from its first value by the node's clock.

This is part of the durable state: the same calls give the same instances, whenever they are made.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from edge_opid.config.node import OWN_SOURCE
from edge_opid.wire import LIMITS, InstanceId


class Instance(NamedTuple):
    """What the sensors said at one moment, and the readings that said it.

    The last of the numbers is its own.
    """

    time_ms: int
    numbers: tuple[InstanceId, ...]
    values: Mapping[str, float]
    label: str | None = None


@dataclass(slots=True)
class OwnInstances:
    """Those that no reading completed: the node numbers them itself."""

    made: int = 0
    heard: int = 0  # how many readings there had been when the last of them was made

    def take(self, heard: int) -> tuple[InstanceId, bool]:
        """The next number, and whether anybody has spoken since the last one."""
        news, self.heard = heard != self.heard, heard
        self.made += 1
        return InstanceId(OWN_SOURCE, 0, self.made), news


@dataclass(slots=True, kw_only=True)
class _Open:
    """An instance that waits for more values. Every number brings a sensor, so both are bounded."""

    opened_ms: int  # the node's clock, at the first value
    time_ms: int  # the sender's
    numbers: list[InstanceId] = field(default_factory=list)
    values: dict[str, float] = field(default_factory=dict)
    label: str | None = None

    def has_no_place_for(self, time_ms: int, values: Mapping[str, float], window_ms: int) -> bool:
        return (
            abs(time_ms - self.time_ms) > window_ms
            or len(self.values) + len(values) > LIMITS.sensors_max
            or not self.values.keys().isdisjoint(values)
        )


class InstanceJoiner:
    """One instance at a time is open; a window of 0 makes every reading an instance by itself.

    It keeps at most as many values as one reading may have, and as many numbers.

    >>> joiner = InstanceJoiner(window_ms=500)
    >>> alive = ["humidity", "temp"]
    >>> joiner.make_way(0, 7, {"temp": 21.5})
    []
    >>> joiner.add(0, 7, InstanceId("attic", 1, 1), {"temp": 21.5}, None, alive)
    []
    >>> joiner.closes_at_ms()
    500
    >>> [instance] = joiner.add(90, 9, InstanceId("b", 1, 1), {"humidity": 40.0}, "dry", alive)
    >>> instance.values, instance.label, instance.numbers[-1].source
    ({'temp': 21.5, 'humidity': 40.0}, 'dry', 'b')
    """

    def __init__(self, window_ms: int = 0) -> None:
        if window_ms < 0:
            raise ValueError(f"window_ms must be 0 or more, got {window_ms}")
        self._window_ms = window_ms
        self._open: _Open | None = None

    def add(
        self,
        now_ms: int,
        time_ms: int,
        number: InstanceId,
        values: Mapping[str, float],
        label: str | None,
        expected: Collection[str],
    ) -> list[Instance]:
        """Take a reading in, after `make_way`; returns the instance that it completes, if any.

        `expected` are the sensors alive now. Of two labels within an instance the last one counts.
        """
        if not values:
            return []
        if self._open is None:
            if not self._window_ms:
                return [Instance(time_ms, (number,), values, label)]
            self._open = _Open(opened_ms=now_ms, time_ms=time_ms)
        self._join(self._open, number, values, label)
        if not self._window_ms or self._open.values.keys() >= set(expected):
            return self._finish()
        return []

    def make_way(self, now_ms: int, time_ms: int, values: Mapping[str, float]) -> list[Instance]:
        """Finish the open instance if a reading that has just come cannot be part of it."""
        current = self._open
        if current is None or not values:
            return []
        if self.is_due(now_ms) or current.has_no_place_for(time_ms, values, self._window_ms):
            return self._finish()
        return []

    def set_window(self, window_ms: int) -> None:
        """Another window, for the open instance too."""
        self._window_ms = window_ms

    def closes_at_ms(self) -> int | None:
        """When to `close` the open instance, by the node's clock; None if there is none."""
        return None if self._open is None else self._open.opened_ms + self._window_ms

    def is_due(self, now_ms: int) -> bool:
        """Whether the open instance has waited long enough.

        A clock that was set back may take hours to come to the end of the window: that is due, too.
        """
        if self._open is None:
            return False
        return not 0 <= now_ms - self._open.opened_ms < self._window_ms

    def close(self, now_ms: int) -> list[Instance]:
        """Finish the open instance if it is due, with the values it has."""
        return self._finish() if self.is_due(now_ms) else []

    def state(self) -> dict[str, Any]:
        """What is waiting, in values that msgpack and JSON know."""
        current = self._open
        if current is None:
            return {"open": None}
        numbers = [[each.source, each.boot, each.seq] for each in current.numbers]
        times = [current.opened_ms, current.time_ms]
        return {"open": [*times, numbers, dict(current.values), current.label]}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], window_ms: int = 0) -> InstanceJoiner:
        """The joiner that `state` describes. The window is configuration, not state.

        >>> first = InstanceJoiner(window_ms=500)
        >>> first.add(0, 7, InstanceId("attic", 1, 1), {"temp": 21.5}, "dry", ["temp", "co2"])
        []
        >>> second = InstanceJoiner.from_state(first.state(), window_ms=500)
        >>> second.close(500) == first.close(500) != []
        True
        """
        joiner = cls(window_ms)
        if state["open"] is not None:
            opened_ms, time_ms, numbers, values, label = state["open"]
            ids = [InstanceId(*each) for each in numbers]
            joiner._open = _Open(
                opened_ms=opened_ms, time_ms=time_ms, numbers=ids, values=dict(values), label=label
            )
        return joiner

    @staticmethod
    def _join(
        current: _Open, number: InstanceId, values: Mapping[str, float], label: str | None
    ) -> None:
        current.numbers.append(number)
        current.values.update(values)
        current.label = current.label if label is None else label

    def _finish(self) -> list[Instance]:
        current, self._open = self._open, None
        if current is None:
            return []
        numbers = tuple(current.numbers)
        return [Instance(current.time_ms, numbers, current.values, current.label)]
