"""Acknowledgements in arrival order (MQTT-4.6.0-2), whatever order the work was finished in."""

from __future__ import annotations

from collections import deque

from edge_opid.link.contract import Receipt


class AckOrder:
    """Gives each arrival a receipt, and says which packet ids may be acknowledged now.

    It keeps one entry for each delivery that waits, which the broker's window bounds.

    >>> order = AckOrder()
    >>> first, second = order.arrived(packet_id=11), order.arrived(packet_id=12)
    >>> order.acknowledge(second)  # done first, but it has to wait for its elder
    []
    >>> order.acknowledge(first)
    [11, 12]
    >>> order.new_connection()  # packet ids mean something else from here on
    >>> order.acknowledge(first) is None
    True
    """

    def __init__(self) -> None:
        self._connection = 0
        self._first = 0  # the position of the oldest entry that waits
        self._waiting: deque[tuple[int, bool]] = deque()  # (packet id, done)

    def __len__(self) -> int:
        return len(self._waiting)

    def new_connection(self) -> None:
        """Forget everything that waits: its packet ids died with the connection."""
        self._connection += 1
        self._first = 0
        self._waiting.clear()

    def arrived(self, packet_id: int) -> Receipt:
        """Note an arrival, at the end of the line."""
        self._waiting.append((packet_id, False))
        return Receipt(self._connection, self._first + len(self._waiting) - 1)

    def acknowledge(self, receipt: Receipt) -> list[int] | None:
        """The packet ids that may go out now, or None if the receipt is stale or used."""
        place = receipt.position - self._first
        if receipt.connection != self._connection or place < 0:
            return None
        packet_id, done = self._waiting[place]
        if done:
            return None
        self._waiting[place] = (packet_id, True)
        ready = []
        while self._waiting and self._waiting[0][1]:
            ready.append(self._waiting.popleft()[0])
            self._first += 1
        return ready
