"""The loop that runs a node: messages from the link to the node, its actions to disk and link.

The rules, in the order of the code:

1. A record the store refuses waits in the `JournalWriter`, in order; while one waits, nothing more
   is taken from the link. The broker keeps it, unacknowledged, until the disk recovers.
2. `on_committed` is called only when every record appended so far is durable.
3. A snapshot is taken when everything is durable and one is due. If the disk refuses it, the state
   is kept in memory: a journal that is full can then still be emptied.
4. Nothing is lost silently: what is refused is counted and logged.
5. A link that ended by a fault of its own is shown in `degraded` for an hour. One that will never
   work again ends the process, with the watchdog unfed and the reason in the status file.
6. When asked to stop: a last tick, a commit, a snapshot, an offline status, a goodbye.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from edge_opid import log
from edge_opid.link.contract import Connected, Delivery, Disconnected, Link, LinkError
from edge_opid.node.actions import Action, Append, Commit, Publish, Release, Warn
from edge_opid.node.node import Node
from edge_opid.service.base_loop import POLL_S, BaseLoop
from edge_opid.service.clock import SteadyClock
from edge_opid.service.journal_writer import JournalWriter
from edge_opid.service.status_file import write_status
from edge_opid.service.systemd import Systemd
from edge_opid.store import Store, StoreError
from edge_opid.wire import encode

RETRY_MS = 1_000  # between two attempts at a disk that refuses
STATUS_MS = 3_000  # between two status files
FAULT_SHOWN_MS = 3_600_000  # how long `degraded` shows a fault of the link that is over


class NodeLoop(BaseLoop[SteadyClock]):
    """One node, its link and its store, until somebody calls `stop`."""

    deliveries_per_round = 64  # some 15 ms: the node wants its tick four times a second

    def __init__(
        self,
        node: Node,
        link: Link,
        store: Store,
        clock: SteadyClock,
        systemd: Systemd,
        *,
        status_topic: str,
        status_file: Path | None = None,
        saved_at: int = 0,
        poll_s: float = POLL_S,
    ) -> None:
        super().__init__(link, clock, systemd, poll_s)
        self._node = node
        self._journal = JournalWriter(store, saved_at)
        self._status_topic, self._status_file = status_topic, status_file
        self._trouble: str | None = None  # what the disk said, while it refuses
        self._retry_at: int | None = None  # a commit is owed
        self._fault_at: int | None = None  # when the link had its last fault
        self._looked_at = -1  # the index of the last commit after which a snapshot was considered
        self._status_at: int | None = None  # when the status file was written

    def round(self) -> None:
        """One turn: what came in, what is due, what is owed, and the word that all is well."""
        self._hear_events()
        if self._journal.waiting:
            time.sleep(self._poll_s)
        else:
            self._take_in(self._poll_s)
        if actions := self._node.tick(self._clock.now_ms()):
            self._perform(actions)
        if self._retry_at is not None and self._clock.now_ms() >= self._retry_at:
            self._perform([Commit()])
        self._write_status()
        self._say_alive()

    def _subscriptions(self) -> Mapping[str, int]:
        return self._node.subscriptions()

    def _begin(self) -> dict[str, object]:
        """Make sure that what was read back is durable."""
        if not self._journal.settled:
            self._perform([Commit()])
        return {"committed": self._journal.store.committed}

    def _finish(self) -> dict[str, object]:
        self._hear_events()
        self._perform(self._node.tick(self._clock.now_ms()))
        self._retry_at = None
        self._perform([Commit()])
        self._snapshot(ending=True)
        status = self._node.status(self._clock.now_ms(), online=False)
        self._publish(self._status_topic, encode(status), retain=True)
        self._status_at = None
        self._write_status(online=False)
        return {"not_committed": self._journal.store.pending + self._journal.waiting}

    # --- what comes in ----------------------------------------------------------------------------

    def _handle(self, delivery: Delivery) -> bool:
        now_ms = self._clock.now_ms()
        topic, payload, retained = delivery.topic, delivery.payload, delivery.retain
        self._perform(self._node.handle(topic, payload, now_ms, delivery, retained))
        return not self._journal.waiting

    def _on_connected(self, event: Connected) -> None:  # noqa: ARG002
        self._perform(self._node.on_connected(self._clock.now_ms()))

    def _on_disconnected(self, event: Disconnected) -> None:
        self._node.on_disconnected()
        if event.fault:
            self._fault_at, self._node.link_trouble = self._clock.now_ms(), event.reason

    # --- what is to be done -----------------------------------------------------------------------

    def _perform(self, actions: Sequence[Action]) -> None:
        """Do all of it; only then is the node's state that of the records in the store."""
        self._do(actions)
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
                case Publish(topic, payload, retain):
                    self._publish(topic, payload, retain=retain)
                case Warn(event, times, fields):
                    if log.worth_a_line(times):
                        log.warning(event, **fields, count=times)
                case Release(token):
                    if isinstance(token, Delivery):
                        self._link.acknowledge(token)

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
        return self._node.on_committed(now_ms)

    def _commit_failed(self, error: StoreError, now_ms: int) -> list[Action]:
        self.counts["commit_refused"] += 1
        if self._trouble is None or log.worth_a_line(self.counts["commit_refused"]):
            log.error("commit refused", reason=error.reason, why=error)
        self._trouble, self._retry_at = str(error), now_ms + RETRY_MS
        durable = self._journal.store.settled
        return self._node.on_commit_failed(_short(error), now_ms, durable=durable)

    def _snapshot(self, *, ending: bool = False) -> None:
        """Once after each commit, when the node's state is what was committed."""
        store = self._journal.store
        if store.snapshot_due and store.pending and self._trouble is None:
            self._do(self._commit())  # something was appended after the commit before
        self._looked_at = store.committed
        try:
            self._journal.snapshot_if_due(self._node.snapshot, ending=ending)
        except StoreError as error:
            event = "snapshot refused"
            self._note("snapshot_refused", event, write=log.error, reason=error.reason, why=error)

    # --- how we are -------------------------------------------------------------------------------

    def _say_alive(self) -> None:
        """Feed the watchdog, unless the link is dead: then the reason is written, and we end."""
        try:
            super()._say_alive()
        except LinkError as error:
            self._node.link_trouble, self._status_at = str(error), None
            self._write_status(online=False)
            raise
        now_ms = self._clock.now_ms()
        if self._fault_at is not None and now_ms >= self._fault_at + FAULT_SHOWN_MS:
            self._fault_at, self._node.link_trouble = None, ""

    def _write_status(self, *, online: bool = True) -> None:
        if self._status_file is None:
            return
        now_ms = self._clock.now_ms()
        if self._status_at is not None and now_ms < self._status_at + STATUS_MS:
            return
        self._status_at = now_ms
        try:
            write_status(self._status_file, self.health(now_ms, online=online))
        except OSError as error:
            self._note("status_file_refused", "status file cannot be written", why=error)

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
