"""The real parts of a gateway, put together: its database, its broker, its key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from edge_opid.link.mqtt import MqttLink
from edge_opid.service.systemd import Systemd
from gateway.clock import GatewayClock
from gateway.config import GatewayConfig, load_signing_key
from gateway.decisions.gateway import Gateway
from gateway.fitting.worker import ThreadFitter
from gateway.loop import GatewayLoop
from gateway.recall import recalled
from gateway.store import FleetStore

OUTBOX_MESSAGES_MAX = 65_536  # a wave to every node of a large fleet
OUTBOX_BYTES_MAX = 256 * 2**20  # … with weights; a gateway is no Pi Zero
INBOX_MESSAGES_MAX = 16_384


@contextmanager
def open_loop(config: GatewayConfig, systemd: Systemd) -> Iterator[GatewayLoop]:
    """A gateway on the real database and the real broker, ready to `run`."""
    key = load_signing_key(config.key_file)
    with FleetStore.open(config.database) as store:
        store.claim()
        store.forget_closed()
        stored, pushed = recalled(store)
        gateway = Gateway(config.policy, config.groups, key, stored, pushed)
        options = replace(
            config.broker,
            outbox_messages_max=OUTBOX_MESSAGES_MAX,
            outbox_bytes_max=OUTBOX_BYTES_MAX,
            inbox_messages_max=INBOX_MESSAGES_MAX,
        )
        yield GatewayLoop(
            gateway, MqttLink(options), store, GatewayClock(), ThreadFitter(), systemd
        )
