"""What the node has not acknowledged: numbered, in the spool, and from there into the window.

Which acknowledgement frees what, in the order of the code:

1. Only one boot is on its way at a time, the oldest in the spool; the next begins when the last
   reading of it is acknowledged, and that is on disk (if the disk takes it).
2. An acknowledgement frees readings of its own boot up to its number, and nothing else. One beyond
   anything ever sent is somebody else's, and counted.
3. An acknowledgement that names a higher `newest` boot says: this boot is over, I have applied it
   up to this number, and a higher boot since. So it happens to a card whose clock began in 1970, or
   after a life in 2040, or that was away while another one sent under its name. What the node has
   applied is freed (2). What it has not, and never will under these numbers, is all that is left in
   the spool: readings of later boots were never sent (1).
4. All of that is numbered anew, in its order, under a boot above `newest` and above every boot of
   this folder, and this life goes on with that boot. The boot and the new numbers are on disk when
   the first of them is sent; a power cut leaves all the old numbers or all the new ones, and with
   the old ones the same answer comes again.
5. A script that cron starts has a boot for each reading, and one boot after the other would be one
   reading a commit interval. So when the first boot of this life is acknowledged to its end, and
   more than one is left, these are joined under one new boot, as in 4: again none of them was ever
   sent. The first one is not so sure, a former life may have sent of it, and keeps its numbers. Not
   where boots are longer than a window (nothing is gained), nor where the node knew of a higher
   boot than the first (then a former life has sent of these, and lost its memory of it).

So nothing is applied twice: a reading gets another number only after the node has said, from what
no power cut can take back, that it did not apply it and that the boot of its old number is over for
ever, or where it never left the spool. The node remembers the end of the last eight boots of a
source. A card that comes back after more than these, with its last acknowledgements lost, may bring
up to a window of readings twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from edge_opid import log
from edge_opid.source.number import CHANCE, FIRST_SEQ, ReadingNumber, expected_after
from edge_opid.source.settings import SourceCounters
from edge_opid.source.spool import Spool, SpoolError, SpoolFullError
from edge_opid.source.window import ResendWindow
from edge_opid.wire import LIMITS

Encode = Callable[[int, int, int, Mapping[str, float], Any], bytes]
DecodeReading = Callable[[bytes], tuple[int, Mapping[str, float], Any]]
BOOT_MAX = LIMITS.integer_max - CHANCE  # of a boot that leaves room for a higher one


class BacklogParts(NamedTuple):
    """What a backlog is made of, and whom it asks."""

    spool: Spool
    window: ResendWindow
    counters: SourceCounters
    encode: Encode
    decode: DecodeReading
    boot_above: Callable[[int], int]  # one more boot for this life, on disk
    attempt: Callable[[Callable[[], None]], bool]  # do what may fail; whether it went well
    now_ms: Callable[[], int]


class Backlog:
    """Takes readings, feeds the window from the spool, forgets what is acknowledged.

    `boot` and `seq` are the number of the reading taken last.
    """

    def __init__(self, parts: BacklogParts, boot: int, name: str) -> None:
        self.boot, self.seq = boot, FIRST_SEQ - 1
        self._spool, self._window, self._counters = parts.spool, parts.window, parts.counters
        self._parts, self._name = parts, name
        self._queued_to = parts.spool.mark  # the last number that joined the window
        self._ahead: tuple[ReadingNumber, bytes] | None = None  # read, and waits for the window
        self._begun = False  # something of this life's first boot was on its way
        self._joinable = True  # as far as we know, no boot but the oldest was ever sent

    @property
    def is_empty(self) -> bool:
        """Whether all is acknowledged, as far as `fill` has seen."""
        return not self._window and self._ahead is None

    def take(self, values: Mapping[str, float], label: Any, time_ms: int) -> ReadingNumber:
        """Give a reading its number and its place in the spool."""
        number = ReadingNumber(self.boot, self.seq + 1)
        payload = self._parts.encode(*number, time_ms, values, label)
        try:
            self._spool.append(number, payload)
        except (SpoolFullError, SpoolError):
            self._counters.refused += 1
            raise
        self.seq = number.seq
        self._counters.sent += 1
        return number

    def fill(self) -> None:
        """Let the window take from the spool what it has room for."""
        while self._refill():
            pass

    def acknowledge(self, upto: ReadingNumber, newest: int, now: float) -> None:
        """Rules 2 and 3; where the node asks for what follows, it is sent again."""
        self.fill()
        if upto > ReadingNumber(self.boot, self.seq) or newest > BOOT_MAX:
            self._counters.bad_acks += 1  # somebody else uses this source's id
            return
        if upto.boot != self._window.boot:
            return
        self._joinable &= newest <= upto.boot
        if self._window.acknowledge(upto, now):
            self._counters.acknowledged += 1
            self._queued_to = max(self._queued_to, upto)
            if self._ahead is not None and self._ahead[0] <= upto:
                self._ahead = None
            self._spool.acknowledge(upto)
            self.fill()
        if newest > upto.boot == self._window.boot:
            self._go_on_above(newest)
        elif newest == upto.boot:
            self._window.grant_request(upto, now)

    def _refill(self) -> bool:
        """Let one more reading join the window, or stand in for one that is lost."""
        if self._ahead is None:
            self._ahead = self._spool.read_next()
        if self._ahead is None or not self._window.takes(self._ahead[0]):
            return False
        number, payload = self._ahead
        if number.boot != self._queued_to.boot:
            settled = self._parts.attempt(self._spool.settle)  # or the boot before could come again
            if settled and self._is_worth_joining(number) and self._parts.attempt(self._join):
                return True
        expected = expected_after(self._queued_to, number.boot)
        if expected < number:
            payload = self._parts.encode(*expected, self._parts.now_ms(), {}, None)
            number = expected
            self._counters.lost += 1
        else:
            self._ahead = None
        self._window.add(number, payload)
        self._queued_to, self._begun = number, True
        return True

    # --- other numbers ----------------------------------------------------------------------------

    def _is_worth_joining(self, number: ReadingNumber) -> bool:
        """Whether boots that were never sent are left, this one among them, and are short."""
        if not (self._begun and self._joinable) or number.boot == self.boot:
            return False
        readings, boots = self._spool.count_waiting()
        return boots > 1 and readings < boots * self._window.size

    def _join(self) -> None:
        self._joinable = False  # once a life; and if the disk has no room for it, never
        boots = self._spool.count_waiting()[1]
        lost = self._renumber(self.boot)
        log.info("backlog joined", topic=self._name, readings=self.seq, lost=lost, boots=boots)

    def _go_on_above(self, newest: int) -> None:
        """The node takes no more of this boot: go on above `newest` with all it has not applied."""
        former = self.boot
        lost = self._renumber(max(newest, self.boot))
        log.warning(
            "readings renumbered",
            topic=self._name,
            readings=self.seq,
            lost=lost,
            boot=former,
            newest=newest,
            now=self.boot,
        )
        self.fill()

    def _renumber(self, above: int) -> int:
        """Number all that is left anew, under a boot above this one; how many were found lost."""
        lost, last = 0, self._spool.mark

        def renumbered(number: ReadingNumber, new: ReadingNumber, payload: bytes) -> bytes:
            nonlocal last, lost
            known = max(last, self._queued_to)  # up to there, what is missing was counted
            lost += max(0, number.seq - expected_after(known, number.boot).seq)
            last = number
            try:
                time_ms, values, label = self._parts.decode(payload)
            except ValueError:  # another version wrote it: the node would not read it either
                lost += 1
                time_ms, values, label = self._parts.now_ms(), {}, None
            return self._parts.encode(*new, time_ms, values, label)

        boot = self._parts.boot_above(above)
        self.seq = self._spool.renumber(boot, renumbered)
        self.boot, self._queued_to, self._ahead = boot, ReadingNumber(boot, 0), None
        self._window.clear()
        self._counters.renumbered += self.seq
        self._counters.lost += lost
        return lost
