"""Whatever a real broker forwards costs at most one message, never the session.

Every message here is a raw packet that mosquitto takes from one client and hands to another.
"""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from support.fleet_rig import SITE
from support.gateway_process import GatewayProcess
from support.links import WAIT_S, link_to, take, wait_until
from support.mosquitto import Mosquitto
from support.node_process import NodeProcess
from support.raw_mqtt import U_FEFF, RawClient

from edge_opid.link.packets import length_bytes, publish_packet
from edge_opid.service.status_file import read_status
from firmware_sim.live.toml import toml_table

ODD_TEXTS = {
    "empty": b"",
    "U+FEFF": "\ufeff".encode(),
    "U+FEFF inside": "a\ufeffb".encode(),
    "U+0001": b"\x01",
    "U+001F": b"\x1f",
    "U+007F": b"\x7f",
    "U+009F": "\u009f".encode(),
    "U+FDD0": "\ufdd0".encode(),
    "U+FFFE": "\ufffe".encode(),
    "U+FFFF": "\uffff".encode(),
    "U+1FFFF": "\U0001ffff".encode(),
    "U+10FFFF": "\U0010ffff".encode(),
    "U+202E": "\u202e".encode(),
    "U+D800": b"\xed\xa0\x80",
    "overlong": b"\xc0\xaf",
    "beyond Unicode": b"\xf4\x90\x80\x80",
    "half a character": b"\xe2\x82",
    "NUL": b"a\x00b",
    "maximal": b"x" * 65_535,
    "maximal U+FEFF": "\ufeff".encode() * 21_845,
}


def text(data: bytes) -> bytes:
    return len(data).to_bytes(2, "big") + data


def odd_properties() -> dict[str, bytes]:
    """Every property a PUBLISH may have (and one it may not), with odd values."""
    table = {
        "nothing": b"",
        "payload is bytes": b"\x01\x00",
        "payload is UTF-8, and is not": b"\x01\x01",
        "payload format 2": b"\x01\x02",
        "expires at once": b"\x02" + bytes(4),
        "expires in 136 years": b"\x02" + b"\xff" * 4,
        "alias 0": b"\x23\x00\x00",
        "alias 1": b"\x23\x00\x01",
        "alias 65535": b"\x23\xff\xff",
        "subscription identifier": b"\x0b\x01",
        "correlation data, empty": b"\x09" + text(b""),
        "correlation data, maximal": b"\x09" + text(bytes(65_535)),
        "a thousand user properties": b"\x26\x00\x00\x00\x00" * 1_000,
        "content type twice": (b"\x03" + text(b"a")) * 2,
        "no such property": b"\x7e\x00",
    }
    for name, odd in ODD_TEXTS.items():
        table[f"content type {name}"] = b"\x03" + text(odd)
        table[f"response topic {name}"] = b"\x08" + text(odd)
        table[f"user property k = {name}"] = b"\x26" + text(b"k") + text(odd)
        table[f"user property {name} = v"] = b"\x26" + text(odd) + text(b"v")
    return table


def odd_publications() -> dict[str, bytes]:
    """The table: a name and a PUBLISH of QoS 1 that holds `odd`."""
    payload = b"\xffodd"  # not UTF-8 either
    table = {
        name: publish_packet(b"s/a", payload, qos=1, packet_id=1, properties=properties)
        for name, properties in odd_properties().items()
    }
    topics = {f"topic s/{name}": b"s/" + odd[:65_532] for name, odd in ODD_TEXTS.items()}
    topics |= {
        "topic of empty levels": b"s///",
        "topic of 200 levels": b"s" + b"/" * 199,
        "topic of 201 levels": b"s" + b"/" * 200,
        "topic of 65,535 bytes": b"s/" + b"x" * 65_533,
        "topic with a wildcard": b"s/#",
        "topic empty": b"",
    }
    for name, topic in topics.items():
        table[name] = publish_packet(topic, payload, qos=1, packet_id=1, properties=b"")
    sizes = {"payload empty": 0, "payload maximal": 262_144, "payload too large": 262_145}
    for name, size in sizes.items():
        table[name] = publish_packet(b"s/a", bytes(size), qos=1, packet_id=1, properties=b"")
    return table


@pytest.mark.parametrize("mqtt_5", [True, False])
def test_no_message_a_broker_forwards_ends_the_session(tmp_path: Path, mqtt_5: bool) -> None:
    """Every property × odd UTF-8, empty, maximal; odd topics: the next message always arrives."""
    forwarded, poison = [], []
    with Mosquitto(tmp_path) as broker:
        for number, (name, packet) in enumerate(odd_publications().items()):
            options = {"client_id": f"n{number}", "persistent": False, "mqtt_5_first": mqtt_5}
            with link_to(broker.port, **options) as link, RawClient(broker.port) as stranger:
                link.subscribe(["s/#"])
                link.wait_connected(WAIT_S)
                link.publish("s/ready", b"")
                take(link, 1)
                if stranger.accepted(packet):
                    forwarded.append(name)
                link.publish("s/next", b"next")
                while take(link, 1)[0].topic != "s/next":
                    pass
                if link.counters.reconnects:
                    poison.append(name)
    assert poison == []
    assert {"user property k = U+FEFF", "topic s/U+FEFF", "payload maximal"} <= set(forwarded)
    assert 40 < len(forwarded) < len(odd_publications())  # mosquitto refuses what is not UTF-8


POISON = publish_packet(b"a", b"poison", qos=1, retain=True, packet_id=1, properties=U_FEFF)


