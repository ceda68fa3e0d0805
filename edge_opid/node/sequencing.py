"""Which readings of a sender may become inputs: each number once, in order, and no gap hidden.

The rules, for each source, in the order of the code:

1. A boot too far ahead is refused: whoever forged it would leave its source none to go on with.
2. A boot below the newest is over, whatever its number: its sender is a card with a slower clock,
   or one that was away. Say how far that boot was applied and which boot is the newest, once both
   are durable: the sender then gives the rest higher numbers (see `edge_opid.source.source`).
3. A number below the next one is a copy: count it, acknowledge again.
4. The next number is taken, with those held that follow it. A higher boot starts at 1: the sender
   begins it only when the boot before is acknowledged to the end.
5. A higher number is held. That is not durable, so nothing is acknowledged to the sender, which
   brings it again; the broker's delivery may be released at once.
6. When a number has been missing for a while, ask for it by repeating the last acknowledgement, and
   ask again, ever more seldom.
7. A number may be gone for good: the node's state was set back, or it never knew the source, or
   the sender has no spool. When the sender was asked often enough, for long enough, and has sent
   other numbers after each request, the lowest number held becomes the next, and what is skipped
   is counted. A sender that is merely silent is never given up: its spool may have the number.

Nothing here is durable but the numbers, and those belong to the state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from edge_opid.errors import Refusal
from edge_opid.node.sources import SourceRegister
from edge_opid.reasons import NodeReason, Reason
from edge_opid.tally import Tally
from edge_opid.wire import LIMITS as WIRE
from edge_opid.wire import Reading

Numbers = Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SequencingLimits:
    """How much waits, and how long. Times in ms of the node's clock."""

    held_max: int = 64  # per source: a few seconds of a fast sensor, a quarter of its window
    held_values_max: int = 8_192  # of all sources together, 1 MB; the longest silent gives way
    reading_costs: int = 8  # in values: what a held reading costs beside them
    ask_after_ms: int = 2_000  # reordering is over by then, what is missing is lost
    ask_again_most_ms: int = 60_000  # doubling up to here: the sender's own patience
    asks_min: int = 3  # each answered with something else than what was asked for
    adopt_after_ms: int = 60_000  # since the first request: a broker's restart fits in


LIMITS = SequencingLimits()


