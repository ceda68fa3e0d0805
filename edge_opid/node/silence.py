"""Who has been silent for too long.

A sensor with a `timeout_s` has been when that time is over. One without is judged by its own rhythm
(see `rhythm`), and not at all where it has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from edge_opid.node.last_values import LastValues
from edge_opid.node.local_models import LocalModels
from edge_opid.node.rhythm import Rhythms


class SilenceDetector:
    """The rhythm of every sensor, and the rule by which one counts as silent."""

    def __init__(self, last: LastValues) -> None:
        self._last = last
        self.rhythms = Rhythms()
        self._arrived: dict[str, int] = {}
        """When the sensors of the latest order joined: their silence begins then."""
        self._back: dict[str, int] = {}
        """When sensors were said to be there again: so does theirs."""
        self._asked: tuple[object, ...] = ()
        """What nobody was found overdue under: until it changes, nobody is."""
        self._news = 0

    def hear(self, sensors: Mapping[str, float], now_ms: int) -> None:
        """These sensors have spoken."""
        self._news += 1
        self.rhythms.hear(sensors, now_ms)

    def wait_anew(self, sensors: Iterable[str], now_ms: int) -> None:
        """These are said to be there again, and have not spoken yet."""
        self._news += 1
        self._back.update(dict.fromkeys(sensors, now_ms))

    def expect(self, sensors: Iterable[str], arrived: Iterable[str], now_ms: int) -> None:
        """Another layout: forget those that are gone, wait for those that are new."""
        self._news += 1
        kept = set(sensors)
        self._last.keep(kept)
        self.rhythms.keep(kept)
        self._arrived = dict.fromkeys(arrived, now_ms)
        self._back = {each: at_ms for each, at_ms in self._back.items() if each in kept}

    def overdue(self, local_models: LocalModels, since_ms: int) -> tuple[str, ...]:
        """Sensors that were silent for too long while others spoke.

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
        heard_ms = self._last.heard_ms
        if self._all_spoke_at_once(local_models, since_ms):
            return ()
        heard = {sensor: at for sensor, at in heard_ms.items() if at >= since_ms}
        if not heard:
            return ()
        latest = max(heard.values())
        quiet = []
        for sensor in local_models.alive:
            begun = max(self._arrived.get(sensor, since_ms), since_ms)
            silence_ms = latest - max(heard.get(sensor, begun), self._back.get(sensor, 0))
            if silence_ms > self._patience_ms(sensor, silence_ms, local_models):
                quiet.append(sensor)
        return tuple(quiet)

    def _patience_ms(self, sensor: str, silence_ms: int, local_models: LocalModels) -> float:
        """How long it may be silent; where its rhythm says so, silence is in listening time."""
        timeout_s = local_models.sensors[sensor].timeout_s
        if timeout_s is not None:
            return 1000 * timeout_s
        patience_ms = self.rhythms.patience_ms(sensor)
        listened_ms = min(self.rhythms.silence_ms(sensor), silence_ms)
        return patience_ms if patience_ms and listened_ms > patience_ms else silence_ms

    def hold_ms(self, sensor: str, local_models: LocalModels) -> int | None:
        """For how long its last value may stand for it, unless the configuration says so."""
        timeout_s = local_models.sensors[sensor].timeout_s
        if timeout_s is not None:
            return int(1000 * timeout_s)
        return self.rhythms.patience_ms(sensor) or None

    def _all_spoke_at_once(self, local_models: LocalModels, since_ms: int) -> bool:
        """As they mostly do: then there is no need to look at each."""
        heard_ms = self._last.heard_ms
        times = set(heard_ms.values())
        return (
            len(times) == 1
            and min(times) >= since_ms
            and heard_ms.keys() >= set(local_models.alive)
        )

    def state(self) -> dict[str, Any]:
        """Plain values, for `restored`."""
        return {"rhythms": self.rhythms.state(), "arrived": self._arrived, "back": self._back}

    @classmethod
    def restored(cls, saved: Mapping[str, Any], last: LastValues) -> SilenceDetector:
        """What `state` described."""
        mine = cls(last)
        mine.rhythms, mine._arrived = Rhythms.restored(saved["rhythms"]), dict(saved["arrived"])
        mine._back = dict(saved["back"])
        return mine
