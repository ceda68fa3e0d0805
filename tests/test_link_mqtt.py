"""What only a real broker, or a bad one, can do to the MQTT link."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.links import WAIT_S, link_to, next_event, take, wait_until
from support.mosquitto import HOST, Mosquitto
from support.raw_mqtt import U_FEFF, PacketStream, RawClient

from edge_opid.errors import SettingError
from edge_opid.link import (
    Connected,
    Disconnected,
    LinkError,
    MqttOptions,
    PublishRefused,
    SubscriptionGranted,
    SubscriptionRefused,
    TlsFiles,
)
from edge_opid.link.background import BackgroundLink
from edge_opid.link.connection import FIRST_ID, LAST_ID, Connection
from edge_opid.link.exchange import Exchange
from edge_opid.link.mqtt import MqttLink
from edge_opid.link.options import read_credentials
from edge_opid.link.packets import NOT_UTF8, UnusablePacket, UsablePacket, publish_packet
from edge_opid.link.poller import Poller
from edge_opid.link.queues import Mailbox, Outgoing
from edge_opid.link.tls import tls_context
from edge_opid.link.versions import MQTT_311


def secret(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_broker_killed_and_restarted_is_found_again(tmp_path: Path) -> None:
    """After `kill -9` of the broker the link reconnects, subscribes again and goes on."""
    with Mosquitto(tmp_path) as broker, link_to(broker.port) as link:
        link.subscribe(["a"])
        link.wait_connected(WAIT_S)
        broker.kill()
        assert isinstance(next_event(link, Disconnected), Disconnected)
        broker.start()
        link.wait_connected(WAIT_S)
        link.publish("a", b"back")
        assert [d.payload for d in take(link, 1)] == [b"back"]
        assert link.counters.reconnects == 1


def test_wrong_password_is_said_at_once(tmp_path: Path) -> None:
    """The error names broker, client, reason and file long before the timeout, never the secret."""
    path = secret(tmp_path / "credentials", "n1\nwrong-secret\n")
    with (
        Mosquitto(tmp_path / "broker", users={"n1": "right"}) as broker,
        link_to(broker.port, credentials=path) as link,
    ):
        began = time.monotonic()
        with pytest.raises(LinkError, match="refused client 'n1'") as caught:
            link.wait_connected(WAIT_S)
        assert time.monotonic() - began < WAIT_S / 2
        assert "ot authori" in str(caught.value)
        assert str(path) in str(caught.value)
        assert "wrong-secret" not in str(caught.value)
        assert not link.connected


def test_password_put_right_is_used_without_restart(tmp_path: Path) -> None:
    """The file is read at every attempt, so an operator only has to correct it."""
    path = secret(tmp_path / "credentials", "n1\nwrong\n")
    with (
        Mosquitto(tmp_path / "broker", users={"n1": "right"}) as broker,
        link_to(broker.port, credentials=path) as link,
    ):
        with pytest.raises(LinkError, match="refused"):
            link.wait_connected(WAIT_S)
        secret(path, "n1\nright\n")
        next_event(link, Connected)
        assert link.connected


@pytest.mark.parametrize(
    ("text", "mode", "complaint"),
    [
        ("n1\nsecret\n", 0o644, "mode 0644"),
        ("n1\nsecret\n", 0o604, "chmod 600"),
        ("n1:secret\n", 0o600, "2 lines"),
        ("\nsecret\n", 0o600, "2 lines"),
    ],
)
def test_careless_credentials_file_is_refused(
    tmp_path: Path, text: str, mode: int, complaint: str
) -> None:
    """A secret that others can read is none; the link is not even made."""
    path = secret(tmp_path / "credentials", text, mode)
    with pytest.raises(LinkError, match=complaint):
        BackgroundLink(MqttOptions(client_id="n1", credentials=path))
    assert path.read_text() == text


def test_missing_credentials_file_is_named(tmp_path: Path) -> None:
    """The error says which file, not only that one is missing."""
    with pytest.raises(LinkError, match="no-such-file"):
        read_credentials(tmp_path / "no-such-file")
    assert list(tmp_path.iterdir()) == []


def openssl(folder: Path, *arguments: str) -> None:
    command = ["openssl", *arguments]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=WAIT_S)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a broker for 127.0.0.1, a client, and an authority nobody knows."""
    folder = tmp_path_factory.mktemp("certificates")
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    for name in ("ca", "stranger"):
        files = ["-keyout", f"{name}.key", "-out", f"{name}.pem"]
        openssl(folder, "req", "-x509", *curve, *files, "-days", "2", "-subj", f"/CN={name}")
    (folder / "san").write_text("subjectAltName=IP:127.0.0.1\n")
    for name in ("broker", "client"):
        files = ["-keyout", f"{name}.key", "-out", f"{name}.csr"]
        openssl(folder, "req", *curve, *files, "-subj", f"/CN={name}")
        signer = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2"]
        request = ["-in", f"{name}.csr", "-out", f"{name}.pem", "-extfile", "san"]
        openssl(folder, "x509", "-req", *request, *signer)
    return folder


