"""One run: a story, a list of faults, the real parts, and the witness who watches them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from nacl.signing import SigningKey

from edge_opid.wire import InstanceId, digest
from firmware_sim.chaos.faults import Fault, Targets, faults_for
from firmware_sim.chaos.inflict import inflict
from firmware_sim.chaos.node_checks import check_not_turned
from firmware_sim.chaos.people import Labeller, Operator
from firmware_sim.chaos.promises import BrokenPromise, Said, SaidOnce
from firmware_sim.chaos.story import CLASSES, SITE, Lamp, SourceScript, Story
from firmware_sim.chaos.witness import Witness
from firmware_sim.simulated.broker import Checkpoint, SimBroker
from firmware_sim.simulated.clock import VirtualClock, dice
from firmware_sim.simulated.foreign_device import SOURCE, ForeignDevice
from firmware_sim.simulated.gateway_device import CLIENT, Fitting, GatewayDevice, cheap_attempt
from firmware_sim.simulated.gateway_records import MemoryRecords
from firmware_sim.simulated.network import Network
from firmware_sim.simulated.node_device import Device, NodeDevice
from firmware_sim.simulated.source_device import SourceDevice
from gateway.decisions.cohorts import unsettled
from gateway.store import FleetStore

KEY = SigningKey(b"the gateway of a simulated fleet")
AGREE_MS = 60_000  # from the end of the faults to one layout and one model everywhere
DRAIN_MS = 180_000  # to the last acknowledgement: a sensor's patience doubles up to a minute
SQL_EVERY = 16  # one seed in so many has a real database: it is slow, and seldom at fault
EVENTS_MAX = 400_000  # some hundred times what a run takes


@dataclass(frozen=True)
class Outcome:
    """What became of a run."""

    seed: int
    faults: tuple[Fault, ...]
    digest: str
    events: int
    readings: int
    agreed_ms: int
    """From the end of the faults."""
    broken: BrokenPromise | None = None


class SimFleet:
    """Real nodes, sources and gateway on one virtual clock."""

    key = KEY
    drought = False  # whether nobody tells a label any more
    events_max = EVENTS_MAX

    def __init__(
        self,
        seed: int,
        faults: Sequence[Fault] | None = None,
        fit: Fitting = cheap_attempt,
        store: FleetStore | None = None,
    ) -> None:
        self.story = story = Story(seed)
        self.clock = VirtualClock()
        self.broker = SimBroker(story.queue_max, story.receive_max)
        self.network = Network(self.clock, self.broker, seed)
        self.witness = Witness(KEY.verify_key)
        if store is None:
            store = MemoryRecords() if seed % SQL_EVERY else FleetStore.open("sqlite://")
        self.gateway = GatewayDevice(
            self.network, story.policy, story.group, KEY, self.witness, seed, store, fit
        )
        self.nodes = {node: self._node(node) for node in story.nodes}
        self.sources = {script.client: self._source(script) for script in story.scripts}
        self.foreign = {node: self._lamp(lamp) for node, lamp in story.lamps.items()}
        self.labeller = Labeller(self.network)
        self.operator = Operator(self.network, self.gateway, story.announcements)
        self.devices: dict[str, Device] = {**self.nodes, **self.sources, CLIENT: self.gateway}
        self.faults = self._own_faults() if faults is None else tuple(faults)
        self.last_checkpoint: Checkpoint = self.broker.checkpoint()

    def _own_faults(self) -> tuple[Fault, ...]:
        targets = Targets(
            self.story.nodes, tuple(self.sources), (CLIENT,), devices=tuple(self.foreign)
        )
        return faults_for(dice(self.story.seed, "faults"), targets, self.story.until_ms)

    def _node(self, name: str) -> NodeDevice:
        config = self.story.configs[name]
        names = [each.source for each in self.story.scripts if each.node == name]
        self.witness.meet(config, names)
        chronicle = self.witness.nodes[name]
        return NodeDevice(self.network, config, [KEY.verify_key], chronicle, self.story.seed)

    def _source(self, script: SourceScript) -> SourceDevice:
        sent = self.witness.sources[script.node][script.source]
        return SourceDevice(
            self.network,
            (SITE, script.node, script.source),
            sent,
            partial(self._read, script),
            self.story.seed,
            period_ms=script.period_ms,
            until_ms=self.story.until_ms,
            sync_every=script.sync_every,
        )

    def _lamp(self, lamp: Lamp) -> ForeignDevice:
        said = self.witness.nodes[lamp.node].foreign.setdefault(SOURCE, SaidOnce(SOURCE))
        return ForeignDevice(
            self.network,
            lamp.node,
            said,
            partial(self.story.shone, lamp.node),
            period_ms=lamp.period_ms,
            until_ms=lamp.until_ms,
        )

    def _read(self, script: SourceScript, place: int) -> Said:
        values, label = self.story.said(script, place, self.clock.now_ms)
        if self.drought:
            return values, None
        if label is None:
            self.clock.after(900, partial(self._label, script, place))
        return values, label

    def _label(self, script: SourceScript, place: int) -> None:
        """Of some readings without a label, the truth comes late."""
        chance = dice(self.story.seed, "label", script.client, place)
        sent = self.witness.sources[script.node][script.source]
        if chance.random() < 0.6 and sent.taken:
            number = InstanceId(script.source, *sent.taken.last)
            self.labeller.tell(script.node, number, chance.choice(CLASSES))

    def checkpoint(self) -> None:
        """The broker writes its memory to its disk."""
        self.last_checkpoint = self.broker.checkpoint()

    # --- a run ------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Live through it; the outcome says whether a promise was broken."""
        broken, agreed_ms = None, -1
        try:
            agreed_ms = self._live()
        except BrokenPromise as error:
            broken = error
        finally:
            self.gateway.close()
        return Outcome(
            self.story.seed,
            self.faults,
            self.witness.digest.hex(),
            self.clock.events,
            sum(s.readings for some in self.witness.sources.values() for s in some.values()),
            agreed_ms,
            broken,
        )

    def _live(self) -> int:
        self.start()
        self.clock.run_until(self.story.until_ms)
        return self.finish()

    def start(self) -> None:
        """Everybody boots, and every fault has its time."""
        for name, device in self.devices.items():
            self.clock.after(self._first_boot_ms(name), device.boot)
        for fault in self.faults:
            inflict(self, fault)

    def finish(self) -> int:
        """The story is over: all agree, and everything has arrived; after how many ms they did."""
        agreed_ms = self._until(self.disagreement, AGREE_MS, "no agreement")
        self._until(self.unacknowledged, DRAIN_MS, "readings stuck")
        self.witness.close()
        self._check_trust()
        for name, node in self.nodes.items():
            node.chronicle.compare(node.node)
            self.witness.digest.add(name, node.node.snapshot())
        return agreed_ms

    def _check_trust(self) -> None:
        """Nobody for whom nobody lies has been turned round."""
        liars = {fault.target for fault in self.faults if fault.kind == "liar"}
        for name in self.nodes.keys() - liars if liars else ():
            check_not_turned(self.story, name, self.nodes[name].node.state)

    def _first_boot_ms(self, name: str) -> int:
        """Mostly the gateway is there first: who comes before it is met half a minute later."""
        chance = dice(self.story.seed, "boot", name)
        early = name == CLIENT and chance.random() < 0.8
        return 0 if early else chance.randint(150, 900)

    def _until(self, why_not: Callable[[], str], most_ms: int, promise: str) -> int:
        """Let time pass until nothing speaks against it any more; how much has passed."""
        end_ms = self.story.until_ms + most_ms
        while reason := why_not():
            if self.clock.now_ms >= end_ms or self.clock.events > self.events_max:
                raise BrokenPromise(promise, reason)
            self.clock.run_for(500)
        return self.clock.now_ms - self.story.until_ms

    # --- how it ends ------------------------------------------------------------------------------

    def unacknowledged(self) -> str:
        """Whose readings are still on their way."""
        return ", ".join(name for name, source in self.sources.items() if not source.drained)

    def disagreement(self) -> str:
        """What is missing before every node obeys the newest order, and nothing is to order."""
        asleep = [name for name, device in self.devices.items() if not device.alive]
        if asleep:
            return f"{', '.join(asleep)} not running"
        if self.operator.open:
            return f"{len(self.operator.open)} announcements not heard"
        lacking = [node for node in self.nodes if not self._obeys(node)]
        if lacking:
            return f"{', '.join(lacking)} without the newest order"
        waiting = self.gateway.gateway.publisher.unreported()
        if waiting:
            return f"{waiting} not known to have obeyed"
        return ""

    def _obeys(self, name: str) -> bool:
        fleet, state, key = self.gateway.gateway.fleet, self.nodes[name].node.state, (SITE, name)
        order = fleet.orders.get(key)
        if order is None or unsettled(fleet, key):
            return False
        document = self.witness.signed[name].get(order.version)
        return document is not None and state.content == digest(document)
