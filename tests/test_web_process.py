"""The pages as a process beside their gateway: what ends one, and what does not end the other."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("starlette")

from support.mosquitto import Mosquitto
from support.node_process import WAIT_S, wait_until
from support.web_site import LAN, TOML, keys, opened
from support.web_town import WebGateway
from uvicorn.server import ServerState

from gateway import web_child
from gateway.__main__ import main
from gateway.config import parse_config
from gateway.web import server
from gateway.web.guard import now_ms


def children(pid):
    """The processes that this one has started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def pages_of(gateway):
    """The process of the pages, below the gateway (and below what leashes it to this test)."""
    every = [gateway.process.pid]
    for pid in every:
        every += children(pid)
    lines = {pid: command_of(pid) for pid in every}
    return [pid for pid, line in lines.items() if b"--until-eof" in line and b"web" in line]


def command_of(pid):
    """The words that started a process; none if it has just ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


@pytest.fixture
def gateway(tmp_path):
    with Mosquitto(tmp_path / "broker") as broker:
        process = WebGateway(tmp_path / "gateway", broker.port, ("n1",))
        process.start()
        try:
            process.wait_connected()
            wait_until(process.answers, "the pages answer", meanwhile=process.check)
            yield process
        finally:
            process.kill()


def test_pages_that_die_are_started_again_and_the_gateway_does_not_notice(gateway):
    before, connections = pages_of(gateway), gateway.connections()
    assert len(before) == 1
    os.kill(before[0], signal.SIGKILL)
    wait_until(lambda: pages_of(gateway) not in ([], before), "another process", pause_s=0.1)
    wait_until(gateway.answers, "the pages answer again", meanwhile=gateway.check)
    assert gateway.connections() == connections, "the gateway's own connection never ended"
    assert "the pages have ended" in gateway.log()


def test_pages_that_hang_do_not_keep_the_gateway_from_its_work(gateway):
    """Stopped in the middle of anything: commands are obeyed, and the end is a clean one."""
    [pages] = pages_of(gateway)
    os.kill(pages, signal.SIGSTOP)
    try:
        code = main(["status", str(gateway.toml)])
        assert code == 0, "it serves its database"
    finally:
        os.kill(pages, signal.SIGCONT)


def test_pages_end_with_their_gateway_however_that_ends(gateway):
    assert gateway.answers()
    [pages] = pages_of(gateway)
    gateway.kill()
    wait_until(lambda: not Path(f"/proc/{pages}").exists(), "the pages have ended", pause_s=0.1)
    assert not gateway.answers()


def test_a_gateway_that_is_told_to_stop_stops_its_pages_first(gateway):
    [pages] = pages_of(gateway)
    assert gateway.stop() == 0
    assert not Path(f"/proc/{pages}").exists()


def test_pages_without_a_database_make_none_and_say_so(tmp_path):
    (tmp_path / "gateway.toml").write_text(TOML)
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "web", str(tmp_path / "gateway.toml")],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert "no gateway has run with this configuration yet" in done.stderr
    assert not (tmp_path / "gateway.sqlite").exists()


def test_a_link_is_printed_for_a_phone_and_needs_a_token(tmp_path, capsys):
    with opened(tmp_path, LAN):
        pass
    config = tmp_path / "gateway.toml"
    config.write_text(TOML + LAN)
    assert main(["web-link", str(config), "--node", "n1"]) == 0
    url = capsys.readouterr().out.strip()
    assert url.startswith("http://pi.local:8470/join#")
    assert keys().opened_link(url.partition("#")[2], now_ms()).node == "farm/n1"
    assert main(["web-link", str(config), "--metrics"]) == 0
    assert capsys.readouterr().out.strip() == keys().metrics_word
    config.write_text(TOML)
    assert main(["web-link", str(config)]) == 2
    assert "web.token is missing" in capsys.readouterr().err


def test_a_machine_that_has_no_room_for_the_pages_is_asked_again(tmp_path, monkeypatch):
    """No memory, or no process left: the thread that keeps the pages alive ended with the error."""
    tried = []

    def full(*_, **__):
        tried.append(1)
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(web_child, "AGAIN_S", 0.001)
    monkeypatch.setattr(web_child.subprocess, "Popen", full)
    with web_child.WebChild(tmp_path / "gateway.toml"):
        wait_until(lambda: len(tried) >= 3, "it tries again")


def test_the_pages_of_two_gateways_do_not_throw_each_other_off_the_broker(tmp_path, monkeypatch):
    """A broker ends the older of two connections that have the same client id."""
    monkeypatch.setattr(server.Ear, "start", lambda _: None)
    monkeypatch.setattr(server, "BackgroundLink", lambda options: options)
    config = parse_config(TOML, {}, tmp_path / "gateway.toml")
    names = {server.open_ear(config)._link.client_id for _ in range(2)}
    assert len(names) == 2


def test_whoever_is_too_slow_makes_room_for_others(monkeypatch):
    """128 connections that say nothing, half a request or half a form: nobody else was served."""
    monkeypatch.setattr(server, "REQUEST_S", 0.05)
    begun = []

    class Watched(server.Prompt):
        def connection_made(self, transport):
            begun.append(transport)
            super().connection_made(transport)

    async def app(_scope, receive, _send):
        while (await receive())["type"] != "http.disconnect":
            pass

    async def talk(words):
        loop = asyncio.get_running_loop()
        config, state = server.uvicorn.Config(app, ws="none", log_config=None), ServerState()
        made = await loop.create_server(lambda: Watched(config, state, {}), "127.0.0.1", 0)
        async with made:
            reader, writer = await asyncio.open_connection(*made.sockets[0].getsockname())
            writer.write(words)
            with contextlib.suppress(ConnectionError):
                await asyncio.wait_for(reader.read(), WAIT_S)
            writer.close()
            assert not state.connections

    for words in (b"", b"GET / HTTP/1.1\r\nHost: x", b"POST / HTTP/1.1\r\nHost: x\r\n"
                  b"Content-Length: 10\r\n\r\nhalf"):  # fmt: skip
        asyncio.run(talk(words))
    assert len(begun) == 3