@pytest.fixture
def tls_broker(tmp_path: Path, certificates: Path) -> Iterator[Mosquitto]:
    files = {"cafile": "ca.pem", "certfile": "broker.pem", "keyfile": "broker.key"}
    tls = {option: certificates / name for option, name in files.items()}
    with Mosquitto(tmp_path, tls=tls) as broker:
        yield broker


def test_client_certificate_opens_the_door(tls_broker: Mosquitto, certificates: Path) -> None:
    """Over TLS with both sides' certificates, 300 messages arrive as they do without."""
    names = ("ca.pem", "client.pem", "client.key")
    files = TlsFiles(*(certificates / name for name in names))
    with link_to(tls_broker.port, tls=files) as link:
        link.subscribe(["a"])
        link.wait_connected(WAIT_S)
        sent = [number.to_bytes(2, "big") * 500 for number in range(300)]
        assert all(link.publish("a", payload) for payload in sent)
        assert [d.payload for d in take(link, 300)] == sent
        assert link.counters.reconnects == 0


def test_poison_over_tls_is_a_message_like_any_other(
    tls_broker: Mosquitto, certificates: Path
) -> None:
    """The framer stands behind the TLS layer: U+FEFF in a property ended this session, too."""
    files = TlsFiles(*(certificates / name for name in ("ca.pem", "client.pem", "client.key")))
    poison = publish_packet(b"a", b"poison", qos=1, packet_id=1, properties=U_FEFF)
    with (
        link_to(tls_broker.port, tls=files) as link,
        RawClient(tls_broker.port, tls=tls_context(files)) as stranger,
    ):
        link.subscribe(["a"])
        link.wait_connected(WAIT_S)
        link.publish("a", b"ready")
        take(link, 1)
        assert stranger.accepted(poison)
        link.publish("a", b"next")
        assert [d.payload for d in take(link, 2)] == [b"poison", b"next"]
        assert link.counters.reconnects == 0


def test_without_client_certificate_the_door_stays_shut(
    tls_broker: Mosquitto, certificates: Path
) -> None:
    """The broker asks for a certificate; a link without one is never connected."""
    with link_to(tls_broker.port, tls=TlsFiles(certificates / "ca.pem")) as link:
        with pytest.raises(LinkError, match=f"broker {HOST}:{tls_broker.port}"):
            link.wait_connected(0.5)
        assert link.counters.connections == 0


def test_broker_of_an_unknown_authority_is_refused(
    tls_broker: Mosquitto, certificates: Path
) -> None:
    """We do not talk to a broker whose certificate our authority did not sign."""
    with link_to(tls_broker.port, tls=TlsFiles(certificates / "stranger.pem")) as link:
        with pytest.raises(LinkError, match="certificate verify failed"):
            link.wait_connected(WAIT_S)
        assert link.counters.connections == 0


