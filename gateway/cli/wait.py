"""Waiting for the gateway and its nodes, never for longer than the operator said.

A *wave* is a set of nodes with an order each. It is over when every one of them has reported its
order; what is open until then can be said in a sentence, node by node.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from gateway.cli.context import CommandContext
from gateway.cli.output import Advance, Terminal
from gateway.decisions.cohorts import unsettled
from gateway.registry import NodeKey
from gateway.registry.fleet import Fleet
from gateway.registry.lifecycle import UNDER_WAY, SensorState
from gateway.registry.text import listed

POLL_S = 0.25  # the gateway looks for commands twice a second
DONE = "done"


class Deadline:
    """Time that runs out.

    >>> Deadline(0.0).pause()
    False
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def pause(self) -> bool:
        """Let a little time pass before the next look; False where none is left."""
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
    if key not in fleet.nodes:  # another operator did not wait
        return AwaitedWave(1, {key: "has been forgotten meanwhile"})
    record = fleet.sensors[key].get(sensor)
    if record is not None and record.state in UNDER_WAY:
        why = f"measures {sensor}, which takes its next readings"
        if record.is_known and record.state == SensorState.MEASURING:
            why = f"hears {sensor} beside {record.replaces}, which takes their next readings"
        return AwaitedWave(1, {key: why})
    if unsettled(fleet, key):
        return AwaitedWave(1, {key: "is about to get a new layout"})
    change = fleet.layouts[key].change
    return wave_of(fleet, fleet.members(change) if change else [key])


def submit(
    context: CommandContext, screen: Terminal, key: NodeKey, payload: bytes, at_ms: int
) -> tuple[int, bool]:
    """Leave a command for the gateway: its number, and whether a gateway is there to obey it."""
    served = context.store.has_leader()  # first: what fails must not leave a command behind
    number = context.store.submit(*key, payload, at_ms)
    if not served:
        database = context.config.database_shown
        screen.remark(f"no gateway serves {database}: command {number} waits for it")
    return number, served


def wait_for_outcome(
    context: CommandContext, screen: Terminal, number: int, deadline: Deadline
) -> int:
    """Until the gateway has settled the command; 0 if it obeyed, else the exit code."""
    while not (outcome := _outcome(context, number)):
        if not deadline.pause():
            running = "a" if context.store.has_leader() else "no"
            late = f"command {number} is still open after {deadline.seconds:g} s"
            screen.remark(f"{late}, and {running} gateway is running")
            return 3
    if outcome != DONE:
        screen.remark(outcome)
        return 2
    return 0


def _outcome(context: CommandContext, number: int) -> str:
    command = context.store.command(number)
    return "" if command is None else command.outcome


def wait_for_reports(
    look: Callable[[], AwaitedWave], deadline: Deadline, advance: Advance
) -> AwaitedWave:
    """Look until the wave is over, or time is up; the last look."""
    while True:
        wave = look()
        advance(wave.done, wave.total)
        if not wave.open or not deadline.pause():
            return wave


def what_is_late(wave: AwaitedWave, deadline: Deadline) -> str:
    """The sentence about a wave that took too long; nothing where it is over.

    >>> what_is_late(AwaitedWave(2, {("street", "n1"): "has not reported order 3"}), Deadline(0.0))
    '1 of 2 nodes are not ready after 0 s: street/n1 has not reported order 3'
    """
    if not wave.open:
        return ""
    whom = listed(f"{'/'.join(key)} {why}" for key, why in wave.open.items())
    count = f"{len(wave.open)} of {wave.total}"
    return f"{count} nodes are not ready after {deadline.seconds:g} s: {whom}"