class Take(NamedTuple):
    """Apply these now, in this order. `skipped` numbers before the first are given up."""

    readings: tuple[Reading, ...]
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Not to be applied: acknowledge (`boot`, `seq`) again. That much of its boot is durable.

    With a `newest` its boot is over: what follows `seq` has to come under a boot above that one.
    """

    boot: int
    seq: int
    newest: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """Too early; it waits for the numbers before it."""


Verdict = Take | Duplicate | Held | Refusal  # refused: the sender has to bring it again


@dataclass(slots=True, kw_only=True)
class _Gap:
    """What waits behind a missing number, and how often the sender was asked for it."""

    boot: int
    ask_at: int
    first_ask_at: int = 0
    asks: int = 0
    answered: int = 0  # requests after which something else came
    unanswered: bool = False  # the latest request is one of those
    held: dict[int, Reading] = field(default_factory=dict)


class Sequencer:
    """The order of every sender's readings. Bounded, whatever is sent.

    The register belongs to the state, which moves it whenever an accepted reading is applied;
    `committed` (source → boot, next seq) is that as of the last commit. Only what is committed is
    ever acknowledged; without it, everything applied counts as committed.

    >>> register = SourceRegister()
    >>> register.record("attic", boot=1, seq=4)
    >>> sequencer = Sequencer(register)
    >>> def reading(seq, boot=1):
    ...     return Reading(boot, seq, time_ms=0, values={"t": 21.5})
    >>> sequencer.offer("attic", reading(4), now_ms=0)
    Duplicate(boot=1, seq=4, newest=0)
    >>> sequencer.offer("attic", reading(1, boot=0), now_ms=0)  # a new card without a clock
    Duplicate(boot=0, seq=0, newest=1)
    >>> sequencer.offer("attic", reading(6), now_ms=0)
    Held()
    >>> sequencer.take_requests(now_ms=2_000)  # Ack(1, 4) to attic: send again from 5 on
    [('attic', 1, 4)]
    >>> [each.seq for each in sequencer.offer("attic", reading(5), now_ms=2_100).readings]
    [5, 6]
    """

    def __init__(
        self,
        register: SourceRegister,
        committed: Numbers | None = None,
        limits: SequencingLimits = LIMITS,
        tally: Tally | None = None,
    ) -> None:
        self._tally = Tally() if tally is None else tally
        self._register, self._expected = register, register.expected
        self._committed = self._expected if committed is None else committed
        self._limits = limits
        self._gaps: dict[str, _Gap] = {}  # the source heard longest ago comes first
        self._room = limits.held_values_max
        self._time = 0  # ms since we began, by a clock that never goes back
        self._now_ms: int | None = None

    @property
    def counts(self) -> Counter[Reason]:
        """What became of what was offered."""
        return self._tally.counts

    def is_next(self, source: str, reading: Reading, now_ms: int) -> bool:
        """Whether it is the next one of a source that is known, as nearly all are: take it."""
        if now_ms != self._now_ms:
            self._tell_time(now_ms)
        return (
            self._expected.get(source) == (reading.boot, reading.seq) and source not in self._gaps
        )

    def offer(self, source: str, reading: Reading, now_ms: int) -> Verdict:
        """What to do with a reading that has just arrived."""
        self._tell_time(now_ms)
        if reading.boot > self._boot_most(source):
            sentence = f"boot {reading.boot} of {source!r} is no clock's"
            return self._refused(NodeReason.BOOT_TOO_FAR, source, sentence)
        next_seq = self._next(source, reading.boot)
        if next_seq is None:
            return self._over(source, reading)
        if reading.seq < next_seq:
            return self._duplicate(source, reading.boot)
        if not self._register.admits(source, now_ms):
            return Refusal(NodeReason.TOO_MANY_SOURCES, f"source {source!r} is one too many")
        if reading.seq == next_seq:
            return Take((reading, *self._drain(source, reading.boot, next_seq + 1)))
        return self._too_early(source, reading, next_seq)

    def is_copy(self, source: str, reading: Reading) -> bool:
        """Whether this number was applied: nothing comes of it but an acknowledgement."""
        boot, next_seq = self._expected.get(source, (-1, 0))
        return reading.boot == boot and reading.seq < next_seq

    def take_requests(self, now_ms: int) -> list[tuple[str, int, int]]:
        """The acknowledgements (source, boot, seq) to publish again now, as requests to resend."""
        self._tell_time(now_ms)
        requests: list[tuple[str, int, int]] = []
        if not self._gaps:
            return requests
        for source, gap in list(self._gaps.items()):
            if self._closed(source, gap):
                self._forget(source)
            elif gap.ask_at <= self._time:
                self._ask(source, gap)
                requests.append((source, gap.boot, self._durable(source, gap.boot)))
        return requests

    def _tell_time(self, now_ms: int) -> None:
        """A clock that is set back must not make a sender wait for it to catch up."""
        if self._now_ms is not None:
            self._time += max(0, now_ms - self._now_ms)
        self._now_ms = now_ms

    def _next(self, source: str, boot: int) -> int | None:
        """The number that must come next under this boot; None if the boot is over."""
        known_boot, next_seq = self._expected.get(source, (boot, 1))
        later = 1 if boot > known_boot else None
        return next_seq if boot == known_boot else later

    def _boot_most(self, source: str) -> int:
        known_boot, _ = self._expected.get(source, (0, 1))
        return max(known_boot, WIRE.boot_clock_max) + WIRE.boot_step_max

    def _over(self, source: str, reading: Reading) -> Verdict:
        """A boot below the newest; to be answered only when no power cut can open it again."""
        newest, _ = self._committed.get(source, (0, 1))
        if newest <= reading.boot:
            sentence = f"a newer boot of {source!r} awaits its commit"
            return self._refused(NodeReason.BOOT_UNSETTLED, source, sentence)
        applied = self._register.last_of(source, reading.boot)
        if reading.seq <= applied:
            self._tally.note(NodeReason.DUPLICATE, about=source)
        else:
            sentence = f"boot {reading.boot} of {source!r} is over, the newest is {newest}"
            self._tally.note(NodeReason.BOOT_OVER, about=source, why=sentence)
        return Duplicate(reading.boot, applied, newest)

    def _duplicate(self, source: str, boot: int) -> Duplicate:
        self._tally.note(NodeReason.DUPLICATE, about=source)
        return Duplicate(boot, self._durable(source, boot))

    def _durable(self, source: str, boot: int) -> int:
        """The last number of this boot that may be acknowledged; 0 while there is none."""
        committed_boot, next_seq = self._committed.get(source, (boot, 1))
        return next_seq - 1 if committed_boot == boot else 0

    def _refused(self, reason: Reason, source: str, sentence: str) -> Refusal:
        self._tally.note(reason, about=source, why=sentence)
        return Refusal(reason, sentence)

    def _too_early(self, source: str, reading: Reading, next_seq: int) -> Verdict:
        gap = self._gap(source, reading.boot)
        if gap.boot > reading.boot:
            return self._duplicate(source, reading.boot)  # its sender has moved on
        if gap.unanswered:
            gap.answered, gap.unanswered = gap.answered + 1, False
        verdict = self._hold(source, gap, reading)
        if not gap.held:
            del self._gaps[source]
        elif self._given_up(gap):
            return self._adopt(source, gap, next_seq)
        return verdict

    def _gap(self, source: str, boot: int) -> _Gap:
        """Where a reading of this boot waits. A newer boot ends the wait for an older one."""
        gap = self._gaps.get(source)
        if gap is not None and (gap.boot < boot or self._closed(source, gap)):
            self._forget(source)
        gap = self._gaps.pop(source, None) or _Gap(
            boot=boot, ask_at=self._time + self._limits.ask_after_ms
        )
        self._gaps[source] = gap
        return gap

    def _closed(self, source: str, gap: _Gap) -> bool:
        """Whether the state has moved past what waits, by another way than ours."""
        next_seq = self._next(source, gap.boot)
        return next_seq is None or min(gap.held) <= next_seq

    def _hold(self, source: str, gap: _Gap, reading: Reading) -> Held | Refusal:
        """Keep a reading, or say why not. The lowest numbers are the first to be of use."""
        if reading.seq in gap.held:
            self._tally.note(NodeReason.DUPLICATE, about=source)
            return Held()
        if len(gap.held) >= self._limits.held_max and reading.seq < max(gap.held):
            self._drop(gap, max(gap.held))
        if len(gap.held) >= self._limits.held_max or not self._make_room(self._cost(reading)):
            waiting = f"{len(gap.held)} readings wait for a number before {reading.seq} already"
            return self._refused(NodeReason.HOLD_FULL, source, waiting)
        self._room -= self._cost(reading)
        gap.held[reading.seq] = reading
        self._tally.note(NodeReason.HELD, about=source)
        return Held()

    def _make_room(self, cost: int) -> bool:
        """Forget what the longest silent senders left here; their spools have it."""
        while self._room < cost and len(self._gaps) > 1:
            self._forget(next(iter(self._gaps)))  # never the one being heard: it comes last
        return self._room >= cost

    def _ask(self, source: str, gap: _Gap) -> None:
        gap.first_ask_at = gap.first_ask_at if gap.asks else self._time
        wait_ms = self._limits.ask_after_ms << min(gap.asks, 20)
        gap.ask_at = self._time + min(wait_ms, self._limits.ask_again_most_ms)
        gap.asks, gap.unanswered = gap.asks + 1, True
        self._tally.note(NodeReason.RESEND_ASKED, about=source, source=source)

    def _given_up(self, gap: _Gap) -> bool:
        waited_ms = self._time - gap.first_ask_at
        return gap.answered >= self._limits.asks_min and waited_ms >= self._limits.adopt_after_ms

    def _adopt(self, source: str, gap: _Gap, next_seq: int) -> Take:
        lowest = min(gap.held)
        skipped = lowest - next_seq
        sentence = f"{skipped} readings of {source!r} before number {lowest} never came"
        self._tally.note(NodeReason.GAP_ADOPTED, about=source, why=sentence)
        self._tally.note(NodeReason.NUMBERS_SKIPPED, skipped)
        return Take(self._drain(source, gap.boot, lowest), skipped=skipped)

    def _drain(self, source: str, boot: int, seq: int) -> tuple[Reading, ...]:
        """What waits under this number and those right after it; the rest begins a new wait."""
        gap = self._gaps.get(source)
        if gap is None or gap.boot != boot:
            return ()
        run: list[Reading] = []
        while seq + len(run) in gap.held:
            run.append(gap.held.pop(seq + len(run)))
        self._room += sum(map(self._cost, run))
        del self._gaps[source]
        if gap.held:
            self._gap(source, boot).held = gap.held
        return tuple(run)

    def _forget(self, source: str) -> None:
        gap = self._gaps.pop(source)
        self._drop(gap, *gap.held)

    def _drop(self, gap: _Gap, *seqs: int) -> None:
        self._room += sum(self._cost(gap.held.pop(seq)) for seq in seqs)
        if seqs:
            self._tally.note(NodeReason.HOLD_DROPPED, len(seqs))

    def _cost(self, reading: Reading) -> int:
        return self._limits.reading_costs + len(reading.values)
