"""What `publish` took and the broker has not confirmed yet: bounded, in order."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple


class Outgoing(NamedTuple):
    """One message on its way out."""

    topic: str
    payload: bytes
    qos: int
    retain: bool


class Outbox:
    r"""A line of messages that wait, and a window of those in flight.

    The bounds count both, so that a broker that confirms nothing cannot make us grow.

    >>> outbox = Outbox(messages_max=2, bytes_max=100)
    >>> [outbox.offer(Outgoing("t", bytes([n]), 1, False)) for n in range(3)]
    [True, True, False]
    >>> outbox.sent(7, outbox.next(window=256), now_s=5.0)
    >>> outbox.owed_since_s
    5.0
    >>> outbox.connection_lost()  # back to the head of the line
    1
    >>> outbox.next(window=256).payload
    b'\x00'
    """

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._line: deque[Outgoing] = deque()
        self._flying: dict[int, Outgoing] = {}  # packet id → message, in the order sent
        self._owed_since_s = 0.0  # since when the first of them has been the first

    def __len__(self) -> int:
        return len(self._line) + len(self._flying)

    def offer(self, message: Outgoing) -> bool:
        """Take the message, or refuse it because the bounds are reached."""
        size = len(message.payload)
        if len(self) >= self._messages_max or self._bytes + size > self._bytes_max:
            return False
        self._line.append(message)
        self._bytes += size
        return True

    def next(self, window: int) -> Outgoing | None:
        """The message to send now, if the window has room. Follow with `sent` or `done`."""
        if not self._line or len(self._flying) >= window:
            return None
        return self._line.popleft()

    def put_back(self, message: Outgoing) -> None:
        """It could not be sent after all: the head of the line is its place."""
        self._line.appendleft(message)

    def sent(self, packet_id: int, message: Outgoing | None, now_s: float) -> None:
        """It is in flight under this packet id."""
        if message is not None:
            if not self._flying:
                self._owed_since_s = now_s
            self._flying[packet_id] = message

    @property
    def owed_since_s(self) -> float | None:
        """Since when it has been the turn of the oldest message in flight to be confirmed.

        A broker confirms in the order sent. A window that moves slowly, over a poor network, starts
        this anew with each confirmation; one that was lost is passed over, and its time runs on.
        """
        return self._owed_since_s if self._flying else None

    def confirmed(self, packet_id: int, now_s: float) -> Outgoing | None:
        """The broker has it: forget it, and return what it was."""
        if packet_id == next(iter(self._flying), None):
            self._owed_since_s = now_s
        message = self._flying.pop(packet_id, None)
        if message is not None:
            self.done(message)
        return message

    def done(self, message: Outgoing) -> None:
        """Give back the memory this message took."""
        self._bytes -= len(message.payload)

    def connection_lost(self) -> int:
        """What was in flight may have been lost: send it again first, in the same order."""
        count = len(self._flying)
        self._line.extendleft(reversed(self._flying.values()))
        self._flying.clear()
        return count
