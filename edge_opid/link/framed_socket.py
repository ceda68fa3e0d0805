"""The socket of a connection, with the framer between the network and paho."""

from __future__ import annotations

from typing import Any

CHUNK_BYTES = 65_536  # the most that is read at once, and that waits to be sent


class FramedSocket:
    """What paho takes for its socket: it reads what `give` was given, and `flush` sends its words.

    So paho sees whole packets only, none of them a PUBLISH of a stranger, and then the end. And
    however many packets are written, they leave together: a system call for a batch, not for each.
    """

    def __init__(self, socket: Any, not_now: tuple[type[OSError], ...]) -> None:
        self._socket = socket  # plain or TLS
        self._not_now = not_now  # what it says where it would block
        self._pending = getattr(socket, "pending", None)  # of TLS
        self._given = bytearray()
        self._at = 0  # how much of it paho has read
        self._unsent = bytearray()
        self._closed = False  # by the broker, or by an error of the network
        self.broken = False
        """Nothing can be sent any more. What the broker said last may still be there to read."""
        self.fileno = socket.fileno
        self.setblocking = socket.setblocking

    # ---- our half

    def receive(self) -> bytes | None:
        """What the network has; nothing once it is over; None when there is nothing right now."""
        try:
            data: bytes = self._socket.recv(CHUNK_BYTES)
        except self._not_now:
            if not self.broken:
                return None
            data = b""
        except OSError:
            data = b""  # reset or timed out: for MQTT this is the same end
        self._closed = not data
        return data

    def give(self, packet: bytes) -> None:
        """Let paho read this packet, after those it was given before."""
        if self._at == len(self._given):
            self._given.clear()
            self._at = 0
        self._given += packet

    def write(self, packets: bytes) -> None:
        """Send this with the next `flush`, after what was written before."""
        self._unsent += packets

    def flush(self) -> None:
        """Send what was written, as far as the network takes it."""
        if not self._unsent:
            return
        try:
            del self._unsent[: self._socket.send(self._unsent)]
        except self._not_now:
            return
        except OSError:
            self._unsent.clear()
            self.broken = True

    @property
    def unread(self) -> bool:
        """Whether paho has something to read: a packet, or the end."""
        return self._closed or self._at < len(self._given)

    @property
    def unsent(self) -> int:
        """How many bytes wait for the network to take them."""
        return len(self._unsent)

    @property
    def decrypted(self) -> bool:
        """Whether bytes wait inside the TLS layer, where poll() cannot see them."""
        return self._pending is not None and self._pending() > 0

    # ---- paho's half

    def recv(self, buffer_size: int) -> bytes:
        """As a socket that does not block."""
        at = self._at
        data = bytes(self._given[at : at + buffer_size])
        if not data and not self._closed:
            raise BlockingIOError
        self._at = at + len(data)
        return data

    def send(self, buffer: bytes | bytearray) -> int:
        """As a socket that does not block: it takes a packet whole, or not now."""
        if len(self._unsent) >= CHUNK_BYTES:
            raise BlockingIOError
        self._unsent += buffer
        return len(buffer)

    def close(self) -> None:
        """What was written leaves first: paho closes as soon as it has said goodbye."""
        self.flush()
        self._socket.close()
