"""A sensor's script: the real `Source`, with a spool that remembers what a real disk would.

The spool in memory keeps the contract of `Spool` and nothing else of it: what was appended outlives
the process, and what was synced outlives a power cut. Files, checksums and segments are tested
elsewhere.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from edge_opid.source.connect import decode_ack, decode_reading, encode_reading, settings_for
from edge_opid.source.folder_lock import FolderLock
from edge_opid.source.number import CHANCE, NOTHING, ReadingNumber, boot_above
from edge_opid.source.settings import SourceConfig
from edge_opid.source.source import Source
from edge_opid.source.spool import Renumber, Spool, SpoolError
from firmware_sim.chaos.promises import Said, SentBy
from firmware_sim.simulated.clock import dice
from firmware_sim.simulated.link import SimLink
from firmware_sim.simulated.network import Network
from firmware_sim.simulated.node_device import SUPERVISOR_MS, Device, Ended

TIDY_AT = 512  # records on a card before those that are acknowledged are deleted
READINGS_MIN = 16  # that are not lost, however long it was dead: a node cannot warm up on less


@dataclass
class Medium:
    """What a script's card holds, and how much of it is durable."""

    records: list[tuple[ReadingNumber, bytes]] = field(default_factory=list)
    gone: int = 0  # records before those, deleted since the node had acknowledged them
    mark: ReadingNumber = NOTHING
    boot: int = 0
    synced: int = 0  # records
    synced_mark: ReadingNumber = NOTHING
    failing: bool = False
    moved: Callable[[ReadingNumber, ReadingNumber], None] = lambda _old, _new: None
    """Told when a reading gets another number."""

    def check(self) -> None:
        """A card that fails says so whatever it is asked."""
        if self.failing:
            raise SpoolError(errno.EIO, os.strerror(errno.EIO))

    def unacknowledged(self) -> list[ReadingNumber]:
        """The numbers that would be lost with this card."""
        return [number for number, _ in self.records if number > self.mark]

    def power_cut(self, chance: Random) -> list[ReadingNumber]:
        """Keep what was synced, perhaps a little more; the numbers that are lost."""
        kept = chance.randint(self.synced, len(self.records))
        gone = [number for number, _ in self.records[kept:]]
        del self.records[kept:]
        self.synced = kept
        self.mark = self.synced_mark = chance.choice((self.synced_mark, self.mark))
        return gone

    def tidy(self) -> None:
        """Delete what a durable mark says is acknowledged, many at a time, as a spool does."""
        if len(self.records) < TIDY_AT:
            return
        done = sum(number <= self.synced_mark for number, _ in self.records[: self.synced])
        del self.records[:done]
        self.gone, self.synced = self.gone + done, self.synced - done


class MemorySpool(Spool):
    """A spool on a `Medium`."""

    def __init__(self, medium: Medium) -> None:
        self._medium, self._place = medium, medium.gone
        self.mark = medium.mark
        self.last = max((medium.mark, *(number for number, _ in medium.records)))
        self.unsynced = len(medium.records) - medium.synced

    @property
    def bytes_used(self) -> int:
        """As `Spool`."""
        return sum(len(payload) for _, payload in self._medium.records)

    def append(self, number: ReadingNumber, payload: bytes) -> None:
        """As `Spool`."""
        self._medium.check()
        self._medium.records.append((number, payload))
        self.last = max(self.last, number)
        self.unsynced += 1

    def sync(self) -> None:
        """As `Spool`."""
        medium = self._medium
        medium.check()
        medium.synced, medium.synced_mark, self.unsynced = len(medium.records), medium.mark, 0
        medium.tidy()

    def settle(self) -> None:
        """As `Spool`."""
        self._medium.check()
        self._medium.synced_mark = self._medium.mark

    def renumber(self, boot: int, renumbered: Renumber) -> int:
        """As `Spool`: all at once, and durable."""
        self._medium.check()
        medium, waiting = self._medium, [r for r in self._medium.records if r[0] > self.mark]
        copies = []
        for seq, (number, payload) in enumerate(waiting, 1):
            new = ReadingNumber(boot, seq)
            copies.append((new, renumbered(number, new, payload)))
            medium.moved(number, new)
        medium.records, medium.gone = copies, medium.gone + len(medium.records)
        self.mark = medium.mark = ReadingNumber(boot, 0)
        self.last, self._place = ReadingNumber(boot, len(copies)), medium.gone
        self.sync()
        return len(copies)

    def read_next(self) -> tuple[ReadingNumber, bytes] | None:
        """As `Spool`."""
        self._medium.check()
        records, gone = self._medium.records, self._medium.gone
        self._place = max(self._place, gone)
        while self._place - gone < len(records):
            found, self._place = records[self._place - gone], self._place + 1
            if found[0] > self.mark:
                return found
        return None

    def count_waiting(self) -> tuple[int, int]:
        """As `Spool`."""
        self._medium.check()
        waiting = self._medium.unacknowledged()
        return len(waiting), len({number.boot for number in waiting})

    def acknowledge(self, number: ReadingNumber) -> None:
        """As `Spool`."""
        self.mark = self._medium.mark = max(self.mark, number)

    def close(self) -> None:
        """As `Spool`."""
        self.sync()


class NoLock(FolderLock):
    """A card is in one machine at a time."""

    def __init__(self) -> None:
        self._handles = []


