"""How each kind of fault is done to a fleet: one function a kind.

The longest is the liar's: somebody who has a node's password and means to turn its whole group
round, by a summary that claims a million readings and by examples under the wrong class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from nacl.signing import SigningKey

from edge_opid.node.effects import summarised
from edge_opid.node.state import NodeState
from edge_opid.wire import (
    Channel,
    Desired,
    Example,
    InstanceId,
    NodeTopics,
    Reading,
    SummaryMessage,
    WireError,
    decode,
    encode,
    open_sealed,
    seal,
    to_bytes,
)
from edge_opid.wire.topics import matches
from firmware_sim.chaos.faults import Fault
from firmware_sim.chaos.story import SITE
from firmware_sim.simulated.clock import IN_2040_MS, dice
from firmware_sim.simulated.gateway_device import GatewayDevice
from firmware_sim.simulated.node_device import NodeDevice
from firmware_sim.simulated.source_device import SourceDevice

if TYPE_CHECKING:
    from firmware_sim.chaos.fleet import SimFleet

JUMPS_MS = (-86_400_000, -3_600_000, -5_000, 5_000, 3_600_000, 86_400_000)
LIES, LIE_MS = 4, 1_300  # a change takes as long to come, to be gathered for and to be fitted
MALLORY = SigningKey(b"somebody who is not the gateway!")
MILLION = 1_000_000  # readings that a liar's summary claims
EXAMPLES = 24  # of a liar at a time, at most: more than any change of the soak gathers of one node
AHEAD = 100_000  # of the true numbers, so that no lie is an example that the gateway has


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


def _epoch(fleet: SimFleet, fault: Fault) -> None:
    _before_ntp(fleet, fault)
    _kill(fleet, fault)


def _card(fleet: SimFleet, fault: Fault) -> None:
    if fault.detail % 3:  # else its clock has a battery
        _before_ntp(fleet, fault)
    fleet.sources[fault.target].new_card(fault.for_ms)


def _before_ntp(fleet: SimFleet, fault: Fault) -> None:
    """The machine has no battery for its clock: it is any time until somebody tells it."""
    wall = fleet.devices[fault.target].wall
    wall.lose((1_000 * fault.detail, IN_2040_MS + 1_000 * fault.detail)[fault.detail % 2])
    fleet.clock.after(fault.for_ms + 300 + 5 * fault.detail, wall.find)


def _eio(fleet: SimFleet, fault: Fault) -> None:
    source = fleet.sources[fault.target]
    source.fail(reads=True)
    fleet.clock.after(fault.for_ms, partial(source.fail, reads=False))


def _stop(fleet: SimFleet, fault: Fault) -> None:
    fleet.nodes[fault.target].stop(fault.for_ms)


def _full(fleet: SimFleet, fault: Fault) -> None:
    node = fleet.nodes[fault.target]
    node.refuse(writes=True)
    fleet.clock.after(fault.for_ms, partial(node.refuse, writes=False))


def _thread(fleet: SimFleet, fault: Fault) -> None:
    deadly = fault.detail % 3 > 0
    match fleet.devices[fault.target]:
        case NodeDevice() as node:
            node.link_fault(deadly=deadly)
        case GatewayDevice() as gateway:
            gateway.link_fault(deadly=deadly)


def _gone(fleet: SimFleet, fault: Fault) -> None:
    fleet.nodes[fault.target].unmount(fault.for_ms, deleted=fault.detail % 2 == 1)


def _reset(fleet: SimFleet, fault: Fault) -> None:
    fleet.network.reset(fault.target)


def _part(fleet: SimFleet, fault: Fault) -> None:
    fleet.network.part(fault.target, fault.for_ms)


def _slow(fleet: SimFleet, fault: Fault) -> None:
    fleet.network.slow_down(fault.target, 200 + 2 * fault.detail)
    fleet.clock.after(fault.for_ms, partial(fleet.network.slow_down, fault.target, 0))


def _noack(fleet: SimFleet, fault: Fault) -> None:
    fleet.broker.unconfirmed.add(fault.target)
    fleet.clock.after(fault.for_ms, partial(fleet.broker.unconfirmed.discard, fault.target))


def _poison(fleet: SimFleet, fault: Fault) -> None:
    chance = dice(fleet.story.seed, "poison", fault)
    fleet.broker.poison(fault.target, chance, retain=fault.detail % 3 == 0)


def _retain(fleet: SimFleet, fault: Fault) -> None:
    device = fleet.foreign[fault.target]
    device.retained = True
    device.speak()
    device.retained = fault.detail % 2 == 0
    for turn in range(1 + fault.detail % 3):
        wait_ms = 100 + turn * fault.for_ms
        fleet.clock.after(wait_ms, partial(fleet.network.reset, fault.target))


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


def _liar(fleet: SimFleet, fault: Fault) -> None:
    """Again and again for some seconds; and from then on no label tells anybody better."""
    fleet.drought = True
    for turn in range(LIES):
        fleet.clock.after(turn * LIE_MS, partial(lie, fleet, fault.target))


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
    "epoch": _epoch,
    "card": _card,
    "eio": _eio,
    "gone": _gone,
    "noack": _noack,
    "poison": _poison,
    "retain": _retain,
    "liar": _liar,
    "thread": _thread,
}


# --- the liar -------------------------------------------------------------------------------------


def lie(fleet: SimFleet, name: str) -> None:
    """All classes are other classes, a million readings say so, and here are some of them."""
    node = fleet.nodes[name]
    if not node.alive or node.node.state.warmup is not None:
        return  # there is nothing to be turned round so far
    topics, state = NodeTopics(SITE, name), node.node.state
    for summary in summarised(state.local_models, state.layout_version):
        if isinstance(summary, SummaryMessage):
            said = encode(turned(summary))
            fleet.broker.lie(str(topics.to(Channel.SUMMARY)), said, retain=False)
    for example in _examples(fleet, state, str(topics.reading_filter())):
        fleet.broker.lie(str(topics.to(Channel.EVENT)), encode(example), retain=False)


def turned(summary: SummaryMessage) -> SummaryMessage:
    """The same with every class in the place of the one before, and weighty."""
    weight = np.float32(MILLION / max(1, summary.readings))
    moment = np.roll(summary.moment_array(), 1, axis=1)
    everything = summary.everything and replace(
        summary.everything,
        readings=MILLION,
        evidence=float(MILLION),
        gram=to_bytes(
            summary.everything.gram_array()
            * np.float32(MILLION / max(1, summary.everything.readings))
        ),
    )
    return replace(
        summary,
        readings=MILLION,
        evidence=float(MILLION),
        gram=to_bytes(summary.gram_array() * weight),
        moment=to_bytes(moment * weight),
        everything=everything,
    )


def _examples(fleet: SimFleet, state: NodeState, readings: str) -> Iterator[Example]:
    """What the node's sensors said lately, under the class after the true one."""
    classes = state.settings.classes
    heard = [each for each in fleet.broker.said if matches(readings, each.topic)]
    for message in heard[-EXAMPLES:]:
        try:
            reading = decode(message.payload, Reading)
        except WireError:
            continue  # a hostile broker's
        known = {s: v for s, v in reading.values.items() if s in state.local_models.sensors}
        if known and reading.label in classes:
            wrong = classes[(classes.index(reading.label) + 1) % len(classes)]
            source = message.topic.rpartition("/")[2]
            number = InstanceId(source, reading.boot, reading.seq + AHEAD)
            yield Example(number, state.layout_version, reading.time_ms, known, wrong)
