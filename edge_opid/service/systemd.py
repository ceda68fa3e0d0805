"""How a service tells systemd that it is ready, alive and stopping.

`sd_notify` is a datagram to the socket that systemd names in the environment; no library is needed.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress


class Systemd:
    """Tells systemd that we are ready, alive, stopping. Without systemd it does nothing.

    A message that cannot be sent is dropped: systemd will draw its conclusion from the silence.

    >>> systemd = Systemd({})
    >>> systemd.tell_ready(); systemd.tell_alive(now_ms=0); systemd.tell_stopping()
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        mine = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        usec = environment.get("WATCHDOG_USEC", "0")
        self._every_ms = int(usec) // 3000 if mine and usec.isdecimal() else 0
        self._next_ms: int | None = None

    def tell_ready(self) -> None:
        """The state is read back and the link has begun to connect."""
        self._send("READY=1")

    def tell_alive(self, now_ms: int) -> None:
        """The loop has gone round: say so three times in the time that systemd allows."""
        if self._every_ms and (self._next_ms is None or now_ms >= self._next_ms):
            self._next_ms = now_ms + self._every_ms
            self._send("WATCHDOG=1")

    def tell_status(self, sentence: str) -> None:
        """What `systemctl status` shows, in a line; nothing where all is well."""
        self._send("STATUS=" + " ".join(sentence.split()))

    def tell_stopping(self) -> None:
        """We were asked to end, and do."""
        self._send("STOPPING=1")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(text.encode(), self._address)