class SimSource(Source):
    """The real source on a made-up card."""

    medium: Medium
    chance: Random

    def _opened(self, config: SourceConfig, epoch_s: int) -> tuple[FolderLock, Spool, int]:  # noqa: ARG002
        spool = MemorySpool(self.medium)
        return NoLock(), spool, self._counted(spool.last.boot, epoch_s)

    def _boot_above(self, known: int) -> int:
        return self._counted(known, int(self._wall()))

    def _counted(self, known: int, epoch_s: int) -> int:
        """Durable before anything is sent under it."""
        self.medium.check()
        last = max(self.medium.boot, known)
        self.medium.boot = boot_above(last, epoch_s, self.chance.randrange(CHANCE))
        return self.medium.boot


class SourceDevice(Device):
    """A script that reads its sensors again and again, and sends what it reads.

    Nothing kills it in the middle of a step: between two is bad enough.
    """

    def __init__(
        self,
        network: Network,
        address: tuple[str, str, str],
        sent: SentBy,
        read: Callable[[int], Said],
        seed: object,
        *,
        period_ms: int,
        until_ms: int,
        sync_every: int = 4,
        resend_s: float = 2.0,
        window: int = 16,
        on_taken: Callable[[int, ReadingNumber], None] | None = None,
    ) -> None:
        super().__init__(network, "-".join(address), seed, tick_ms=500)
        self.sent, self._read, self._on_taken = sent, read, on_taken
        self._unsent: Said | None = None  # a reading that the card has refused
        self._period_ms, self._until_ms = period_ms, until_ms
        self._medium = self._empty_card()
        self._config = settings_for(
            *address,
            folder=Path("unused"),
            sync_every=sync_every,
            resend_s=resend_s,
            window=window,
            background=False,
        )
        self._readings = 0

    def open(self) -> None:
        """The script starts, and takes up its spool."""
        link = SimLink(self.network, self.client, life=self.life, on_arrival=self.wake)
        chance = dice(self.seed, self.client, "boot", self.life)
        kind = type("ThisSource", (SimSource,), {"medium": self._medium, "chance": chance})
        self.link = link
        try:
            self.source: Source = kind(
                self._config,
                link,
                self._encoded,
                decode_reading,
                self._heard,
                self.wall.wall,
                self.wall.monotonic,
            )
        except SpoolError as error:
            raise Ended(str(error)) from error
        self.source.__enter__()
        self.clock.after(self._period_ms, partial(self._sample, self.life))

    def go_round(self) -> None:
        """Hear acknowledgements, send what is due."""
        self.source.pump()

    @property
    def spooled(self) -> int:
        """How many readings its card holds, acknowledged ones among them."""
        return len(self._medium.records)

    @property
    def drained(self) -> bool:
        """Whether everything is acknowledged, as far as this life of the script knows."""
        last = self._medium.records[-1][0] if self._medium.records else NOTHING
        return self.alive and self._medium.mark >= last

    def _sample(self, life: int) -> None:
        enough = self.clock.now_ms >= self._until_ms and self.sent.safe >= READINGS_MIN
        if not self.alive or life != self.life or enough:
            return
        self._send(*(self._unsent or self._read(self._readings)))
        self.clock.after(self._period_ms, partial(self._sample, life))

    def _send(self, values: Mapping[str, float], label: str | None) -> None:
        try:
            number = self.source.send(values, label)
        except SpoolError:  # not taken: the script tries again with the same reading
            self.sent.refused(self.source.next_number)
            self._unsent = values, label
            return
        self.sent.taken.add(number)
        if self._on_taken is not None:
            self._on_taken(self._readings, number)
        self._readings, self._unsent = self._readings + 1, None

    def _encoded(
        self, boot: int, seq: int, time_ms: int, values: Mapping[str, float], label: Any
    ) -> bytes:
        payload = encode_reading(boot, seq, time_ms, values, label)
        if boot:  # the source begins with a question about an impossible reading
            self.sent.numbered(ReadingNumber(boot, seq), (dict(values), label))
        return payload

    def _heard(self, payload: bytes) -> tuple[int, int, int]:
        boot, seq, newest = decode_ack(payload)
        if seq and ReadingNumber(boot, seq) <= self.sent.highest:
            self.sent.heard(
                ReadingNumber(boot, seq)
            )  # 0 acknowledges nothing: it asks for the first
        return boot, seq, newest

    def ended(self) -> None:
        """Its supervisor starts it again."""
        self.alive = False
        self.link.abort()
        self.boot_later(SUPERVISOR_MS)

    # --- what can happen to it --------------------------------------------------------------------

    def crash(self, back_ms: int, *, dark: bool, how: object = 0) -> None:
        """The script dies, or its machine; it comes back later. `how` decides what is left."""
        if not self.alive:
            return
        self.alive = False
        if dark:
            chance = dice(self.seed, self.client, "power", how)
            self.sent.lost.update(self._medium.power_cut(chance))
            self.link.go_dark()
        else:
            self.link.abort()
        self.boot_later(back_ms)

    def new_card(self, back_ms: int) -> None:
        """Somebody puts an empty card in: what the node has not acknowledged is lost."""
        self.crash(back_ms, dark=True)
        self.sent.lost.update(self._medium.unacknowledged())
        self._medium = self._empty_card()

    def _empty_card(self) -> Medium:
        return Medium(moved=self.sent.renumbered)

    def fail(self, *, reads: bool) -> None:
        """The card fails, or does not any more."""
        self._medium.failing = reads
