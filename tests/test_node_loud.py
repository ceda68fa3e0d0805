"""Everybody's first mistakes, at a real node on a real broker: each is said, in three places."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.fleet_rig import SITE
from support.gateway_process import POLICY, GatewayProcess
from support.links import visitor
from support.mosquitto import HOST, Mosquitto
from support.node_process import WAIT_S, NodeProcess, wait_until

from edge_opid.link.background import BackgroundLink
from edge_opid.link.contract import Disconnected
from edge_opid.link.mqtt import Rivalry
from edge_opid.link.options import MqttOptions
from edge_opid.reasons import LinkReason
from edge_opid.service.status_file import read_status
from edge_opid.service.watching import Watchers, socket_path
from edge_opid.wire import InstanceId, Label, Reading, SensorSilent, encode

NODE = """
[node]
site = "farm"
node = "n1"
classes = ["fresh", "stale"]
rate_per_second = 0.1
rate_burst = 20
commit_s = 0.2
[[sensors]]
id = "t"
reference = 20.0
scale = 5.0
[[sensors]]
id = "h"
reference = 50.0
scale = 10.0
[[foreign]]
filter = "zigbee2mqtt/+"
source = "{1}"
fields = {temperature = "t", humidity = "h"}
"""
ROOT = "opid/1/farm/n1"
FIRST = InstanceId("attic", 1, 1)


def reading(seq: int, label: str | None = None, **values: float) -> bytes:
    return encode(Reading(1, seq, 1_000 * seq, values or {"t": 21.0}, label))


MISTAKES: list[tuple[str, str, list[bytes]]] = [
    ("refused-format", "zigbee2mqtt/hall", [b'{"temperature": 21.5']),
    ("foreign-fields-unfit", "zigbee2mqtt/a", [b'{"temperature": "unknown", "humidity": 50}']),
    ("foreign-fields-missing", "zigbee2mqtt/b", [b'{"temperature": 21}']),
    ("refused-type", "zigbee2mqtt/hall", [b'{"temperature": "unavailable"}']),
    ("refused-missing", "zigbee2mqtt/hall", [b'{"linkquality": 90}']),
    ("unknown-sensor", f"{ROOT}/reading/attic", [reading(2, t=21.0, lux=300.0)]),
    ("unknown-class", f"{ROOT}/reading/attic", [reading(3, label="Fresh")]),
    ("label-unknown-instance", f"{ROOT}/label", [encode(Label("fresh", time_ms=7))]),
    ("label-already-labelled", f"{ROOT}/label", [encode(Label("stale", FIRST))]),
    ("refused-size", f"{ROOT}/reading/attic", [b"x" * 9_000]),
    ("refused-id", f"{ROOT}/reading/Attic", [reading(1)]),
    ("refused-kind", f"{ROOT}/label", [reading(1)]),
    ("refused-signature", f"{ROOT}/desired", [b"\x00" * 200]),
    ("duplicate", f"{ROOT}/reading/attic", [reading(1)]),
    ("values-gated", f"{ROOT}/reading/attic", [reading(4, t=5_000.0)]),
    ("held", f"{ROOT}/reading/cellar", [reading(5)]),
    ("rate-limited", f"{ROOT}/reading/fast", [reading(seq) for seq in range(1, 60)]),
]


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "edge_opid", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)


def test_each_common_mistake_is_in_log_counter_status_and_watch_under_one_name(
    tmp_path: Path,
) -> None:
    """Bad JSON, an unknown sensor or class, a label for nothing or twice, no signature, …"""
    with (
        Mosquitto(tmp_path / "broker") as broker,
        NodeProcess(tmp_path / "n", broker.port, NODE) as node,
        visitor(broker.port) as sender,
    ):
        path = node.config.status_file
        wait_until(lambda: path.exists() and read_status(path)["connected"], "the node is there")
        words = [sys.executable, "-m", "edge_opid", "watch", "--config", str(node.toml)]
        watcher = subprocess.Popen(
            [*words, "--seconds", "60", "--count", "70"], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert watcher.stderr is not None
            assert watcher.stderr.readline() == "opid-node: watching; Ctrl-C ends it\n"
            sender.publish(f"{ROOT}/reading/attic", reading(1, label="fresh"))
            for _, topic, payloads in MISTAKES:
                for payload in payloads:
                    sender.publish(topic, payload)
            names = [name for name, _, _ in MISTAKES]
            wait_until(lambda: not missing(path, names), f"all are counted: {names}")
            status = read_status(path)
            said = command("status", node.toml)
            shown, _ = watcher.communicate(timeout=WAIT_S)
        finally:
            watcher.kill()
        assert node.stop() == 0
    log = node.log()
    for name, topic, payloads in MISTAKES:
        lines = [each for each in log.splitlines() if f"reason={name} " in each]
        assert lines, f"no log line says reason={name}"
        assert f"topic={topic} first=" in lines[0]
        assert " why=" in lines[0]
        assert status["counts"][name] >= 1
        assert status["noted"][name]["topic"] == topic
        assert re.search(rf"^  {name}: ", said.stdout, re.M)
        assert f"         {name}: " in shown
        if name == "rate-limited":
            assert len(lines) <= len(payloads).bit_length()
    assert said.stdout.startswith("running, ")
    assert "became instance attic/1/1: predicted unknown" in shown
    assert "         learned one instance\n" in shown
    assert status["reconnects"] == 0, "nobody took the node's session"
    assert status["counts"]["learned"] == 1


def missing(path: Path, names: list[str]) -> set[str]:
    return set(names) - read_status(path)["counts"].keys()


@pytest.mark.parametrize("account", ["n1\nhunter2\n", None])
def test_wrong_credentials_are_a_sentence_of_their_own_in_log_and_status(
    tmp_path: Path, account: str | None
) -> None:
    """A password that was mistyped, or none at all."""
    secret, broker_lines = tmp_path / "secret", ""
    if account is not None:
        secret.write_text(account)
        secret.chmod(0o600)
        broker_lines = f'credentials = "{secret}"'
    with (
        Mosquitto(tmp_path / "broker", users={"n1": "right"}) as broker,
        NodeProcess(tmp_path / "n", broker.port, NODE, broker_lines) as node,
    ):
        path = node.config.status_file
        wait_until(lambda: path.exists() and read_status(path)["noted"].keys() & REFUSED, "said")
        said = command("status", node.toml)
        assert node.stop() == 0
    assert said.returncode == 1
    first = said.stdout.splitlines()[0]
    assert first.startswith(f"not connected to broker {HOST}:{broker.port} for ")
    assert "refused client 'opid-farm-n1'" in first
    assert "orrect `broker.credentials`" in first
    assert "online True" not in said.stdout
    assert re.search(r"level=error .* reason=broker-(not-authorised|refused-cred)", node.log())
    assert "hunter2" not in node.log() + said.stdout


REFUSED = {"broker-not-authorised", "broker-refused-credentials"}


@pytest.mark.parametrize("mqtt_5", [True, False])
def test_a_session_that_another_client_takes_again_and_again_is_said(
    tmp_path: Path, mqtt_5: bool
) -> None:
    """Two nodes were set up from one copy of a configuration. mosquitto 2.0.11 just hangs up."""
    with Mosquitto(tmp_path / "broker") as broker:
        options = MqttOptions(
            client_id="twin",
            port=broker.port,
            mqtt_5_first=mqtt_5,
            reconnect_first_s=0.05,
            reconnect_most_s=0.1,
        )
        twins = [BackgroundLink(options), BackgroundLink(options)]
        for twin in twins:
            twin.start()
        try:
            wait_until(lambda: "session-probably-taken-over" in kinds(twins[0]), "it is noticed")
        finally:
            for twin in twins:
                twin.stop(0.0)


def kinds(link: BackgroundLink) -> set[str]:
    """Why its connections ended, as far as nobody has asked yet."""
    found = set()
    while (event := link.poll_event()) is not None:
        found |= {event.kind.value} if isinstance(event, Disconnected) else set()
    return found


def test_a_broker_that_says_session_taken_over_is_quoted() -> None:
    """MQTT 5 has a reason code for it, 0x8e, and other brokers use it.

    It comes with a reason string: paho before 2.2 overlooks the code of a shorter packet.
    """
    gone = b"\xe0\x06\x8e\x04\x1f\x00\x01!"
    with socket.create_server((HOST, 0)) as ear:
        link = BackgroundLink(MqttOptions(client_id="twin", port=ear.getsockname()[1]))
        link.start()
        ear.settimeout(WAIT_S)
        broker, _ = ear.accept()
        broker.recv(1_024)
        broker.sendall(b"\x20\x03\x00\x00\x00" + gone)  # CONNACK, DISCONNECT
        try:
            wait_until(lambda: "session-taken-over" in kinds(link), "it is noticed")
        finally:
            broker.close()
            link.abort()


def test_a_broker_that_restarts_is_no_rival() -> None:
    """It hangs up, too; but then it cannot be reached, or stays."""
    rivalry, end = Rivalry(), Disconnected("hung up")
    away = Disconnected("away", kind=LinkReason.UNREACHABLE)
    for _ in range(10):
        assert rivalry.judge(end, 5.0, hung_up=True).kind is LinkReason.ENDED
        assert rivalry.judge(end, 5.0, hung_up=True).kind is LinkReason.ENDED
        rivalry.judge(away, 0.0, hung_up=False)
    assert rivalry.in_a_row == 0


def test_a_node_that_was_stopped_says_so_first_and_one_that_was_killed_says_otherwise(
    tmp_path: Path,
) -> None:
    """`online` stood beside `connected False`."""
    with Mosquitto(tmp_path / "broker") as broker:
        with NodeProcess(tmp_path / "n", broker.port, NODE) as node:
            path = node.config.status_file
            wait_until(lambda: path.exists() and read_status(path)["connected"], "it is there")
            node.kill()
            said = command("status", node.toml)
            assert (said.returncode, "and did not shut down cleanly" in said.stdout) == (1, True)
        with NodeProcess(tmp_path / "n", broker.port, NODE) as node:
            wait_until(lambda: read_status(path)["pid"] == node.pid, "it is there again")
            assert node.stop() == 0
        said = command("status", node.toml)
        assert (said.returncode, said.stdout.startswith("stopped ")) == (1, True)
        assert not socket_path(path).exists()
        said = command("watch", "--config", node.toml, "--seconds", "1")
        assert said.returncode == 1
        assert "no node can be watched at" in said.stderr


# -- watching --------------------------------------------------------------------------------------


def test_a_watcher_that_does_not_read_costs_the_node_nothing_and_is_told_what_it_missed(
    tmp_path: Path,
) -> None:
    """Somebody presses Ctrl-S in the terminal and goes home."""
    watchers = Watchers(tmp_path / "w")
    lazy = socket.socket(socket.AF_UNIX)
    lazy.connect(str(tmp_path / "w"))
    watchers.welcome()
    line: dict[str, Any] = {"topic": "x" * 1_000}
    behind = sum(watchers.tell(line) for _ in range(5_000))
    assert behind > 4_000
    lazy.setblocking(False)
    while True:
        try:
            lazy.recv(1 << 20)
        except BlockingIOError:
            break
    assert watchers.tell(line) == 0
    assert json.loads(lazy.recv(1 << 16).splitlines()[-1])["lost_before"] > 0
    lazy.close()
    watchers.close()
    assert not (tmp_path / "w").exists()


def test_only_the_nodes_user_can_open_its_watch_socket(tmp_path: Path) -> None:
    """Readings are nobody else's business."""
    watchers = Watchers(tmp_path / "w")
    assert (tmp_path / "w").stat().st_mode & 0o777 == 0o600
    watchers.close()


