"""Messages that a broker forwards and that a client may choke on, as the bytes they travel in.

All of them are valid MQTT 5: mosquitto takes them from anybody who may publish, and sends them on
to everybody who asked. What is odd about them are properties that nobody here uses, the text in
them, the topic, or the size.
"""

from __future__ import annotations

from random import Random

from edge_opid.link.packets import publish_packet
from edge_opid.link.queues import Outgoing

FORMAT, EXPIRY, CONTENT_TYPE, RESPONSE, CORRELATION, USER = 0x01, 0x02, 0x03, 0x08, 0x09, 0x26
TOO_MANY = 5_000  # bytes: more than a simulated link takes
ODD = ("\ufeff", "", "\ufeffk", "\U0010fffd", "e\u0301", "\u202e", "x" * 300)
"""A byte order mark, nothing, the last character there is, two that are one, a turn to the left."""


class Poison(bytes):
    """A payload that comes with properties.

    >>> packet = Poison(b"21.3", b"").packet(7, Outgoing("a/b", b"", 1, True))
    >>> packet.hex(" ")
    '33 0c 00 03 61 2f 62 00 07 00 32 31 2e 33'
    """

    properties: bytes

    def __new__(cls, payload: bytes, properties: bytes) -> Poison:
        """Bytes cannot be changed later: the properties come with them."""
        made = super().__new__(cls, payload)
        made.properties = properties
        return made

    def packet(self, packet_id: int, message: Outgoing) -> bytes:
        """The PUBLISH that brings it."""
        return publish_packet(
            message.topic.encode(),
            self,
            qos=message.qos,
            retain=message.retain,
            packet_id=packet_id,
            properties=self.properties,
        )


def poison(chance: Random, payload: bytes) -> Poison:
    """The payload with properties that may be, and that nobody expects."""
    user = bytes((USER,)) + text(chance.choice(ODD)) + text(chance.choice(ODD))
    kinds = (
        bytes((USER,)) + text("k") + text("\ufeff"),
        user,
        user * chance.choice((2, 40)),
        bytes((CONTENT_TYPE,)) + text(chance.choice(ODD)),
        bytes((RESPONSE,)) + text(chance.choice(ODD[2:])),
        bytes((CORRELATION,)) + counted(chance.randbytes(chance.choice((0, 1, 900)))),
        bytes((FORMAT, 1, EXPIRY, 0, 0, 0, 9)) + user,
    )
    large = chance.randbytes(TOO_MANY) if chance.random() < 0.2 else payload
    return Poison(large, chance.choice(kinds))


def odd_topic(chance: Random, filter_: str) -> str:
    """A topic that a filter lets through, with something odd where it does not care."""
    odd = chance.choice(ODD[:-1])
    return "/".join(odd if level == "+" else level for level in filter_.split("/"))


def text(line: str) -> bytes:
    """As MQTT writes text."""
    return counted(line.encode())


def counted(data: bytes) -> bytes:
    """As MQTT writes bytes: their number, and they."""
    return len(data).to_bytes(2, "big") + data