def test_key_that_others_can_read_is_refused(certificates: Path, tmp_path: Path) -> None:
    """The client's private key is a secret like a password."""
    key = secret(tmp_path / "key", (certificates / "client.key").read_text(), 0o644)
    files = TlsFiles(certificates / "ca.pem", certificates / "client.pem", key)
    with pytest.raises(LinkError, match="mode 0644"):
        BackgroundLink(MqttOptions(client_id="n1", tls=files))
    assert key.stat().st_mode & 0o777 == 0o644


@contextmanager
def fake_broker(answer: Callable[[bytes], bytes | None]) -> Iterator[int]:
    """A broker of one function: a packet in (empty: the end), bytes back; None hangs up."""
    server = socket.create_server((HOST, 0))
    server.settimeout(0.1)
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            try:
                peer, _ = server.accept()
            except TimeoutError:
                continue
            with peer:
                peer.settimeout(0.1)
                packets = PacketStream(peer)
                while not over.is_set():
                    try:
                        reply = answer(packets.next())
                        if reply is None:
                            break
                        peer.sendall(reply)
                    except TimeoutError:
                        continue
                    except ConnectionError:
                        break

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield server.getsockname()[1]
    finally:
        over.set()
        thread.join(WAIT_S)
        server.close()


def is_version_5(packet: bytes) -> bool:
    return packet[:1] == b"\x10" and packet[packet.index(b"MQTT") + 4] == 5


def refuses_5(packet: bytes) -> bytes | None:
    if not packet:
        return None
    if packet[:1] != b"\x10":
        return b""
    return b"\x20\x02\x00\x01" if is_version_5(packet) else b"\x20\x02\x00\x00"


def hangs_up_on_5(packet: bytes) -> bytes | None:
    return None if packet and is_version_5(packet) else refuses_5(packet)


def never_answers_5(packet: bytes) -> bytes | None:
    return b"" if packet and is_version_5(packet) else refuses_5(packet)


@pytest.mark.parametrize("broker", [refuses_5, hangs_up_on_5, never_answers_5])
def test_broker_without_mqtt_5_is_spoken_to_in_311(
    broker: Callable[[bytes], bytes | None],
) -> None:
    """A broker that refuses version 5, or cannot even say so, is tried with 3.1.1."""
    with fake_broker(broker) as port, link_to(port, connect_timeout_s=0.3) as link:
        link.wait_connected(WAIT_S)
        event = next_event(link, Connected)
        assert event == Connected(session_present=False, protocol="MQTT 3.1.1")
        assert link.counters.connections == 1


def test_link_told_to_begin_with_311_does_so(tmp_path: Path) -> None:
    """Where the broker is known, no attempt is wasted; the contract is the same."""
    with Mosquitto(tmp_path) as broker, link_to(broker.port, mqtt_5_first=False) as link:
        link.subscribe(["a"])
        link.wait_connected(WAIT_S)
        link.publish("a", b"1")
        assert [d.payload for d in take(link, 1)] == [b"1"]
        assert next_event(link, Connected) == Connected(False, "MQTT 3.1.1")
        assert link.counters.reconnects == 0


def forbids_subscriptions(packet: bytes) -> bytes | None:
    if packet[:1] == b"\x82":
        return b"\x90\x04" + packet[2:4] + b"\x00\x87"
    return b"\x20\x03\x00\x00\x00" if packet[:1] == b"\x10" else b"" if packet else None


def test_forbidden_subscription_is_reported() -> None:
    """A node that will never hear its readings must say so, not wait in silence."""
    with fake_broker(forbids_subscriptions) as port, link_to(port) as link:
        link.wait_connected(WAIT_S)
        link.subscribe(["secret/#"])
        event = next_event(link, SubscriptionRefused)
        assert event == SubscriptionRefused("secret/#", "Not authorized")
        assert link.connected


