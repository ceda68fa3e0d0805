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
from collections.abc import Mapping, Sequence
from pathlib import Path

from edge_opid import log
from edge_opid.link.contract import Connected, Delivery, Disconnected, Link, LinkError
from edge_opid.node.actions import Action, Append, Commit, Publish, Release
from edge_opid.node.node import Node
from edge_opid.reasons import NodeReason, ServiceReason
from edge_opid.service.base_loop import BaseLoop, write_lines
from edge_opid.service.clock import SteadyClock
from edge_opid.service.journal_writer import JournalWriter
from edge_opid.service.status_file import write_status
from edge_opid.service.systemd import Systemd
from edge_opid.service.watching import Watchers, socket_path, told_of
from edge_opid.store import Store, StoreError
from edge_opid.wire import Channel, NodeTopics, encode_as

RETRY_MS = 1_000  # between two attempts at a disk that refuses
TICK_S = 0.5  # the longest wait for a message, and for what is due
WELCOME_MS = 500  # between two looks for somebody who wants to watch
STATUS_MS = 3_000  # between two status files
FAULT_SHOWN_MS = 3_600_000  # how long `degraded` shows a fault of the link that is over


class NodeLoop(BaseLoop[SteadyClock]):
    """One node, its link and its store, until somebody calls `stop`."""

    deliveries_per_round = 64  # some 10 ms: the node wants its tick twice a second
    wait_for_more_s = None  # the next round does, and sends what was predicted with the same call

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
        broker: str = "the broker",
        saved_at: int = 0,
        prediction_qos: int = 1,
        poll_s: float = TICK_S,
    ) -> None:
        super().__init__(link, clock, systemd, poll_s)
        self._node, self._store = node, store
        topics = NodeTopics(node.config.site, node.config.node)
        self._label_topic = str(topics.to(Channel.LABEL))
        self._prediction_topic = str(topics.to(Channel.PREDICTION))
        self._prediction_qos = prediction_qos
        self._journal = JournalWriter(store, saved_at)
        self._status_topic, self._status_file, self._broker = status_topic, status_file, broker
        self._trouble: str | None = None  # what the disk said, while it refuses
        self._retry_at: int | None = None  # a commit is owed
        self._fault_at: int | None = None  # when the link had its last fault
        self._looked_at = -1  # the index of the last commit after which a snapshot was considered
        self._status_at: int | None = None  # when the status file was written
        self._watchers: Watchers | None = None
        self._welcomed_ms = self._ticked_ms = 0

    def round(self) -> None:
        """One turn: what came in; and often enough what is due, and the word that all is well."""
        if self._journal.waiting:
            self._hear_events()
            self._link.serve(self._poll_s)
        else:
            self._take_in(self._poll_s)
        now_ms = self._clock.now_ms()
        if now_ms >= self._ticked_ms + 1000 * self._poll_s:
            self._ticked_ms = now_ms
            self._tick()
            if self._retry_at is not None and now_ms >= self._retry_at:
                self._perform([Commit()])
            self._write_status()
            self._say_alive()

    def _subscriptions(self) -> Mapping[str, int]:
        return self._node.subscriptions()

    def _begin(self) -> dict[str, object]:
        """Take the configuration over, and make sure that what was read back is durable."""
        self._perform(self._node.start(self._clock.now_ms()))
        if not self._journal.settled:
            self._perform([Commit()])
        self._let_watch()
        return {"committed": self._journal.store.committed}

    def _finish(self) -> dict[str, object]:
        self._hear_events()
        self._perform(self._node.tick(self._clock.now_ms()))
        self._retry_at = None
        self._perform([Commit()])
        self._snapshot(ending=True)
        status = self._node.status(self._clock.now_ms(), online=False)
        payload = encode_as(self._node.config.format, status)
        self._publish(self._status_topic, payload, retain=True)
        self._status_at = None
        self._write_status(online=False)
        if self._watchers is not None:
            self._watchers.close()
        return {"not_committed": self._journal.store.pending + self._journal.waiting}

    # --- what comes in ----------------------------------------------------------------------------

    def _handle(self, delivery: Delivery) -> bool:
        now_ms = self._clock.now_ms()
        topic, payload, retained = delivery.topic, delivery.payload, delivery.retain
        watchers = self._watchers or None
        learned = 0 if watchers is None else self._node.tally.counts[NodeReason.LEARNED]
        actions = self._node.handle(topic, payload, now_ms, delivery, retained)
        if watchers is not None:
            self._show(watchers, topic, payload, actions, learned)
        self._perform(actions)
        return not self._journal.waiting

    def _tick(self) -> None:
        """What is due; and whoever wants to watch may come in."""
        now_ms = self._clock.now_ms()
        if self._watchers is not None and now_ms >= self._welcomed_ms + WELCOME_MS:
            self._welcomed_ms = now_ms
            self._watchers.welcome()
            for payload in self._watchers.take_labels() if self._watchers else ():
                self._take_label(self._watchers, payload)
        learned = self._node.tally.counts[NodeReason.LEARNED] if self._watchers else 0
        actions = self._node.tick(now_ms)
        if self._watchers:
            self._show(self._watchers, "", b"", actions, learned)
        if actions:
            self._perform(actions)

    # --- who watches ------------------------------------------------------------------------------

    def _let_watch(self) -> None:
        """Offer the socket of `opid-node watch`; a node runs as well without."""
        if self._status_file is None:
            return
        try:
            self._watchers = Watchers(socket_path(self._status_file))
        except OSError as error:
            self._note(ServiceReason.WATCH_REFUSED, why=error)

    def _take_label(self, watchers: Watchers, payload: bytes) -> None:
        """A label of somebody who watches: as if it had come from the broker."""
        learned = self._node.tally.counts[NodeReason.LEARNED]
        actions = self._node.handle(self._label_topic, payload, self._clock.now_ms(), None)
        self._show(watchers, self._label_topic, payload, actions, learned)
        self._perform(actions)

    def _show(
        self,
        watchers: Watchers,
        topic: str,
        payload: bytes,
        actions: Sequence[Action],
        learned_before: int,
    ) -> None:
        """Tell those who watch; nobody is waited for."""
        tally = self._node.tally
        learned = tally.counts[NodeReason.LEARNED] - learned_before
        line = told_of(topic, payload, actions, tally, learned, self._clock.now_ms())
        if (topic or line["became"] or line["learned"] or line["noted"]) and watchers.tell(line):
            self._note(ServiceReason.WATCH_BEHIND)

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
        if self._store.committed != self._looked_at:
            self._snapshot()

    def _do(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Append):
                self._journal.append(action.record)
                if self._journal.waiting and self._retry_at is None:
                    self._retry_at = self._clock.now_ms()
            elif isinstance(action, Publish):
                topic, payload, retain = action
                qos = self._prediction_qos if topic == self._prediction_topic else 1
                self._publish(topic, payload, retain=retain, qos=qos)
            elif isinstance(action, Release):
                if isinstance(action.token, Delivery):
                    self._link.acknowledge(action.token)
            elif isinstance(action, Commit):
                self._do(self._commit())
            else:
                write_lines([action])

    def _commit(self) -> list[Action]:
        """Try; a disk that has just refused is left alone for a while."""
        now_ms = self._clock.now_ms()
        if self._trouble is not None and self._retry_at is not None and now_ms < self._retry_at:
            return []
        self._link.serve()  # what is predicted does not wait for the disk
        try:
            self._journal.commit()
        except StoreError as error:
            return self._commit_failed(error, now_ms)
        if self._trouble is not None:
            log.info("disk recovered")
        self._trouble = self._retry_at = None
        return self._node.on_committed(now_ms)

    def _commit_failed(self, error: StoreError, now_ms: int) -> list[Action]:
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
            self._note(ServiceReason.SNAPSHOT_REFUSED, about=error.reason, why=error)

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
            self._note(ServiceReason.STATUS_FILE_REFUSED, why=error)

    def health(self, now_ms: int, *, online: bool = True) -> dict[str, object]:
        """Everything that `opid-node status` shows."""
        store, link = self._journal.store, self._link.counters
        status = self._node.status(now_ms, online=online and self._link.connected).plain()
        return {
            **status,
            **({"warm-up": self._node.warming_up} if self._node.warming_up else {}),
            "running": online,
            "pid": os.getpid(),
            "broker": self._broker,
            **self.connection(),
            "counts": {**status["counts"], **self._counted()},
            "noted": {**self._node.tally.shown(), **self.tally.shown(), **self._dropped()},
            "link": self._node.link_trouble or "ok",
            "disk": self._trouble or "ok",
            "committed": store.committed,
            "pending": store.pending + self._journal.waiting,
            "received": link.received,
            "published": link.published,
            "reconnects": link.reconnects,
            "faults": link.faults,
            "unconfirmed": link.unconfirmed,
        }

    def _counted(self) -> dict[str, int]:
        """What the loop and the link have counted, under the names of the tables."""
        found = [*self.counts.items(), *self._link.counters.dropped.items()]
        return {reason.value: count for reason, count in found if count}

    def _dropped(self) -> dict[str, dict[str, object]]:
        """What the link dropped by itself, and counts by itself."""
        return {
            reason.value: {"count": count, "why": reason.what, "do": reason.do}
            for reason, count in self._link.counters.dropped.items()
            if reason.level
        }


def _short(error: StoreError) -> str:
    """The trouble in a few words, as a status message may carry it."""
    return error.reason if error.errno is None else f"{error.reason}: {os.strerror(error.errno)}"
