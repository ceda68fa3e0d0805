"""Who spoke when, and who has been silent for too long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from edge_opid.node.local_models import LocalModels


class SilenceDetector:
    """The last word of every sensor, by the node's clock."""

    def __init__(self) -> None:
        self.last: dict[str, int] = {}
        self._arrived: dict[str, int] = {}
        """When the sensors of the latest order joined: their silence begins then."""
        self._asked: tuple[object, ...] = ()
        """What nobody was found overdue under: until it changes, nobody is."""
        self._news = 0

    def hear(self, sensors: Iterable[str], now_ms: int) -> None:
        """These sensors have spoken."""
        self._news += 1
        self.last.update(dict.fromkeys(sensors, now_ms))

    def expect(self, sensors: Iterable[str], arrived: Iterable[str], now_ms: int) -> None:
        """Another layout: forget those that are gone, wait for those that are new."""
        self._news += 1
        kept = set(sensors)
        self.last = {sensor: at for sensor, at in self.last.items() if sensor in kept}
        self._arrived = dict.fromkeys(arrived, now_ms)

    def overdue(self, local_models: LocalModels, since_ms: int) -> tuple[str, ...]:
        """Sensors that were silent for longer than their timeouts while others spoke.

        Silence is measured up to the last time anybody spoke: when nobody does, it is the network
        and not the sensors. `since_ms` is when the node began to listen: what it slept through is
        nobody's silence.
        """
        asked = (self._news, since_ms, local_models.silent, local_models.sensors)
        if asked == self._asked:
            return ()
        quiet = self._quiet(local_models, since_ms)
        self._asked = () if quiet else asked
        return quiet

    def _quiet(self, local_models: LocalModels, since_ms: int) -> tuple[str, ...]:
        if self._all_spoke_at_once(local_models, since_ms):
            return ()
        heard = {sensor: at for sensor, at in self.last.items() if at >= since_ms}
        if not heard:
            return ()
        latest = max(heard.values())
        quiet = []
        for sensor in local_models.alive:
            begun = max(self._arrived.get(sensor, since_ms), since_ms)
            silence_ms = latest - heard.get(sensor, begun)
            if silence_ms > 1000 * local_models.sensors[sensor].timeout_s:
                quiet.append(sensor)
        return tuple(quiet)

    def _all_spoke_at_once(self, local_models: LocalModels, since_ms: int) -> bool:
        """As they mostly do: then there is no need to look at each."""
        times = set(self.last.values())
        return (
            len(times) == 1
            and min(times) >= since_ms
            and self.last.keys() >= set(local_models.alive)
        )

    def state(self) -> dict[str, Any]:
        """Plain values, for `restored`."""
        return {"last": self.last, "arrived": self._arrived}

    @classmethod
    def restored(cls, saved: Mapping[str, Any]) -> SilenceDetector:
        """What `state` described."""
        mine = cls()
        mine.last, mine._arrived = dict(saved["last"]), dict(saved["arrived"])
        return mine