def test_refused_subscription_is_heard_once_the_rules_are_mended() -> None:
    """An operator does as the error says, and nothing is restarted: the link must not stay deaf."""
    asked: list[bytes] = []

    def relents(packet: bytes) -> bytes | None:
        if packet[:1] != b"\x82":
            return forbids_subscriptions(packet)
        asked.append(packet)
        verdicts = {1: b"\x87", 2: None, 3: b"\x87"}  # refused, not answered, refused, granted
        verdict = verdicts.get(len(asked), b"\x01")
        return b"" if verdict is None else b"\x90\x04" + packet[2:4] + b"\x00" + verdict

    with fake_broker(relents) as port, link_to(port, subscribe_again_s=0.05) as link:
        link.subscribe(["secret/#"])
        assert next_event(link, SubscriptionRefused) == SubscriptionRefused(
            "secret/#", "Not authorized"
        )
        granted = next_event(link, (SubscriptionGranted, SubscriptionRefused))
        assert granted == SubscriptionGranted("secret/#")  # a refusal is told once
        link.subscribe(["other"])
        wait_until(lambda: b"other" in asked[-1], "what was asked before is there, too")
        before = len(asked)
        assert before >= 4 + 1
        time.sleep(1.2)  # two more looks: what is granted is not asked for again
        assert len(asked) == before
        assert link.connected
        assert link.counters.connections == 1


def test_refused_subscription_is_asked_for_again_however_often_others_are_made() -> None:
    """A gateway listens to another node every few seconds: the minute never came to its end."""
    asked: list[bytes] = []

    def keeps_a_secret(packet: bytes) -> bytes | None:
        if packet[:1] != b"\x82":
            return forbids_subscriptions(packet)
        asked.append(packet)
        verdicts = b"\x87" if b"secret" in packet else b""
        verdicts += b"\x01" * packet.count(b"node/")
        return b"\x90" + bytes([3 + len(verdicts)]) + packet[2:4] + b"\x00" + verdicts

    with fake_broker(keeps_a_secret) as port, link_to(port, subscribe_again_s=1.5) as link:
        link.subscribe(["secret"])
        next_event(link, SubscriptionRefused)
        others = iter(range(100))
        wait_until(
            lambda: sum(b"secret" in each for each in asked) == 2,
            "the refused one is asked for again",
            timeout_s=30.0,
            meanwhile=lambda: link.subscribe([f"node/{next(others)}"]),
            pause_s=0.3,
        )


def test_filter_that_was_granted_and_then_is_refused_is_asked_for_again() -> None:
    """Rules change while it is asked for twice: the link called it heard, and stayed deaf."""
    exchange = Exchange(MqttOptions(client_id="n1"))
    exchange.begin_connection(Connected(False, "MQTT 5"))
    exchange.want({"a": 1})
    exchange.grant("a")
    exchange.want({"a": 1})
    exchange.take_subscriptions()
    exchange.deny("a", "Not authorized")
    exchange.ask_again()
    assert exchange.take_subscriptions() == ({"a": 1}, set())
    exchange.grant("a")
    exchange.ask_again()
    assert exchange.take_subscriptions() == ({}, set())
    events = list(iter(exchange.mailbox.take_event, None))
    assert events[1:] == [SubscriptionRefused("a", "Not authorized"), SubscriptionGranted("a")]