def test_poison_that_waited_for_us_is_a_message_like_any_other(tmp_path: Path) -> None:
    """Unacknowledged it came first at every reconnection, retained with every subscription."""
    with Mosquitto(tmp_path) as broker:
        with link_to(broker.port) as link:
            link.subscribe(["a"])
            link.wait_connected(WAIT_S)
            link.publish("a", b"ready")
            take(link, 1)
            assert link.stop() == 0
        with RawClient(broker.port) as stranger:
            assert stranger.accepted(POISON)
        with link_to(broker.port) as link:
            link.subscribe(["a"])
            link.wait_connected(WAIT_S)
            link.publish("a", b"next")
            heard = [(d.payload, d.retain) for d in take(link, 3)]
            assert sorted(heard) == [(b"next", False), (b"poison", False), (b"poison", True)]
            assert link.counters.reconnects == 0
            assert link.counters.dropped == {}


@pytest.mark.parametrize("mqtt_5", [True, False])
def test_message_of_any_size_costs_one_message_and_no_memory(tmp_path: Path, mqtt_5: bool) -> None:
    """MQTT 3.1.1 cannot tell a broker our limit: 32 MB come, are skipped and acknowledged."""
    size = 32 * 2**20
    with Mosquitto(tmp_path) as broker, link_to(broker.port, mqtt_5_first=mqtt_5) as link:
        link.subscribe(["a"])
        link.wait_connected(WAIT_S)
        link.publish("a", b"ready")
        take(link, 1)
        tracemalloc.start()
        with RawClient(broker.port) as stranger:
            rest = b"\x00\x01a\x00\x01\x00"
            stranger.send(b"\x32" + length_bytes(len(rest) + size) + rest)
            for _ in range(size // 2**16):
                stranger.send(bytes(2**16))
            assert stranger.receive()[:1] == b"\x40"
        link.publish("a", b"next")
        assert [d.payload for d in take(link, 1)] == [b"next"]
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 2**21
        assert link.counters.dropped == ({} if mqtt_5 else {"dropped-too-large": 1})
        assert link.counters.reconnects == 0
        assert link.stop() == 0
        with link_to(broker.port, mqtt_5_first=mqtt_5) as again:  # it does not come again
            again.wait_connected(WAIT_S)
            again.publish("a", b"after")
            assert [d.payload for d in take(again, 1)] == [b"after"]
            assert again.counters.received == 1


def test_message_of_qos_2_goes_through_its_four_steps_and_is_dropped(tmp_path: Path) -> None:
    """Whoever took over our session for a moment left a subscription with QoS 2 behind."""
    with Mosquitto(tmp_path) as broker:
        with RawClient(broker.port, "n1", keep=True) as thief:
            thief.send(b"\x82\x07\x00\x01\x00\x00\x01x\x02")
            assert thief.receive() == b"\x90\x04\x00\x01\x00\x02"
        with RawClient(broker.port) as stranger:
            stranger.send(publish_packet(b"x", b"?", qos=2, packet_id=5, properties=b""))
            assert stranger.receive()[:1] == b"\x50"
            stranger.send(b"\x62\x02\x00\x05")
            assert stranger.receive()[:1] == b"\x70"
        for unasked_for in ({"dropped-qos-2": 1}, {}):  # the second time it does not come again
            with link_to(broker.port) as link:
                link.subscribe(["a"])
                link.wait_connected(WAIT_S)
                link.publish("a", b"next")
                assert [d.payload for d in take(link, 1)] == [b"next"]
                assert link.stop() == 0
                assert link.counters.dropped == unasked_for
                assert link.counters.reconnects == 0


NODE = toml_table("node", site="farm", node="n1", classes=["fine", "dry"])
NODE += toml_table("[sensors]", id="t")


def test_poison_costs_a_node_one_message(tmp_path: Path) -> None:
    """A real node, and a reading with the user property k = U+FEFF before it and after."""
    topic = b"opid/1/farm/n1/reading/attic"
    poison = publish_packet(topic, b"?", qos=1, retain=True, packet_id=1, properties=U_FEFF)
    with Mosquitto(tmp_path / "broker") as broker, RawClient(broker.port) as stranger:
        assert stranger.accepted(poison)
        with NodeProcess(tmp_path, broker.port, NODE) as node:
            path = node.config.status_file
            wait_until(
                lambda: path.exists() and read_status(path)["received"] >= 1, "the node listens"
            )
            assert stranger.accepted(poison)
            wait_until(lambda: read_status(path)["received"] >= 2, "the node has it")
            status = read_status(path)
            assert (status["connected"], status["reconnects"]) == (True, 0)
            assert status["link"] == "ok"
            assert node.stop() == 0


def test_poison_retained_costs_a_gateway_one_message(tmp_path: Path) -> None:
    """On a node's status it came with every subscription: nobody was given an order any more."""
    topic = f"opid/1/{SITE}/n1/status".encode()
    poison = publish_packet(topic, b"?", qos=1, retain=True, packet_id=1, properties=U_FEFF)
    with Mosquitto(tmp_path / "broker") as broker, RawClient(broker.port) as stranger:
        assert stranger.accepted(poison)
        gateway = GatewayProcess(tmp_path / "gateway", broker.port, ["n1"])
        gateway.start()
        try:
            wait_until(lambda: 'event="message refused"' in gateway.log(), "the gateway refuses it")
            assert 'event="not connected"' not in gateway.log()
            assert gateway.connections() == 1
            assert gateway.stop() == 0
        finally:
            gateway.kill()
