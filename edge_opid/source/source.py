"""The sensor's side of "nothing lost, nothing twice".

A PUBACK only means that the broker has a reading in memory. So a reading stays in the spool until
the node itself has acknowledged it, on its own topic, after its own commit. It keeps its number, so
that the node can tell a duplicate from a new reading.

`backlog` decides which acknowledgement frees what, and when readings are renumbered; `window`
decides what is sent again, and when.

What is promised, and what is not:

- `send()` returns once the reading is in the spool, and the source retries until the node has
  acknowledged it. If `send()` raises, the reading was not stored: sending it again does not
  duplicate it.
- A reading in the spool survives the death of the script (`kill -9`), always.
- It survives a power cut once it is synced: after `sync_every` readings or `sync_s` seconds,
  whichever comes first. `sync_every=1` syncs before every return, and wears out an SD card
  accordingly. If the disk refuses to sync, the source keeps trying, and `trouble` says so.
- A disk or link error costs one turn, not the thread: it is counted (`counters.faults`), logged and
  retried. If the thread ends nevertheless, `send()` accepts nothing more and says so.
- A full spool refuses readings (`SpoolFullError`, the default) or drops the oldest. A number lost
  that way, or to a bad sector, is sent as a reading without values, so that the node does not wait
  for it for ever; `counters.lost` counts them.
- Leaving the block waits for acknowledgements, for at most `leave_s`. It does not wait if none can
  come: the broker is unreachable, or another script is waiting for the folder. What is left is
  logged, returned by `close()`, stays in the spool, and is sent by the next run.
- While the broker is down, readings wait in the spool; the log and `trouble` say so. A broker that
  refuses (password, certificate, access rights) raises `LinkError`. If no node has ever
  acknowledged anything from this folder, something was set up wrongly, and the block does not
  begin. Otherwise it raises at the end of the block, when the readings are in the spool, so that a
  password changed at the broker costs none. A script that stays in its block finds it in the log
  and in `trouble`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from edge_opid import log
from edge_opid.errors import OpidError
from edge_opid.link.contract import (
    Connected,
    Delivery,
    Disconnected,
    Link,
    LinkError,
    LinkEvent,
    PublishRefused,
    SubscriptionGranted,
    SubscriptionRefused,
)
from edge_opid.source.backlog import Backlog, BacklogParts, DecodeReading, Encode
from edge_opid.source.folder_lock import FolderLock
from edge_opid.source.number import FIRST_SEQ, NOTHING, ReadingNumber, new_boot
from edge_opid.source.settings import SourceConfig, SourceCounters
from edge_opid.source.spool import SourceError, Spool
from edge_opid.source.window import ResendWindow

DecodeAck = Callable[[bytes], tuple[int, int, int]]
PUMP_S = 0.2  # how long the background thread waits for an acknowledgement at a time
DRAIN_S = 5.0  # for what is queued to reach the broker
FOLDER_S = 15.0  # for another script to leave the folder when it is asked to


class Source:
    """Sends readings to a node: each arrives exactly once, and in order.

    `encode_reading(boot, seq, time_ms, values, label)` makes the payload, `decode_reading` returns
    (time_ms, values, label) from it, and `decode_ack` returns (boot, seq, newest) from an
    acknowledgement; each raises `ValueError` if it cannot. A reading without values must be
    possible: it stands for one that was lost.

    >>> import json, tempfile
    >>> from pathlib import Path
    >>> from edge_opid.testing import MemoryBroker, MemoryLink
    >>> folder = tempfile.TemporaryDirectory()
    >>> config = SourceConfig(
    ...     folder=Path(folder.name), reading_topic="reading", ack_topic="ack", background=False
    ... )
    >>> def encode_reading(*fields):
    ...     return json.dumps(fields).encode()
    >>> link = MemoryLink(MemoryBroker(), "attic")
    >>> def decode_reading(payload):
    ...     return json.loads(payload)[2:]
    >>> with Source(config, link, encode_reading, decode_reading, json.loads) as source:
    ...     number = source.send({"temp": 21.3})
    ...     print(number.seq, "sent,", source.pending, "not acknowledged so far")
    1 sent, 1 not acknowledged so far
    >>> folder.cleanup()
    """

    def __init__(
        self,
        config: SourceConfig,
        link: Link,
        encode_reading: Encode,
        decode_reading: DecodeReading,
        decode_ack: DecodeAck,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counters = SourceCounters()
        self.unacknowledged = 0
        """How many readings `close` has left in the spool."""
        self._config, self._link = config, link
        self._decode_ack = decode_ack
        self._wall, self._monotonic = wall, monotonic
        self._lock = threading.RLock()
        self._trouble = ""  # of our own: the disk, mostly
        self._link_trouble, self._refusal = "", ""  # of the link; and where only people can help
        self._away_since: float | None = None  # when the link began to be without a broker
        encode_reading(0, FIRST_SEQ, 0, {}, None)  # it must know a lost reading when it meets one
        self._guard, self._spool, boot = self._opened(config, int(wall()))
        self._worked_before = self._spool.mark > NOTHING
        self._window = ResendWindow(config.window, config.resend_s)
        parts = BacklogParts(
            spool=self._spool,
            window=self._window,
            counters=self.counters,
            encode=encode_reading,
            decode=decode_reading,
            boot_above=self._boot_above,
            attempt=self._try,
            now_ms=self._now_ms,
        )
        self._backlog = Backlog(parts, boot, config.reading_topic)
        self._synced_at = monotonic()
        self._thread: threading.Thread | None = None
        self._over = threading.Event()

    def _opened(self, config: SourceConfig, epoch_s: int) -> tuple[FolderLock, Spool, int]:
        """The folder is ours: its lock, its spool, and one more boot."""
        config.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        guard = FolderLock(config.folder, FOLDER_S if config.background else 0.0)
        try:
            spool = Spool(config.folder, config.spool_bytes_max, drop_oldest=config.drop_oldest)
            return guard, spool, new_boot(config.folder, epoch_s, spool.last.boot)
        except BaseException:
            guard.close()  # the script may try again
            raise

    def _boot_above(self, known: int) -> int:
        """One more boot for this life, on disk."""
        return new_boot(self._config.folder, int(self._wall()), known)

    def _now_ms(self) -> int:
        return int(self._wall() * 1000)

    def __enter__(self) -> Source:
        self._away_since = self._monotonic()
        self._link.subscribe([self._config.ack_topic])
        self._link.start()
        if self._config.background:
            self._await_answer()
            self._thread = threading.Thread(target=self._run, name="source", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(0.0 if kind is KeyboardInterrupt else None)
        if self._refusal and self.unacknowledged and kind is None:
            raise LinkError(f"{self._refusal} (readings left in the spool: {self.unacknowledged})")

    def _await_answer(self) -> None:
        """Until the broker has taken us, or not, or for a while; see above for when that raises."""
        deadline = self._monotonic() + self._config.connect_s
        while self._is_unanswered() and (left := deadline - self._monotonic()) > 0:
            # It returns for an event, too, but not for one that came before it was called.
            delivery = self._link.poll(min(left, PUMP_S))
            with self._lock:
                if delivery is not None:
                    self._try(partial(self._hear, delivery))
                self._hear_events()
        if self._refusal and not self._worked_before:
            self.close(0.0)
            raise LinkError(self._refusal)

    def _is_unanswered(self) -> bool:
        return self._away_since is not None and not self.counters.disconnected

    @property
    def boot(self) -> int:
        """Which life of the script this is: the first half of its readings' numbers."""
        return self._backlog.boot

    @property
    def next_number(self) -> ReadingNumber:
        """The number of the reading that is taken next."""
        return ReadingNumber(self._backlog.boot, self._backlog.seq + 1)

    @property
    def trouble(self) -> str:
        """What is wrong with the disk or the connection right now; empty if nothing is."""
        return self._trouble or self._link_trouble

    @property
    def pending(self) -> int:
        """How many readings are on their way; more may wait in the spool (see `drained`)."""
        return len(self._window)

    @property
    def resent(self) -> int:
        """How many copies were sent because no acknowledgement came."""
        return self._window.resent

    def send(
        self, values: Mapping[str, float], label: Any = None, time_ms: int | None = None
    ) -> ReadingNumber:
        """Store a reading on disk, and retry until the node has acknowledged it.

        Returns its number, which it keeps unless the node knows a higher boot of this source, or
        earlier runs have left readings behind (see `backlog`).

        If it raises, the reading was not stored: `ValueError` if it cannot be encoded,
        `SpoolFullError` or `SpoolError` if the disk has no room for it, `SourceError` if the
        sending thread has ended.
        """
        if time_ms is None:
            time_ms = self._now_ms()
        with self._lock:
            self._check_alive()
            number = self._backlog.take(values, label, time_ms)
            self._try(self._sync_if_due)
            self._try(self._transmit)
            return number

    def pump(self) -> None:
        """Hear what acknowledgements there are, send what is due, sync what has waited.

        What fails is counted, logged and said by `trouble`, and tried again the next time.
        """
        with self._lock:
            well = self._try(self._hear_all)
            well &= self._try(self._transmit)
            well &= self._try(self._sync_if_due)
            if well:
                self._trouble = ""

    def drained(self, timeout_s: float = 0.0, give_up: Callable[[], bool] = lambda: False) -> bool:
        """Whether the node has acknowledged everything; waits for it, at most this long."""
        deadline = self._monotonic() + timeout_s
        while not self._over.is_set():
            if self._thread is None:
                self.pump()
            with self._lock:
                read_all = self._try(self._transmit)
                if read_all and self._backlog.is_empty:
                    return True
            if self._monotonic() >= deadline or give_up():
                return False
            time.sleep(0.01)
        return False

    def close(self, leave_s: float | None = None) -> int:
        """Wait for acknowledgements, sync and stop; returns how many readings are left.

        It waits for at most `leave_s` (default: from the configuration), and not at all without
        the background thread.
        """
        if self._over.is_set():
            return self.unacknowledged
        try:
            if self._thread is not None:
                wait_s = self._config.leave_s if leave_s is None else leave_s
                self.drained(wait_s, give_up=self._is_vain)
        finally:
            self._end()
        if self.unacknowledged and self._config.background:
            topic, why = self._config.reading_topic, self.trouble or "no acknowledgement so far"
            log.warning("readings left", topic=topic, readings=self.unacknowledged, why=why)
        return self.unacknowledged

    def _is_vain(self) -> bool:
        """Whether nobody will acknowledge anything soon, or another script wants to go on."""
        with self._lock:
            since = self._away_since
            away = since is not None and self._monotonic() >= since + self._config.connect_s
            return away or bool(self._refusal) or self._guard.is_wanted()

    def _end(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join(DRAIN_S + PUMP_S)
        self._link.stop(DRAIN_S if self._link.connected else 0.0)
        try:
            self._try(self._count_left)
            self._spool.close()
        finally:
            self._guard.close()

    def _count_left(self) -> None:
        self.unacknowledged, _ = self._spool.count_waiting()

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                self._try(self._wait)
                self.pump()
                if self._trouble:
                    self._over.wait(PUMP_S)  # a disk in trouble is not helped by haste
        finally:
            if not self._over.is_set():
                self._complain("source ended")

    def _try(self, step: Callable[[], None]) -> bool:
        """Do what can be done again later; whether it went well. Nothing may end the thread."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - see above; it is counted and logged, never lost
            self.counters.faults += 1
            self._trouble = str(error) or type(error).__name__
            if log.worth_a_line(self.counters.faults):
                bug = not isinstance(error, (OSError, OpidError))
                self._complain("source in trouble", trace=bug)
            return False
        return True

    def _complain(self, event: str, *, trace: bool = False) -> None:
        topic, faults = self._config.reading_topic, self.counters.faults
        log.error(event, trace=trace, topic=topic, faults=faults, why=self.trouble or "unknown")

    def _check_alive(self) -> None:
        if self._over.is_set():
            raise SourceError("the reading was not stored: this source is closed, open another one")
        if self._thread is not None and not self._thread.is_alive():
            raise SourceError(
                "the reading was not stored: the thread that sends has ended, start the script "
                "again "
                f"(its last message: {self.trouble or 'nothing'})"
            )
        try:
            self._link.check()
        except LinkError as error:
            raise SourceError(
                f"the reading was not stored, start the script again: {error}"
            ) from error

    def _wait(self) -> None:
        """Until an acknowledgement comes, or for a while."""
        delivery = self._link.poll(PUMP_S)
        if delivery is not None:
            with self._lock:
                self._hear(delivery)

    def _hear_all(self) -> None:
        while (delivery := self._link.poll(0.0)) is not None:
            self._hear(delivery)

    def _hear(self, delivery: Delivery) -> None:
        """What cannot be done about an acknowledgement now is done when the node repeats it."""
        try:
            boot, seq, newest = self._decode_ack(delivery.payload)
        except ValueError:
            self.counters.bad_acks += 1
        else:
            known = self.counters.acknowledged
            self._backlog.acknowledge(ReadingNumber(boot, seq), newest, self._monotonic())
            if self.counters.acknowledged > known and self._link.connected:
                self._link_trouble = self._refusal = ""  # whatever it was, readings get through
        finally:
            self._link.acknowledge(delivery)

    def _hear_events(self) -> None:
        while (event := self._link.poll_event()) is not None:
            self._hear_event(event)

    def _hear_event(self, event: LinkEvent) -> None:
        """What happens to the connection: for `trouble`, the log, and whoever leaves the block."""
        topic = self._config.reading_topic
        match event:
            case Connected(session_present):
                self._away_since, self._link_trouble, self._refusal = None, "", ""
                if not session_present:
                    self._window.resend_all(self._monotonic())
            case Disconnected(reason, refused):
                if self._away_since is None:
                    self._away_since = self._monotonic()
                self._link_trouble, self._refusal = reason, reason if refused else ""
                self.counters.disconnected += 1
                if log.worth_a_line(self.counters.disconnected):
                    log.warning("disconnected", topic=topic, reason=reason, refused=refused)
            case SubscriptionRefused(filter_, reason):
                self._be_refused(f"the broker does not let this client read {filter_}: {reason}")
            case SubscriptionGranted():
                self._link_trouble = self._refusal = ""  # if writing is refused, that comes again
            case PublishRefused(refused_topic, reason):
                self._be_refused(
                    f"the broker does not let this client write {refused_topic}: {reason}"
                )

    def _be_refused(self, sentence: str) -> None:
        """Connected, but not allowed what a source needs."""
        refusal = f"{sentence}; allow it in the broker's access rules"
        if refusal != self._refusal:
            log.error("broker refuses", topic=self._config.reading_topic, why=refusal)
        self._refusal = self._link_trouble = refusal

    def _transmit(self) -> None:
        """Fill the window from the spool and hand what is due to the link."""
        connected = self._link.connected
        self._hear_events()  # of a new connection, before anything is sent on it
        self._backlog.fill()
        if not connected:
            return  # the spool is the better place to wait: the link's queue is small
        due = self._window.take_due(self._monotonic())
        for place, pending in enumerate(due):
            if not self._link.publish(self._config.reading_topic, pending.payload):
                for refused in due[place:]:
                    self._window.return_unsent(refused)
                return

    def _sync_if_due(self) -> None:
        waited_s = self._monotonic() - self._synced_at
        if self._spool.unsynced >= self._config.sync_every or (
            self._spool.unsynced and waited_s >= self._config.sync_s
        ):
            self._spool.sync()
        if not self._spool.unsynced:
            self._synced_at = self._monotonic()
