"""The sensor's side of "nothing lost, nothing twice".

A PUBACK only says that the broker has a reading in its memory. So a reading stays in the spool
until the node itself has acknowledged it, on its own topic, after its own commit; and it keeps its
number, so that the node can tell a copy from a new reading.

Which acknowledgement frees what, in the order of the code:

1. Only one boot is on its way at a time, the oldest in the spool; the next begins when the last
   reading of it is acknowledged, and that is on disk (if the disk takes it: see below).
2. An acknowledgement frees readings of its own boot up to its number, and nothing else. One beyond
   anything ever sent is somebody else's, and counted.
3. An acknowledgement that names a `newest` boot says: this boot is over, I have applied it up to
   this number, and a higher boot since. So it happens to a card whose clock began in 1970, or after
   a life in 2040, or that was away while another one sent under its name. What the node has applied
   is freed (2). What it has not, and never will under these numbers, is all that is left in the
   spool: readings of later boots were never sent (1).
4. All of that is numbered anew, in its order, under a boot above `newest` and above every boot of
   this folder, and this life goes on with that boot. The boot and the new numbers are on disk when
   the first of them is sent; a power cut leaves all the old numbers or all the new ones, and with
   the old ones the same answer comes again.

So nothing is applied twice: a reading gets another number only after the node has said, from what
no power cut can take back, that it did not apply it and that the boot of its old number is over for
ever. The node remembers that of the last eight boots of a source. A card that comes back after
more than these, with its last acknowledgements lost, may bring up to a window of readings twice.

What else is promised, and what is not:

- `send` raises only if it has not taken the reading: sending it again makes no second one.
- A reading whose `send` has returned survives the script's death (`kill -9`), always.
- It survives a power cut once synced: after `sync_every` readings or `sync_s` seconds, whichever
  is first. `sync_every=1` syncs before every return, and wears an SD card accordingly. A disk that
  refuses to sync is asked again and again; `trouble` says so as long as it does.
- An error of the disk or of the link costs a turn, not the thread: it is counted
  (`counters.faults`), logged, and the turn comes again. If the thread ends all the same, `send`
  takes nothing more and says so.
- A full spool refuses (`SpoolFullError`, the default) or drops the oldest. A number lost that way,
  or to a rotten sector, is sent as a reading without values, so that the node does not wait for
  it for ever; `counters.lost` says how many.

How a source is set up, and what it counts.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from edge_opid import log
from edge_opid.config.schema import DURATION_S_MAX
from edge_opid.errors import OpidError, SettingError, shown
from edge_opid.link.contract import Delivery, Link, LinkError
from edge_opid.source.number import CHANCE, FIRST_SEQ, ReadingNumber, expected_after, new_boot
from edge_opid.source.spool import SourceError, Spool, SpoolError, SpoolFullError
from edge_opid.source.window import ResendWindow
from edge_opid.store.whole_file import sync_folder
from edge_opid.wire import LIMITS

Encode = Callable[[int, int, int, Mapping[str, float], Any], bytes]
DecodeReading = Callable[[bytes], tuple[int, Mapping[str, float], Any]]
DecodeAck = Callable[[bytes], tuple[int, int, int]]
BOOT_MAX = LIMITS.integer_max - CHANCE  # of a boot that leaves room for a higher one
PUMP_S = 0.2  # how long the background thread waits for an acknowledgement at a time


class Source:
    """Send readings; they arrive, once, in order, as soon as there is a way.

    `encode_reading(boot, seq, time_ms, values, label)` makes the payload, `decode_reading` takes
    (time_ms, values, label) out of it again, `decode_ack` takes (boot, seq, newest) out of an
    acknowledgement, all raising `ValueError` for what they cannot do. A reading without values must
    be possible: it stands for one that is lost.

    >>> import json, tempfile
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
        self.trouble = ""
        """What failed at the last turn; empty while all is well."""
        self._config, self._link = config, link
        self._encode, self._decode, self._decode_ack = encode_reading, decode_reading, decode_ack
        self._wall, self._monotonic = wall, monotonic
        self._lock = threading.RLock()
        encode_reading(0, FIRST_SEQ, 0, {}, None)  # it must know a lost reading when it meets one
        self._guard, self._spool, self.boot = self._opened(config, int(wall()))
        self._seq = FIRST_SEQ - 1
        mark = self._spool.mark
        self._window = ResendWindow(config.window, config.resend_s, acknowledged=mark)
        self._queued_to = mark  # the last number that joined the window
        self._ahead: tuple[ReadingNumber, bytes] | None = (
            None  # read from the spool, not yet joined
        )
        self._synced_at = monotonic()
        self._thread: threading.Thread | None = None
        self._over = threading.Event()

    def _opened(self, config: SourceConfig, epoch_s: int) -> tuple[TextIO, Spool, int]:
        """The folder is ours: its lock, its spool, and one more boot."""
        config.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        guard = _only_one(config.folder)
        try:
            spool = Spool(config.folder, config.spool_bytes_max, drop_oldest=config.drop_oldest)
            return guard, spool, new_boot(config.folder, epoch_s, spool.last.boot)
        except BaseException:
            guard.close()  # the script may try again
            raise

    def _boot_above(self, known: int) -> int:
        """One more boot for this life, on disk."""
        return new_boot(self._config.folder, int(self._wall()), known)

    def __enter__(self) -> Source:
        self._link.subscribe([self._config.ack_topic])
        self._link.start()
        if self._config.background:
            self._thread = threading.Thread(target=self._run, name="source", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
        """Take a reading into the spool and on its way.

        Returns its number, which it keeps unless the node knows a higher boot of this source.

        It raises only for a reading that is not taken: `ValueError` where it cannot be encoded,
        `SpoolFullError` or `SpoolError` where the disk has no place for it, `SourceError` where
        nobody would send it any more.
        """
        if time_ms is None:
            time_ms = int(self._wall() * 1000)
        with self._lock:
            self._check_alive()
            number = ReadingNumber(self.boot, self._seq + 1)
            payload = self._encode(number.boot, number.seq, time_ms, values, label)
            try:
                self._spool.append(number, payload)
            except (SpoolFullError, SpoolError):
                self.counters.refused += 1
                raise
            self._seq = number.seq
            self.counters.sent += 1
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
                self.trouble = ""

    def drained(self, timeout_s: float = 0.0) -> bool:
        """Whether the node has acknowledged everything; waits for it, at most this long."""
        deadline = self._monotonic() + timeout_s
        while not self._over.is_set():
            if self._thread is None:
                self.pump()
            with self._lock:
                read_all = self._try(self._transmit)
                if read_all and not self._window and self._ahead is None:
                    return True
            if self._monotonic() >= deadline:
                return False
            time.sleep(0.01)
        return False

    def close(self, drain_s: float = 5.0) -> None:
        """Sync and end. What is not acknowledged is sent by the next life of the script."""
        if self._over.is_set():
            return
        self._over.set()
        if self._thread is not None:
            self._thread.join(drain_s + PUMP_S)
        self._link.stop(drain_s)
        try:
            self._spool.close()
        finally:
            self._guard.close()

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                self._try(self._wait)
                self.pump()
                if self.trouble:
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
            self.trouble = str(error) or type(error).__name__
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
            raise SourceError("the reading is not taken: this source is closed, open another one")
        if self._thread is not None and not self._thread.is_alive():
            raise SourceError(
                "the reading is not taken: the thread that sends has ended, start the script again "
                f"(what it said last: {self.trouble or 'nothing'})"
            )
        try:
            self._link.check()
        except LinkError as error:
            raise SourceError(
                f"the reading is not taken, start the script again: {error}"
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
            self._take_acknowledgement(ReadingNumber(boot, seq), newest)
        finally:
            self._link.acknowledge(delivery)

    def _take_acknowledgement(self, upto: ReadingNumber, newest: int = 0) -> None:
        self._fill()
        if upto > ReadingNumber(self.boot, self._seq) or newest > BOOT_MAX:
            self.counters.bad_acks += 1  # somebody else uses this source's id
            return
        if upto.boot != self._window.boot:
            return
        if self._window.acknowledge(upto, self._monotonic()):
            self.counters.acknowledged += 1
            self._queued_to = max(self._queued_to, upto)
            if self._ahead is not None and self._ahead[0] <= upto:
                self._ahead = None
            self._spool.acknowledge(upto)
            self._fill()
        if newest > upto.boot == self._window.boot:
            self._renumber(newest)

    def _renumber(self, newest: int) -> None:
        """The node takes no more of this boot: go on above `newest` with all it has not applied."""
        former, lost = self.boot, 0
        last = self._spool.mark

        def renumbered(number: ReadingNumber, new: ReadingNumber, payload: bytes) -> bytes:
            nonlocal last, lost
            known = max(last, self._queued_to)  # up to there, what is missing was counted
            lost += max(0, number.seq - expected_after(known, number.boot).seq)
            last = number
            try:
                time_ms, values, label = self._decode(payload)
            except ValueError:  # another version wrote it: the node would not read it either
                lost += 1
                time_ms, values, label = int(self._wall() * 1000), {}, None
            return self._encode(*new, time_ms, values, label)

        boot = self._boot_above(max(newest, self.boot))
        self._seq = self._spool.renumber(boot, renumbered)
        self.boot, self._queued_to, self._ahead = boot, ReadingNumber(boot, 0), None
        self._window.clear()
        self.counters.renumbered += self._seq
        self.counters.lost += lost
        log.warning(
            "readings renumbered",
            topic=self._config.reading_topic,
            readings=self._seq,
            lost=lost,
            boot=former,
            newest=newest,
            now=boot,
        )
        self._fill()

    def _fill(self) -> None:
        """Let the window take from the spool what it has room for."""
        while self._refill():
            pass

    def _transmit(self) -> None:
        """Fill the window from the spool and hand what is due to the link."""
        self._fill()
        if not self._link.connected:
            return  # the spool is the better place to wait: the link's queue is small
        due = self._window.take_due(self._monotonic())
        for place, pending in enumerate(due):
            if not self._link.publish(self._config.reading_topic, pending.payload):
                for refused in due[place:]:
                    self._window.return_unsent(refused)
                return

    def _refill(self) -> bool:
        """Let one more reading join the window, or stand in for one that is lost."""
        if self._ahead is None:
            self._ahead = self._spool.read_next()
        if self._ahead is None or not self._window.takes(self._ahead[0]):
            return False
        number, payload = self._ahead
        if number.boot != self._queued_to.boot:
            self._try(self._spool.settle)  # or the boot before could come again after this
        expected = expected_after(self._queued_to, number.boot)
        if expected < number:
            payload = self._encode(*expected, int(self._wall() * 1000), {}, None)
            number = expected
            self.counters.lost += 1
        else:
            self._ahead = None
        self._window.add(number, payload)
        self._queued_to = number
        return True

    def _sync_if_due(self) -> None:
        waited_s = self._monotonic() - self._synced_at
        if self._spool.unsynced >= self._config.sync_every or (
            self._spool.unsynced and waited_s >= self._config.sync_s
        ):
            self._spool.sync()
        if not self._spool.unsynced:
            self._synced_at = self._monotonic()


def _only_one(folder: Path) -> TextIO:
    """Hold the folder for this process; two scripts would give two readings the same number.

    Nobody else may open the file: a shared lock, for which reading is enough, would keep us out.
    """
    handle = -1
    try:
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        os.fchmod(handle, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if handle >= 0:
            os.close(handle)
        raise SpoolError(
            error.errno,
            f"spool {folder} is in use by another script, or its lock file is another user's: "
            "give each script its own folder",
        ) from error
    sync_folder(folder.parent)
    return os.fdopen(handle, "r+")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig:
    """Where a source keeps its spool, which topics it uses, and its bounds."""

    folder: Path
    reading_topic: str
    ack_topic: str
    spool_bytes_max: int = 16 * 2**20  # a day and a half of 100-byte readings, one a second
    drop_oldest: bool = False  # the default refuses: the script knows best what to do
    sync_every: int = 32
    sync_s: float = 1.0
    window: int = 256
    resend_s: float = 10.0  # longer than a node's commit interval, or every reading goes twice
    background: bool = True  # a thread hears acknowledgements; without it, call `pump`

    def __post_init__(self) -> None:
        for name in ("spool_bytes_max", "sync_every", "window"):
            _check(name, getattr(self, name), (int,), LIMITS.integer_max)
        for name in ("sync_s", "resend_s"):
            _check(name, getattr(self, name), (int, float), DURATION_S_MAX)


def _check(name: str, value: Any, kinds: tuple[type, ...], high: float) -> None:
    number = isinstance(value, kinds) and not isinstance(value, bool)
    if not (number and 0 < value <= high):  # NaN is above nothing
        what = "a number" if float in kinds else "a whole number"
        complaint = f"must be {what} above 0 and at most {high:g}, got {shown(value)}"
        raise SettingError(name, complaint)


@dataclass(slots=True, kw_only=True)
class SourceCounters:
    """What happened to the readings."""

    sent: int = 0  # taken by `send`
    refused: int = 0  # not taken: spool full, or disk at fault
    faults: int = 0  # failed reads, syncs, deletions: survived, and tried again
    acknowledged: int = 0  # acknowledgements that were news
    bad_acks: int = 0  # undecodable, or beyond anything ever sent
    renumbered: int = 0  # given another number: the node knew a higher boot of this source
    lost: int = 0  # dropped or rotten, sent as a reading without values
