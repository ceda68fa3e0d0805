"""A real node in a process of its own, and somebody who listens to what it says.

    with Mosquitto(folder / "broker") as broker, NodeProcess(folder, broker.port, toml) as node:

The process is `python -m edge_opid run`, as on a Pi. `kill` ends it as a power cut would end a
program, `stop` as systemd would.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from edge_opid.config.service import ServiceConfig, load_config
from edge_opid.link.mqtt import MqttLink
from edge_opid.link.options import MqttOptions
from edge_opid.service.wiring import open_node
from edge_opid.wire import Channel, Topic, decode

WAIT_S = 60.0  # for one thing to happen on a busy machine; nothing is judged by its speed
EARLY = {"OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}  # or it would start itself twice


def wait_until(true: Callable[[], object], what: str, timeout_s: float = WAIT_S) -> None:
    """Return as soon as it is true; fail with `what` after the timeout."""
    deadline = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s:g} s in vain: {what}")
        time.sleep(0.005)


@dataclass
class NodeProcess:
    """`opid-node run` on 127.0.0.1, its state in `folder`/state, its log in `folder`/node.log.

    `settings` is the configuration without its broker and its state.
    """

    folder: Path
    port: int
    settings: str
    process: subprocess.Popen[bytes] | None = None
    lives: int = 0

    def __post_init__(self) -> None:
        broker = f'[broker]\nhost = "127.0.0.1"\nport = {self.port}\n'
        state = '[state]\nfolder = "state"\nstatus_file = "status.json"\n'
        self.toml.write_text(f"{self.settings}\n{broker}{state}")

    def __enter__(self) -> NodeProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def toml(self) -> Path:
        """The configuration file."""
        return self.folder / "node.toml"

    @property
    def config(self) -> ServiceConfig:
        """The configuration as the node reads it."""
        return load_config(self.toml, {})

    @property
    def state_folder(self) -> Path:
        """Where its journal and its snapshots are."""
        return self.folder / "state"

    def start(self) -> None:
        """Begin another life."""
        with (self.folder / "node.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "edge_opid", "run", self.toml],
                stdout=log,
                stderr=log,
                env={**os.environ, **EARLY},
            )
        self.lives += 1

    def kill(self) -> None:
        """`kill -9`."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(WAIT_S)
            self.process = None

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(WAIT_S)
        self.process = None
        return code

    def check_alive(self) -> None:
        """Fail with its log if it ended by itself."""
        if self.process is not None and self.process.poll() is not None:
            raise RuntimeError(f"the node ended with {self.process.returncode}:\n{self.log()}")

    def log(self) -> str:
        """The end of what it had to say."""
        return (self.folder / "node.log").read_text(errors="replace")[-4_000:]

    def snapshot(self) -> bytes:
        """Every bit of the state that a stopped node would begin its next life with."""
        with open_node(self.config) as (node, _, _):
            return node.snapshot()


class Listener:
    """Hears everything that a node says, and keeps it, by channel."""

    def __init__(self, port: int, filters: list[str]) -> None:
        self.heard: dict[Channel, list[bytes]] = {channel: [] for channel in Channel}
        self.topics: dict[Channel, list[Topic]] = {channel: [] for channel in Channel}
        self.link = MqttLink(MqttOptions(client_id="listener", port=port))
        self.link.subscribe(filters)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="listener", daemon=True)

    def _run(self) -> None:
        while not self._over.is_set():
            delivery = self.link.poll(0.1)
            if delivery is not None:
                topic = Topic.parse(delivery.topic)
                self.topics[topic.channel].append(topic)
                self.heard[topic.channel].append(delivery.payload)
                self.link.acknowledge(delivery)

    def all(self, channel: Channel, *kinds):
        """The messages of one channel so far, in the order they came."""
        return [decode(payload, *kinds) for payload in list(self.heard[channel])]

    def last(self, channel: Channel, *kinds):
        """The latest message of one channel, or None."""
        payloads = self.heard[channel]
        return decode(payloads[-1], *kinds) if payloads else None


@contextmanager
def listening(port: int, *filters: str) -> Iterator[Listener]:
    """A connected listener; it hears nothing that was said before."""
    listener = Listener(port, list(filters))
    listener.link.start()
    try:
        listener.link.wait_connected(WAIT_S)
        listener._thread.start()
        yield listener
    finally:
        listener._over.set()
        listener.link.stop()
        if listener._thread.is_alive():
            listener._thread.join(WAIT_S)