def test_unsubscription_that_was_cut_off_is_sent_again() -> None:
    """The broker keeps the filter with the session, and would send what nobody wants for ever."""
    left: list[int] = []
    connections = 0

    def hangs_up_on_unsubscribe(packet: bytes) -> bytes | None:
        nonlocal connections
        if packet[:1] == b"\x10":
            connections += 1
            return b"\x20\x03\x00\x00\x00"
        if packet[:1] == b"\xa2":
            left.append(connections)
            return None if len(left) == 1 else b"\xb0\x04" + packet[2:4] + b"\x00\x00"
        if packet[:1] == b"\x82":
            return b"\x90\x04" + packet[2:4] + b"\x00\x01"
        return b"" if packet and packet[:1] != b"\x30" else None  # a publication of QoS 0 cuts, too

    with fake_broker(hangs_up_on_unsubscribe) as port, link_to(port) as link:
        link.subscribe(["old/+"])
        link.wait_connected(WAIT_S)
        link.unsubscribe(["old/+"])
        wait_until(lambda: len(left) == 2, "the filter is unsubscribed again")
        link.publish("cut", b"", qos=0)
        wait_until(lambda: link.counters.connections == 3, "the third connection")
        time.sleep(0.2)
        assert left == [1, 2]  # and what was confirmed is not said again


def test_every_refused_publication_is_told_and_pushes_no_other_event_out(tmp_path: Path) -> None:
    """Labels were called sent: of 256 refusals in one turn 192 were forgotten."""
    acl = "topic readwrite allowed\n"
    with Mosquitto(tmp_path, acl=acl) as broker, link_to(broker.port) as link:
        for number in range(500):
            assert link.publish(f"forbidden/{number}", b"1")
        link.publish("allowed", b"2")
        wait_until(lambda: link.counters.published == 1, "all is answered")
        events = list(iter(link.poll_event, None))
        assert [each.topic for each in events if isinstance(each, PublishRefused)] == [
            f"forbidden/{number}" for number in range(500)
        ]
        assert isinstance(events[0], Connected)


def test_unread_events_have_an_end_of_their_own_kind() -> None:
    """Nobody reads them for years: neither refusals nor a flapping connection make us grow."""
    mailbox = Mailbox(1, 1)
    for number in range(100):
        mailbox.put_event(Disconnected(f"{number}"))
    for number in range(10_000):
        mailbox.put_event(PublishRefused(f"{number}", "no"))
    events = list(iter(mailbox.take_event, None))
    assert events[:64] == [Disconnected(f"{number}") for number in range(36, 100)]
    assert events[64:] == [PublishRefused(f"{n}", "no") for n in range(10_000 - 4_096, 10_000)]
    mailbox.put_event(Disconnected("again"))
    assert mailbox.take_event() == Disconnected("again")


def test_broker_that_never_answers_is_given_up() -> None:
    """An open port with nobody behind it costs the connect timeout, then another attempt."""
    silent = fake_broker(lambda packet: b"" if packet else None)
    with silent as port, link_to(port, connect_timeout_s=0.1) as link:
        with pytest.raises(LinkError, match="did not answer CONNECT"):
            link.wait_connected(0.3)
        assert link.counters.connections == 0


def test_forbidden_publication_is_reported_and_not_repeated(tmp_path: Path) -> None:
    """MQTT 5 says when a message was thrown away; the link stays up and does not insist."""
    acl = "topic readwrite allowed\n"
    with Mosquitto(tmp_path, acl=acl) as broker, link_to(broker.port) as link:
        link.subscribe(["allowed"])
        link.wait_connected(WAIT_S)
        link.publish("forbidden", b"1")
        link.publish("allowed", b"2")
        assert next_event(link, PublishRefused) == PublishRefused("forbidden", "Not authorized")
        assert [d.payload for d in take(link, 1)] == [b"2"]
        assert link.counters.refused == {"unsent-by-broker": 1}
        assert link.counters.reconnects == 0


def test_message_too_large_for_the_broker_does_not_cut_the_link(tmp_path: Path) -> None:
    """The broker would hang up on it, again and again: it is thrown away and reported instead."""
    with (
        Mosquitto(tmp_path, extra=("max_packet_size 1000",)) as broker,
        link_to(broker.port) as link,
    ):
        link.subscribe(["a"])
        link.wait_connected(WAIT_S)
        assert link.publish("a", b"x" * 2_000)
        assert link.publish("a", b"small")
        assert [d.payload for d in take(link, 1)] == [b"small"]
        event = next_event(link, PublishRefused)
        assert isinstance(event, PublishRefused)
        assert "at most 1000" in event.reason
        assert link.counters.reconnects == 0


