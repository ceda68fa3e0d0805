"""A fleet whose sensors read out a script: what a scenario and a long time have in common.

The soak's fleet lives a story that its seed made up; here each node has one box that says what the
script says, and operators announce what the script announces.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from edge_opid.config.node import NodeConfig
from edge_opid.store import StoreLimits
from firmware_sim.chaos.fleet import KEY, SimFleet
from firmware_sim.chaos.people import Labeller, Operator
from firmware_sim.chaos.promises import Said
from firmware_sim.chaos.story import SITE, StoryAnnouncement
from firmware_sim.chaos.witness import Witness
from firmware_sim.scenario.script import Script
from firmware_sim.simulated.broker import SimBroker
from firmware_sim.simulated.clock import START_MS, VirtualClock
from firmware_sim.simulated.foreign_device import ForeignDevice
from firmware_sim.simulated.gateway_device import CLIENT, Fitting, GatewayDevice
from firmware_sim.simulated.gateway_records import MemoryRecords
from firmware_sim.simulated.network import Network
from firmware_sim.simulated.node_device import Device, NodeDevice
from firmware_sim.simulated.source_device import SourceDevice
from gateway.policy import Group, Policy

SOURCE = "box"
BOOT_MS = 1_000  # before the first reading
STORE = StoreLimits(
    page_bytes=512,
    segment_bytes=65_536,
    segments_max=4,
    record_bytes_max=16_384,
    pending_bytes_max=32_768,
    snapshot_bytes_max=2**20,
)


def client_of(node: str) -> str:
    """How the broker knows the box of a node."""
    return f"{SITE}-{node}-{SOURCE}"


@dataclass(frozen=True)
class FleetPlan:
    """What `SimFleet` calls a story: whatever is known before anything happens."""

    seed: int
    until_ms: int
    nodes: tuple[str, ...]


class ScriptedFleet(SimFleet):
    """Real nodes, boxes and gateway around a script. `_say` is what a box reads next."""

    period_ms: int
    """Between two readings of a box."""

    def __init__(self, script: Script, policy: Policy, until_ms: int, fit: Fitting) -> None:
        self.script = script
        self.story = FleetPlan(script.seed, until_ms, script.nodes)  # type: ignore[assignment]
        self.clock = VirtualClock()
        self.broker = SimBroker()
        self.network = Network(self.clock, self.broker, script.seed)
        self.witness = Witness(KEY.verify_key)
        group = Group("fleet", SITE, script.classes, script.nodes)
        self.gateway = GatewayDevice(
            self.network, policy, group, KEY, self.witness, script.seed, MemoryRecords(), fit
        )
        self.nodes = {node: self._node(node) for node in script.nodes}
        self.sources = {client_of(node): self._box(node) for node in script.nodes}
        self.devices: dict[str, Device] = {**self.nodes, **self.sources, CLIENT: self.gateway}
        self.foreign: dict[str, ForeignDevice] = {}
        self.labeller = Labeller(self.network)
        self.operator = Operator(self.network, self.gateway, self._announcements())
        self.last_checkpoint = self.broker.checkpoint()

    def _config(self, name: str) -> NodeConfig:
        return self.script.node_config(name, SITE, self.period_ms / 1000)

    def _node(self, name: str) -> NodeDevice:
        config = self._config(name)
        self.witness.meet(config, [SOURCE])
        chronicle, seed = self.witness.nodes[name], self.script.seed
        return NodeDevice(self.network, config, [KEY.verify_key], chronicle, seed, STORE)

    def _box(self, node: str, **options: Any) -> SourceDevice:
        return SourceDevice(
            self.network,
            (SITE, node, SOURCE),
            self.witness.sources[node][SOURCE],
            partial(self._say, node),
            self.script.seed,
            period_ms=self.period_ms,
            until_ms=self.story.until_ms,
            **options,
        )

    def _say(self, node: str, place: int) -> Said:
        """The `place`-th reading of a node."""
        raise NotImplementedError

    def _announcements(self) -> Iterator[StoryAnnouncement]:
        timeout_s = self.script.timeout_s(self.period_ms / 1000)
        for each in self.script.announcements:
            at_ms = BOOT_MS + each.at * self.period_ms + self.period_ms // 2
            for event in each.messages(START_MS + at_ms, timeout_s):
                yield StoryAnnouncement(at_ms, each.node, event, by_message=True)

    def _first_boot_ms(self, name: str) -> int:
        """Everybody is there before the first reading."""
        return BOOT_MS if name in self.sources else 0 if name == CLIENT else 200
