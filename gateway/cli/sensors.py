"""`sensor retire`, `sensor deploy`: rehearse, leave a command, perhaps wait until it is done.

The rehearsal is the very rule book of the gateway, on a copy of the fleet. What breaks a rule there
is told at once, and nothing is written. Only then the command is left in the database, where the
gateway finds it; it may still refuse, if something has changed meanwhile.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from datetime import datetime

from edge_opid.errors import OpidError
from edge_opid.wire import (
    Event,
    SensorDeployed,
    SensorDescription,
    SensorRemeasured,
    SensorRetired,
    decode,
    encode,
)
from gateway.cli.context import CommandContext, OperatorError, find_node, open_context
from gateway.cli.output import Terminal
from gateway.cli.wait import (
    Deadline,
    submit,
    wait_for_outcome,
    wait_for_reports,
    wave_after,
    what_is_late,
)
from gateway.decisions.cohorts import wanted
from gateway.policy import Policy
from gateway.registry import NodeKey, SensorState
from gateway.registry.events import ANNOUNCEMENTS, Announcement, apply_event
from gateway.registry.fleet import Fleet
from gateway.registry.measuring import Measuring
from gateway.registry.overlap import successor, takeover_sentence
from gateway.store import FORGET


def retire(given: Namespace, screen: Terminal) -> int:
    """A sensor is gone for good."""
    return _announce(given, screen, SensorRetired(given.sensor, now_ms(), given.reason))


def remeasure(given: Namespace, screen: Terminal) -> int:
    """A sensor's scale is measured anew, by its next readings."""
    return _announce(given, screen, SensorRemeasured(given.sensor, now_ms()))


def deploy(given: Namespace, screen: Terminal) -> int:
    """A sensor joins; what is not said of it the gateway finds out."""
    at_ms = now_ms()
    event = SensorDeployed(
        given.sensor,
        role=given.role,
        at_ms=at_ms,
        unit=given.unit,
        reference=given.reference,
        scale=given.scale,
        knots=tuple(given.knots or ()),
        timeout_s=given.timeout_s,
        replaces=given.replaces,
        end_of_life_ms=_end_of_life(given.end_of_life, at_ms),
    )
    return _announce(given, screen, event)


def now_ms() -> int:
    """The time that is written on an announcement."""
    return time.time_ns() // 1_000_000


def _end_of_life(end: datetime | None, at_ms: int) -> int | None:
    if end is None:
        return None
    end_ms = int(end.timestamp() * 1000)
    if end_ms <= at_ms:
        raise OperatorError(f"--end-of-life must be in the future, got {end.isoformat(' ')}")
    return end_ms


def _announce(given: Namespace, screen: Terminal, event: Announcement) -> int:
    deadline = Deadline(given.wait_s)
    with open_context(given.config) as context:
        fleet = context.fleet()
        key = _served_node(fleet, given.node)
        rehearse_open(context, fleet)
        told = list(rehearse(fleet, key, event, context.config.policy))
        screen.lines(told)
        number, _ = submit(context, screen, key, encode(event), event.at_ms)
        return _wait(context, screen, key, event.sensor, number, deadline) if given.wait else 0


# -- before ----------------------------------------------------------------------------------------


def _served_node(fleet: Fleet, text: str) -> NodeKey:
    """A node that the gateway would listen to, not one that only the database remembers."""
    key = find_node(fleet, text)
    if fleet.group_of(key) is None:
        raise OperatorError(
            f"node {'/'.join(key)} is no longer in any group of the configuration: add it to one, "
            "and restart the gateway"
        )
    return key


def rehearse_open(context: CommandContext, fleet: Fleet) -> None:
    """What other operators have asked for and the gateway has not obeyed yet comes first."""
    for command in context.store.commands():
        if command.payload == FORGET:
            fleet.forget((command.site, command.node))
            continue
        try:
            event: Announcement = decode(command.payload, *ANNOUNCEMENTS)  # type: ignore[assignment]
            apply_event(fleet, (command.site, command.node), event, command.at_ms)
        except OpidError:
            continue  # the gateway will refuse it, and tell whoever asked


def rehearse(fleet: Fleet, key: NodeKey, event: Event, policy: Policy) -> Iterator[str]:
    """Let it happen to this copy of the fleet; what follows, line by line."""
    before = {each.role: each for each in wanted(fleet, key)} if key in fleet.nodes else {}
    warning = _too_early(fleet, key, event, policy)
    apply_event(fleet, key, event, now_ms())
    readings = policy.measure_readings
    Measuring(readings, policy.overlap_readings).take_over(fleet, [key], now_ms())
    after = {each.role: each for each in wanted(fleet, key)}
    where, sensor = "/".join(key), fleet.sensors[key][event.sensor]
    if warning:
        yield f"{where}: {warning}"
    if sensor.state == SensorState.MEASURING and not sensor.is_known:
        yield f"{where}: {sensor.id} is measured first, for {readings} readings"
    if waits := takeover_sentence(fleet, sensor, policy.overlap_readings):
        yield f"{where}: {waits}, or as soon as {sensor.replaces} is silent or retired"
    if sensor.state == SensorState.REMEASURING:
        yield (
            f"{where}: {sensor.id} is measured again, for {readings} readings or until it has "
            f"moved; its scale is {sensor.scale:g} about {sensor.reference:g} until then"
        )
    for role in sorted(before.keys() - after.keys()):
        yield f"{where}: column {_column(before[role])} is removed, with sensor {before[role].id}"
    for role in sorted(after.keys() - before.keys()):
        yield f"{where}: column {_column(after[role])} is added, with sensor {after[role].id}"
    for role in sorted(before.keys() & after.keys()):
        old, new = before[role].id, after[role].id
        if old != new:
            yield f"{where}: column {_column(after[role])} passes from sensor {old} to {new}"
    yield f"{where}: its layout will be {_columns(list(after.values()))}"


def _too_early(fleet: Fleet, key: NodeKey, event: Event, policy: Policy) -> str:
    """What is lost when a sensor is retired that another one is still heard beside, or nothing."""
    old = fleet.sensors[key].get(event.sensor)
    heir = old and successor(fleet, old)
    if not isinstance(event, SensorRetired) or heir is None:
        return ""
    waits = takeover_sentence(fleet, heir, policy.overlap_readings)
    if not waits:
        return ""
    then = "at once" if heir.is_known else "when it has been measured"
    return f"{waits}; with {event.sensor} retired now, it takes over {then}, with less knowledge"


def _column(sensor: SensorDescription) -> str:
    return f"{sensor.role} ({len(sensor.knots)} hats)" if sensor.knots else sensor.role


def _columns(sensors: Sequence[SensorDescription]) -> str:
    return ", ".join(_column(each) for each in sensors)


# -- after -----------------------------------------------------------------------------------------


def _wait(
    context: CommandContext,
    screen: Terminal,
    key: NodeKey,
    sensor: str,
    number: int,
    deadline: Deadline,
) -> int:
    """Until the gateway has obeyed and every node concerned has reported; the exit code."""
    code = wait_for_outcome(context, screen, number, deadline)
    if code:
        return code
    with screen.bar("nodes that have reported") as advance:
        wave = wait_for_reports(lambda: wave_after(context.fleet(), key, sensor), deadline, advance)
    late = what_is_late(wave, deadline)
    if late:
        screen.remark(late)
        return 3
    screen.lines([f"done: {wave.done} of {wave.total} nodes have reported"])
    return 0
