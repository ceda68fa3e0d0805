"""Faults that once broke real processes: each breaks no promise now, and is found to bite.

A fault that could not break anything would prove nothing. So each runs twice: as the parts are, and
with the one precaution taken away that holds against it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import gateway.decisions.gateway as gateway_service
from edge_opid.link.packets import Framer, PacketError
from edge_opid.node import obeying
from edge_opid.service.loop import NodeLoop
from edge_opid.source.source import Source
from firmware_sim.chaos.faults import ANYONE, CARDS, DEVICES, GATEWAY, NODES, SOURCES, Fault, parsed
from firmware_sim.chaos.fleet import SimFleet
from firmware_sim.chaos.planted import planted
from firmware_sim.chaos.story import Story
from firmware_sim.simulated.broker import SimBroker
from firmware_sim.simulated.clock import VirtualClock, WallClock, dice
from firmware_sim.simulated.disk import TornDisk
from firmware_sim.simulated.link import SimLink
from firmware_sim.simulated.network import Network
from firmware_sim.simulated.source_device import READINGS_MIN
from gateway.fitting import pooling

Patch = pytest.MonkeyPatch
SEEDS = range(1, 60)
WELL = 6  # seeds that are looked at in full, as the parts are
BYTE_ORDER_MARK = "\ufeff".encode()


@pytest.fixture(autouse=True)
def quiet(caplog):
    """A run logs what goes wrong in it, which is a lot."""
    caplog.set_level("CRITICAL", logger="edge_opid")


def often(seed: int, kind: str) -> tuple[Fault, ...]:
    """Five of these faults, to whom they can happen, and two connections that break."""
    story, chance = Story(seed), dice(seed, "often", kind)
    scripts = [script.client for script in story.scripts]
    whom = {
        "node": (NODES, list(story.nodes)),
        "script": ((*SOURCES, *CARDS), scripts),
        "gateway": (GATEWAY, ["gateway"]),
        "device": (DEVICES, list(story.lamps)),
        "anyone": (ANYONE, [*story.nodes, *scripts, "gateway"]),
    }
    names = sorted({name for kinds, some in whom.values() if kind in kinds for name in some})
    if not names:
        return ()
    at = [chance.randint(1_500, story.until_ms - 1_600) for _ in range(7)]
    hits = [Fault(ms, kind, chance.choice(names), 1_500, chance.randrange(1_000)) for ms in at[2:]]
    resets = [Fault(ms, "reset", chance.choice(story.nodes), 0, 0) for ms in at[:2]]
    return tuple(sorted([*hits, *resets]))


def choke(monkeypatch: Patch) -> None:
    """Text that is odd ends the connection, as paho would."""
    publish = Framer._publish

    def choking(self, first: int, body: int, end: int):
        if BYTE_ORDER_MARK in self._buffer[body:end]:
            raise PacketError("U+FEFF in UTF-8 data")
        return publish(self, first, body, end)

    monkeypatch.setattr(Framer, "_publish", choking)


def wait_for_ever(monkeypatch: Patch) -> None:
    """A confirmation that does not come is waited for."""
    monkeypatch.setattr(SimLink, "_look", lambda _self: None)


def believe_the_sync(monkeypatch: Patch) -> None:
    """Where the name of what was synced leads is not looked at."""
    monkeypatch.setattr(TornDisk, "_check_there", lambda _self: None)


def let_it_out(monkeypatch: Patch) -> None:
    """An error of the card ends whoever meets it."""

    def raising(_self, step: Callable[[], None]) -> bool:
        step()
        return True

    monkeypatch.setattr(Source, "_try", raising)


def say_nothing(monkeypatch: Patch) -> None:
    """A link that is dead is not asked whether it is."""
    monkeypatch.setattr(NodeLoop, "_say_alive", lambda _self: None)


def believe_everybody(monkeypatch: Patch) -> None:
    """Whoever claims a million readings has had them, and what is pushed is served."""
    monkeypatch.setattr(obeying, "tried", lambda *_: (None, []))
    monkeypatch.setattr(pooling, "shares", lambda known: dict.fromkeys(known, 1.0))
    monkeypatch.setattr(gateway_service, "check_summary", lambda *_: None)


BITES = {
    "poison": (choke, {"no agreement", "readings stuck"}),
    "noack": (wait_for_ever, {"no agreement", "readings stuck"}),
    "gone": (believe_the_sync, {"committed record lost", "acknowledged reading lost"}),
    "eio": (let_it_out, {"process died"}),
    "thread": (say_nothing, {"no agreement", "readings stuck"}),
}


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("kind", [*BITES, "epoch", "card", "retain", "liar"])
def test_fault_breaks_no_promise(kind: str) -> None:
    """Five times in one run of a few seconds, which is more than anybody's bad luck."""
    runs = [(seed, faults) for seed in SEEDS if (faults := often(seed, kind))][:WELL]
    assert [SimFleet(seed, faults).run().broken for seed, faults in runs] == [None] * WELL


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("kind", BITES)
def test_fault_bites_where_its_precaution_is_missing(kind: str, monkeypatch: Patch) -> None:
    """Without it a promise is broken, and by nothing else: with it the same run is well."""
    take_away, promises = BITES[kind]
    with monkeypatch.context() as without:
        take_away(without)
        runs = ((seed, SimFleet(seed, often(seed, kind)).run().broken) for seed in SEEDS)
        seed, broken = next((found for found in runs if found[1] is not None), (0, None))
    assert broken is not None, "the fault has lost its point"
    assert broken.promise in promises
    assert SimFleet(seed, often(seed, kind)).run().broken is None


