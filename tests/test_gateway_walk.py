"""A gateway and three nodes on random walks: whatever happens in whatever order, the book is sound.

Each walk follows from its seed. Announcements of all kinds, silence, sleep, labels, deaths of the
gateway before and after its transaction, and late copies of anything ever said; after every step
the invariants, and at the end the promise that everybody awake agrees.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pytest
from support.fleet_rig import SITE, FleetRig, node_config
from support.rig import KEY, Rig

from edge_opid.node.node import Node
from edge_opid.wire import (
    LIMITS,
    Channel,
    Desired,
    SensorDeployed,
    SensorRetired,
    SensorReturned,
    SensorSilent,
    Topic,
    open_desired,
)
from gateway.estage import BestModel, z_alone
from gateway.policy import Policy
from gateway.recall import recalled
from gateway.registry import ChangeState, SensorState
from gateway.registry.columns import columns_of
from gateway.registry.fleet import Fleet

NAMES = ("n1", "n2", "n3")
ROLES = ("pm", "no", "co", "voc", "o3")
STEPS = 80
QUICK = Policy(
    settle_s=1,
    silence_s=15,
    measure_readings=3,
    overlap_readings=5,
    summary_wait_s=2,
    first_batch=6,
    batch_max=12,
    gather_s=90,
    retry_s=3,
    retry_max_s=10,
)
NEVER = ("conflict", "far-version", "layout", "classes", "shape", "range", "form", "content")
"""Reasons why a node refuses an order that no gateway in its right mind gives."""


def cheap_fit(_Z, Xa, y, classes, **_):
    """The C-stage as it is, called right in every case: a push at every size."""
    model = z_alone(classes, np.asarray(Xa).shape[1])
    return BestModel(model, (), "cheap", np.ones(len(y)))


@dataclass
class Walk(FleetRig):
    """The rig, with an eye on every order and a memory of all that was said to the gateway."""

    orders: dict[tuple[str, int], bytes] = field(default_factory=dict)
    layouts: dict[tuple[str, int], tuple] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)
    said: list[tuple[str, bytes]] = field(default_factory=list)

    def publish(self, topic: str, payload: bytes, retain: bool = False) -> None:
        channel = Topic.parse(topic).channel
        if channel is Channel.DESIRED:
            self._watch(open_desired(payload, [KEY.verify_key]), payload)
        elif channel in (Channel.STATUS, Channel.EVENT, Channel.SUMMARY):
            self.said.append((topic, payload))
        super().publish(topic, payload, retain)

    def _watch(self, desired: Desired, payload: bytes) -> None:
        """A version comes with one content, and never after a higher one."""
        node, version = desired.node, desired.version
        assert self.orders.setdefault((node, version), payload) == payload
        assert version >= self.newest.get(node, 0)
        self.newest[node] = version
        sensors = desired.sensors, desired.vanishing, desired.gate
        assert self.layouts.setdefault((node, desired.layout_version), sensors) == sensors

    def hear(self, topic: str, payload: bytes) -> None:
        """The gateway alone hears this once more."""
        self.decide(lambda: self.gateway.handle(topic, payload, self.now_ms))


# -- what may happen -------------------------------------------------------------------------------


def a_sensor(walk: Walk, rng: random.Random, name: str) -> str:
    """A sensor the node has or had, or one that nobody knows."""
    return rng.choice([*walk.gateway.fleet.sensors[SITE, name], f"s{rng.randrange(8)}"])


def free_sensor(walk: Walk, rng: random.Random, name: str) -> str:
    """An id that may be deployed: retired, or unknown."""
    known = walk.gateway.fleet.sensors[SITE, name]
    ids = [*known, *(f"s{place}" for place in range(8))]
    free = [s for s in ids if s not in known or known[s].state == SensorState.RETIRED]
    return rng.choice(free)


def announce(walk: Walk, rng: random.Random) -> None:
    name = rng.choice(NAMES)
    if rng.random() < 0.3:
        walk.event(name, SensorRetired(a_sensor(walk, rng, name), walk.now_ms, "walk"))
        return
    sensor = rng.choice([free_sensor] * 5 + [a_sensor])(walk, rng, name)
    replaces = a_sensor(walk, rng, name) if rng.random() < 0.5 else None
    replaces = None if replaces == sensor else replaces
    old = walk.gateway.fleet.sensors[SITE, name].get(replaces or "")
    role = old.role if old and rng.random() < 0.9 else rng.choice(ROLES)
    known = {"reference": 0.0, "scale": 1.0} if rng.random() < 0.5 else {}
    end_s = rng.choice([None] * 6 + [-5, 5, 20, 10**6])
    event = SensorDeployed(
        sensor,
        role=role,
        at_ms=max(0, walk.now_ms + rng.choice([0, 0, 0, 0, 0, -50_000, 10**10])),
        knots=rng.choice([(), (), (-8.0, 0.0, 8.0)]),
        timeout_s=rng.choice([None, 5.0]),
        replaces=replaces,
        end_of_life_ms=None if end_s is None else walk.now_ms + 1000 * end_s,
        **known,
    )
    walk.event(name, event)


def read(walk: Walk, rng: random.Random) -> None:
    """A burst of readings of one node; some sensors say nothing, others are being measured."""
    name = rng.choice(NAMES)
    for _ in range(rng.randrange(1, 8)):
        sensors = walk.nodes[name].node.state.local_models.sensors
        measured = {
            each.id: each.role
            for each in walk.gateway.fleet.sensors[SITE, name].values()
            if each.state == SensorState.MEASURING
        }
        everyone = [*sensors, *measured]
        only = rng.sample(everyone, rng.randrange(1, len(everyone) + 1))
        walk.read(name, only=only, labelled=rng.random() < 0.7, extra=measured)
        walk.pass_s(rng.choice([0, 0, 3]))


def sleep_or_wake(walk: Walk, rng: random.Random) -> None:
    name = rng.choice(NAMES)
    if name in walk.awake:
        walk.sleep(name)
        return
    if rng.random() < 0.2:  # its card was replaced: it starts over, with other sensors
        sensors = tuple(rng.sample(ROLES, 3))
        walk.nodes[name] = Rig(Node(node_config(name, sensors), [KEY.verify_key]))
        walk.seq[name] = 0
    walk.wake(name)


def repeat(walk: Walk, rng: random.Random) -> None:
    """Something that was said once, however long ago, is heard again."""
    for topic, payload in rng.choices(walk.said, k=rng.randrange(1, 4)):
        walk.hear(topic, payload)


def die(walk: Walk, rng: random.Random) -> None:
    walk.crashes = {walk.steps + rng.randrange(1, 4): rng.choice(["unsaved", "saved"])}


def mutter(walk: Walk, rng: random.Random) -> None:
    """A node says of a sensor what is not so."""
    name = rng.choice(NAMES)
    sensor = a_sensor(walk, rng, name)
    walk.event(
        name,
        rng.choice([SensorSilent(sensor, walk.now_ms, 0), SensorReturned(sensor, walk.now_ms)]),
    )


def wait(walk: Walk, rng: random.Random) -> None:
    walk.pass_s(rng.choice([1, 2, 6, 20]))


DEEDS = (announce, announce, announce, read, read, sleep_or_wake, repeat, die, mutter, wait, wait)


# -- what must hold --------------------------------------------------------------------------------


def check_layouts(walk: Walk) -> None:
    for layout in walk.gateway.fleet.layouts.values():
        roles, ids = {s.role for s in layout.sensors}, {s.id for s in layout.sensors}
        assert len(roles) == len(ids) == len(layout.sensors) > 0
        assert len(columns_of(layout)) <= LIMITS.columns_max
    for key in walk.gateway.fleet.nodes:
        taken = [s.role for s in walk.gateway.fleet.in_layout(key)]
        assert len(set(taken)) == len(taken) > 0


def check_remembered(walk: Walk) -> None:
    """The gateway believes what its store would tell its successor, and nothing else."""
    mine, again = walk.gateway.fleet, Fleet([walk.group], recalled(walk.store)[0])
    assert mine.take_unsaved() == []
    assert again.nodes == mine.nodes
    assert dict(again.sensors) == {key: sensors for key, sensors in mine.sensors.items() if sensors}
    assert again.layouts == mine.layouts
    assert again.orders == mine.orders
    assert again.next_change == mine.next_change
    current = {
        number: change
        for number, change in mine.changes.items()
        if change.state == ChangeState.GATHERING or mine.members(number)
    }
    assert again.changes == current
    for number, change in current.items():
        assert again.members(number) == sorted(mine.members(number))
        if change.state == ChangeState.GATHERING:
            assert again.examples[number] == mine.examples[number]
    check_indices(mine)


def check_indices(fleet: Fleet) -> None:
    """What is kept beside the records, so that nobody has to count, is what counting gives."""
    for key in fleet.nodes:
        sensors = fleet.sensors[key].values()
        silent = {each.id for each in sensors if each.state == SensorState.SILENT}
        assert fleet.silent_of(key) == silent
        for batch in fleet.examples.values():
            assert batch.given_by(key) == sum(number[:2] == key for number in batch)


def check_bounds(walk: Walk) -> None:
    gateway = walk.gateway
    assert all(len(batch) <= QUICK.batch_max for batch in gateway.fleet.examples.values())
    assert len(gateway.fleet.changes) <= 4 * len(NAMES)
    assert len(gateway.complaints) <= 16
    assert len(gateway.counts) < 64
    assert gateway.publisher.waiting <= len(NAMES)
    sensors = sum(map(len, gateway.fleet.sensors.values()))
    assert sensors <= len(NAMES) * (2 * len(ROLES) + 8)


def check_nodes(walk: Walk) -> None:
    for rig in walk.nodes.values():
        counted = rig.node.counted()
        assert counted["input-failed"] == 0
        assert {reason: n for reason in NEVER if (n := counted[f"refused-{reason}"])} == {}


def check_agreement(walk: Walk) -> None:
    """Everybody is awake and has obeyed; who is in the same change has the same weights."""
    assert walk.awake == set(NAMES)
    assert walk.agreed()
    held: dict[int, dict[str, list[float]] | None] = {}
    for key, order in walk.gateway.fleet.orders.items():
        layout = walk.gateway.fleet.layouts[key]
        desired = open_desired(order.payload, [KEY.verify_key])
        assert desired.layout_version == layout.version
        weights = None
        if desired.weights is not None:
            W = desired.weights.matrices["W"].array().tolist()
            weights = dict(zip(columns_of(layout), W, strict=True))
        if layout.change:
            assert held.setdefault(layout.change, weights) == weights


@pytest.mark.parametrize("seed", range(12))
def test_no_walk_breaks_the_book_or_ends_in_disagreement(seed, monkeypatch):
    monkeypatch.setattr("gateway.fitting.fit.fit_best", cheap_fit)
    rng = random.Random(seed)
    walk = Walk(names=NAMES, sensors=ROLES[:3], policy=QUICK)
    walk.pass_s(2)
    for _ in range(STEPS):
        rng.choice(DEEDS)(walk, rng)
        check_layouts(walk)
        check_remembered(walk)
        check_bounds(walk)
        check_nodes(walk)
    walk.crashes = {}
    for name in NAMES:
        if name not in walk.awake:
            walk.wake(name)
    walk.pass_s(60)
    check_remembered(walk)
    check_nodes(walk)
    check_agreement(walk)
