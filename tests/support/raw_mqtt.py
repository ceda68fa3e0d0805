"""MQTT by hand (`benchmarks.common.raw_mqtt`), and a proxy that loses some of it.

Both live on the loopback interface and end by themselves.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from benchmarks.common.raw_mqtt import PUBACK, PacketStream, RawClient
from firmware_sim.live.mosquitto import HOST

__all__ = ["PUBACK", "U_FEFF", "PacketStream", "RawClient", "proxy"]

PATIENCE_S = 10.0
U_FEFF = b"\x26\x00\x01k\x00\x03\xef\xbb\xbf"  # the user property k = U+FEFF


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
        packets = PacketStream(broker)
        with suppress(OSError):
            while True:
                packet = packets.next()
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
