"""A node or a gateway in a process of its own, on a broker of the loopback interface.

The processes are `opid-node run` and `opid-gateway run`, as on a Pi. `kill` ends one as a power cut
would end a program, `stop` as systemd would.
"""

from __future__ import annotations

import sys
from pathlib import Path

from nacl.signing import SigningKey

from edge_opid.config.service import ServiceConfig, load_config
from edge_opid.service.wiring import open_node
from firmware_sim.live.mosquitto import HOST
from firmware_sim.live.processes import Child, wait_until
from gateway.registry import ChangeRecord
from gateway.registry.fleet import StoredFleet
from gateway.store import FleetStore


class NodeProcess(Child):
    """A node whose state is in `folder`/state and whose log is `folder`/node.log.

    `settings` is its configuration without broker and state; `broker` are more lines of the broker,
    `speed` is that of its clock.
    """

    def __init__(
        self, folder: Path, port: int, settings: str, broker: str = "", speed: float = 1.0
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.toml = folder / "node.toml"
        self.state_folder = folder / "state"
        self.toml.write_text(
            f'{settings}\n[broker]\nhost = "{HOST}"\nport = {port}\n{broker}\n'
            '[state]\nfolder = "state"\nstatus_file = "status.json"\n'
        )
        faster = [] if speed == 1.0 else [f"--speed={speed}"]  # otherwise as the unit starts it
        command = [sys.executable, "-m", "edge_opid", "run", *faster, str(self.toml)]
        super().__init__("node", command, folder / "node.log")

    @property
    def config(self) -> ServiceConfig:
        """The configuration as the node reads it."""
        return load_config(self.toml, {})

    def snapshot(self) -> bytes:
        """Every bit of the state that a stopped node would begin its next life with."""
        with open_node(self.config) as (node, _, _):
            return node.snapshot()


class GatewayProcess(Child):
    """A gateway whose key, database and log are in `folder`.

    `policy` are lines of its section, `groups` is the rest of its configuration. Its database is an
    SQLite file of its own where no other URL is given.
    """

    def __init__(
        self, folder: Path, port: int, key: SigningKey, policy: str, groups: str, url: str = ""
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        secret = folder / "gateway.key"
        secret.touch(mode=0o600)
        secret.write_text(key.encode().hex())
        self.database = url or f"sqlite:///{folder / 'gateway.sqlite'}"
        self.toml = folder / "gateway.toml"
        self.toml.write_text(
            f'[gateway]\ndatabase = "{self.database}"\nkey = "gateway.key"\n{policy}\n'
            f'[broker]\nhost = "{HOST}"\nport = {port}\n{groups}'
        )
        self._connected_before = 0
        command = [sys.executable, "-m", "gateway", "run", str(self.toml)]
        super().__init__("gateway", command, folder / "gateway.log")

    def start(self) -> None:
        """Begin another life."""
        self._connected_before = self.connections()
        super().start()

    def wait_connected(self) -> None:
        """Until it has reached the broker: before that nobody is there to hear anything."""
        wait_until(
            lambda: self.connections() > self._connected_before,
            "the gateway is connected",
            meanwhile=self.check,
        )

    def stop(self) -> int:
        """Ask it to end; not before it is up, or nobody is there to hear it."""
        self.wait_connected()
        return super().stop()

    def connections(self) -> int:
        """How often it has reached the broker, in all its lives."""
        return self.log().count("event=connected")

    def remembers(self) -> StoredFleet:
        """The fleet as its database has it now."""
        with FleetStore.open(self.database) as store:
            return store.fleet()

    def changes(self) -> list[ChangeRecord]:
        """The last changes, the newest first."""
        with FleetStore.open(self.database) as store:
            return store.changes(20)


def all_obeyed(found: StoredFleet, nodes: int) -> bool:
    """Whether so many nodes have an order, and each has reported that it obeys it."""
    reported = {node.key: node.reported_version for node in found.nodes}
    return len(found.orders) == nodes and all(
        reported[order.key] >= order.version for order in found.orders
    )