def test_who_sends_half_a_line_or_too_much_is_parted_with(tmp_path: Path) -> None:
    """A label is one short line; a watcher that has gone is not asked again."""
    watchers = Watchers(tmp_path / "w")
    for said, wanted in (
        (b'{"label": "fresh"}\n{"undo": true}\n', [b'{"label": "fresh"}', b'{"undo": true}']),
        (b'{"label": "fre', []),
        (b"x" * 5_000 + b"\n", []),
        (b"", []),
    ):
        somebody = socket.socket(socket.AF_UNIX)
        somebody.connect(str(tmp_path / "w"))
        watchers.welcome()
        somebody.sendall(said)
        if not said:
            somebody.close()
        assert watchers.take_labels() == wanted
        assert bool(watchers) == bool(wanted)
        if wanted:
            watchers._part_with(next(iter(watchers._lost)))
        somebody.close()
    watchers.close()


def test_a_label_typed_on_the_nodes_machine_is_learned_and_taken_back(tmp_path: Path) -> None:
    """Without an account at the broker, whose session would be the node's own."""
    with (
        Mosquitto(tmp_path / "broker") as broker,
        NodeProcess(tmp_path / "n", broker.port, NODE) as node,
        visitor(broker.port) as sender,
    ):
        path = node.config.status_file
        wait_until(lambda: path.exists() and read_status(path)["connected"], "the node is there")
        sender.publish(f"{ROOT}/reading/attic", reading(1))
        wait_until(lambda: read_status(path)["counts"].get("predictions"), "it has predicted")

        def label(*words: str) -> subprocess.CompletedProcess[str]:
            return command("label", "--config", node.toml, *words)

        given = label("fresh", "--instance", "attic/1/1")
        assert (given.returncode, "learned one instance" in given.stdout) == (0, True), given
        again = label("fresh", "--instance", "attic/1/1")
        assert (again.returncode, "label-already-labelled" in again.stdout) == (1, True)
        undone = label("--undo")
        assert (undone.returncode, "attic/1/1 is not 'fresh'" in undone.stdout) == (0, True), undone
        for words in (("purple",), (), ("fresh", "--undo"), ("fresh", "--at", "noon")):
            assert label(*words).returncode == 2
        wait_until(lambda: read_status(path)["counts"].get("unlearned") == 1, "and counted")


