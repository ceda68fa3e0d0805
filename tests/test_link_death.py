"""The end of the link's thread is the end of the process: no zombie feeds the watchdog."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.gateway_process import GatewayProcess
from support.links import WAIT_S, link_to, wait_until
from support.mosquitto import Mosquitto
from support.node_process import NodeProcess
from test_service import World

from edge_opid.link import Disconnected, LinkError
from edge_opid.link.connection import Connection
from edge_opid.service.status_file import read_status
from edge_opid.service.systemd import Systemd
from firmware_sim.live.processes import QUIET
from firmware_sim.live.toml import toml_table

# What ends a thread without a word, as nothing but a real fault of the machine should.
DOOMED = """
import sys
from edge_opid.link.connection import Connection

plain = Connection.turn
def turn(connection, wait_s):
    if connection.accepted:
        raise SystemExit
    return plain(connection, wait_s)

Connection.turn = turn
from {package}.__main__ import main
sys.exit(main(["run", sys.argv[1]]))
"""
NODE = toml_table("node", site="farm", node="n1", classes=["fine", "dry"])
NODE += toml_table("[sensors]", id="t")


@contextmanager
def systemd(path: Path) -> Iterator[tuple[socket.socket, dict[str, str]]]:
    """Somebody who hears what a service says, and the environment that tells it where."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(str(path))
        ear.setblocking(False)
        yield ear, {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "3000"}


def heard(ear: socket.socket) -> list[bytes]:
    words = []
    while True:
        try:
            words.append(ear.recv(100))
        except BlockingIOError:
            return words


def run_doomed(package: str, toml: Path) -> tuple[int, str]:
    """The exit code and the log of a service whose link's thread ends after CONNACK."""
    command = [sys.executable, "-c", DOOMED.format(package=package), str(toml)]
    environment = {**os.environ, **QUIET}
    done = subprocess.run(
        command, env=environment, check=False, capture_output=True, timeout=WAIT_S, text=True
    )
    return done.returncode, done.stderr


def test_node_whose_link_thread_ended_ends_and_says_why(tmp_path: Path) -> None:
    """It went on for ever: fed the watchdog, said "running", and never heard again."""
    with Mosquitto(tmp_path / "broker") as broker:
        node = NodeProcess(tmp_path, broker.port, NODE)
        code, log = run_doomed("edge_opid", node.toml)
    assert code == 1
    assert 'event="link ended"' in log
    assert 'event="cannot go on"' in log
    status = read_status(node.config.status_file)
    assert status["online"] is False
    assert "has ended" in status["link"]
    assert status["degraded"][0] in status["link"]


def test_gateway_whose_link_thread_ended_ends_and_says_why(tmp_path: Path) -> None:
    """The same link serves the gateway: one that never hears again must not keep its place."""
    with Mosquitto(tmp_path / "broker") as broker:
        gateway = GatewayProcess(tmp_path / "gateway", broker.port, ["n1"])
        code, log = run_doomed("gateway", gateway.toml)
    assert code == 1
    assert 'event="link ended"' in log
    assert 'event="cannot go on"' in log


def test_dead_link_is_told_apart_from_a_lost_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection comes back by itself; a thread does not, and `check` says so from then on."""
    with Mosquitto(tmp_path) as broker, link_to(broker.port) as link:
        link.wait_connected(WAIT_S)
        broker.stop()
        wait_until(lambda: not link.connected, "the connection is lost")
        link.check()
        broker.start()
        link.wait_connected(WAIT_S)
        monkeypatch.setattr(Connection, "turn", lambda *_: (_ for _ in ()).throw(SystemExit()))
        wait_until(lambda: not link.connected, "the connection is lost")
        for _ in range(2):
            with pytest.raises(LinkError, match="has ended"):
                link.check()


def test_watchdog_is_not_fed_over_a_dead_link(tmp_path: Path) -> None:
    """The loop still goes round; systemd must hear nothing, and the status file says why."""
    with systemd(tmp_path / "systemd") as (ear, environment):
        world = World(notify=Systemd(environment), status_file=tmp_path / "status")
        world.service.start()
        world.rounds(3, seconds=1.0)
        assert heard(ear) == [b"READY=1", *[b"WATCHDOG=1"] * 3]

        def dead() -> None:
            raise LinkError("its thread has ended")

        world.link.check = dead
        with pytest.raises(LinkError):
            world.rounds(1)
        assert heard(ear) == []
    assert read_status(tmp_path / "status")["link"] == "its thread has ended"


def test_fault_of_the_link_is_told_for_an_hour(tmp_path: Path) -> None:
    """It is over, and it may come again: whoever looks in the meantime should see it."""
    world = World(status_file=tmp_path / "status")
    world.service.start()
    world.rounds(1)
    assert world.service.health(0)["link"] == "ok"
    world.link._events.put_event(Disconnected("the link failed: MemoryError()", fault=True))
    world.rounds(1, seconds=3_599.0)
    assert world.service.health(0)["link"] == "the link failed: MemoryError()"
    world.rounds(1, seconds=1.0)
    assert world.node.link_trouble == "the link failed: MemoryError()"
    world.rounds(1)
    assert world.service.health(0)["link"] == "ok"
