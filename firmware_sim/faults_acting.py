"""How each kind of fault is done to a fleet: one function a kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from nacl.signing import SigningKey

from edge_opid.wire import Channel, Desired, NodeTopics, decode, encode, open_sealed, seal
from firmware_sim.clock import dice
from firmware_sim.device import NodeDevice
from firmware_sim.device_gateway import GatewayDevice
from firmware_sim.device_source import SourceDevice
from firmware_sim.faults import Fault
from firmware_sim.fleet_story import SITE

if TYPE_CHECKING:
    from firmware_sim.fleet import SimFleet

JUMPS_MS = (-86_400_000, -3_600_000, -5_000, 5_000, 3_600_000, 86_400_000)
MALLORY = SigningKey(b"somebody who is not the gateway!")


def inflict(fleet: SimFleet, fault: Fault) -> None:
    """Let it happen when its time comes."""
    if fault.kind == "older":
        age_ms = 500 + 5 * fault.detail
        fleet.clock.at(fault.at_ms - age_ms, fleet.checkpoint)
    fleet.clock.at(fault.at_ms, partial(_ACTS[fault.kind], fleet, fault))


def _kill(fleet: SimFleet, fault: Fault) -> None:
    _crash(fleet, fault, dark=False)


def _power(fleet: SimFleet, fault: Fault) -> None:
    _crash(fleet, fault, dark=True)


def _crash(fleet: SimFleet, fault: Fault, *, dark: bool) -> None:
    steps = fault.detail % 7
    match fleet.devices[fault.target]:
        case NodeDevice() as node:
            node.crash(steps, fault.for_ms, dark=dark, how=fault)
        case SourceDevice() as source:
            source.crash(fault.for_ms, dark=dark, how=fault)
        case GatewayDevice() as gateway:
            gateway.crash(steps, fault.for_ms)


def _jump(fleet: SimFleet, fault: Fault) -> None:
    fleet.devices[fault.target].wall.jump(JUMPS_MS[fault.detail % len(JUMPS_MS)])
    _kill(fleet, fault)


def _stop(fleet: SimFleet, fault: Fault) -> None:
    fleet.nodes[fault.target].stop(fault.for_ms)


def _full(fleet: SimFleet, fault: Fault) -> None:
    node = fleet.nodes[fault.target]
    node.refuse(writes=True)
    fleet.clock.after(fault.for_ms, partial(node.refuse, writes=False))


def _reset(fleet: SimFleet, fault: Fault) -> None:
    fleet.network.reset(fault.target)


def _part(fleet: SimFleet, fault: Fault) -> None:
    fleet.network.part(fault.target, fault.for_ms)


def _slow(fleet: SimFleet, fault: Fault) -> None:
    fleet.network.slow_down(fault.target, 200 + 2 * fault.detail)
    fleet.clock.after(fault.for_ms, partial(fleet.network.slow_down, fault.target, 0))


# --- the broker -----------------------------------------------------------------------------------


def _restart(fleet: SimFleet, fault: Fault) -> None:
    fleet.broker.crash(forget=False)
    fleet.clock.after(fault.for_ms, fleet.broker.restart)


def _amnesia(fleet: SimFleet, fault: Fault) -> None:
    fleet.broker.crash(forget=True)
    fleet.clock.after(fault.for_ms, fleet.broker.restart)


def _older(fleet: SimFleet, fault: Fault) -> None:
    fleet.broker.fall_back(fleet.last_checkpoint)
    fleet.clock.after(fault.for_ms, fleet.broker.restart)


def _again(fleet: SimFleet, fault: Fault) -> None:
    chance = dice(fleet.story.seed, "again", fault)
    fleet.broker.say_again(chance, 1 + fault.detail % 20)


def _babble(fleet: SimFleet, fault: Fault) -> None:
    chance = dice(fleet.story.seed, "babble", fault)
    fleet.broker.babble(chance, 1 + fault.detail % 20)


def _stale(fleet: SimFleet, fault: Fault) -> None:
    topic = str(NodeTopics(SITE, fault.target).to(Channel.DESIRED))
    fleet.broker.put_back(topic, dice(fleet.story.seed, "stale", fault))


def _forge(fleet: SimFleet, fault: Fault) -> None:
    """Another key, another node's order, or one bit of the true one: none may be obeyed."""
    topic = str(NodeTopics(SITE, fault.target).to(Channel.DESIRED))
    true = [each.payload for each in fleet.broker.said if each.topic == topic]
    others = [each.payload for each in fleet.broker.said if each.topic.endswith("/desired")]
    if not true:
        return
    bit = dice(fleet.story.seed, "forge", fault).randrange(8 * len(true[-1]))
    changed = bytearray(true[-1])
    changed[bit // 8] ^= 1 << bit % 8
    key = fleet.key.verify_key
    forged = (seal(_newer(open_sealed(true[-1], [key])), MALLORY), others[-1], bytes(changed))
    fleet.broker.lie(topic, forged[fault.detail % len(forged)])


def _newer(document: bytes) -> bytes:
    """The same order under a version that any node would take for news."""
    desired = decode(document, Desired)
    return encode(replace(desired, version=desired.version + 7))


_ACTS: dict[str, Callable[[SimFleet, Fault], None]] = {
    "kill": _kill,
    "power": _power,
    "stop": _stop,
    "jump": _jump,
    "full": _full,
    "reset": _reset,
    "part": _part,
    "slow": _slow,
    "restart": _restart,
    "amnesia": _amnesia,
    "older": _older,
    "again": _again,
    "babble": _babble,
    "stale": _stale,
    "forge": _forge,
}
