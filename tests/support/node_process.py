"""A real node in a process of its own, and somebody who listens to what it says.

    with Mosquitto(folder / "broker") as broker, NodeProcess(folder, broker.port, toml) as node:

The process is `python -m edge_opid run`, as on a Pi. `kill` ends it as a power cut would end a
program, `stop` as systemd would.
"""

from __future__ import annotations

import sys
from pathlib import Path

from edge_opid.config.service import ServiceConfig, load_config
from edge_opid.link.options import MqttOptions
from edge_opid.service.wiring import open_node
from firmware_sim.live.observer import Observer
from firmware_sim.live.processes import WAIT_S, Child, wait_until

__all__ = ["WAIT_S", "NodeProcess", "listening", "wait_until"]


class NodeProcess(Child):
    """`opid-node run` on 127.0.0.1, its state in `folder`/state, its log in `folder`/node.log.

    `settings` is the configuration without its broker and its state.
    """

    def __init__(self, folder: Path, port: int, settings: str) -> None:
        self.toml = folder / "node.toml"
        self.state_folder = folder / "state"
        broker = f'[broker]\nhost = "127.0.0.1"\nport = {port}\n'
        state = '[state]\nfolder = "state"\nstatus_file = "status.json"\n'
        self.toml.write_text(f"{settings}\n{broker}{state}")
        command = [sys.executable, "-m", "edge_opid", "run", self.toml]
        super().__init__("node", command, folder / "node.log")

    @property
    def config(self) -> ServiceConfig:
        """The configuration as the node reads it."""
        return load_config(self.toml, {})

    def snapshot(self) -> bytes:
        """Every bit of the state that a stopped node would begin its next life with."""
        with open_node(self.config) as (node, _, _):
            return node.snapshot()


def listening(port: int, *filters: str) -> Observer:
    """A listener on this broker."""
    return Observer(MqttOptions(client_id="listener", port=port), filters)
