"""Which sensors' time has come: silent for too long, or at the end of their lives.

Silence is judged only by a gateway that hears. What was said while it was dead, or cut off from the
broker, has `settle_s` to arrive before a sensor that may have returned long ago is given up.
"""

from __future__ import annotations

from edge_opid.reasons import Reason
from edge_opid.tally import Tally
from gateway.policy import Policy
from gateway.reasons import GatewayReason
from gateway.registry import EventError
from gateway.registry.agenda import SensorKey
from gateway.registry.events import retire, take_overdue
from gateway.registry.fleet import Fleet
from gateway.registry.lifecycle import SensorEvent

RETIRED: dict[SensorEvent, Reason] = {
    SensorEvent.OVERDUE: GatewayReason.OVERDUE,
    SensorEvent.EXPIRED: GatewayReason.EXPIRED,
}


class Retirement:
    """Retires without being asked; a node's last sensor is kept, and complained of once."""

    def __init__(self, fleet: Fleet, policy: Policy) -> None:
        self._fleet, self._policy = fleet, policy
        self._since_ms: int | None = None
        self._kept: set[SensorKey] = set()
        self._judged = False, False  # by which it was judged at the last tick: hearing, sure

    def listen(self, since_ms: int | None) -> None:
        """Messages arrive since then; None: they do not."""
        self._since_ms = since_ms

    def shift(self, step_ms: int) -> None:
        """The clock was set: messages arrive for as long as they did."""
        if self._since_ms is not None:
            self._since_ms += step_ms

    def retire_due(self, now_ms: int, tally: Tally, *, sure: bool) -> list[EventError]:
        """Retire whose time has come, counted by reason; what speaks against it, if it is news."""
        hearing, news = self._hears(now_ms), []
        if (hearing, sure) != self._judged:
            self._judged = hearing, sure
            self._fleet.agenda.release_kept()
        released = self._fleet.agenda.take_released()
        complained = {key for key in released if key in self._kept}
        self._kept.difference_update(released)
        for key, sensor, event, why in take_overdue(
            self._fleet, self._policy, now_ms, hearing=hearing, sure=sure
        ):
            try:
                retire(self._fleet, key, sensor, event, why, now_ms)
                tally.note(RETIRED[event], about="/".join(key), node="/".join(key), sensor=sensor)
            except EventError as error:  # the last one is kept, whatever its age
                record = self._fleet.sensors[key][sensor]
                self._fleet.agenda.keep(record)
                self._kept.add(record.key)
                news += [] if record.key in complained else [error]
        return news

    def _hears(self, now_ms: int) -> bool:
        since_ms = self._since_ms
        return since_ms is not None and now_ms - since_ms >= 1000 * self._policy.settle_s
