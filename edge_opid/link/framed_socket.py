"""The socket of a connection, with the framer between the network and paho."""

from __future__ import annotations

import ssl
from typing import Any

CHUNK_BYTES = 65_536  # the most that is read at once


class FramedSocket:
    """What paho takes for its socket: it writes through it, and reads what `give` was given.

    So paho sees whole packets only, none of them a PUBLISH of a stranger, and then the end.
    """

    def __init__(self, socket: Any) -> None:
        self._socket = socket  # plain or TLS
        self._given = bytearray()
        self._closed = False  # by the broker, or by an error of the network
        self.send = socket.send
        self.fileno = socket.fileno
        self.setblocking = socket.setblocking
        self.close = socket.close

    # ---- our half

    def receive(self) -> bytes | None:
        """What the network has; nothing once it is over; None when there is nothing right now."""
        try:
            data: bytes = self._socket.recv(CHUNK_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except OSError:
            data = b""  # reset or timed out: for MQTT this is the same end
        self._closed = not data
        return data

    def give(self, packet: bytes) -> None:
        """Let paho read this packet."""
        self._given += packet

    @property
    def unread(self) -> bool:
        """Whether paho has something to read: a packet, or the end."""
        return self._closed or bool(self._given)

    @property
    def decrypted(self) -> bool:
        """Whether bytes wait inside the TLS layer, where poll() cannot see them."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    # ---- paho's half

    def recv(self, count: int) -> bytes:
        """As a socket that does not block."""
        if not self._given and not self._closed:
            raise BlockingIOError
        data = bytes(self._given[:count])
        del self._given[:count]
        return data
