"""MQTT by hand: a client that says exactly the bytes it is told, and a proxy that loses some.

Both live on the loopback interface and end by themselves.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from edge_opid.link.packets import length_bytes
from support.mosquitto import HOST

PATIENCE_S = 10.0
PUBACK = 0x40
U_FEFF = b"\x26\x00\x01k\x00\x03\xef\xbb\xbf"  # the user property k = U+FEFF


class RawClient:
    """A connected client of no library: what it sends may be as odd as MQTT 5 allows, or odder.

    `keep` asks for the session that the broker has for this client id, and leaves it behind.
    """

    def __init__(
        self,
        port: int,
        client_id: str = "raw",
        *,
        keep: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._socket = socket.create_connection((HOST, port), PATIENCE_S)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=HOST)
        flags, properties = (0, b"\x05\x11\x00\x00\xff\xff") if keep else (2, b"\x00")
        name = client_id.encode()
        body = b"\x00\x04MQTT" + bytes([5, flags]) + b"\x00\x3c" + properties
        body += len(name).to_bytes(2, "big") + name
        self.send(b"\x10" + length_bytes(len(body)) + body)
        connack = self.receive()
        assert connack[3] == 0, connack

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, packet: bytes) -> None:
        """Say it."""
        self._socket.sendall(packet)

    def receive(self) -> bytes:
        """The next packet, or nothing once the broker has hung up."""
        with suppress(ConnectionError):
            return receive_packet(self._socket)
        return b""

    def accepted(self, publication: bytes) -> bool:
        """Whether the broker takes this PUBLISH of QoS 1."""
        with suppress(ConnectionError):
            self.send(publication)
        answer = self.receive()
        return answer[:1] == bytes([PUBACK]) and (len(answer) < 5 or answer[4] < 0x80)


def receive_packet(peer: socket.socket) -> bytes:
    """Read one whole packet; `ConnectionError` when there is none any more."""
    packet = bytearray(_exactly(peer, 2))
    while packet[-1] & 128 and len(packet) < 5:
        packet += _exactly(peer, 1)
    length = sum((byte & 127) << 7 * place for place, byte in enumerate(packet[1:]))
    return bytes(packet) + _exactly(peer, length)


def _exactly(peer: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        more = peer.recv(min(count - len(data), 65_536))
        if not more:
            raise ConnectionError("closed")
        data += more
    return bytes(data)


@contextmanager
def proxy(broker_port: int, passes: Callable[[bytes], bool]) -> Iterator[int]:
    """A way to the broker on which only those of its packets arrive that pass."""
    server = socket.create_server((HOST, 0))
    sockets, threads = [server], []

    def upwards(client: socket.socket, broker: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(65_536):
                broker.sendall(data)
        _shut(client, broker)

    def downwards(client: socket.socket, broker: socket.socket) -> None:
        with suppress(OSError):
            while packet := receive_packet(broker):
                if passes(packet):
                    client.sendall(packet)
        _shut(client, broker)

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = server.accept()
                broker = socket.create_connection((HOST, broker_port), PATIENCE_S)
                broker.settimeout(None)
                sockets.extend((client, broker))
                for pump in (upwards, downwards):
                    threads.append(threading.Thread(target=pump, args=(client, broker)))
                    threads[-1].start()

    threads.append(threading.Thread(target=serve))
    threads[0].start()
    try:
        yield server.getsockname()[1]
    finally:
        _shut(*sockets)
        for thread in threads:
            thread.join(PATIENCE_S)
        for each in sockets:
            each.close()


def _shut(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
