"""Waiting for the gateway and its nodes, never for longer than the operator said.

A *wave* is a set of nodes with an order each. It is over when every one of them has reported its
order; what is open until then can be said in a sentence, node by node.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from gateway.cli.output import Advance
from gateway.decisions.cohorts import unsettled
from gateway.registry import NodeKey, SensorState
from gateway.registry.fleet import Fleet
from gateway.registry.text import listed
from gateway.store import FleetStore

POLL_S = 0.25  # the gateway looks for commands twice a second
DONE = "done"


class Patience:
    """Time that runs out.

    >>> patience = Patience(0.0)
    >>> patience.again()
    False
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def again(self) -> bool:
        """Pause, and say whether to look once more."""
        left = self._end - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(POLL_S, left))
        return True


@dataclass(frozen=True)
class AwaitedWave:
    """How many nodes are meant, and what is open of whom."""

    total: int
    open: dict[NodeKey, str] = field(default_factory=dict)

    @property
    def done(self) -> int:
        """How many have reported."""
        return self.total - len(self.open)


def wave_of(fleet: Fleet, keys: Iterable[NodeKey]) -> AwaitedWave:
    """The orders in force of these nodes."""
    every = list(keys)
    return AwaitedWave(len(every), {key: why for key in every if (why := _unreported(fleet, key))})


def _unreported(fleet: Fleet, key: NodeKey) -> str:
    order, node = fleet.orders.get(key), fleet.nodes[key]
    if order is None or node.reported_version >= order.version:
        return ""
    away = "" if node.online else ", and is offline"
    return f"has not reported order {order.version}{away}"


def wave_after(fleet: Fleet, key: NodeKey, sensor: str) -> AwaitedWave:
    """What follows from an announcement about this sensor, as far as it has come.

    First the sensor may have to be measured, then its node gets another layout, then the order goes
    out: to this node, and to all that are in the same change.
    """
    record = fleet.sensors[key].get(sensor)
    if record is not None and record.state == SensorState.MEASURING:
        return AwaitedWave(1, {key: f"measures {sensor}, which takes its first readings"})
    if unsettled(fleet, key):
        return AwaitedWave(1, {key: "is about to get another layout"})
    change = fleet.layouts[key].change
    return wave_of(fleet, fleet.members(change) if change else [key])


def outcome_of(store: FleetStore, number: int, patience: Patience) -> str:
    """How the command ended; nothing if it is still open when time is up."""
    while True:
        command = store.command(number)
        if command is not None and command.outcome:
            return command.outcome
        if not patience.again():
            return ""


def watch(look: Callable[[], AwaitedWave], patience: Patience, advance: Advance) -> AwaitedWave:
    """Look until the wave is over, or time is up; the last look."""
    while True:
        wave = look()
        advance(wave.done, wave.total)
        if not wave.open or not patience.again():
            return wave


def still_open(wave: AwaitedWave, patience: Patience) -> str:
    """The sentence about a wave that took too long; nothing where it is over.

    >>> still_open(AwaitedWave(2, {("street", "n1"): "has not reported order 3"}), Patience(0.0))
    '1 of 2 nodes are not ready after 0 s: street/n1 has not reported order 3'
    """
    if not wave.open:
        return ""
    whom = listed(f"{'/'.join(key)} {why}" for key, why in wave.open.items())
    count = f"{len(wave.open)} of {wave.total}"
    return f"{count} nodes are not ready after {patience.seconds:g} s: {whom}"
