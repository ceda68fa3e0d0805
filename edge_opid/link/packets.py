"""What a broker sends, cut into packets: bytes in, messages out. It does no I/O.

A broker forwards what strangers publish, so every byte of a PUBLISH is a stranger's. This module
reads PUBLISH itself and hands every other packet on whole. Its rules, in the order of the code:

1. A packet of another type than PUBLISH that is larger than the limit, or a length that is none,
   ends the connection (`PacketError`): only the broker itself can have made it.
2. A PUBLISH larger than the limit is never collected. It is refused as soon as its packet id is
   known, so that its acknowledgement does not wait for 100 MB, and its bytes are skipped.
3. The properties of a PUBLISH are stepped over, not decoded: we use none of them. Text in them that
   is valid but odd (U+FEFF) made a client close the connection, be sent the message again, and
   close the connection again, for ever.
4. A PUBLISH that makes no sense or cannot be used is an `UnusablePacket`, with all it takes to
   acknowledge it. It costs one message, never the connection.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from edge_opid.link.contract import LinkError
from edge_opid.reasons import LinkReason

PUBLISH: Final = 3
PUBACK: Final = 4
LENGTH_BYTES_MAX = 4  # of MQTT's lengths: seven bits a byte, the eighth says that more follow
SHORTEST = 2  # bytes: the type, and a length of nothing

MALFORMED: Final = LinkReason.MALFORMED
TOO_LARGE: Final = LinkReason.TOO_LARGE
NOT_UTF8: Final = LinkReason.NOT_UTF8
NO_TOPIC: Final = LinkReason.NO_TOPIC  # or only an alias, and we allow no aliases
NOT_ASKED_FOR: Final = LinkReason.NOT_ASKED_FOR  # we subscribe with 1 at most


class PacketError(LinkError):
    """The broker itself is at fault, and what follows cannot be told apart any more."""


class UsablePacket(NamedTuple):
    """A PUBLISH that can be used. `packet_id` is 0 for QoS 0."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    packet_id: int


class UnusablePacket(NamedTuple):
    """A PUBLISH that cannot be used. With QoS 0 there is nothing to acknowledge."""

    reason: LinkReason
    qos: int
    packet_id: int


class Framer:
    r"""Collects bytes and gives packets: call `feed`, then `take` until it says None.

    It holds at most one packet of `packet_bytes_max` bytes and what was fed last.

    >>> framer = Framer(mqtt_5=True, packet_bytes_max=1_000)
    >>> framer.feed(publish_packet(b"attic", b"21.3", qos=1, packet_id=7, properties=b"\x26..."))
    >>> framer.take()
    UsablePacket(topic='attic', payload=b'21.3', qos=1, retain=False, packet_id=7)
    >>> framer.feed(b"\xd0")  # half a PINGRESP
    >>> framer.take() is None
    True
    >>> framer.feed(b"\x00")
    >>> framer.take()
    b'\xd0\x00'
    """

    def __init__(self, *, mqtt_5: bool, packet_bytes_max: int) -> None:
        self._mqtt_5 = mqtt_5
        self._packet_bytes_max = packet_bytes_max
        self._buffer = bytearray()
        self._at = 0  # where the next packet begins
        self._need = SHORTEST  # bytes from there on, before it is worth looking again
        self._skip = 0  # bytes from there on that belong to a packet refused already

    @property
    def held(self) -> int:
        """How many bytes wait for the rest of their packet, or for `take`."""
        return len(self._buffer) - self._at

    @property
    def ready(self) -> bool:
        """Whether `take` may have something without more bytes."""
        return len(self._buffer) - self._at >= self._need

    def feed(self, data: bytes) -> None:
        """Add what the network brought. Only useful after `take` said None."""
        if self._at:
            del self._buffer[: self._at]
            self._at = 0
        self._buffer += data

    def take(self) -> UsablePacket | UnusablePacket | bytes | None:
        """The next message, the next refused one, or another packet whole; None: feed me."""
        buffer, end = self._buffer, len(self._buffer)
        if (self._skip and not self._skip_refused()) or end - self._at < self._need:
            return None
        at = self._at
        length = read_length(buffer, at + 1, end)
        if length is None:
            self._need = end - at + 1
            return None
        body = length[1]
        beyond = body + length[0]
        if beyond - at > self._packet_bytes_max:
            return self._refuse_large(body, beyond)
        if beyond > end:
            self._need = beyond - at
            return None
        self._at, self._need = beyond, SHORTEST
        if buffer[at] >> 4 == PUBLISH:
            return self._publish(buffer[at], body, beyond)
        return bytes(buffer[at:beyond])

    def _skip_refused(self) -> bool:
        step = min(self._skip, self.held)
        self._at += step
        self._skip -= step
        return self._skip == 0

    def _refuse_large(self, body: int, beyond: int) -> UnusablePacket | None:
        """Refuse a packet over the limit, once its packet id has arrived."""
        buffer, at = self._buffer, self._at
        first, size = buffer[at], beyond - at
        if first >> 4 != PUBLISH:
            raise PacketError(
                f"the broker sent a packet of type {first >> 4} with {size} bytes; "
                f"the limit is {self._packet_bytes_max}"
            )
        self._need = body - at + 2  # the length of the topic
        if self.held >= self._need:
            topic_bytes = buffer[body] << 8 | buffer[body + 1]
            self._need = min(self._need + topic_bytes + 2, size)
        if self.held < self._need:
            return None
        self._skip, self._need = size, SHORTEST
        qos = first >> 1 & 3
        packet_id = self._packet_id(qos, body, beyond)
        return UnusablePacket(TOO_LARGE, qos if packet_id else 0, packet_id)

    def _publish(self, first: int, body: int, end: int) -> UsablePacket | UnusablePacket:
        """Take a whole PUBLISH apart: topic, packet id, properties, payload."""
        buffer, qos = self._buffer, first >> 1 & 3
        packet_id = self._packet_id(qos, body, end) if qos else 0
        if end - body < 2 or qos == 3 or (qos and not packet_id):
            return UnusablePacket(MALFORMED, 0, 0)
        topic_end = body + 2 + (buffer[body] << 8 | buffer[body + 1])
        payload = topic_end + 2 if qos else topic_end
        if self._mqtt_5:
            none = payload < end and buffer[payload] == 0  # as nearly always
            payload = payload + 1 if none else _beyond_properties(buffer, payload, end)
        if payload > end:
            return UnusablePacket(MALFORMED, qos, packet_id)
        if qos == 2:
            return UnusablePacket(NOT_ASKED_FOR, qos, packet_id)
        try:
            topic = buffer[body + 2 : topic_end].decode()
        except UnicodeDecodeError:
            return UnusablePacket(NOT_UTF8, qos, packet_id)
        if not topic:
            return UnusablePacket(NO_TOPIC, qos, packet_id)
        return UsablePacket(topic, bytes(buffer[payload:end]), qos, bool(first & 1), packet_id)

    def _packet_id(self, qos: int, body: int, end: int) -> int:
        """The packet id after the topic; 0 where there is none."""
        buffer = self._buffer
        if qos not in (1, 2) or end - body < 4:
            return 0
        at = body + 2 + (buffer[body] << 8 | buffer[body + 1])
        return buffer[at] << 8 | buffer[at + 1] if at + 2 <= end else 0


