"""The framer: every byte of a PUBLISH is a stranger's."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_opid.link.packets import (
    MALFORMED,
    NO_TOPIC,
    NOT_ASKED_FOR,
    NOT_UTF8,
    TOO_LARGE,
    Framer,
    PacketError,
    UnusablePacket,
    UsablePacket,
    publish_packet,
)

LIMIT = 1_000
PINGRESP = b"\xd0\x00"


def framed(*chunks: bytes, mqtt_5: bool = True) -> list[UsablePacket | UnusablePacket | bytes]:
    framer, items = Framer(mqtt_5=mqtt_5, packet_bytes_max=LIMIT), []
    for chunk in chunks:
        framer.feed(chunk)
        while (item := framer.take()) is not None:
            items.append(item)
        assert framer.held <= LIMIT + len(chunk)
    return items


def publication(rest: bytes, first: int = 0x32) -> bytes:
    return bytes([first, len(rest)]) + rest


@pytest.mark.parametrize("mqtt_5", [True, False])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
def test_packets_come_out_whole_however_the_network_cuts_them(mqtt_5: bool, size: int) -> None:
    """One byte at a time, or everything at once: the same packets in the same order."""
    none = b"" if mqtt_5 else None
    stream = (
        b"\x20\x02\x00\x00"
        + publish_packet(b"a", b"1", qos=1, packet_id=9, properties=none)
        + PINGRESP
        + publish_packet(b"b", bytes(900), retain=True, properties=none)
        + publish_packet(b"big", bytes(5_000), qos=1, packet_id=10, properties=none)
        + PINGRESP
    )
    chunks = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert framed(*chunks, mqtt_5=mqtt_5) == [
        b"\x20\x02\x00\x00",
        UsablePacket("a", b"1", 1, False, 9),
        PINGRESP,
        UsablePacket("b", bytes(900), 0, True, 0),
        UnusablePacket(TOO_LARGE, 1, 10),
        PINGRESP,
    ]


@pytest.mark.parametrize(
    "properties",
    [
        b"",
        b"\x26\x00\x01k\x00\x03\xef\xbb\xbf",  # the user property k = U+FEFF
        b"\x26\x00\x00\x00\x00" * 180,
        b"\x23\x00\x01",  # a topic alias
        b"\xff" * 100,  # no property at all
    ],
)
def test_properties_are_stepped_over_and_never_read(properties: bytes) -> None:
    """What we do not use cannot hurt us, whatever a stranger wrote into it."""
    packet = publish_packet(b"a", b"1", qos=1, packet_id=3, properties=properties)
    assert framed(packet, PINGRESP) == [UsablePacket("a", b"1", 1, False, 3), PINGRESP]


@pytest.mark.parametrize(
    ("packet", "refusal"),
    [
        (publication(b"", 0x30), UnusablePacket(MALFORMED, 0, 0)),
        (publication(b"\x00", 0x30), UnusablePacket(MALFORMED, 0, 0)),
        (
            publication(b"\x00\x09a\x00\x07\x00"),
            UnusablePacket(MALFORMED, 0, 0),
        ),  # topic beyond the end
        (publication(b"\x00\x01a\x00"), UnusablePacket(MALFORMED, 0, 0)),  # half a packet id
        (publication(b"\x00\x01a\x00\x00\x00"), UnusablePacket(MALFORMED, 0, 0)),  # packet id 0
        (publication(b"\x00\x01a\x00\x07\x00", 0x36), UnusablePacket(MALFORMED, 0, 0)),  # QoS 3
        (
            publication(b"\x00\x01a\x00\x07"),
            UnusablePacket(MALFORMED, 1, 7),
        ),  # no properties' length
        (publication(b"\x00\x01a\x00\x07\x09x"), UnusablePacket(MALFORMED, 1, 7)),  # beyond the end
        (publication(b"\x00\x01a\x00\x07" + b"\xff" * 8), UnusablePacket(MALFORMED, 1, 7)),
        (publication(b"\x00\x01\xff\x00\x07\x00"), UnusablePacket(NOT_UTF8, 1, 7)),
        (
            publication(b"\x00\x03\xed\xa0\x80\x00\x07\x00"),
            UnusablePacket(NOT_UTF8, 1, 7),
        ),  # surrogate
        (
            publication(b"\x00\x00\x00\x07\x03\x23\x00\x01"),
            UnusablePacket(NO_TOPIC, 1, 7),
        ),  # an alias
        (publication(b"\x00\x01a\x00\x07\x00", 0x34), UnusablePacket(NOT_ASKED_FOR, 2, 7)),
    ],
    ids=[
        "empty",
        "half a length",
        "topic beyond the end",
        "half a packet id",
        "packet id 0",
        "QoS 3",
        "no length of properties",
        "properties beyond the end",
        "endless length of properties",
        "topic not UTF-8",
        "surrogate in the topic",
        "topic alias",
        "QoS 2",
    ],
)
def test_unusable_publication_costs_one_message(packet: bytes, refusal: UnusablePacket) -> None:
    """It is refused with all it takes to acknowledge it, and the next packet is read as ever."""
    good = publish_packet(b"a", b"1", qos=1, packet_id=8, properties=b"")
    assert framed(packet + good) == [refusal, UsablePacket("a", b"1", 1, False, 8)]


def test_large_publication_is_refused_before_it_has_arrived() -> None:
    """Of 100 MB only the first bytes are looked at; the rest is skipped, never held."""
    framer = Framer(mqtt_5=False, packet_bytes_max=LIMIT)
    head = (5_000).to_bytes(2, "big") + b"t" * 5_000 + b"\x00\x4d"
    framer.feed(b"\x32\xff\xff\xff\x2f" + head)  # 100,663,295 bytes to come
    assert framer.take() == UnusablePacket(TOO_LARGE, 1, 77)
    left, most = 100_663_295 - len(head), 0
    while left:
        chunk = bytes(min(left, 65_536))
        framer.feed(chunk)
        assert framer.take() is None
        most, left = max(most, framer.held), left - len(chunk)
    framer.feed(PINGRESP)
    assert framer.take() == PINGRESP
    assert most == 0


@pytest.mark.parametrize("stream", [b"\x90\xff\xff\x03" + bytes(9), b"\x20\xff\xff\xff\xff\x01"])
def test_broker_that_cannot_count_ends_the_connection(stream: bytes) -> None:
    """A SUBACK of 65,535 bytes, a length of five: there is no message to blame."""
    framer = Framer(mqtt_5=True, packet_bytes_max=LIMIT)
    framer.feed(publish_packet(b"a", b"1", properties=b"") + stream)
    assert framer.take() == UsablePacket("a", b"1", 0, False, 0)
    for _ in range(2):
        with pytest.raises(PacketError, match="the broker sent"):
            framer.take()


@settings(deadline=None, max_examples=500)
@given(st.lists(st.binary(max_size=80), max_size=20), st.booleans())
def test_any_bytes_are_packets_refusals_or_a_packet_error(chunks: list[bytes], five: bool) -> None:
    """Nothing else is ever raised, and nothing is invented: no more comes out than went in."""
    framer, given_bytes, taken = Framer(mqtt_5=five, packet_bytes_max=LIMIT), 0, 0
    try:
        for chunk in chunks:
            framer.feed(chunk)
            given_bytes += len(chunk)
            while (item := framer.take()) is not None:
                taken += len(item) if isinstance(item, bytes) else 2
    except PacketError:
        pass
    assert taken <= given_bytes
