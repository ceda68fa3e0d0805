"""What to send next, and what an acknowledgement frees: decisions only, no disk, socket or clock.

1. At most `size` readings are on their way, all of one boot: the next boot begins when the last
   reading of the one before is acknowledged. An acknowledgement of another boot frees nothing.
2. Whatever was never sent is due at once, in order.
3. When nothing was acknowledged for `resend_s`, the oldest goes again, alone, as a question; each
   time without an answer the patience doubles, up to `resend_most_s`. News resets it.
4. An acknowledgement beyond what was asked shows that the rest had arrived: the node is slow, and
   copies would make it slower. One that ends exactly there suggests that the rest was lost: of what
   had been sent by then, four times as many go again as the next question, and so on.
5. A node that misses a number says so in so many words (see `Ack`). Then everything goes again, but
   not within `again_s` of the last time something moved; each time it did not help, that doubles,
   too. An acknowledgement that is merely repeated is an answer to a copy, and asks for nothing: or
   copies would breed acknowledgements that breed copies.
6. Such a request also says that more was sent than the node could take (it has a rate limit, too):
   half as many are on their way from then on, and with each news a few more again.
7. A broker that has forgotten our session has forgotten the readings, too: everything goes again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from edge_opid.source.number import ReadingNumber

GROWTH = 4  # of a question that was answered exactly: 1, 4, 16, 64, a whole window


@dataclass(slots=True)
class Pending:
    """One reading that the node has not acknowledged."""

    number: ReadingNumber
    payload: bytes
    sent: bool = False


class Question(NamedTuple):
    """Copies that went out to learn whether the readings themselves arrived."""

    last: ReadingNumber
    copies: int
    doubtful_to: ReadingNumber  # what was sent later is not in doubt


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
    ) -> None:
        self.resent = 0
        self.size = size
        self._resend_s, self._again_s = resend_s, again_s
        self._resend_most_s = max(resend_s, resend_most_s)
        self._pending: deque[Pending] = deque()
        self._patience_s, self._grant_s = resend_s, again_s
        self._moved_at = 0.0  # the last time something was sent into silence or acknowledged
        self._question: Question | None = None  # that nobody has answered yet
        self._limit = size  # how many may be on their way now

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
        return len(self._pending) < self.size and number.boot == self._pending[0].number.boot

    def add(self, number: ReadingNumber, payload: bytes) -> None:
        """Let a reading join at the end. Ask `takes` before."""
        self._pending.append(Pending(number, payload))

    def take_due(self, now: float) -> list[Pending]:
        """What to send now; it counts as sent, unless `return_unsent` says otherwise."""
        if self._pending and self._pending[0].sent and now >= self._moved_at + self._patience_s:
            sent = [pending.number for pending in self._pending if pending.sent]
            self._ask(1, doubtful_to=sent[-1])
            self._patience_s = min(2 * self._patience_s, self._resend_most_s)
        due = [p for p in islice(self._pending, self._limit) if not p.sent]
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
        if upto.boot != self.boot or upto < self._pending[0].number:
            return False
        while self._pending and self._pending[0].number <= upto:
            self._pending.popleft()
        self._moved_at = now
        self._patience_s, self._grant_s = self._resend_s, self._again_s
        self._limit = min(self.size, self._limit + max(1, self.size // 16))
        question = self._question
        if question is not None and upto >= question.last:
            self._question = None
            if upto == question.last:
                self._ask(GROWTH * question.copies, question.doubtful_to)
        return True

    def grant_request(self, upto: ReadingNumber, now: float) -> None:
        """The node misses something after this number: everything goes again, if it is time."""
        if upto.boot != self.boot or upto.seq + 1 != self._pending[0].number.seq:
            return  # it asked before it heard the latest
        if now < self._moved_at + self._grant_s:
            return  # the copies may still be on their way
        self._grant_s = min(2 * self._grant_s, self._resend_most_s)
        self._limit = max(1, self.size // 32, self._limit // 2)
        self.resend_all(now)

    def resend_all(self, now: float) -> None:
        """What was sent is lost."""
        self._send_again([pending for pending in self._pending if pending.sent])
        self._question, self._moved_at = None, now

    def clear(self) -> None:
        """Nothing is on its way any more: what was is about to join again, under other numbers."""
        self._pending.clear()
        self._question = None
        self._patience_s, self._grant_s = self._resend_s, self._again_s

    def _ask(self, count: int, doubtful_to: ReadingNumber) -> None:
        """Send so many of the oldest again, of those that may have been lost."""
        doubtful = [p for p in self._pending if p.sent and p.number <= doubtful_to][:count]
        self._send_again(doubtful)
        if doubtful:
            self._question = Question(doubtful[-1].number, count, doubtful_to)

    def _send_again(self, lost: list[Pending]) -> None:
        self.resent += len(lost)
        for pending in lost:
            pending.sent = False
