"""Who spoke when, and who has been silent for too long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .senses import Senses


class Hearing:
    """The last word of every sensor, by the node's clock."""

    def __init__(self) -> None:
        self.last: dict[str, int] = {}
        self._arrived: dict[str, int] = {}
        """When the sensors of the latest order joined: their silence begins then."""

    def heard(self, sensors: Iterable[str], now_ms: int) -> None:
        """These sensors have spoken."""
        self.last.update(dict.fromkeys(sensors, now_ms))

    def expect(self, sensors: Iterable[str], arrived: Iterable[str], now_ms: int) -> None:
        """Another layout: forget those that are gone, wait for those that are new."""
        kept = set(sensors)
        self.last = {sensor: at for sensor, at in self.last.items() if sensor in kept}
        self._arrived = dict.fromkeys(arrived, now_ms)

    def overdue(self, senses: Senses, since_ms: int) -> tuple[str, ...]:
        """Sensors that were silent for longer than their timeouts while others spoke.

        Silence is measured up to the last time anybody spoke: when nobody does, it is the network
        and not the sensors. `since_ms` is when the node began to listen: what it slept through is
        nobody's silence.
        """
        heard = {sensor: at for sensor, at in self.last.items() if at >= since_ms}
        if not heard:
            return ()
        latest = max(heard.values())
        quiet = []
        for sensor in senses.alive:
            begun = max(self._arrived.get(sensor, since_ms), since_ms)
            silence_ms = latest - heard.get(sensor, begun)
            if silence_ms > 1000 * senses.sensors[sensor].timeout_s:
                quiet.append(sensor)
        return tuple(quiet)

    def state(self) -> dict[str, Any]:
        """Plain values, for `restored`."""
        return {"last": self.last, "arrived": self._arrived}

    @classmethod
    def restored(cls, saved: Mapping[str, Any]) -> Hearing:
        """What `state` described."""
        hearing = cls()
        hearing.last, hearing._arrived = dict(saved["last"]), dict(saved["arrived"])
        return hearing
