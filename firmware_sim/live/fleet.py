"""A scenario with real processes: a broker, the gateway, a node for each name, and their sensors.

Everything is in a temporary folder, listens on the loopback interface only, and ends with the
block: `with LiveFleet(script, folder, url, period_s) as fleet: fleet.play(watch)`.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from nacl.signing import SigningKey

from edge_opid.source import Source, connect
from edge_opid.source.number import ReadingNumber
from edge_opid.wire import InstanceId
from firmware_sim.live.broker import open_broker
from firmware_sim.live.files import write_gateway, write_node
from firmware_sim.live.listener import FleetListener, now_ms
from firmware_sim.live.processes import Child, Children, LiveError, wait_until
from firmware_sim.scenario.rivals import Rivals
from firmware_sim.scenario.score import Score
from firmware_sim.scenario.script import Script, ScriptedInstance
from gateway.registry import ChangeRecord
from gateway.store import DatabaseError, FleetStore

SOURCE = "box"
START_S = 60.0  # for a slow machine to start everything
SETTLE_S = 120.0  # after the last reading, on a busy machine
PENDING_MAX = 128  # readings on their way: a slow machine slows the sensors down
CONNECTED = "connected"  # a line of the gateway's log
LOOK_S = 0.5  # between two looks into the gateway's database

Watch = Callable[["LiveFleet", int], None]
"""Called before every reading with its number."""


class LiveFleet:
    """Real processes, in the order of their start: broker, gateway, nodes, sensors."""

    def __init__(
        self,
        script: Script,
        folder: Path,
        url: str | None,
        period_s: float,
        web_port: int | None = None,
    ) -> None:
        self.script, self.score, self.period_s = script, Score(script), period_s
        self._folder, self._url, self._web_port = folder, url, web_port
        self._stack, self.children = ExitStack(), Children(folder)
        self.nodes: dict[str, Child] = {}
        self.sources: dict[str, Source] = {}
        self.change: ChangeRecord | None = None  # the newest, as the gateway's database has it
        self.resident_most = 0
        self._rivals = Rivals(script)
        self._unlabelled: deque[tuple[ScriptedInstance, ReadingNumber]] = deque()
        self._looked = 0.0

    def __enter__(self) -> LiveFleet:
        try:
            self._open()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _open(self) -> None:
        enter, script, folder = self._stack.enter_context, self.script, self._folder
        enter(self.children)
        self.broker = broker = open_broker(self._url, folder, self.children)
        # on somebody's broker nobody else has this name
        self.site = "demo" if broker.ours else f"demo-{secrets.token_hex(4)}"
        key = SigningKey.generate()
        policy = script.scenario.policy(self.period_s)
        home, port = folder / "gateway", self._web_port
        toml = write_gateway(home, self.site, script, broker, policy, key, port)
        pages = [] if port is None else ["--web"]
        gateway = self.children.python("gateway", "gateway", "run", toml, *pages)
        self.ear = enter(FleetListener(broker, self.site, key.verify_key, self.score))
        if not broker.ours:
            self._stack.callback(self._tidy)
        self._wait_for(gateway)
        for node in script.nodes:
            config = script.node_config(node, self.site, self.period_s)
            toml = write_node(folder / node, config, broker, key)
            self.nodes[node] = self.children.python(node, "edge_opid", "run", toml)
        for node in script.nodes:
            self.sources[node] = enter(self._source(node))
        self._database = f"sqlite:///{folder / 'gateway' / 'gateway.sqlite'}"

    def _wait_for(self, gateway: Child) -> None:
        """A node that comes before the gateway is met with its next status, half a minute later."""
        wait_until(
            lambda: CONNECTED in gateway.log(),
            "the gateway is connected",
            START_S,
            self.children.check,
        )

    def _source(self, node: str) -> Source:
        options = self.broker.options(f"{self.site}-{node}-{SOURCE}")
        spool = self._folder / f"spool-{node}"
        return connect(self.site, node, SOURCE, spool, options, sync_s=60.0, sync_every=1_000)

    def _tidy(self) -> None:
        """Leave nothing on a broker that is not ours, once nobody is there to say it again."""
        self.children.stop()
        for node in self.nodes:
            self.ear.forget(node)

    # --- playing ----------------------------------------------------------------------------------

    def play(self, watch: Watch) -> None:
        """The whole script, one reading of every node after the other."""
        self._wait(self._all_online, START_S, "every node is online", watch, 0)
        due = time.monotonic()
        for place in range(self.script.scenario.readings):
            self._round(place)
            self._breathe(watch, place + 1)
            due = max(due + self.period_s, time.monotonic() - self.period_s)
            time.sleep(max(0.0, due - time.monotonic()))
        self._finish(watch)

    def _all_online(self) -> bool:
        return self.ear.online >= set(self.script.nodes)

    def _round(self, place: int) -> None:
        for announced in self.script.announcements:
            if announced.at == place:
                for event in announced.messages(now_ms(), self.script.timeout_s(self.period_s)):
                    self.ear.announce(announced.node, event)
        for node in self.script.nodes:
            self._send(self.script.instance(node, place))
        self.score.guessed(place, self._rivals.step(place))
        while self._unlabelled and self._unlabelled[0][0].place <= place - self._late:
            instance, number = self._unlabelled.popleft()
            self.ear.label(instance.node, InstanceId(SOURCE, *number), instance.truth)

    @property
    def _late(self) -> int:
        return self.script.scenario.label_late

    def _send(self, instance: ScriptedInstance) -> None:
        at_once = instance.known and not self._late
        source = self.sources[instance.node]
        number = source.send(instance.values, instance.truth if at_once else None)
        self.ear.place[instance.node, number.boot, number.seq] = instance.place
        if instance.known and self._late:
            self._unlabelled.append((instance, number))

    def _breathe(self, watch: Watch, place: int) -> None:
        """Hear what is said, see who lives, and wait for whoever is behind."""
        self.ear.listen()
        self._look()
        watch(self, place)
        wait_until(
            lambda: max(source.pending for source in self.sources.values()) <= PENDING_MAX,
            "nodes acknowledge their readings",
            SETTLE_S,
            self.children.check,
        )

    def _look(self) -> None:
        if time.monotonic() - self._looked < LOOK_S:
            return
        self._looked = time.monotonic()
        self.children.check()
        resident = max(child.resident_bytes() for child in self.nodes.values())
        self.resident_most = max(self.resident_most, resident)
        try:
            with FleetStore.open(self._database) as store:
                self.change = next(iter(store.changes(1)), None)
        except DatabaseError:
            return  # the gateway is writing: the next look will do

    # --- how it ends ------------------------------------------------------------------------------

    def agreed(self) -> bool:
        """Every node has reported the order in force, as the gateway's database has it."""
        try:
            with FleetStore.open(self._database) as store:
                found = store.fleet()
        except DatabaseError:
            return False
        reported = {node.key: node.reported_version for node in found.nodes}
        orders = {order.key: order.version for order in found.orders}
        return len(orders) == len(self.script.nodes) and all(
            reported[key] >= version for key, version in orders.items()
        )

    def _finish(self, watch: Watch) -> None:
        place = self.script.scenario.readings
        for node, source in self.sources.items():
            if not source.drained(SETTLE_S):
                raise LiveError(f"{node} has not acknowledged everything after {SETTLE_S:g} s")
        self._wait(
            lambda: not self.score.missing, SETTLE_S, "every reading has a prediction", watch, place
        )
        self._wait(self.agreed, SETTLE_S, "every node has its newest order", watch, place)

    def _wait(
        self, true: Callable[[], bool], most_s: float, what: str, watch: Watch, place: int
    ) -> None:
        def meanwhile() -> None:
            self.children.check()
            self.ear.listen()
            watch(self, place)

        wait_until(true, what, most_s, meanwhile, pause_s=0.1)
