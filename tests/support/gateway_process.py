"""A real gateway in a process of its own, and a fleet of real nodes around it.

with Town(folder) as town:  # mosquitto, the gateway, four nodes, their sensors
town.live(100)  # readings of everybody, labelled
town.operator("n1", SensorRetired(...))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edge_opid.source import Source, connect
from edge_opid.wire import Channel, Event, NodeTopics, Prediction, decode, encode
from firmware_sim.live import services
from firmware_sim.live.processes import Together
from firmware_sim.live.toml import toml_table
from support.fleet_rig import CLASSES, SITE, SeenWorld
from support.mosquitto import Mosquitto
from support.node_process import WAIT_S, NodeProcess, listening, wait_until
from support.rig import KEY

POLICY = """
settle_s = 0.5
silence_s = 3
summary_wait_s = 5
first_batch = 30
batch_max = 120
retry_s = 2
retry_max_s = 4
"""


class GatewayProcess(services.GatewayProcess):
    """One group of nodes, and little patience."""

    def __init__(
        self, folder: Path, port: int, nodes: Sequence[str], url: str = "", policy: str = POLICY
    ) -> None:
        group = toml_table("[groups]", id="air", site=SITE, classes=CLASSES, nodes=nodes)
        super().__init__(folder, port, KEY, policy, group, url)


def node_settings(node: str, roles: Sequence[str]) -> str:
    """A node whose sensors are standardised already."""
    unhindered = {"rate_per_second": 1e5, "rate_burst": 10**5, "commit_s": 0.2}
    standard = {"reference": 0.0, "scale": 1.0, "timeout_s": 1.0}
    return (
        toml_table("node", unhindered, site=SITE, node=node, classes=CLASSES)
        + toml_table("gateway", keys=[KEY.verify_key.encode().hex()])
        + "".join(toml_table("[sensors]", standard, id=f"{r}-{node}", role=r) for r in roles)
    )


@dataclass
class Town(Together):
    """Everything real: a broker, a gateway, nodes and their sensors, each in a process."""

    folder: Path
    names: tuple[str, ...] = ("n1", "n2", "n3", "n4")
    roles: tuple[str, ...] = ("pm", "no", "co", "db")
    url: str = ""
    truth: dict[tuple[str, int], str] = field(default_factory=dict)
    """By node and number of the reading."""

    def _open(self) -> None:
        enter = self.stack.enter_context
        self.broker = enter(Mosquitto(self.folder / "broker"))
        self.world = SeenWorld(1)
        self.sensors = {n: {f"{role}-{n}": role for role in self.roles} for n in self.names}
        home = self.folder / "gateway"
        self.gateway = GatewayProcess(home, self.broker.port, self.names, self.url)
        self.stack.callback(self.gateway.kill)
        self.gateway.start()
        self.gateway.wait_connected()  # or the nodes' first introductions are heard by nobody
        self.ear = enter(listening(self.broker.port, f"opid/1/{SITE}/+/prediction"))
        self.nodes, self.sources = {}, {}
        for name in self.names:
            settings = node_settings(name, self.roles)
            process = NodeProcess(self.folder / name, self.broker.port, settings)
            self.nodes[name] = enter(process)
            self.sources[name] = enter(self._source(name))

    def _source(self, name: str) -> Source:
        spool = self.folder / f"spool-{name}"
        return connect(SITE, name, "box", spool, port=self.broker.port, sync_s=60.0)

    def check(self) -> None:
        """Fail with the log of whoever ended by itself."""
        self.gateway.check()
        for node in self.nodes.values():
            node.check()

    def live(self, readings: int) -> None:
        """As many labelled readings of every node, each of all its sensors, and all applied."""
        for _ in range(readings):
            for name, source in self.sources.items():
                values, label = self.world.instance(self.sensors[name])
                number = source.send(values, label)
                self.truth[name, number.seq] = label
        for source in self.sources.values():
            assert source.drained(WAIT_S)
        self.check()

    def live_until(self, true, what: str, rounds: int = 600) -> None:
        """Readings until something is so: a fleet at work does not wait."""
        for _ in range(rounds):
            if true():
                return
            self.live(2)
        raise TimeoutError(f"{rounds} rounds of readings in vain: {what}")

    def operator(self, name: str, event: Event) -> None:
        """Announce something, as an operator's script would."""
        topic = NodeTopics(SITE, name).to(Channel.EVENT)
        assert self.ear.link.publish(str(topic), encode(event))

    # -- how it stands -------------------------------------------------------------------------

    def agreed(self) -> bool:
        """Every node has reported the order in force."""
        return services.all_obeyed(self.gateway.remembers(), len(self.names))

    def fitted(self, arrived: Sequence[str]) -> bool:
        """The newest change has these newcomers, its batch is full, and everybody has its model."""
        newest = self.gateway.changes()
        full = bool(newest) and newest[0].fitted == 120 and set(arrived) <= set(newest[0].arrived)
        return full and self.agreed()

    def accuracy(self, last: int = 200) -> float:
        """How often the last predictions that were served were right."""
        found = [
            (each.topic.node, decode(each.payload, Prediction))
            for each in list(self.ear.heard[Channel.PREDICTION])[-last:]
        ]
        right = [self.truth.get((node, said.instance.seq)) == said.label for node, said in found]
        return sum(right) / max(1, len(right))

    def wait_adopted(self) -> None:
        """Until every node is the gateway's."""
        wait_until(self.agreed, "the gateway adopts every node")
