"""A link goes on: through lost PUBACKs, faults of its own, brokers that lie or fall silent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from links import WAIT_S, link_to, next_event, take
from mosquitto import Mosquitto
from raw_mqtt import PUBACK, proxy
from test_link_mqtt import fake_broker, is_version_5

from edge_opid.link import Connected, Disconnected, LinkError, MqttOptions
from edge_opid.link.connection import Connection
from edge_opid.link.mqtt import MqttLink

CONNACK_5 = b"\x20\x03\x00\x00\x00"


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_lost_confirmations_do_not_make_a_link_mute(tmp_path: Path) -> None:
    """The network eats ten PUBACKs: the window would stay full for ever, and nobody would know."""
    lost: list[bytes] = []

    def passes(packet: bytes) -> bool:
        if packet[0] == PUBACK and len(lost) < 10:
            lost.append(packet)
            return False
        return True

    sent = [bytes([number]) for number in range(20)]
    with (
        Mosquitto(tmp_path) as broker,
        proxy(broker.port, passes) as port,
        link_to(broker.port, client_id="reader") as reader,
        link_to(port, client_id="sender", inflight_max=4, confirm_s=0.2) as link,
    ):
        reader.subscribe(["a"])
        reader.wait_connected(WAIT_S)
        for payload in sent:
            assert link.publish("a", payload)
        wait_until(lambda: link.counters.published == len(sent))
        event = next_event(link, Disconnected)
        assert "did not confirm" in event.reason
        assert len(lost) == 10
        assert link.counters.unconfirmed >= 10
        assert link.stop() == 0
        heard = [delivery.payload for delivery in take(reader, len(sent) + 10)]
        assert sorted(set(heard)) == sent  # at least once, and nothing else


def test_one_unanswered_connect_is_no_reason_to_leave_mqtt_5() -> None:
    """A broker that was still starting, or one lost packet, must not cost us MQTT 5."""
    connects: list[bytes] = []

    def slow_to_start(packet: bytes) -> bytes | None:
        if packet[:1] != b"\x10":
            return b"" if packet else None
        connects.append(packet)
        if len(connects) == 1:
            return b""
        return CONNACK_5 if is_version_5(packet) else b"\x20\x02\x00\x00"

    with fake_broker(slow_to_start) as port, link_to(port, connect_timeout_s=0.1) as link:
        link.wait_connected(WAIT_S)
        assert next_event(link, Connected) == Connected(False, "MQTT 5")
        assert len(connects) == 2


def test_broker_that_learned_mqtt_5_is_spoken_to_in_5_again() -> None:
    """A broker is upgraded; a link that was once refused would speak 3.1.1 for the rest of its life."""
    upgraded = threading.Event()

    def broker(packet: bytes) -> bytes | None:
        if packet[:1] != b"\x10":
            return b"" if packet and not upgraded.is_set() else None
        if packet[packet.index(b"MQTT") + 4] == 4:
            return b"\x20\x02\x00\x00"
        return CONNACK_5 if upgraded.is_set() else b"\x20\x02\x00\x01"

    with fake_broker(broker) as port, link_to(port, mqtt_5_again_s=0.2) as link:
        link.wait_connected(WAIT_S)
        assert next_event(link, Connected) == Connected(False, "MQTT 3.1.1")
        upgraded.set()
        link.publish("a", b"1")  # at this the broker hangs up, whatever the version
        wait_until(lambda: next_event(link, Connected) == Connected(False, "MQTT 5"))
