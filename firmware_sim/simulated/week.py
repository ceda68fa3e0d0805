"""A fleet that lives for a week: twenty nodes with twelve sensors each, one reading a second.

The soak asks what a bad minute does; this asks what a long time does. Nodes, sources and gateway
have the settings of the field, every check of the witness is on, sensors die and are replaced, now
and then the power goes. Nothing may be lost, nothing may be done twice, and nothing may grow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from edge_opid.config.node import NodeConfig
from edge_opid.wire import InstanceId
from firmware_sim.chaos.faults import BROKER, Fault
from firmware_sim.chaos.promises import Said
from firmware_sim.scenario.scenario import Event, Scenario
from firmware_sim.scenario.script import Script
from firmware_sim.simulated.gateway_device import CLIENT, Fitting
from firmware_sim.simulated.scripted_fleet import BOOT_MS, SOURCE, ScriptedFleet, client_of
from firmware_sim.simulated.source_device import SourceDevice
from firmware_sim.world import open_world
from gateway.fitting.worker import attempt
from gateway.policy import Policy

WORLD = "machine"  # whose catalogue has twelve sensors
PERIOD_MS = 1_000
LATE_S = 30  # for half of the nodes labels come so much later, by a message of their own
EVENTS_A_READING = 40  # some three times what it takes: a run that goes in circles ends
CALM_S = 20  # before the end nothing more happens
TROUBLES = ("power", "kill", "reset", "stop", "part", "power")


@dataclass(frozen=True)
class WeekPlan:
    """How large, how long, and how much happens. Times are simulated."""

    seconds: int
    nodes: int = 20
    labels: float = 0.1  # the share of readings whose truth somebody tells
    change_every_s: int = 7_200  # a sensor dies somewhere, and another comes: 84 in a week
    trouble_every_s: int = 1_800  # a power cut, a kill, a connection that breaks
    silence_s: float = 600.0  # after which the gateway retires a sensor that says nothing
    seed: int = 1

    def __post_init__(self) -> None:
        if not self.silence_s < self.change_every_s // 2:
            raise ValueError(
                f"silence_s must be below half of change_every_s = {self.change_every_s}, got "
                f"{self.silence_s:g}: a newcomer's role must be free when it is deployed"
            )

    @property
    def until_ms(self) -> int:
        """When the last reading is taken."""
        return BOOT_MS + self.seconds * PERIOD_MS

    def scenario(self) -> Scenario:
        """The machines, their sensors, and what becomes of them."""
        roles = tuple(each.role for each in open_world(WORLD, self.seed).catalogue)
        empty = Scenario(
            about="a week of a fleet",
            world=WORLD,
            sensors=roles,
            nodes=self.nodes,
            readings=self.seconds + CALM_S,
            every_s=PERIOD_MS / 1000,
            labels=self.labels,
        )
        return replace(empty, events=tuple(self._changes(empty)))

    def _changes(self, fleet: Scenario) -> Iterator[Event]:
        """Replaced by another make; dead without a word, or retired, and later deployed anew."""
        span = self.change_every_s
        last = self.seconds - span // 2 - CALM_S
        for turn, at in enumerate(range(span // 2, last, span)):
            role = fleet.sensors[5 * turn % len(fleet.sensors)]
            node = (fleet.names[turn % self.nodes],)
            sheet = turn % 2 == 0  # else the gateway has to measure the newcomer
            match turn % 3:
                case 0:
                    yield Event(at, "replace", role, nodes=node, data_sheet=sheet)
                case died:
                    yield Event(at, ("", "silence", "retire")[died], role, nodes=node)
                    yield Event(at + span // 2, "deploy", role, nodes=node, data_sheet=sheet)

    def troubles(self, nodes: tuple[str, ...]) -> Iterator[Fault]:
        """Nodes one after the other, their sensors' scripts, now and then gateway and broker."""
        for turn, at_s in enumerate(
            range(self.trouble_every_s // 3, self.seconds - CALM_S, self.trouble_every_s)
        ):
            at_ms = BOOT_MS + at_s * 1000 + 137 * turn % 1000  # between two readings, somewhere
            node = nodes[7 * turn % len(nodes)]
            if turn % 8 == 5:
                yield Fault(at_ms, "kill", CLIENT, 2_000, turn)
            elif turn % 8 == 7:
                yield Fault(at_ms, "restart", BROKER, 2_000, turn)
            else:
                yield Fault(at_ms, TROUBLES[turn % len(TROUBLES)], node, 5_000, turn)
                yield Fault(at_ms + 10_000, "power", client_of(node), 3_000, turn)


class WeekFleet(ScriptedFleet):
    """The fleet of a week: `start`, `live` for a while, again and again, then `finish`."""

    period_ms = PERIOD_MS

    def __init__(self, plan: WeekPlan, fit: Fitting = attempt) -> None:
        self.plan = plan
        self.events_max = EVENTS_A_READING * plan.nodes * (plan.seconds + 600)
        script, policy = Script(plan.scenario(), plan.seed), Policy(silence_s=plan.silence_s)
        super().__init__(script, policy, plan.until_ms, fit)
        self.faults = tuple(plan.troubles(script.nodes))

    def _config(self, name: str) -> NodeConfig:
        """With the rates and the patience of the field."""
        return replace(
            super()._config(name),
            rate_per_second=50.0,
            rate_burst=500,
            commit_s=5.0,
            commit_records=128,
        )

    def _box(self, node: str, **options: Any) -> SourceDevice:
        return super()._box(node, sync_every=32, resend_s=10.0, window=256, **options)

    def _say(self, node: str, _: int) -> Said:
        """What the sensors say now; a script that was away has missed what they said meanwhile."""
        place = min((self.clock.now_ms - BOOT_MS) // PERIOD_MS, self.plan.seconds)
        instance = self.script.instance(node, place)
        if not instance.known:
            return instance.values, None
        if self.script.nodes.index(node) % 2:
            self.clock.after(0, partial(self._label_later, node, instance.truth))
            return instance.values, None
        return instance.values, instance.truth

    def _label_later(self, node: str, truth: str) -> None:
        """The reading has its number now."""
        number = InstanceId(SOURCE, *self.witness.sources[node][SOURCE].taken.last)
        self.clock.after(LATE_S * 1000, partial(self.labeller.tell, node, number, truth))

    # --- what must not grow -----------------------------------------------------------------------

    def entries(self) -> dict[str, int]:
        """How much everybody keeps, in entries: the largest of each kind.

        Readings come and go in all of these. What grows with other things stays out: orders and
        fits with the changes of sensors, runs of numbers with the lives of a script.
        """
        chronicles = self.witness.nodes.values()
        sent = [each for some in self.witness.sources.values() for each in some.values()]
        sessions = self.broker.memory.sessions.values()
        return {
            "records the witness keeps of a node": max(len(each.history) for each in chronicles),
            "readings it waits for": max(len(each.said) for each in sent),
            "readings on a script's card": max(box.spooled for box in self.sources.values()),
            "events to come": len(self.clock),
            "messages queued for a client": max(len(each.queue) for each in sessions),
            "messages in flight to a client": max(len(each.inflight) for each in sessions),
            "instances a node remembers": max(
                len(node.node.state.recent) for node in self.nodes.values()
            ),
        }