def before_the_last_change(seed: int) -> tuple[Fault, ...]:
    """Somebody lies for the first node, just when its group begins to gather."""
    story = Story(seed)
    if len(story.nodes) < 2 or not story.announcements:
        return ()
    at_ms = max(1_500, min(story.announcements[-1].at_ms - 200, story.until_ms - 100))
    return (Fault(at_ms, "liar", story.nodes[0], 1_500, 1),)


def test_liar_turns_nobody_round(monkeypatch: Patch) -> None:
    """Believed, it does: a node serves what is right in 3 of 45, and could be in 37."""
    runs = [(seed, faults) for seed in range(1, 12) if (faults := before_the_last_change(seed))]
    assert [SimFleet(seed, faults).run().broken for seed, faults in runs] == [None] * len(runs)
    believe_everybody(monkeypatch)
    broken = [found for seed, faults in runs if (found := SimFleet(seed, faults).run().broken)]
    assert {each.promise for each in broken} == {"turned by a liar"}, "the fault lost its point"


@pytest.mark.parametrize(
    ("kind", "plant"),
    [("card", "acknowledge-across-boots"), ("retain", "retained-learned-twice")],
)
def test_fault_is_what_finds_the_planted_bug(kind: str, plant: str) -> None:
    """A new card before NTP, a device that retains: nothing else is needed."""
    with planted(plant):
        runs = (SimFleet(seed, often(seed, kind)).run().broken for seed in SEEDS)
        assert any(broken is not None for broken in runs)


# --- what the faults are made of ------------------------------------------------------------------


def connected() -> tuple[VirtualClock, SimBroker, SimLink, SimLink]:
    """Somebody who listens, and somebody who speaks."""
    clock = VirtualClock()
    broker = SimBroker(receive_max=4)
    network = Network(clock, broker, seed=1)
    reader, sender = SimLink(network, "reader"), SimLink(network, "sender")
    reader.subscribe(["reading/+"])
    reader.start()
    sender.start()
    clock.run_for(200)
    return clock, broker, reader, sender


def test_poison_costs_one_message_and_not_the_connection() -> None:
    """A hundred of them, retained or not, and then a reading."""
    clock, broker, reader, sender = connected()
    chance = dice("poison")
    for turn in range(100):
        broker.poison("reader", chance, retain=turn % 3 == 0)
    sender.publish("reading/attic", b"21.3")
    clock.run_for(2_000)
    heard = []
    while (delivery := reader.poll()) is not None:
        heard.append(delivery.payload)
        reader.acknowledge(delivery)
    clock.run_for(200)
    assert heard[-1] == b"21.3"
    assert reader.counters.dropped["dropped-too-large"] > 0
    assert reader.counters.received == 101
    assert reader.counters.connections == 1
    assert not broker.memory.sessions["reader"].inflight


def test_lost_confirmations_make_nobody_mute() -> None:
    """The broker has the messages, its PUBACKs are gone, and its window is full of them."""
    clock, broker, reader, sender = connected()
    broker.unconfirmed.add("sender")
    for number in range(20):
        sender.publish("reading/attic", bytes([number]))
    clock.run_for(1_500)
    broker.unconfirmed.clear()
    clock.run_for(9_000)
    heard = {delivery.payload[0] for delivery in iter(reader.poll, None)}
    assert heard == set(range(20))
    assert sender.counters.published == 20
    assert sender.counters.connections == 2


def test_clock_that_was_lost_is_found_again() -> None:
    """1970 and 2040 until NTP answers; and Linux has no time before 1970."""
    clock = VirtualClock()
    clock.run_until(5_000)
    wall = WallClock(clock)
    right = wall.wall()
    wall.lose(20_000)
    assert wall.wall() == 20.0
    wall.jump(-86_400_000)
    assert wall.wall() == 0.0
    wall.find()
    assert wall.wall() == right


def test_script_reads_on_until_a_node_can_warm_up_on_what_was_not_lost() -> None:
    """The broker, the node's folder and then the card are away: 37 of 40 readings go with the card.

    A node that has not warmed up is known to no gateway, so that nobody can announce anything of
    it: a story that ended there would ask for what nobody has promised.
    """
    faults = parsed(
        "807:older:broker:4000:524,5660:gone:n1:4000:142,10260:card:street-n1-box:1500:655"
    )
    fleet = SimFleet(6_423, faults)
    outcome = fleet.run()
    sent = fleet.sources["street-n1-box"].sent
    assert outcome.broken is None
    assert len(sent.lost) > READINGS_MIN
    assert READINGS_MIN <= len(sent.arrived) < len(sent.taken)
    assert fleet.gateway.gateway.counts["refused-unknown-node"] > 0  # as long as it was unknown
