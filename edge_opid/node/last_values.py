"""What every sensor said last, and when: an instance is made of what is not too old.

Sensors of a home report when they like: CO₂ every minute, a thermometer when it has changed, a door
when it is opened. So a value is **held** until its sensor says another one, for at most

1. the sensor's `hold_s`, where the configuration gives one (0: not at all);
2. else its `timeout_s`, where one is given: it then counts as silent anyway;
3. else as long as its own rhythm allows (see `rhythm`);
4. else, where a sensor has no rhythm, without end: a door that nobody opens stays closed.

A sensor that was declared silent is not held. Ages are by the node's clock, from when a value
arrived; a value from before a restart keeps its age. Where the clock was set back, so that a value
seems to come from the future, its age begins anew.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, KeysView, Mapping
from typing import Any, NamedTuple, Self

_KEYS: type[KeysView[str]] = type(dict[str, None]().keys())
"""A set that costs nothing to make. To ask an ABC whether something is one takes a while."""
AGE_MAX_MS = 2**32 - 1  # 49 days; what is older is said to be that old


class Held(NamedTuple):
    """The values of one moment, with those that were held."""

    values: Mapping[str, float]
    ages_ms: array[int] | None
    """How old each of them was, in their order; None if none was held."""


class LastValues:
    """The last value of every sensor. Part of the durable state.

    >>> last = LastValues()
    >>> last.take({"door": 0.0, "temp": 21.5}, now_ms=1_000)
    >>> last.take({"co2": 600.0}, now_ms=61_000)
    >>> longest = {"temp": 30_000}.get
    >>> last.with_held({"co2": 600.0}, 61_000, ["co2", "door", "temp"], longest)
    Held(values={'co2': 600.0, 'door': 0.0}, ages_ms=array('I', [0, 60000]))
    """

    def __init__(self) -> None:
        self._values: dict[str, float] = {}
        self._heard_ms: dict[str, int] = {}
        self._together = False  # whether all have spoken at `_now_ms`, and `_heard_ms` is not made
        self._now_ms = 0

    @property
    def heard_ms(self) -> dict[str, int]:
        """When each sensor spoke last, by the node's clock."""
        if self._together:
            self._heard_ms = dict.fromkeys(self._values, self._now_ms)
            self._together = False
        return self._heard_ms

    def take(self, values: Mapping[str, float], now_ms: int) -> None:
        """These sensors have spoken."""
        if now_ms < self._now_ms:
            self._set_back(now_ms)
        if values.keys() >= self._values.keys():  # all at once, as they mostly do: a copy is faster
            self._values, self._now_ms, self._together = dict(values), now_ms, True
            return
        self.heard_ms.update(dict.fromkeys(values, now_ms))
        self._values.update(values)
        self._now_ms = now_ms

    def with_held(
        self,
        values: Mapping[str, float],
        now_ms: int,
        sensors: Collection[str],
        longest_ms: Callable[[str], int | None],
    ) -> Held:
        """The values of a moment, and for those of `sensors` that are missing what is held.

        A value is held for `longest_ms` of its sensor; None is for good. Changes nothing.
        """
        wanted = sensors if isinstance(sensors, _KEYS) else set(sensors)
        if values.keys() >= wanted:
            return Held(values, None)
        found: dict[str, float] = {}
        ages_ms = array("I")
        for sensor in sensors:
            if sensor in values:
                found[sensor] = values[sensor]
                ages_ms.append(0)
            elif sensor in self._values:
                age_ms, longest = max(0, now_ms - self.heard_ms[sensor]), longest_ms(sensor)
                if longest is None or age_ms <= longest:
                    found[sensor] = self._values[sensor]
                    ages_ms.append(min(age_ms, AGE_MAX_MS))
        for sensor in values:
            if sensor not in found:  # of one that was alive when the instance was opened
                found[sensor] = values[sensor]
                ages_ms.append(0)
        return Held(found, ages_ms if len(found) > len(values) else None)

    def _set_back(self, now_ms: int) -> None:
        """The clock was: values that would come from the future count as of now."""
        later = [sensor for sensor, at_ms in self.heard_ms.items() if at_ms > now_ms]
        self.heard_ms.update(dict.fromkeys(later, now_ms))

    def keep(self, sensors: Iterable[str]) -> None:
        """Another layout: forget the values of sensors that are gone."""
        kept = set(sensors)
        self._heard_ms = {each: at_ms for each, at_ms in self.heard_ms.items() if each in kept}
        self._values = {each: value for each, value in self._values.items() if each in kept}

    def state(self) -> dict[str, Any]:
        """Plain values, for `restored`."""
        return {"values": self._values, "heard": self.heard_ms, "now": self._now_ms}

    @classmethod
    def restored(cls, saved: Mapping[str, Any]) -> Self:
        """What `state` described."""
        mine = cls()
        mine._values, mine._heard_ms = dict(saved["values"]), dict(saved["heard"])
        mine._now_ms = saved["now"]
        return mine
