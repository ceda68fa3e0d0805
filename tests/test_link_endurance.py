"""A link goes on: through lost PUBACKs, faults of its own, brokers that lie or fall silent."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from support.links import WAIT_S, link_to, next_event, take, wait_until
from support.mosquitto import Mosquitto
from support.raw_mqtt import PUBACK, proxy
from test_link_mqtt import fake_broker, is_version_5

from edge_opid.link import Connected, Disconnected, connection
from edge_opid.link.connection import Connection
from edge_opid.link.exchange import Exchange
from edge_opid.link.packets import UsablePacket
from edge_opid.reasons import LinkReason

CONNACK_5 = b"\x20\x03\x00\x00\x00"


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
        assert reader.publish("a", b"subscribed")  # it follows the subscription on its way
        assert take(reader, 1)[0].payload == b"subscribed"
        for payload in sent:
            assert link.publish("a", payload)
        wait_until(lambda: link.counters.published == len(sent), "all is confirmed")
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

    with fake_broker(slow_to_start) as port, link_to(port, connect_timeout_s=1.0) as link:
        link.wait_connected(WAIT_S)
        assert next_event(link, Connected) == Connected(False, "MQTT 5")
        assert len(connects) == 2


def test_broker_that_learned_mqtt_5_is_spoken_to_in_5_again() -> None:
    """A broker is upgraded: a link that was once refused must not speak 3.1.1 for ever."""
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
        wait_until(
            lambda: next_event(link, Connected) == Connected(False, "MQTT 5"), "MQTT 5 is back"
        )


def test_error_of_our_own_costs_a_connection_and_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No memory for one moment, in the middle of a delivery: it comes again, and is counted."""
    plain, failures = Exchange.put, [MemoryError(), KeyError("a bug")]

    def put(exchange: Exchange, message: UsablePacket) -> None:
        if failures:
            raise failures.pop()
        plain(exchange, message)

    monkeypatch.setattr(Exchange, "put", put)
    with Mosquitto(tmp_path) as broker, link_to(broker.port) as link:
        link.subscribe(["a"])
        link.wait_connected(WAIT_S)
        link.publish("a", b"precious")
        assert [d.payload for d in take(link, 1)] == [b"precious"]
        assert link.counters.faults == 2
        assert link.counters.reconnects == 2
        event = next_event(link, Disconnected)
        said = "the link failed: KeyError('a bug')"
        assert event == Disconnected(said, fault=True, kind=LinkReason.FAULT)
        link.check()  # it is alive


def test_error_of_our_own_while_sending_loses_no_publication(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No memory for the packet: the message had left the queue, and was in no other place."""
    plain, failures = connection.publish_packet, [MemoryError()]

    def packet(*arguments: Any, **options: Any) -> bytes:
        if failures:
            raise failures.pop()
        return plain(*arguments, **options)

    monkeypatch.setattr(connection, "publish_packet", packet)
    with Mosquitto(tmp_path) as broker, link_to(broker.port) as link:
        link.subscribe(["a"])
        link.wait_connected(WAIT_S)
        for number in range(3):
            link.publish("a", b"%d" % number)
        assert [d.payload for d in take(link, 3)] == [b"0", b"1", b"2"]
        wait_until(lambda: link.counters.published == 3, "all are confirmed")
        assert link.counters.faults == 1
        assert link.stop() == 0


def test_error_while_connecting_is_logged_with_where_it_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It happens in another thread: the log said `trace="NoneType: None"`, which finds no bug."""

    def open_(_connection: Connection) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(logging.getLogger("edge_opid"), "propagate", True)
    with Mosquitto(tmp_path) as broker, caplog.at_level("ERROR", "edge_opid"):
        with monkeypatch.context() as patch:
            patch.setattr(Connection, "open", open_)
            with link_to(broker.port) as link:
                wait_until(lambda: link.counters.faults > 0, "a fault is counted")
        faults = [each for each in caplog.records if each.getMessage() == "link fault"]
        assert faults[0].exc_info is not None
        assert isinstance(faults[0].exc_info[1], KeyError)
        with link_to(broker.port) as link:  # and the next one is none the worse
            link.wait_connected(WAIT_S)


NONSENSE = {
    "nothing of a CONNACK": b"\x20\x00",
    "CONNACK twice": CONNACK_5,
    "SUBACK without a packet id": b"\x90\x01\x00",
    "SUBACK of unknown properties": b"\x90\x06\x00\x01\x02\xff\xff\x00",
    "PUBACK without a packet id": b"\x40\x00",
    "PUBACK of half a packet id": b"\x40\x01\x00",
    "PUBACK of an unknown reason": b"\x40\x03\x00\x01\x77",
    "PUBREC of an odd text": b"\x50\x0a\x00\x01\x80\x06\x1f\x00\x03\xef\xbb\xbf",
    "UNSUBACK of nothing": b"\xb0\x00",
    "DISCONNECT of an unknown reason": b"\xe0\x01\x33",
    "DISCONNECT of an odd text": b"\xe0\x08\x8b\x06\x1f\x00\x03\xef\xbb\xbf",
    "AUTH": b"\xf0\x00",
    "type 0": b"\x00\x00",
    "SUBSCRIBE": b"\x82\x06\x00\x01\x00\x00\x01a",
    "PINGRESP with a body": b"\xd0\x02ab",
    "length of five bytes": b"\x30\xff\xff\xff\xff\x01",
    "SUBACK of 256 MB": b"\x90\xff\xff\xff\x7f",
}


@pytest.mark.parametrize("first", [True, False], ids=["as its answer", "after its answer"])
def test_broker_that_talks_nonsense_costs_connections_only(first: bool) -> None:
    """Only the broker itself can say such things; whatever it says, the next connection works."""
    waiting = list(NONSENSE.values())

    def broker(packet: bytes) -> bytes | None:
        if packet[:1] == b"\x10":
            answer = CONNACK_5 if is_version_5(packet) else b"\x20\x02\x00\x00"
            return (b"" if first and waiting else answer) + (waiting.pop() if waiting else b"")
        return b"" if packet else None

    with fake_broker(broker) as port, link_to(port, connect_timeout_s=0.2) as link:
        wait_until(lambda: not waiting, "nobody waits")
        link.publish("a", b"1", qos=0)
        wait_until(lambda: link.counters.published == 1, "one is published")
        link.check()
        assert link.connected


def test_slow_confirmations_are_no_lost_ones(tmp_path: Path) -> None:
    """Over a poor network the last of a window waits for long: the connection must not be cut."""

    def passes(packet: bytes) -> bool:
        if packet[0] == PUBACK:
            time.sleep(0.1)
        return True

    with (
        Mosquitto(tmp_path) as broker,
        proxy(broker.port, passes) as port,
        link_to(port, confirm_s=2.0) as link,
    ):
        for number in range(30):
            assert link.publish("a", bytes([number]))
        wait_until(lambda: link.counters.published == 30, "the last, after three seconds")
        assert link.counters.unconfirmed == link.counters.reconnects == 0
