"""A real node in a process of its own, and somebody who listens to what it says.

with Mosquitto(folder / "broker") as broker, NodeProcess(folder, broker.port, toml) as node:
"""

from __future__ import annotations

from edge_opid.link.options import MqttOptions
from firmware_sim.live.observer import Observer
from firmware_sim.live.processes import WAIT_S, wait_until
from firmware_sim.live.services import NodeProcess

__all__ = ["WAIT_S", "NodeProcess", "listening", "wait_until"]


def listening(port: int, *filters: str) -> Observer:
    """A listener on this broker."""
    return Observer(MqttOptions(client_id="listener", port=port), filters)