@pytest.mark.parametrize("mqtt_5_first", [True, False])
def test_publications_of_both_qualities_arrive_in_the_order_they_were_given(
    tmp_path: Path, mqtt_5_first: bool
) -> None:
    """QoS 0 has no packet id and no confirmation, and must not overtake what has; nor must a
    subscription of the same moment come after the publications.
    """
    with Mosquitto(tmp_path) as broker, link_to(broker.port, mqtt_5_first=mqtt_5_first) as link:
        link.wait_connected(WAIT_S)
        link.subscribe(["a"])
        for number in range(60):
            assert link.publish("a", bytes([number]), qos=number % 2)
        assert [d.payload for d in take(link, 60)] == [bytes([number]) for number in range(60)]
        assert link.stop() == 0
        assert link.counters.published == 60
        assert link.counters.unconfirmed == link.counters.reconnects == 0


def test_packet_id_in_flight_is_not_given_to_another_message() -> None:
    """A confirmation would be taken for that of the wrong one, and a message would be lost."""
    options = MqttOptions(client_id="n1", inflight_max=LAST_ID)
    exchange = Exchange(options)
    connection = Connection(options, exchange, Poller(), MQTT_311)
    taken = range(FIRST_ID, FIRST_ID + 3)
    for packet_id in taken:
        exchange.mark_sent(Outgoing("a", b"", 1, False), packet_id, 0.0)
    connection._packet_id = FIRST_ID - 1
    assert connection._next_packet_id() == FIRST_ID + 3
    connection._packet_id = LAST_ID
    assert connection._next_packet_id() == FIRST_ID + 3  # those below are paho's
    assert connection._window < LAST_ID - FIRST_ID + 1  # or there might be none left to give


def test_poll_without_a_timeout_takes_what_is_here_and_leaves_the_network_alone(
    tmp_path: Path,
) -> None:
    """A node takes the rest of a batch so; were the network looked at, too, it would be twice."""
    with Mosquitto(tmp_path) as broker:
        link = MqttLink(MqttOptions(client_id="n1", port=broker.port))
        link.subscribe(["a"])
        link.start()
        link.wait_connected(WAIT_S)
        for number in range(3):
            assert link.publish("a", bytes([number]))
        assert [link.poll(None) for _ in range(9)] == [None] * 9
        assert link.counters.published == 0
        first = link.poll(WAIT_S)
        assert first is not None
        found = [first.payload]
        deadline = time.monotonic() + WAIT_S
        while len(found) < 3 and time.monotonic() < deadline:
            delivery = link.poll(None) or link.poll(0.05)
            found += [] if delivery is None else [delivery.payload]
        link.abort()
        assert found == [b"\x00", b"\x01", b"\x02"]


def test_message_over_our_own_limit_is_refused_and_counted(tmp_path: Path) -> None:
    """Too large is refused where it is made, before it takes any memory."""
    with Mosquitto(tmp_path) as broker, link_to(broker.port, payload_bytes_max=100) as link:
        assert not link.publish("a", b"x" * 101)
        assert link.counters.refused == {"unsent-too-large": 1}
        assert link.stop() == 0


def test_inbox_nobody_reads_stops_at_its_bound(tmp_path: Path) -> None:
    """A consumer that sleeps holds the broker back instead of filling memory; nothing is lost."""
    with Mosquitto(tmp_path) as broker, link_to(broker.port, inbox_messages_max=10) as link:
        link.subscribe(["a"])
        link.wait_connected(WAIT_S)
        with link_to(broker.port, client_id="sender") as sender:
            for number in range(200):
                sender.publish("a", bytes([number]))
            assert sender.stop() == 0
        deadline = time.monotonic() + WAIT_S
        while link.counters.received < 10 and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(0.1)  # long enough for all 200, were they read
        assert link.counters.received == 10
        assert [d.payload[0] for d in take(link, 200)] == list(range(200))
        assert link.counters.dropped == {}


