"""The loop that runs a node: messages from the link to the node, its actions to disk and link.

The rules, in the order of the code:

1. A clock that is set forward or back must not silence sensors: time is the wall clock at the
   start plus what has passed since. `SteadyClock` is the one place that reads clocks.
2. A record the store refuses waits in the `JournalWriter`, in order; while one waits, nothing more
   is taken from the link. The broker keeps it, unacknowledged, until the disk recovers.
3. `committed` is called only when every record appended so far is durable.
4. A snapshot is taken when everything is durable and one is due. If the disk refuses it, the state
   is kept in memory: a journal that is full can then still be emptied.
5. Nothing is lost silently: what is refused is counted and logged.
6. A link that ended by a fault of its own is told in `degraded` for an hour. One that will never
   work again ends the process, with the watchdog unfed and the reason in the status file.
7. When asked to stop: a last tick, a commit, a snapshot, an offline status, a goodbye.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from edge_opid import log
from edge_opid.link.contract import (
    Connected,
    Delivery,
    Disconnected,
    Link,
    LinkError,
    LinkEvent,
    MessageDropped,
    PublishRefused,
    SubscriptionRefused,
)
from edge_opid.node.actions import Action, Append, Commit, Publish, Refused, Release, Warn
from edge_opid.node.node import Node
from edge_opid.service.journal_writer import JournalWriter
from edge_opid.service.notify import Systemd, write_status
from edge_opid.store import Store, StoreError
from edge_opid.wire import Channel, encode

POLL_S = 0.1  # the longest wait for a message: a node wants its tick four times a second
DELIVERIES_PER_ROUND = 64  # a burst must not keep the node from its tick: some 15 ms
RETRY_MS = 1_000  # between two attempts at a disk that refuses
STATUS_MS = 3_000  # between two status files
FAULT_TOLD_MS = 3_600_000  # how long `degraded` tells of a fault that is over
DRAIN_S = 5.0  # for what is queued to reach the broker when we stop
_ACK = f"/{Channel.ACK}/"


class SteadyClock:
    """The wall clock as it was at the start, carried on by the monotonic one.

    >>> seconds = iter([50.0, 50.25])
    >>> SteadyClock(wall=lambda: 1_000.0, monotonic=lambda: next(seconds)).now_ms()
    1000250
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self._offset_s = wall() - monotonic()

    def now_ms(self) -> int:
        """Milliseconds since 1970, about."""
        return int((self._offset_s + self._monotonic()) * 1000)


