"""What to send next, and what an acknowledgement frees: decisions only, no disk, socket or clock.

1. At most `size` readings are on their way, all of one boot: the next boot begins when the last
   reading of the one before is acknowledged. An acknowledgement of another boot frees nothing.
2. Whatever was never sent is due at once, in order.
3. When nothing was acknowledged for `resend_s`, the oldest goes again, alone, as a question; each
   time without an answer the patience doubles, up to `resend_most_s`.
4. An answer to such a question makes everything else due again: it was probably lost too.
5. The same acknowledgement again is the node asking for what comes after it; it is granted once
   in `again_s`, or the copies would breed acknowledgements that breed copies.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from edge_opid.source.number import NOTHING, ReadingNumber


@dataclass(slots=True)
class Pending:
    """One reading that the node has not acknowledged."""

    number: ReadingNumber
    payload: bytes
    sent: bool = False


class ResendWindow:
    """The readings on their way. Times are seconds of any clock that does not go back.

    >>> window = ResendWindow(size=2, resend_s=10.0)
    >>> window.add(ReadingNumber(7, 1), b"a"); window.add(ReadingNumber(7, 2), b"b")
    >>> [pending.number.seq for pending in window.take_due(now=0.0)]
    [1, 2]
    >>> [pending.number.seq for pending in window.take_due(now=9.9)]
    []
    >>> [pending.number.seq for pending in window.take_due(now=10.0)]  # is anybody there?
    [1]
    >>> window.acknowledge(ReadingNumber(7, 1), now=10.5)
    True
    >>> [pending.number.seq for pending in window.take_due(now=10.5)]
    [2]
    """

    def __init__(
        self,
        size: int = 256,
        resend_s: float = 10.0,
        resend_most_s: float = 60.0,
        again_s: float = 1.0,
        acknowledged: ReadingNumber = NOTHING,
    ) -> None:
        self.resent = 0
        self._size = size
        self._resend_s = resend_s
        self._resend_most_s = resend_most_s
        self._again_s = again_s
        self._pending: deque[Pending] = deque()
        self._patience_s = resend_s
        self._moved_at = 0.0  # the last time something was sent into silence or acknowledged
        self._asking = False  # the oldest went again and nobody has answered yet
        self._acknowledged = acknowledged

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def boot(self) -> int | None:
        """The boot of the readings on their way; None while there are none."""
        return self._pending[0].number.boot if self._pending else None

    def takes(self, number: ReadingNumber) -> bool:
        """Whether this reading may join: room, and the same boot."""
        if not self._pending:
            return True
        return len(self._pending) < self._size and number.boot == self._pending[0].number.boot

    def add(self, number: ReadingNumber, payload: bytes) -> None:
        """Let a reading join at the end. Ask `takes` before."""
        self._pending.append(Pending(number, payload))

    def take_due(self, now: float) -> list[Pending]:
        """What to send now; it counts as sent, unless `return_unsent` says otherwise."""
        if self._pending and self._pending[0].sent and now >= self._moved_at + self._patience_s:
            self._pending[0].sent = False
            self._patience_s = min(2 * self._patience_s, self._resend_most_s)
            self._asking = True
            self.resent += 1
        due = [pending for pending in self._pending if not pending.sent]
        for pending in due:
            pending.sent = True
        if due and due[0] is self._pending[0]:
            self._moved_at = now
        return due

    def return_unsent(self, pending: Pending) -> None:
        """The link refused it: due again."""
        pending.sent = False

    def acknowledge(self, upto: ReadingNumber, now: float) -> bool:
        """The node has everything of this boot up to this number. Returns whether that is news."""
        if upto.boot != self.boot:
            return False
        if upto <= self._acknowledged:
            if upto == self._acknowledged and now >= self._moved_at + self._again_s:
                self._resend_all(now)
            return False
        self._acknowledged = upto
        while self._pending and self._pending[0].number <= upto:
            self._pending.popleft()
        if self._asking:
            self._resend_all(now)
        self._asking = False
        self._patience_s = self._resend_s
        self._moved_at = now
        return True

    def clear(self) -> None:
        """Nothing is on its way any more: what was is about to join again, under other numbers."""
        self._pending.clear()
        self._asking = False
        self._patience_s = self._resend_s

    def _resend_all(self, now: float) -> None:
        self.resent += sum(pending.sent for pending in self._pending)
        for pending in self._pending:
            pending.sent = False
        self._moved_at = now