# -- the gateway -----------------------------------------------------------------------------------


def test_what_a_gateway_refuses_is_in_its_log_and_its_status_file_under_one_name(
    tmp_path: Path,
) -> None:
    """Bytes that are no status, a node of nobody's group, a sensor nobody announced."""
    silent = encode(SensorSilent("pm", 1_000, 0))
    mistakes = {
        "refused-type": (f"opid/1/{SITE}/n1/status", b"?"),
        "refused-stranger": (f"opid/1/{SITE}/n9/event", silent),
        "refused-unknown-node": (f"opid/1/{SITE}/n1/event", silent),
    }
    with Mosquitto(tmp_path / "broker") as broker, visitor(broker.port) as sender:
        policy = f'status_file = "status.json"\n{POLICY}'
        gateway = GatewayProcess(tmp_path / "g", broker.port, ["n1"], policy=policy)
        gateway.start()
        try:
            gateway.wait_connected()
            for topic, payload in mistakes.values():
                sender.publish(topic, payload)
            path = tmp_path / "g" / "status.json"
            wait_until(lambda: path.exists() and not missing(path, [*mistakes]), "all are counted")
            assert gateway.stop() == 0
        finally:
            gateway.kill()
    status = read_status(path)
    assert status["running"] is False
    for name, (topic, _) in mistakes.items():
        assert status["noted"][name]["topic"] == topic
        assert re.search(rf"reason={name} topic={topic} first=\S* why=", gateway.log())