def test_unusable_message_is_counted_and_acknowledged() -> None:
    """What can never be used must not block the window for ever."""
    exchange = Exchange(MqttOptions(client_id="n1", payload_bytes_max=10))
    exchange.begin_connection(Connected(False, "MQTT 5"))
    exchange.drop(UnusablePacket(NOT_UTF8, 1, packet_id=1))
    exchange.put(UsablePacket("a", b"x" * 11, 1, False, packet_id=2))
    exchange.put(UsablePacket("a", b"good", 1, False, packet_id=3))
    assert exchange.take_acks() == [1, 2]
    assert exchange.counters.dropped == {"dropped-topic-not-utf8": 1, "dropped-too-large": 1}
    delivery = exchange.mailbox.take()
    assert delivery is not None
    assert delivery.payload == b"good"
    assert exchange.take_acks() == []


def test_lost_connection_takes_the_unread_with_it() -> None:
    """What was not read comes again with the next connection: reading it now would double it."""
    exchange = Exchange(MqttOptions(client_id="n1"))
    exchange.begin_connection(Connected(False, "MQTT 5"))
    exchange.put(UsablePacket("a", b"kept", 0, False, packet_id=0))
    exchange.put(UsablePacket("a", b"comes again", 1, False, packet_id=1))
    exchange.end_connection(Disconnected("test"))
    left = [exchange.mailbox.take(), exchange.mailbox.take()]
    assert [d.payload for d in left if d is not None] == [b"kept"]
    assert exchange.counters.dropped == {"dropped-connection-lost": 1}


@pytest.mark.parametrize("link_type", [MqttLink, BackgroundLink])
def test_event_wakes_a_waiting_poll(tmp_path: Path, link_type: type[MqttLink]) -> None:
    """Whoever waits for messages learns at once that the connection is gone."""
    with Mosquitto(tmp_path) as broker:
        link = link_type(MqttOptions(client_id="n1", port=broker.port))
        link.start()
        link.wait_connected(WAIT_S)
        assert isinstance(link.poll_event(), Connected)
        timer = threading.Timer(0.05, broker.kill)
        timer.start()
        began = time.monotonic()
        assert link.poll(WAIT_S) is None
        assert time.monotonic() - began < WAIT_S / 2
        assert isinstance(link.poll_event(), Disconnected)
        timer.join(WAIT_S)
        link.abort()


def test_link_started_twice_is_an_error(tmp_path: Path) -> None:
    """A link lives once; the running one is not disturbed."""
    with Mosquitto(tmp_path) as broker, link_to(broker.port) as link:
        link.wait_connected(WAIT_S)
        with pytest.raises(LinkError, match="started before"):
            link.start()
        assert link.connected


def test_stopping_without_a_broker_is_bounded(tmp_path: Path) -> None:
    """What could not be sent in time is counted, and the stop does not hang."""
    with Mosquitto(tmp_path) as broker:
        port = broker.port
    with link_to(port) as link:
        link.publish("a", b"1")
        began = time.monotonic()
        assert link.stop(drain_s=0.2) == 1
        assert time.monotonic() - began < 3.0


@pytest.mark.parametrize(
    ("options", "complaint"), [({"client_id": ""}, "client_id"), ({"port": 0}, "port .*got 0")]
)
def test_options_that_cannot_work_are_refused(options: dict[str, object], complaint: str) -> None:
    """A wrong option is said when it is written, not when the network fails."""
    with pytest.raises(SettingError, match=complaint):
        MqttOptions(**{"client_id": "n1", **options})  # type: ignore[arg-type]
