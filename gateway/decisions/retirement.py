"""Which sensors' time has come: silent for too long, or at the end of their lives.

Silence is judged only by a gateway that hears. What was said while it was dead, or cut off from the
broker, has `settle_s` to arrive before a sensor that may have returned long ago is given up.
"""

from __future__ import annotations

from collections import Counter

from gateway.policy import Policy
from gateway.registry import EventError, NodeKey
from gateway.registry.events import overdue_sensors, retire
from gateway.registry.fleet import Fleet


class Retirement:
    """Retires without being asked; a node's last sensor is kept, and complained of once."""

    def __init__(self, fleet: Fleet, policy: Policy) -> None:
        self._fleet, self._policy = fleet, policy
        self._since_ms: int | None = None
        self._kept: set[tuple[NodeKey, str]] = set()

    def listen(self, since_ms: int | None) -> None:
        """Messages arrive since then; None: they do not."""
        self._since_ms = since_ms

    def shift(self, step_ms: int) -> None:
        """The clock was set: messages arrive for as long as they did."""
        if self._since_ms is not None:
            self._since_ms += step_ms

    def retire_due(self, now_ms: int, counts: Counter[str], *, sure: bool) -> list[EventError]:
        """Retire whose time has come, counted by reason; what speaks against it, if it is news."""
        kept, news = set(), []
        for key, sensor, event, why in overdue_sensors(
            self._fleet, self._policy, now_ms, hearing=self._hears(now_ms), sure=sure
        ):
            try:
                retire(self._fleet, key, sensor, event, why, now_ms)
                counts[event] += 1
            except EventError as error:  # the last one is kept, whatever its age
                kept.add((key, sensor))
                news += [] if (key, sensor) in self._kept else [error]
        self._kept = kept
        return news

    def _hears(self, now_ms: int) -> bool:
        since_ms = self._since_ms
        return since_ms is not None and now_ms - since_ms >= 1000 * self._policy.settle_s
