"""A scenario on simulated time: real nodes and the real gateway, on a made-up network.

What the soak has (devices, network, disks, faults, the witness of every promise), with a script
that a person wrote in the place of a story that a seed made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from edge_opid.config.node import NodeConfig
from edge_opid.source.number import ReadingNumber
from edge_opid.wire import Channel, Desired, InstanceId, Prediction, Topic, decode, open_sealed
from firmware_sim.chaos.faults import CARDS, DEVICES, Fault
from firmware_sim.chaos.fleet import KEY, Outcome
from firmware_sim.chaos.promises import BrokenPromise, Said, SaidOnce, SentBy
from firmware_sim.chaos.story import SITE
from firmware_sim.scenario.rivals import Rivals
from firmware_sim.scenario.scenario import ALL, Scenario
from firmware_sim.scenario.score import Score
from firmware_sim.scenario.script import Script
from firmware_sim.simulated.clock import dice
from firmware_sim.simulated.foreign_device import (
    ROLE,
    ForeignDevice,
    foreign_config,
    foreign_sensor,
)
from firmware_sim.simulated.foreign_device import SOURCE as LAMP
from firmware_sim.simulated.gateway_device import Fitting
from firmware_sim.simulated.link import SimLink
from firmware_sim.simulated.network import Network
from firmware_sim.simulated.scripted_fleet import BOOT_MS, SOURCE, ScriptedFleet, client_of
from firmware_sim.simulated.source_device import SourceDevice
from gateway.fitting.worker import attempt

PERIOD_MS = 2_000  # between two readings: more than a gateway takes to answer, as in the field
PATIENCE_MS = 180_000  # after the last of them, until everybody agrees


class Audience:
    """Somebody who listens to predictions and orders, and keeps the score."""

    def __init__(self, network: Network, score: Score, sent: Mapping[str, SentBy]) -> None:
        self._score, self._sent = score, sent
        self.place: dict[tuple[str, int, int], int] = {}  # node, boot and number of a reading
        self.pushed: dict[tuple[str, int], int] = {}  # node, version: bytes of weights
        self._link = SimLink(network, "audience", on_arrival=self._listen)
        self._link.subscribe(f"opid/1/{SITE}/+/{each}" for each in ("prediction", "desired"))
        self._link.start()

    def _listen(self) -> None:
        while (delivery := self._link.poll()) is not None:
            topic = Topic.parse(delivery.topic)
            if topic.channel is Channel.PREDICTION:
                self._predicted(topic.node, delivery.payload)
            else:
                self._ordered(topic.node, delivery.payload)
            self._link.acknowledge(delivery)

    def _predicted(self, node: str, payload: bytes) -> None:
        try:
            said = decode(payload, Prediction)
        except ValueError:
            return  # a hostile broker's
        if node not in self._sent or said.instance.source != SOURCE:
            return  # a foreign device's
        number = self._sent[node].first_number(ReadingNumber(said.instance.boot, said.instance.seq))
        if (node, *number) in self.place:
            self._score.served(node, self.place[node, *number], said.label)

    def _ordered(self, node: str, payload: bytes) -> None:
        try:
            order = decode(open_sealed(payload, [KEY.verify_key]), Desired)
        except ValueError:
            return  # forged
        if order.weights is not None:
            self.pushed[node, order.version] = len(payload)


class ScenarioFleet(ScriptedFleet):
    """The fleet of a scenario, ready to `run`; `score` says how right it was.

    A broken promise is told in the outcome, as in the soak.
    """

    period_ms = PERIOD_MS

    def __init__(self, script: Script, fit: Fitting = attempt) -> None:
        self.score = Score(script)
        self._rivals = Rivals(script)
        until_ms = BOOT_MS + (script.scenario.readings + 1) * PERIOD_MS
        super().__init__(script, script.scenario.policy(PERIOD_MS / 1000), until_ms, fit)
        boxes = {node: self.witness.sources[node][SOURCE] for node in script.nodes}
        self.audience = Audience(self.network, self.score, boxes)
        self.foreign = {node: self._lamp_of(node) for node in self._lamps}
        self.faults = tuple(sorted(_faults(script.scenario)))

    @property
    def _lamps(self) -> tuple[str, ...]:
        """The nodes with a foreign device: those to which a fault of one happens."""
        hit = {each.target for each in self.script.scenario.faults if each.kind in DEVICES}
        return tuple(node for node in self.script.nodes if {node, ALL} & hit)

    def _config(self, name: str) -> NodeConfig:
        config = super()._config(name)
        if name not in self._lamps:
            return config
        lamp = foreign_sensor(name, self.script.timeout_s(PERIOD_MS / 1000))
        return replace(config, sensors=(*config.sensors, lamp), foreign=(foreign_config(name),))

    def _lamp_of(self, node: str) -> ForeignDevice:
        said = self.witness.nodes[node].foreign.setdefault(LAMP, SaidOnce(LAMP))
        period_ms, until_ms = PERIOD_MS + 300, self.story.until_ms
        read = partial(self._shone, node)
        return ForeignDevice(self.network, node, said, read, period_ms=period_ms, until_ms=until_ms)

    def _shone(self, node: str, place: int) -> Said:
        """It tells nothing about the class, and so nothing is labelled."""
        return {ROLE: dice(self.script.seed, "lamp", node, place).gauss(0, 1)}, None

    def _box(self, node: str, **options: Any) -> SourceDevice:
        return super()._box(node, on_taken=partial(self._sent, node), **options)

    def _check_trust(self) -> None:
        """The score tells."""

    # --- what is said -----------------------------------------------------------------------------

    def _say(self, node: str, place: int) -> Said:
        """The `place`-th reading of a node; the last ones, after the script, have no values."""
        if place >= self.script.scenario.readings:
            return {}, None
        instance = self.script.instance(node, place)
        if node == self.script.nodes[0]:
            self.score.guessed(place, self._rivals.step(place))
        now = instance.known and not self.script.scenario.label_late
        return instance.values, instance.truth if now else None

    def _sent(self, node: str, place: int, number: ReadingNumber) -> None:
        """The reading has its number: remember it, and label it later if it came without."""
        if place >= self.script.scenario.readings:
            return
        self.audience.place[node, number.boot, number.seq] = place
        instance, late = self.script.instance(node, place), self.script.scenario.label_late
        if instance.known and late:
            tell = partial(self.labeller.tell, node, InstanceId(SOURCE, *number), instance.truth)
            self.clock.after(late * PERIOD_MS, tell)

    # --- how it ends ------------------------------------------------------------------------------

    def _until(self, why_not: Callable[[], str], most_ms: int, promise: str) -> int:
        """As long as a scenario may take; the soak is in more of a hurry."""
        end_ms = self.story.until_ms + max(most_ms, PATIENCE_MS)
        while reason := why_not():
            if self.clock.now_ms >= end_ms:
                raise BrokenPromise(promise, reason)
            self.clock.run_for(1_000)
        return self.clock.now_ms - self.story.until_ms


def _faults(scenario: Scenario) -> Iterator[Fault]:
    """Troubles in readings become faults in milliseconds, one for each target and time."""
    for trouble in scenario.faults:
        targets = scenario.names if trouble.target == ALL else (trouble.target,)
        if trouble.kind in CARDS:
            targets = tuple(map(client_of, targets))
        turns = (
            range(trouble.at, scenario.readings, trouble.every) if trouble.every else [trouble.at]
        )
        for turn, at in enumerate(turns):
            for place, target in enumerate(targets):
                # nodes one after the other, and each time in another way
                at_ms = BOOT_MS + at * PERIOD_MS + place * PERIOD_MS // len(targets)
                for_ms = round(trouble.lasts * PERIOD_MS)
                yield Fault(at_ms, trouble.kind, target, for_ms, trouble.detail + turn + 7 * place)


@dataclass(frozen=True)
class Played:
    """What became of a scenario on simulated time."""

    score: Score
    outcome: Outcome
    pushed: int
    pushed_bytes: int
    layouts: dict[str, int]  # the version that each node ended with, from 1


def play(scenario: Scenario, seed: int, fit: Fitting = attempt) -> Played:
    """Live through a scenario; `outcome.broken` says if a promise was."""
    fleet = ScenarioFleet(Script(scenario, seed), fit)
    outcome = fleet.run()
    pushed = fleet.audience.pushed
    layouts = {key[1]: made.version for key, made in fleet.gateway.gateway.fleet.layouts.items()}
    return Played(fleet.score, outcome, len(pushed), sum(pushed.values()), layouts)
