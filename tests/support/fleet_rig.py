"""A gateway and its nodes without sockets: real decisions, a broker of three lines, one clock.

Time moves only by `pass_s`. Messages are delivered at once, in order, and retained ones are kept
for whoever connects later; a node may sleep, the gateway may be killed and read back.
"""

from __future__ import annotations

import pickle
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from edge_opid.config.node import NodeConfig, SensorConfig
from edge_opid.node.node import Node
from edge_opid.wire import Channel, NodeTopics, Reading, Status, Topic, encode
from gateway.decisions.actions import Fit, ForgetExamples, Listen, Publish, Recall
from gateway.decisions.gateway import Gateway
from gateway.fitting.job import FitJob
from gateway.fitting.worker import attempt
from gateway.policy import Group, Policy
from gateway.recall import FitPreparation, long_memories, recalled
from gateway.registry import FitRecord
from gateway.store import FleetStore
from support.rig import KEY, Rig

CLASSES = ("calm", "busy", "alarm")
SITE = "street"
FITTED: dict[bytes, FitRecord] = {}
POLICY = Policy(
    settle_s=1,
    silence_s=60,
    summary_wait_s=5,
    first_batch=30,
    batch_max=120,
    overlap_readings=0,  # test_gateway_overlap.py has them
)


class SeenWorld:
    """What the sensors look at: a class, and quantities that tell of it; each role sees two."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self._views = np.random.default_rng(7).normal(size=(64, len(CLASSES)))

    def instance(self, roles: dict[str, str]) -> tuple[dict[str, float], str]:
        """Values by sensor id, for sensors by role, and the truth."""
        truth = int(self.rng.integers(len(CLASSES)))
        values = {}
        for sensor, role in roles.items():
            view = self._views[sum(map(ord, role)) % 64]
            values[sensor] = float(view[truth] + 0.7 * self.rng.normal())
        return values, CLASSES[truth]


def node_config(node: str, sensors: tuple[str, ...], **changes) -> NodeConfig:
    made = tuple(
        SensorConfig(f"{s}-{node}", role=s, reference=0.0, scale=1.0, timeout_s=10.0)
        for s in sensors
    )
    options = {"rate_per_second": 1e6, "rate_burst": 10**6, "commit_records": 1}
    return NodeConfig(site=SITE, node=node, classes=CLASSES, sensors=made, **options, **changes)


@dataclass
class FleetRig:
    """`nodes` by name; `awake` are those connected."""

    names: tuple[str, ...] = ("n1", "n2", "n3", "n4")
    sensors: tuple[str, ...] = ("pm", "no", "co", "db")
    asleep: tuple[str, ...] = ()
    """Not connected yet."""
    lacking: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Roles that a node does not have."""
    policy: Policy = POLICY
    now_ms: int = 1_000_000
    retained: dict[str, bytes] = field(default_factory=dict)
    seq: dict[str, int] = field(default_factory=dict)
    crashes: dict[int, str] = field(default_factory=dict)
    """At which step the gateway is killed, and where in it: `unsaved` or `saved`."""
    steps: int = 0
    copies: int = 1
    """How often the broker delivers each message to the gateway."""

    def __post_init__(self) -> None:
        self.world = SeenWorld(1)
        self.group = Group("air", SITE, CLASSES, self.names)
        self.store = FleetStore.open("sqlite://")
        self.store.claim()
        self.fits: list[FitRecord] = []
        self.revive()
        self.nodes = {}
        for name in self.names:
            without = self.lacking.get(name, ())
            sensors = tuple(role for role in self.sensors if role not in without)
            self.nodes[name] = Rig(Node(node_config(name, sensors), [KEY.verify_key]))
        self.awake: set[str] = set()
        self._waiting: deque[tuple[str, bytes]] = deque()
        for name in self.names:
            if name not in self.asleep:
                self.wake(name)

    # -- the gateway ---------------------------------------------------------------------------

    def boot_gateway(self) -> None:
        """A gateway as the store remembers it: what was not saved never was."""
        stored, pushed = recalled(self.store)
        self.gateway = Gateway(self.policy, [self.group], KEY, stored, pushed)
        self.listening: frozenset[str] = frozenset()

    def decide(self, decision) -> None:
        """Let the gateway decide, and perform it; killed in the middle, it decides again."""
        for _ in range(1 + len(self.crashes)):
            self.steps += 1
            crash = self.crashes.get(self.steps)
            actions = decision() or []  # a handler decides by writing records alone
            if crash != "unsaved":
                break
            self.revive()
        self.store.save(self.gateway.fleet.take_unsaved())
        if crash == "saved":
            self.revive()
            return
        self.perform(actions)

    def revive(self) -> None:
        """Another gateway process, on the same database; the broker has kept its session."""
        self.boot_gateway()
        self.perform(self.gateway.on_connected(True, self.now_ms))

    def perform(self, actions) -> None:
        for action in actions:
            match action:
                case Publish(topic, payload, retain):
                    self.publish(topic, payload, retain)
                case Listen(filters):
                    self.listening = filters
                case ForgetExamples(change):
                    self.store.forget_examples(change)
                case Fit():
                    self._fit(action)
                case Recall(nodes):
                    self.gateway.on_recalled(long_memories(self.store, self.gateway.fleet, nodes))

    def _fit(self, wanted: Fit) -> None:
        fit = self._fitted(self.job(wanted))
        self.fits.append(fit)
        self.decide(lambda: self.gateway.on_fitted(fit))

    def job(self, wanted: Fit) -> FitJob:
        """All that the fit depends on: so few members are read at once."""
        job = FitPreparation(self.store, self.gateway, wanted).read_some()
        assert job is not None
        return job

    def _fitted(self, job: FitJob) -> FitRecord:
        """A fit is a function of its job: the lives of one story share them, which saves hours."""
        key = pickle.dumps(job)
        if key not in FITTED:
            fit = attempt(job, 0)
            assert isinstance(fit, FitRecord), fit
            FITTED[key] = fit
        return replace(FITTED[key], at_ms=self.now_ms)

    # -- the broker ----------------------------------------------------------------------------

    def publish(self, topic: str, payload: bytes, retain: bool = False) -> None:
        if retain:
            self.retained[topic] = payload
        self._waiting.append((topic, payload))

    def deliver(self) -> None:
        """Everything that waits, and what follows from it."""
        for _ in range(100_000):
            if not self._waiting:
                return
            self._deliver(*self._waiting.popleft())
        raise AssertionError("messages without end")

    def _deliver(self, topic: str, payload: bytes) -> None:
        parsed = Topic.parse(topic)
        rig = self.nodes.get(parsed.node)
        to_node = parsed.channel in (
            Channel.READING,
            Channel.LABEL,
            Channel.CONFIRMED,
            Channel.DESIRED,
        )
        if rig is not None and to_node and parsed.node in self.awake:
            rig.handle(topic, payload, self.now_ms, token=None)
            self.collect(parsed.node)
        heard = parsed.channel in (Channel.STATUS, Channel.EVENT, Channel.SUMMARY)
        if heard or any(parsed.matches(each) for each in self.listening):
            for _ in range(self.copies):
                self.decide(lambda: self.gateway.handle(topic, payload, self.now_ms))

    def collect(self, name: str) -> None:
        rig = self.nodes[name]
        for topic, payload, retain in rig.published:
            self.publish(topic, payload, retain)
        rig.published.clear()

    # -- time and people -----------------------------------------------------------------------

    def wake(self, name: str) -> None:
        self.awake.add(name)
        rig = self.nodes[name]
        topic = str(NodeTopics(SITE, name).to(Channel.DESIRED))
        rig.run(rig.node.on_connected(self.now_ms), self.now_ms)
        if topic in self.retained:
            rig.handle(topic, self.retained[topic], self.now_ms)
        self.collect(name)
        self.deliver()

    def sleep(self, name: str) -> None:
        self.awake.discard(name)
        will = self.nodes[name].node.status(self.now_ms, online=False)
        self.publish(str(NodeTopics(SITE, name).to(Channel.STATUS)), encode(will), True)
        self.deliver()

    def pass_s(self, seconds: float) -> None:
        """Time goes by, a second at a time."""
        for _ in range(round(seconds)):
            self.now_ms += 1000
            for name in sorted(self.awake):
                self.nodes[name].tick(self.now_ms)
                self.collect(name)
            self.deliver()
            self.decide(lambda: self.gateway.tick(self.now_ms))
            self.deliver()

    def read_all(self, times: int) -> None:
        """So many instances of every node in turn."""
        for _ in range(times):
            for name in self.names:
                self.read(name)

    def learn_for_a_while(self, times: int) -> None:
        """Every node is known, has learned, and has uploaded what it knows."""
        self.pass_s(2)
        self.read_all(times)
        self.pass_s(31)

    def read(self, name: str, only=None, labelled: bool = True, extra=None) -> None:
        """One instance of everything the node's sensors see, or of `only` these sensors."""
        rig = self.nodes[name]
        roles = {s.id: s.role for s in rig.node.state.local_models.sensors.values()}
        roles.update(extra or {})
        values, label = self.world.instance(roles)
        if only is not None:
            values = {sensor: values[sensor] for sensor in only}
        self.seq[name] = self.seq.get(name, 0) + 1
        reading = Reading(1, self.seq[name], self.now_ms, values, label if labelled else None)
        topic = NodeTopics(SITE, name).to(Channel.READING, "box")
        self.publish(str(topic), encode(reading))
        self.deliver()

    def event(self, name: str, event) -> None:
        self.publish(str(NodeTopics(SITE, name).to(Channel.EVENT)), encode(event))
        self.deliver()

    def status(self, name: str) -> Status:
        return self.nodes[name].node.status(self.now_ms)

    def agreed(self) -> bool:
        """Every awake node has reported the order in force, its layout and its model."""
        fleet = self.gateway.fleet
        for name in self.awake:
            order = fleet.orders[SITE, name]
            status = self.status(name)
            if (status.version, status.layout_version) != (order.version, order.layout_version):
                return False
        return not [k for k in self.gateway.publisher.unreported() if k[1] in self.awake]


def save_to_file(source: FleetStore, path: Path) -> None:
    stored, changes = source.fleet(), source.changes(100)
    with FleetStore.open(f"sqlite:///{path}") as target:
        target.save([*stored.nodes, *stored.sensors, *stored.orders, *changes, *stored.layouts])
        for change in changes:
            parts = source.members(change.id), source.fits(change.id), source.examples(change.id)
            target.save([record for records in parts for record in records])