def read_length(buffer: bytes | bytearray, at: int, end: int) -> tuple[int, int] | None:
    r"""A length as MQTT writes it, and where it ends; None if more bytes are to come.

    >>> read_length(b"\xff\x7f", 0, 2)
    (16383, 2)
    >>> read_length(b"\xff\xff\xff\xff\x7f", 0, 5)
    Traceback (most recent call last):
    edge_opid.link.packets.PacketError: the broker sent a length of more than 4 bytes
    """
    value = 0
    for place in range(LENGTH_BYTES_MAX):
        if at >= end:
            return None
        byte = buffer[at]
        at += 1
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value, at
    raise PacketError(f"the broker sent a length of more than {LENGTH_BYTES_MAX} bytes")


def _beyond_properties(buffer: bytearray, at: int, end: int) -> int:
    """Where the payload begins; somewhere beyond `end` if the properties make no sense."""
    try:
        length = read_length(buffer, at, end)
    except PacketError:
        length = None  # of the properties alone: the packet's own length held
    return end + 1 if length is None else length[1] + length[0]


def publish_packet(
    topic: bytes,
    payload: bytes = b"",
    *,
    qos: int = 0,
    retain: bool = False,
    packet_id: int = 0,
    properties: bytes | None = None,
) -> bytes:
    r"""A PUBLISH as bytes, however odd. `properties` is None for MQTT 3.1.1, b"" for none.

    >>> publish_packet(b"a", b"1", qos=1, packet_id=2, properties=b"")
    b'2\x07\x00\x01a\x00\x02\x001'
    """
    body = len(topic).to_bytes(2, "big") + topic
    if qos:
        body += packet_id.to_bytes(2, "big")
    if properties is not None:
        body += length_bytes(len(properties)) + properties
    first = PUBLISH << 4 | qos << 1 | retain
    return bytes([first]) + length_bytes(len(body) + len(payload)) + body + payload


def puback_packets(packet_ids: Iterable[int]) -> bytes:
    r"""A PUBACK for each of these, one after the other: all is well, in either version of MQTT.

    >>> puback_packets([1, 258])
    b'@\x02\x00\x01@\x02\x01\x02'
    """
    return b"".join([b"@\x02" + each.to_bytes(2, "big") for each in packet_ids])


def read_puback(packet: bytes) -> tuple[int, int]:
    r"""The packet id of a PUBACK, and its reason: from 128 on the broker has refused the message.

    >>> read_puback(b"@\x02\x01\x02"), read_puback(b"@\x04\x01\x02\x87\x00")
    ((258, 0), (258, 135))
    """
    at = 2
    while at < len(packet) and packet[at - 1] > 127:
        at += 1  # a long one: there are properties in it
    if len(packet) < at + 2:
        raise PacketError(f"the broker sent a PUBACK of {len(packet)} bytes, without a packet id")
    return packet[at] << 8 | packet[at + 1], packet[at + 2] if len(packet) > at + 2 else 0


def length_bytes(value: int) -> bytes:
    r"""A length as MQTT writes it.

    >>> length_bytes(16_383)
    b'\xff\x7f'
    """
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    written.append(value)
    return bytes(written)
