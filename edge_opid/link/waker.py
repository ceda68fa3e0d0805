"""A bell that wakes the network's thread out of its wait for the socket."""

from __future__ import annotations

import select
import socket


class Waker:
    """One byte through a socket pair. Ringing twice before it is heard costs nothing."""

    def __init__(self) -> None:
        self._ear, self._bell = socket.socketpair()
        self._ear.setblocking(False)
        self._bell.setblocking(False)
        self._rung = False

    def wait(self, handle: int, wanted: int, wait_s: float) -> tuple[int, bool]:
        """Wait for a socket or a ring: what the socket is ready for, and whether it rang.

        `poll` rather than `select`: a gateway may have more than 1,024 files open.
        """
        poller = select.poll()
        poller.register(self._ear, select.POLLIN)
        poller.register(handle, wanted)
        ready = dict(poller.poll(int(wait_s * 1000)))
        return ready.get(handle, 0), self._ear.fileno() in ready

    def ring(self) -> None:
        """Wake the waiter. The caller holds the link's lock, as `hear` does."""
        if not self._rung:
            self._rung = True
            self._bell.send(b"!")

    def hear(self) -> None:
        """Be ready for the next ring."""
        if self._rung:
            self._rung = False
            self._ear.recv(16)

    def close(self) -> None:
        """Give the two file descriptors back."""
        self._ear.close()
        self._bell.close()
