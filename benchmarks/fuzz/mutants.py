"""MQTT packets that nobody should send: whole ones, damaged in every part a packet has.

A mutant begins as a packet that a broker (or a client) may well send. Then its flags, its length,
its properties, its topic or any of its bytes are changed; it is cut, doubled or spliced. Most keep
a length that fits, so that what follows is still a packet; the others are what only a lying peer
can send.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from benchmarks.common.raw_mqtt import framed, size_of_first, taken_apart, text
from edge_opid.link.packets import PUBLISH, length_bytes, publish_packet

ODD_TEXTS = (
    *(b"", b"a", b"\x00", b"a\x00b", b"\x01", b"\x7f", b"+", b"#", b"a/#", b"/", b"$SYS/broker"),
    *(each.encode() for each in ("\ufeff", "a\ufeffb", "\ufffe", "\uffff", "\ufdd0", "\u009f")),
    *(each.encode() for each in ("\U0010ffff", "\u202e", "ü" * 40, "/" * 250, "x" * 3_000)),
    *(b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\xff\xfe", b"x" * 65_535),
)
LEGAL_TEXTS = tuple(
    each.encode() for each in ("a", "\ufeff", "a\ufeffb", "\ufeff/\ufeff", "ü" * 40, "x" * 3_000)
)
NUMBERS = (0, 1, 2, 127, 128, 255, 256, 16_383, 16_384, 65_535, 65_536, 2**21, 2**28 - 1)
# What follows a property's number: so many bytes, a length ("v"), a text ("t"), two of them ("p").
PROPERTIES: dict[int, int | str] = {
    **{0x01: 1, 0x02: 4, 0x03: "t", 0x08: "t", 0x09: "t", 0x0B: "v", 0x11: 4, 0x12: "t", 0x13: 2},
    **{0x15: "t", 0x16: "t", 0x17: 1, 0x18: 4, 0x19: 1, 0x1A: "t", 0x1C: "t", 0x1F: "t", 0x21: 2},
    **{0x22: 2, 0x23: 2, 0x24: 1, 0x25: 1, 0x26: "p", 0x27: 4, 0x28: 1, 0x29: 1, 0x2A: 1},
    **{0x00: 1, 0x7E: 2, 0xFF: 0},  # and some that there are none of
}


def missing(stream: bytes) -> int | None:
    """How many bytes the last packet of a stream lacks (0: it is whole); None: a length is none.

    >>> missing(bytes.fromhex("d000 3005 0001")), missing(bytes.fromhex("30ffffffff01"))
    (3, None)
    """
    while stream:
        try:
            size = size_of_first(stream)
        except ValueError:
            return None
        if size is None:
            return 1
        if size > len(stream):
            return size - len(stream)
        stream = stream[size:]
    return 0


@dataclass
class PacketMutator:
    """Makes packets of one protocol version, as they should be and as they should not."""

    rng: Random
    topics: Sequence[bytes]
    payloads: Sequence[bytes]
    mqtt_5: bool = True

    def publication(self, qos: int | None = None) -> bytes:
        """A PUBLISH as it should be."""
        rng = self.rng
        return publish_packet(
            rng.choice(self.topics),
            rng.choice(self.payloads),
            qos=rng.choice((0, 1, 1, 2)) if qos is None else qos,
            retain=rng.random() < 0.1,
            packet_id=rng.randint(1, 60_000),
            properties=b"" if self.mqtt_5 else None,
        )

    def odd_publication(self) -> bytes:
        """A PUBLISH with something odd in it, and a length that fits: whatever may be forwarded."""
        rng = self.rng
        odd = publish_packet(
            self._odd_topic() if rng.random() < 0.5 else rng.choice(self.topics),
            rng.choice((*self.payloads, b"", b"\xff" * 9, rng.randbytes(rng.randint(0, 300)))),
            qos=rng.randint(0, 2),
            retain=rng.random() < 0.3,
            packet_id=rng.choice((0, 1, 7, 65_535, rng.randint(0, 65_535))),
            properties=self.properties() if self.mqtt_5 else None,
        )
        if rng.random() < 0.5:
            return odd
        first, body = taken_apart(odd)
        if rng.random() < 0.3:
            first = PUBLISH << 4 | rng.randrange(16)
        return framed(first, self.damaged(body))

    def forwardable(self) -> bytes:
        """A PUBLISH as odd as a careful broker still forwards: legal, and nothing like ours."""
        rng = self.rng
        texts = [text(rng.choice(LEGAL_TEXTS)) for _ in range(6)]
        given = (
            *(b"\x01" + rng.choice((b"\x00", b"\x01")), b"\x02" + rng.randbytes(4)),
            *(b"\x03" + texts[0], b"\x08" + texts[1], b"\x09" + text(rng.randbytes(9))),
            *(b"\x26" + texts[2] + texts[3], (b"\x26" + texts[4] + texts[5]) * 2),
        )
        chosen = b"".join(rng.sample(given, rng.randint(0, 4)))
        payload = rng.choice(self.payloads)
        return publish_packet(
            rng.choice(self.topics) + (rng.choice(LEGAL_TEXTS) if rng.random() < 0.2 else b""),
            self.damaged(payload) if rng.random() < 0.7 else payload,
            qos=rng.choice((0, 1, 1, 2)),
            retain=rng.random() < 0.2,
            packet_id=rng.randint(1, 65_535),
            properties=chosen if self.mqtt_5 else None,
        )

    def mutant(self, packet: bytes) -> bytes:
        """The packet with anything wrong, also with its type and its length."""
        rng = self.rng
        first, body = taken_apart(packet)
        way = rng.randrange(8)
        if way == 0:
            first ^= 1 << rng.randrange(8)
        elif way == 1:
            first = rng.randrange(256)
        elif way == 2:
            return bytes([first]) + self._odd_length() + body
        elif way == 3:
            return packet[: rng.randint(1, len(packet))]
        elif way == 4:
            body = body[:2] + self.properties() + body[2:]
        elif way == 5:
            return packet + packet
        else:
            body = self.damaged(body)
        return framed(first, body)

    def properties(self) -> bytes:
        """Some properties with odd values; a few do not keep to what they say."""
        rng = self.rng
        found = b"".join(self._property() for _ in range(rng.choice((0, 1, 1, 1, 2, 5))))
        return self.damaged(found) if rng.random() < 0.2 else found

    def damaged(self, data: bytes) -> bytes:
        """These bytes with bits turned over, cut, doubled or mixed with others."""
        rng, at = self.rng, self.rng.randint(0, len(data))
        way = rng.randrange(5)
        if way == 0:
            return data[:at]
        if way == 1:
            return data[:at] + rng.randbytes(rng.choice((1, 2, 4, 40))) + data[at:]
        if way == 2:
            return data[:at] + data[at : at + 9] * rng.choice((2, 50)) + data[at:]
        if way == 3:
            return data[:at] + rng.choice(NUMBERS).to_bytes(4, "big")[-2:] + data[at + 2 :]
        altered = bytearray(data)
        for _ in range(rng.randint(1, 4) if data else 0):
            altered[rng.randrange(len(altered))] ^= 1 << rng.randrange(8)
        return bytes(altered)

    def _odd_topic(self) -> bytes:
        topic, odd = self.rng.choice(self.topics), self.rng.choice(ODD_TEXTS)
        return self.rng.choice((odd, topic + odd, topic + b"/" + odd, self.damaged(topic)))[:65_535]

    def _odd_length(self) -> bytes:
        way = self.rng.randrange(3)
        if way == 0:
            return length_bytes(self.rng.choice(NUMBERS))
        if way == 1:
            return b"\x80" * self.rng.randint(1, 5) + bytes([self.rng.randrange(256)])
        return self.rng.randbytes(self.rng.randint(1, 4))

    def _property(self) -> bytes:
        rng = self.rng
        number = rng.choice(tuple(PROPERTIES))
        kind = PROPERTIES[number]
        if isinstance(kind, int):
            value = rng.choice((bytes(kind), b"\xff" * kind, rng.randbytes(kind)))
        elif kind == "v":
            value = length_bytes(rng.choice(NUMBERS))
        else:
            value = b"".join(text(rng.choice(ODD_TEXTS)) for _ in range(2 if kind == "p" else 1))
        return bytes([number]) + value


def brokers_packets(mqtt_5: bool) -> list[bytes]:
    """What a broker says besides PUBLISH, one of each, as it should be."""
    none = b"\x00" if mqtt_5 else b""
    answers = [framed(first, b"\x00\x01") for first in (0x40, 0x50, 0x62, 0x70)]
    if mqtt_5:
        answers += [framed(first, b"\x00\x01\x10\x00") for first in (0x40, 0x50)]
        answers += [framed(0xE0, b"\x8b\x00"), framed(0xE0, b""), framed(0xF0, b"\x18\x00")]
    return [
        *answers,
        framed(0x20, b"\x00\x00" + none),
        framed(0x90, b"\x00\x01" + none + b"\x01"),
        framed(0xB0, b"\x00\x01" + (none + b"\x00" if mqtt_5 else b"")),
        framed(0xD0, b""),
    ]


def clients_packets() -> list[bytes]:
    """What a client of MQTT 5 says besides PUBLISH and CONNECT."""
    return [
        *(framed(first, b"\x00\x01") for first in (0x40, 0x50, 0x62, 0x70)),
        framed(0x82, b"\x00\x01\x00" + text(b"fuzz/+") + b"\x01"),
        framed(0xA2, b"\x00\x01\x00" + text(b"fuzz/+")),
        framed(0xC0, b""),
        framed(0xE0, b""),
    ]
