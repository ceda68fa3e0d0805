"""Where a link waits: for its socket, for a connection being made, or for time to pass."""

from __future__ import annotations

import select

IN, OUT, GONE = select.POLLIN, select.POLLOUT, select.POLLHUP | select.POLLERR


class Poller:
    """One file to wait for at a time; the kernel is told only what changes.

    `poll` rather than `select`: a gateway may have more than 1,024 files open.
    """

    def __init__(self) -> None:
        self._poll = select.poll()
        self._watched: tuple[int, int] | None = None  # the file, and what it is watched for

    def wait(self, handle: int, wanted: int, wait_s: float) -> int:
        """What the file is ready for; 0 when the time is up. A negative handle is no file."""
        if self._watched != (handle, wanted):
            self._watch(handle, wanted)
        ready = self._poll.poll(max(0, int(wait_s * 1000 + 0.999)))  # not before the time is up
        return ready[0][1] if ready else 0

    def forget(self) -> None:
        """Before the file is closed: its number may be another one's soon."""
        if self._watched is not None:
            self._poll.unregister(self._watched[0])
            self._watched = None

    def _watch(self, handle: int, wanted: int) -> None:
        if self._watched is not None and self._watched[0] != handle:
            self.forget()
        if handle >= 0:
            self._poll.register(handle, wanted)
            self._watched = handle, wanted
