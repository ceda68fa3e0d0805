"""What a scenario cannot be: each mistake names the key where it stands.

Events are checked by living through them: what is taken away must be there, what joins must not,
and no node may lose its last sensor.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from edge_opid.errors import SettingError, shown
from firmware_sim.chaos.faults import ANYONE, BROKER, BROKERS, CARDS, DEVICES, GATEWAY, NODES
from firmware_sim.world.errors import WorldError

if TYPE_CHECKING:
    from firmware_sim.scenario.scenario import Event, Scenario, Trouble

DEEDS = ("retire", "silence", "deploy", "replace")
NODES_MAX = 1_000
READINGS_MAX = 100_000
TARGETS = {BROKER: BROKERS, "gateway": (*GATEWAY, *ANYONE)}  # what can happen to whom


def check_scenario(scenario: Scenario) -> None:
    """Refuse what cannot be played."""
    _between(scenario.nodes, "nodes", 1, NODES_MAX)
    _between(scenario.readings, "readings", 10, READINGS_MAX)
    _between(scenario.every_s, "every_s", 0.001, 86_400)
    _between(scenario.speed, "speed", 0.1, 1_000)
    _between(scenario.labels, "labels", 0, 1)
    _between(scenario.label_late, "label_late", 0, 200)
    roles = _roles(scenario)
    if not scenario.sensors or len(set(scenario.sensors)) != len(scenario.sensors):
        complaint = f"must be different roles, and at least one, got {list(scenario.sensors)}"
        raise SettingError("scenario.sensors", complaint)
    for place, event in enumerate(scenario.events):
        _check_event(scenario, event, f"events[{place}]", roles)
        before = scenario.events[place - 1].at if place else event.at
        if event.at < before:
            complaint = f"must be in the order of time, got {event.at} after {before}"
            raise SettingError(f"events[{place}].at", complaint)
    _live_through(scenario)
    for place, trouble in enumerate(scenario.faults):
        _check_trouble(scenario, trouble, f"faults[{place}]")


def _roles(scenario: Scenario) -> tuple[str, ...]:
    """Every role there is in the world."""
    from firmware_sim.world import open_world  # noqa: PLC0415 - worlds are slow to import

    try:
        world = open_world(scenario.world, 0)
    except WorldError as error:
        complaint = str(error).removeprefix("world ")
        raise SettingError("scenario.world", complaint) from error
    for role in scenario.sensors:
        try:
            world.sensor(role)
        except WorldError as error:
            raise SettingError("scenario.sensors", f"cannot be: {error}") from error
    return tuple(entry.role for entry in world.catalogue)


def _between(value: float, name: str, low: float, high: float) -> None:
    if not low <= value <= high:  # false for NaN, too
        raise SettingError(f"scenario.{name}", f"must be from {low:g} to {high:g}, got {value:g}")


# --- events ---------------------------------------------------------------------------------------


def _check_event(scenario: Scenario, event: Event, key: str, roles: Iterable[str]) -> None:
    if event.do not in DEEDS:
        raise SettingError(f"{key}.do", f"must be one of {', '.join(DEEDS)}, got {shown(event.do)}")
    if not 1 <= event.at < scenario.readings:
        last = scenario.readings - 1
        raise SettingError(f"{key}.at", f"must be a reading from 1 to {last}, got {event.at}")
    if event.by and event.do != "replace":
        raise SettingError(f"{key}.by", f'only goes with do = "replace", got {shown(event.do)}')
    for name in ("sensor", "by"):
        role = getattr(event, name)
        if role and role not in roles:
            complaint = f"must be a role of world {scenario.world!r}, got {shown(role)}"
            raise SettingError(f"{key}.{name}", f"{complaint}; it has {', '.join(roles)}")
    for node in event.nodes:
        if node not in scenario.names:
            complaint = f'must be n1 to n{scenario.nodes}, or "all", got {shown(node)}'
            raise SettingError(f"{key}.nodes", complaint)


def _live_through(scenario: Scenario) -> None:
    """The roles of every node, event by event."""
    there = {node: set(scenario.sensors) for node in scenario.names}
    for place, event in enumerate(scenario.events):
        for node in scenario.whom(event):
            _happen(there[node], event, f"events[{place}]", f"{node} at reading {event.at}")


def _happen(there: set[str], event: Event, key: str, where: str) -> None:
    comes = event.sensor if event.do == "deploy" else event.by
    if event.do != "deploy":
        if event.sensor not in there:
            complaint = f"must be there to {event.do}, got {event.sensor!r}"
            raise SettingError(f"{key}.sensor", f"{complaint}; {where} has {sorted(there)}")
        if event.do == "replace" and not event.by:
            return  # another make, in the same role
        there.remove(event.sensor)
    if comes in there:
        name = "sensor" if event.do == "deploy" else "by"
        complaint = f"must not be there yet, got {comes!r}"
        raise SettingError(f"{key}.{name}", f"{complaint}; {where} has {sorted(there)}")
    if comes:
        there.add(comes)
    if not there:
        raise SettingError(f"{key}.sensor", f"must not be the last one, got {event.sensor!r}")


# --- faults ---------------------------------------------------------------------------------------


def _check_trouble(scenario: Scenario, trouble: Trouble, key: str) -> None:
    if trouble.target not in (*TARGETS, *scenario.names, "all"):
        complaint = f"must be n1 to n{scenario.nodes}, all, gateway or {BROKER}"
        raise SettingError(f"{key}.target", f"{complaint}, got {shown(trouble.target)}")
    kinds = sorted(set(TARGETS.get(trouble.target, (*NODES, *CARDS, *DEVICES, *ANYONE))))
    if trouble.kind not in kinds:
        complaint = f"must be one of {', '.join(kinds)} for {trouble.target}"
        raise SettingError(f"{key}.kind", f"{complaint}, got {shown(trouble.kind)}")
    if not 1 <= trouble.at < scenario.readings:
        last = scenario.readings - 1
        raise SettingError(f"{key}.at", f"must be a reading from 1 to {last}, got {trouble.at}")
    for name in ("lasts", "every", "detail"):
        value = getattr(trouble, name)
        if not 0 <= value <= READINGS_MAX:
            raise SettingError(f"{key}.{name}", f"must be from 0 to {READINGS_MAX}, got {value:g}")
