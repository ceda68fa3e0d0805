"""The sensor's side of "nothing lost, nothing twice".

A PUBACK only says that the broker has a reading in its memory. So a reading stays in the spool
until the node itself has acknowledged it, on its own topic, after its own commit; and it keeps its
number for ever, so that the node can tell a copy from a new reading.

What is promised, and what is not:

- A reading whose `send` has returned survives the script's death (`kill -9`), always.
- It survives a power cut once synced: after `sync_every` readings or `sync_s` seconds, whichever
  is first. `sync_every=1` syncs before every return, and wears an SD card accordingly.
- A full spool refuses (`SpoolFullError`, the default) or drops the oldest. A number lost that way,
  or to a rotten sector, is sent as a reading without values, so that the node does not wait for
  it for ever; `counters.lost` says how many.
"""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

from edge_opid.link.contract import Delivery, Link
from edge_opid.source.config import SourceConfig, SourceCounters
from edge_opid.source.number import FIRST_SEQ, Number, expected_after, new_boot, sync_folder
from edge_opid.source.spool import Spool, SpoolError, SpoolFullError
from edge_opid.source.window import ResendWindow

Encode = Callable[[int, int, int, Mapping[str, float], Any], bytes]
DecodeAck = Callable[[bytes], tuple[int, int]]
PUMP_S = 0.2  # how long the background thread waits for an acknowledgement at a time


class Source:
    """Send readings; they arrive, once, in order, as soon as there is a way.

    `encode_reading(boot, seq, time_ms, values, label)` makes the payload, `decode_ack` reads
    (boot, seq) out of an acknowledgement, both raising `ValueError` for what they cannot do. A
    reading without values must be possible: it stands for one that is lost.

    >>> import json, tempfile
    >>> from edge_opid.link import MemoryBroker, MemoryLink
    >>> folder = tempfile.TemporaryDirectory()
    >>> config = SourceConfig(
    ...     folder=Path(folder.name), reading_topic="reading", ack_topic="ack", background=False
    ... )
    >>> def encode_reading(*fields):
    ...     return json.dumps(fields).encode()
    >>> link = MemoryLink(MemoryBroker(), "attic")
    >>> with Source(config, link, encode_reading, json.loads) as source:
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
        decode_ack: DecodeAck,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counters = SourceCounters()
        self._config, self._link = config, link
        self._encode, self._decode_ack = encode_reading, decode_ack
        self._wall, self._monotonic = wall, monotonic
        self._lock = threading.RLock()
        encode_reading(0, FIRST_SEQ, 0, {}, None)  # it must know a lost reading when it meets one
        self._guard, self._spool, self.boot = self._opened(config, int(wall()))
        self._seq = FIRST_SEQ - 1
        mark = self._spool.mark
        self._window = ResendWindow(config.window, config.resend_s, acknowledged=mark)
        self._queued_to = mark  # the last number that joined the window
        self._ahead: tuple[Number, bytes] | None = None  # read from the spool, not yet joined
        self._synced_at = monotonic()
        self._thread: threading.Thread | None = None
        self._over = threading.Event()

    def _opened(self, config: SourceConfig, epoch_s: int) -> tuple[TextIO, Spool, int]:
        """The folder is ours: its lock, its spool, and one more boot."""
        config.folder.mkdir(parents=True, exist_ok=True)
        guard = _only_one(config.folder)
        spool = Spool(config.folder, config.spool_bytes_max, drop_oldest=config.drop_oldest)
        return guard, spool, new_boot(config.folder, epoch_s, spool.last.boot)

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
    ) -> Number:
        """Take a reading into the spool and on its way. Returns the number it bears for ever.

        `SpoolFullError`: not taken. `SpoolError`: the disk failed; the reading may arrive all the
        same, but nobody vouches for it.
        """
        if time_ms is None:
            time_ms = int(self._wall() * 1000)
        with self._lock:
            number = Number(self.boot, self._seq + 1)
            payload = self._encode(number.boot, number.seq, time_ms, values, label)
            try:
                self._spool.append(number, payload)
                self._seq = number.seq
                self._sync_if_due()
            except (SpoolFullError, SpoolError):
                self.counters.refused += 1
                raise
            self.counters.sent += 1
            self._transmit()
            return number

    def pump(self) -> None:
        """Hear what acknowledgements there are, send what is due, sync what has waited."""
        while (delivery := self._link.poll(0.0)) is not None:
            self._hear(delivery)
        with self._lock:
            self._transmit()
            self._sync_if_due()

    def drained(self, timeout_s: float = 0.0) -> bool:
        """Whether the node has acknowledged everything; waits for it, at most this long."""
        deadline = self._monotonic() + timeout_s
        while not self._over.is_set():
            if self._thread is None:
                self.pump()
            with self._lock:
                self._transmit()
                if not self._window and self._ahead is None:
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
        while not self._over.is_set():
            delivery = self._link.poll(PUMP_S)
            if delivery is not None:
                self._hear(delivery)
            try:
                self.pump()
            except SpoolError:
                self.counters.refused += 1  # the next `send` meets the same disk and says so

    def _hear(self, delivery: Delivery) -> None:
        with self._lock:
            try:
                upto = Number(*self._decode_ack(delivery.payload))
            except ValueError:
                self.counters.bad_acks += 1
            else:
                self._acknowledged(upto)
        self._link.acknowledge(delivery)

    def _acknowledged(self, upto: Number) -> None:
        if upto > Number(self.boot, self._seq):
            self.counters.bad_acks += 1  # somebody else uses this source's id
        elif self._window.acknowledge(upto, self._monotonic()):
            self.counters.acknowledged += 1
            self._queued_to = max(self._queued_to, upto)
            if self._ahead is not None and self._ahead[0] <= upto:
                self._ahead = None
            self._spool.acknowledge(upto)

    def _transmit(self) -> None:
        """Fill the window from the spool and hand what is due to the link."""
        while self._refill():
            pass
        if not self._link.connected:
            return  # the spool is the better place to wait: the link's queue is small
        due = self._window.due(self._monotonic())
        for place, pending in enumerate(due):
            if not self._link.publish(self._config.reading_topic, pending.payload):
                for refused in due[place:]:
                    self._window.not_sent(refused)
                return

    def _refill(self) -> bool:
        """Let one more reading join the window, or stand in for one that is lost."""
        if self._ahead is None:
            self._ahead = self._spool.read_next()
        if self._ahead is None or not self._window.takes(self._ahead[0]):
            return False
        number, payload = self._ahead
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
    """Hold the folder for this process; two scripts would give two readings the same number."""
    guard = (folder / "lock").open("a")
    try:
        fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        guard.close()
        raise SpoolError(
            error.errno, f"spool {folder} is in use by another script: give each its own folder"
        ) from error
    sync_folder(folder.parent)
    return guard
