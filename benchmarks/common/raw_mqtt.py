"""MQTT by hand: packets of bare bytes, and a client that says exactly the bytes it is told.

It is written from the standard and not with the product's framer, which it helps to judge. It
costs next to nothing, so that a benchmark measures the broker and the node, not its own client.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import suppress

from edge_opid.link.packets import length_bytes
from firmware_sim.live.mosquitto import HOST

PATIENCE_S = 60.0
CONNECT, PUBLISH, PUBACK, SUBSCRIBE = 0x10, 0x30, 0x40, 0x82


def text(data: bytes) -> bytes:
    """A text as MQTT writes it."""
    return len(data[:65_535]).to_bytes(2, "big") + data[:65_535]


def framed(first: int, body: bytes) -> bytes:
    """A packet of this first byte, whose length fits."""
    return bytes([first]) + length_bytes(len(body)) + body


def taken_apart(packet: bytes) -> tuple[int, bytes]:
    """The first byte of a packet whose length fits, and what follows the length."""
    at = 1
    while packet[at] & 128:
        at += 1
    return packet[0], packet[at + 1 :]


def size_of_first(stream: bytes) -> int | None:
    """How long the first packet of a stream is, by its own word; None: not said to the end so far.

    Raises ValueError where the length is none.
    """
    length = 0
    for place, byte in enumerate(stream[1:5]):
        length |= (byte & 127) << 7 * place
        if byte < 128:
            return place + 2 + length
    if len(stream) >= 5:
        raise ValueError("a length of more than four bytes")
    return None


class PacketStream:
    """The packets that a socket brings, one after another."""

    def __init__(self, peer: socket.socket) -> None:
        self._peer, self._buffer = peer, b""

    def next(self) -> bytes:
        """The next packet, whole; `ConnectionError` when there is none any more."""
        while True:
            size = size_of_first(self._buffer)
            if size is not None and size <= len(self._buffer):
                packet, self._buffer = self._buffer[:size], self._buffer[size:]
                return packet
            data = self._peer.recv(65_536)
            if not data:
                raise ConnectionError("the other side hung up")
            self._buffer += data


class RawClient:
    """A connected client of no library: what it sends may be as odd as MQTT allows, or odder.

    It speaks MQTT 5, or 3.1.1 if asked to. Subscriptions are of QoS 0: nothing is lost on loopback.
    `keep` asks for the session that the broker has for this client id, and leaves it behind.
    """

    def __init__(
        self,
        port: int,
        client_id: str = "raw",
        *filters: str,
        mqtt_5: bool = True,
        keep: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._socket = socket.create_connection((HOST, port), PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=HOST)
        self._packets, self._mqtt_5 = PacketStream(self._socket), mqtt_5
        none = b"\x00" if mqtt_5 else b""  # properties
        flags, properties = (0, b"\x05\x11\x00\x00\xff\xff") if keep else (2, none)
        no_keep_alive = b"\x00\x00"  # it never pings
        begin = text(b"MQTT") + bytes([5 if mqtt_5 else 4, flags]) + no_keep_alive + properties
        self.send(framed(CONNECT, begin + text(client_id.encode())))
        connack = self.receive()
        assert connack[3:4] == b"\x00", connack
        for number, each in enumerate(filters, 1):
            wish = number.to_bytes(2, "big") + none + text(each.encode()) + b"\x00"
            self.send(framed(SUBSCRIBE, wish))
            self.receive()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Bytes as they are."""
        self._socket.sendall(data)

    def send_all(self, packets: Sequence[bytes], window: int = 2_048, batch: int = 64) -> None:
        """Publications as fast as the broker confirms them."""
        confirmed = 0
        for start in range(0, len(packets), batch):
            self.send(b"".join(packets[start : start + batch]))
            while start + batch - confirmed > window:
                confirmed += self._packets.next()[0] == PUBACK

    def receive(self) -> bytes:
        """The next packet, or nothing once the broker has hung up."""
        with suppress(ConnectionError):
            return self._packets.next()
        return b""

    def messages(self) -> Iterator[tuple[str, bytes]]:
        """Topic and payload of what arrives by MQTT 3.1.1; `TimeoutError` when nothing does."""
        assert not self._mqtt_5, "a payload of MQTT 5 begins after its properties"
        while True:
            first, body = taken_apart(self._packets.next())
            if first & 0xF0 == PUBLISH:
                end = 2 + int.from_bytes(body[:2], "big")
                yield body[2:end].decode(), body[end:]

    def accepted(self, publication: bytes) -> bool:
        """Whether the broker takes this PUBLISH of QoS 1."""
        with suppress(ConnectionError):
            self.send(publication)
        answer = self.receive()
        return answer[:1] == bytes([PUBACK]) and (len(answer) < 5 or answer[4] < 0x80)