class NodeLoop:
    """One node, its link and its store, until somebody calls `stop`."""

    def __init__(
        self,
        node: Node,
        link: Link,
        store: Store,
        clock: SteadyClock,
        notify: Systemd,
        *,
        status_topic: str,
        status_file: Path | None = None,
        saved_at: int = 0,
        poll_s: float = POLL_S,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._node, self._link, self._clock, self._systemd = node, link, clock, notify
        self._journal = JournalWriter(store, saved_at)
        self._status_topic, self._status_file, self._poll_s = status_topic, status_file, poll_s
        self._stop = False
        self._trouble: str | None = None  # what the disk said, while it refuses
        self._retry_at: int | None = None  # a commit is owed
        self._fault_at: int | None = None  # when the link had its last fault
        self._looked_at = -1  # the index of the last commit after which a snapshot was considered
        self._told_at: int | None = None

    def stop(self) -> None:
        """End after this round. A signal handler may call it: it only sets a flag."""
        self._stop = True

    def run(self) -> int:
        """Start, go round until stopped, drain; the exit code."""
        try:
            self.start()
            while not self._stop:
                self.round()
            self.drain()
        except BaseException:
            self._link.abort()  # the broker publishes the will
            raise
        return 0

    def start(self) -> None:
        """Connect; make sure that what was read back is durable."""
        for filter_, qos in self._node.subscriptions().items():
            self._link.subscribe([filter_], qos)
        self._link.start()
        if not self._journal.settled:
            self._perform([Commit()])
        self._systemd.ready()
        log.info("started", committed=self._journal.store.committed)

    def round(self) -> None:
        """One turn: what came in, what is due, what is owed, and the word that all is well."""
        self._hear_events()
        self._take_in()
        if actions := self._node.tick(self._clock.now_ms()):
            self._perform(actions)
        if self._retry_at is not None and self._clock.now_ms() >= self._retry_at:
            self._perform([Commit()])
        self._tell()
        self._say_alive()

    def drain(self) -> None:
        """Bring everything to its place, and say goodbye."""
        self._systemd.stopping()
        self._hear_events()
        self._perform(self._node.tick(self._clock.now_ms()))
        self._retry_at = None
        self._perform([Commit()])
        self._snapshot(ending=True)
        status = self._node.status(self._clock.now_ms(), online=False)
        self._do([Publish(self._status_topic, encode(status), retain=True)])
        self._told_at = None
        self._tell(online=False)
        unsent = self._link.stop(DRAIN_S if self._link.connected else 0.0)
        pending = self._journal.store.pending + self._journal.waiting
        log.info("stopped", unsent=unsent, not_committed=pending)

    # --- what comes in ----------------------------------------------------------------------------

    def _take_in(self) -> None:
        if self._journal.waiting:
            time.sleep(self._poll_s)
            return
        for turn in range(DELIVERIES_PER_ROUND):
            delivery = self._link.poll(0.0 if turn else self._poll_s)
            self._hear_events()  # a former connection's end comes before the next one's messages
            if delivery is None:
                return
            now_ms = self._clock.now_ms()
            topic, payload, retained = delivery.topic, delivery.payload, delivery.retain
            self._perform(self._node.handle(topic, payload, now_ms, delivery, retained))
            if self._journal.waiting:
                return

    def _hear_events(self) -> None:
        while (event := self._link.poll_event()) is not None:
            self.counts[type(event).__name__] += 1
            self._hear(event)

    def _hear(self, event: LinkEvent) -> None:
        match event:
            case Connected(session_present, protocol):
                log.info("connected", protocol=protocol, session_present=session_present)
                self._perform(self._node.connected(self._clock.now_ms()))
            case Disconnected(reason, refused, fault):
                self._node.disconnected()
                if fault:
                    self._fault_at, self._node.link_trouble = self._clock.now_ms(), reason
                if log.worth_a_line(self.counts["Disconnected"]) or refused:
                    count = self.counts["Disconnected"]
                    log.warning("disconnected", reason=reason, refused=refused, count=count)
            case SubscriptionRefused(filter_, reason):
                log.error("subscription refused", filter=filter_, reason=reason)
            case PublishRefused(topic, reason):
                self._refused(topic, reason)
            case MessageDropped(reason, count):
                log.warning("message dropped", reason=reason, count=count)

    # --- what is to be done -----------------------------------------------------------------------

    def _perform(self, actions: Sequence[Action]) -> None:
        """Do all of it; only then is the node's state that of the records in the store."""
        self._do(actions)
        for reason, sentence in self._node.take_news():
            self.counts[reason] += 1
            if log.worth_a_line(self.counts[reason]):
                log.warning(reason, why=sentence, count=self.counts[reason])
        if self._journal.store.committed != self._looked_at:
            self._snapshot()

    def _do(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case Append(record):
                    self._journal.append(record)
                    if self._journal.waiting and self._retry_at is None:
                        self._retry_at = self._clock.now_ms()
                case Commit():
                    self._do(self._commit())
                case Publish():
                    self._publish(action)
                case Warn(event, fields):
                    log.warning(event, **fields)
                case Release(token):
                    if isinstance(token, Delivery):
                        self._link.acknowledge(token)
                case Refused(reason, topic, times):
                    if log.worth_a_line(times):
                        log.warning("message refused", reason=reason, topic=topic, count=times)

    def _publish(self, action: Publish) -> None:
        if _ACK in action.topic and not self._journal.store.settled:
            self.counts["ack_withheld"] += 1  # what was read back may be gone after a power cut
        elif not self._link.publish(action.topic, action.payload, retain=action.retain):
            self._refused(action.topic, "the link did not take it")

    def _commit(self) -> list[Action]:
        """Try; a disk that has just refused is left alone for a while."""
        now_ms = self._clock.now_ms()
        if self._trouble is not None and self._retry_at is not None and now_ms < self._retry_at:
            return []
        try:
            self._journal.commit()
        except StoreError as error:
            return self._commit_failed(error, now_ms)
        if self._trouble is not None:
            log.info("disk recovered", refusals=self.counts["commit_refused"])
        self._trouble = self._retry_at = None
        return self._node.committed(now_ms)

    def _commit_failed(self, error: StoreError, now_ms: int) -> list[Action]:
        self.counts["commit_refused"] += 1
        if self._trouble is None or log.worth_a_line(self.counts["commit_refused"]):
            log.error("commit refused", reason=error.reason, why=error)
        self._trouble, self._retry_at = str(error), now_ms + RETRY_MS
        return self._node.commit_failed(_short(error), now_ms)

    def _snapshot(self, *, ending: bool = False) -> None:
        """Once after each commit, when the node's state is what was committed."""
        store = self._journal.store
        if store.snapshot_due and store.pending and self._trouble is None:
            self._do(self._commit())  # something was appended after the commit before
        self._looked_at = store.committed
        try:
            self._journal.snapshot_if_due(self._node.snapshot, ending=ending)
        except StoreError as error:
            self.counts["snapshot_refused"] += 1
            if log.worth_a_line(self.counts["snapshot_refused"]):
                log.error("snapshot refused", reason=error.reason, why=error)

    def _refused(self, topic: str, reason: str) -> None:
        self.counts["publish_refused"] += 1
        count = self.counts["publish_refused"]
        if log.worth_a_line(count):
            log.warning("publication refused", topic=topic, reason=reason, count=count)

    # --- how we are -------------------------------------------------------------------------------

    def _say_alive(self) -> None:
        """Feed the watchdog, unless the link is dead: then the reason is told, and we end."""
        now_ms = self._clock.now_ms()
        try:
            self._link.check()
        except LinkError as error:
            self._node.link_trouble, self._told_at = str(error), None
            self._tell(online=False)
            raise
        if self._fault_at is not None and now_ms >= self._fault_at + FAULT_TOLD_MS:
            self._fault_at, self._node.link_trouble = None, ""
        self._systemd.alive(now_ms)

    def _tell(self, *, online: bool = True) -> None:
        if self._status_file is None:
            return
        now_ms = self._clock.now_ms()
        if self._told_at is not None and now_ms < self._told_at + STATUS_MS:
            return
        self._told_at = now_ms
        try:
            write_status(self._status_file, self.health(now_ms, online=online))
        except OSError as error:
            self.counts["status_file_refused"] += 1
            if log.worth_a_line(self.counts["status_file_refused"]):
                log.warning("status file cannot be written", why=error)

    def health(self, now_ms: int, *, online: bool = True) -> dict[str, object]:
        """Everything that `opid-node status` shows."""
        store, link = self._journal.store, self._link.counters
        return {
            **self._node.status(now_ms, online=online).plain(),
            "pid": os.getpid(),
            "connected": self._link.connected,
            "link": self._node.link_trouble or "ok",
            "disk": self._trouble or "ok",
            "committed": store.committed,
            "pending": store.pending + self._journal.waiting,
            "received": link.received,
            "published": link.published,
            "reconnects": link.reconnects,
            "faults": link.faults,
            "unconfirmed": link.unconfirmed,
            "refused": dict(link.refused),
            "dropped": dict(link.dropped),
            "service": dict(self.counts),
        }


def _short(error: StoreError) -> str:
    """The trouble in a few words, as a status message may carry it."""
    return error.reason if error.errno is None else f"{error.reason}: {os.strerror(error.errno)}"
