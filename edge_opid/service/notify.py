"""How the node tells the machine it runs on that it is well: systemd, and a small status file.

`sd_notify` is a datagram to the socket that systemd names in the environment; no library is needed.
The status file is what `opid-node status` reads. It belongs on a RAM disk (`/run`): it is replaced
every few seconds, is never synced, and means nothing after a restart.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from edge_opid.store.whole_file import write_whole


class Systemd:
    """Tells systemd that we are ready, alive, stopping. Without systemd it does nothing.

    A message that cannot be sent is dropped: systemd will draw its conclusion from the silence.

    >>> notify = Systemd({})
    >>> notify.ready(); notify.alive(now_ms=0); notify.stopping()
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        mine = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        usec = environment.get("WATCHDOG_USEC", "0")
        self._every_ms = int(usec) // 3000 if mine and usec.isdecimal() else 0
        self._next_ms: int | None = None

    def ready(self) -> None:
        """The state is read back and the link has begun to connect."""
        self._send("READY=1")

    def alive(self, now_ms: int) -> None:
        """The loop has gone round: say so three times in the time that systemd allows."""
        if self._every_ms and (self._next_ms is None or now_ms >= self._next_ms):
            self._next_ms = now_ms + self._every_ms
            self._send("WATCHDOG=1")

    def says(self, sentence: str) -> None:
        """What `systemctl status` shows, in a line; nothing where all is well."""
        self._send("STATUS=" + " ".join(sentence.split()))

    def stopping(self) -> None:
        """We were asked to end, and do."""
        self._send("STOPPING=1")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(text.encode(), self._address)


def write_status(path: Path, status: Mapping[str, Any]) -> None:
    """Replace the file in one step, so that a reader never sees half of it."""
    write_whole(path, json.dumps(status, ensure_ascii=False).encode(), durable=False)


def read_status(path: Path) -> dict[str, Any]:
    """What a node wrote last; `OSError` or `ValueError` if there is nothing to read.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "status.json"
    ...     write_status(path, {"online": True})
    ...     read_status(path)
    {'online': True}
    """
    status = json.loads(path.read_text("utf-8"))
    if not isinstance(status, dict):
        raise ValueError(f"{path} is not a status file: it holds {type(status).__name__}")
    return status
