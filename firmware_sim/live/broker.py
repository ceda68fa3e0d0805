"""The broker of a live run: somebody's, mosquitto where it is installed, or one in pure Python.

`python -m firmware_sim.live.broker PORT` is the last one: amqtt, on the loopback interface. It
speaks MQTT 3.1.1 only and is not to be trusted with sessions that outlive a connection; what
travels while everybody is connected is exact.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from edge_opid.errors import ConfigError
from edge_opid.link.options import MqttOptions
from firmware_sim.live.mosquitto import (
    HOST,
    ROOMY,
    Mosquitto,
    connects,
    find_mosquitto,
    free_port,
)
from firmware_sim.live.processes import Children, wait_until
from firmware_sim.live.toml import toml_table

EMBEDDED = "embedded"
START_S = 20.0  # for amqtt


@dataclass(frozen=True)
class Broker:
    """Where the broker is, and how it lets us in."""

    name: str
    host: str
    port: int
    ours: bool  # nobody else is on it, and it ends with us
    credentials: Path | None = None
    mqtt_5: bool = True

    def options(self, client: str) -> MqttOptions:
        """For a client of our own process."""
        return MqttOptions(
            client_id=client,
            host=self.host,
            port=self.port,
            credentials=self.credentials,
            mqtt_5_first=self.mqtt_5,
            session_expiry_s=60,
        )

    def toml(self) -> str:
        """The section of a node's or the gateway's configuration."""
        where, who = {"host": self.host, "port": self.port}, self.credentials
        return toml_table(
            "broker",
            where,
            session_expiry_s=60,
            mqtt_5_first=self.mqtt_5,
            credentials=None if who is None else str(who),
        )


def open_broker(url: str | None, folder: Path, children: Children) -> Broker:
    """The broker at this URL, or one of our own."""
    if url not in (None, EMBEDDED):
        return _somebodys(str(url), folder)
    if url == EMBEDDED or find_mosquitto() is None:
        port = free_port()
        child = children.python("broker", "firmware_sim.live.broker", str(port))
        wait_until(partial(connects, port), "amqtt answers", START_S, child.check)
        return Broker("amqtt (embedded)", HOST, port, ours=True, mqtt_5=False)
    mosquitto = Mosquitto(folder, extra=ROOMY)
    children.add(mosquitto)
    return Broker("mosquitto", HOST, mosquitto.port, ours=True)


def _somebodys(url: str, folder: Path) -> Broker:
    """`mqtt://user:password@host:1883`; the password goes into a file that only we can read."""
    try:
        parts = urlsplit(url)
        port = parts.port or 1883
    except ValueError:
        parts, port = urlsplit(""), 0
    if parts.scheme != "mqtt" or not parts.hostname:
        shown = url.rpartition("@")[2]  # without a password, if there is one
        raise ConfigError(f"broker must be mqtt://HOST or mqtt://USER:PASSWORD@HOST, got {shown!r}")
    credentials = None
    if parts.username is not None:
        credentials = folder / "credentials"
        credentials.touch(mode=0o600)
        credentials.write_text(f"{unquote(parts.username)}\n{unquote(parts.password or '')}\n")
    return Broker(f"{parts.hostname}:{port}", parts.hostname, port, False, credentials)


# --- the broker in pure Python --------------------------------------------------------------------


async def _serve(port: int) -> None:
    from amqtt.broker import Broker as Amqtt  # noqa: PLC0415 - of the extra `sim`

    plugin = "amqtt.plugins.authentication.AnonymousAuthPlugin"
    config = {
        "listeners": {"default": {"type": "tcp", "bind": f"{HOST}:{port}"}},
        "plugins": {plugin: {"allow_anonymous": True}},
    }
    over = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, over.set)
    broker = Amqtt(config)
    await broker.start()
    await over.wait()
    await broker.shutdown()


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    asyncio.run(_serve(int(sys.argv[1])))
