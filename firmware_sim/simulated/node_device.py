"""Processes on simulated machines, and the node among them: the real service, round by round.

A device is woken when something arrives, and by its tick. A crash drops its Python objects; what
survives is what its disk says. Starting again goes the way of `edge_opid.service.wiring`: open
the store, restore the node, connect.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from functools import partial

from nacl.signing import VerifyKey

from edge_opid.config.node import NodeConfig
from edge_opid.link.contract import LinkError, Will
from edge_opid.node.node import Node
from edge_opid.service.clock import SteadyClock
from edge_opid.service.loop import NodeLoop
from edge_opid.service.systemd import Systemd
from edge_opid.store import StoreLimits
from edge_opid.wire import Channel, NodeTopics, Status, encode
from firmware_sim.chaos.node_checks import Chronicle, WatchedStore
from firmware_sim.chaos.promises import BrokenPromise
from firmware_sim.simulated.clock import WallClock, dice
from firmware_sim.simulated.disk import PowerCut, TornDisk
from firmware_sim.simulated.link import SimLink
from firmware_sim.simulated.network import Network

SMALL_STORE = StoreLimits(  # so small that a minute fills segments and takes snapshots
    page_bytes=512,
    segment_bytes=8_192,
    segments_max=4,
    record_bytes_max=4_096,
    pending_bytes_max=7_168,
    snapshot_bytes_max=131_072,
)
SUPERVISOR_MS = 300  # until systemd starts a process again that has ended
PATIENCE_MS = 4_000  # a crash that waits for a certain operation does not wait for ever


class Ended(Exception):  # noqa: N818 - as it should be
    """The process ends by itself, and says why; a supervisor starts it again."""


class Device:
    """A process that starts, goes round, dies and starts again, on a machine with a clock.

    `deaths` are the exceptions by which the simulator ends it.
    """

    deaths: tuple[type[Exception], ...] = ()

    def __init__(self, network: Network, client: str, seed: object, tick_ms: int) -> None:
        self.network, self.clock, self.client, self.seed = network, network.clock, client, seed
        self.wall = WallClock(self.clock)
        self.life, self.alive = 0, False
        self._tick_ms = tick_ms
        self._due_ms = -1

    def boot(self) -> None:
        """Start the process."""
        if self.alive:
            return
        self.life, self.alive, self._due_ms = self.life + 1, True, -1
        self.guarded(self.open)
        self.wake()

    def wake(self) -> None:
        """There is something to do."""
        if self.alive:
            self._turn_at(self.clock.now_ms + 2)

    def boot_later(self, for_ms: int) -> None:
        """Somebody, or a supervisor, starts it again."""
        self.clock.after(for_ms, self.boot)

    def _turn_at(self, when_ms: int) -> None:
        if self._due_ms < 0 or when_ms < self._due_ms:
            self._due_ms = when_ms
            self.clock.at(when_ms, partial(self._turn, self.life, when_ms))

    def _turn(self, life: int, when_ms: int) -> None:
        if not self.alive or (life, when_ms) != (self.life, self._due_ms):
            return  # of a former life, or overtaken by an earlier turn
        self._due_ms = -1
        self.guarded(self.go_round)
        if self.alive:
            self._turn_at(self.clock.now_ms + self._tick_ms)

    def guarded(self, doing: Callable[[], None]) -> None:
        """Do it, unless the process dies over it; by itself it only ends where it says why."""
        try:
            doing()
        except (Ended, LinkError):
            self.ended()
        except self.deaths:
            self.died()
        except BrokenPromise:
            raise
        except Exception as error:
            what = f"{self.client}: {type(error).__name__}: {error}"
            raise BrokenPromise("process died", what) from error

    # --- what each kind of device does in its own way ---------------------------------------------

    def open(self) -> None:
        """Make the real parts from what is durable."""
        raise NotImplementedError

    def go_round(self) -> None:
        """One turn of the real loop."""
        raise NotImplementedError

    def died(self) -> None:
        """It is gone, in the middle of something."""
        raise NotImplementedError

    def ended(self) -> None:
        """It has ended by itself: a supervisor starts it again."""
        raise NotImplementedError


class NodeDevice(Device):
    """A node: the real service on a disk that tears. A crash comes out of its disk."""

    deaths = (PowerCut,)

    def __init__(
        self,
        network: Network,
        config: NodeConfig,
        keys: Sequence[VerifyKey],
        chronicle: Chronicle,
        seed: object,
        limits: StoreLimits = SMALL_STORE,
    ) -> None:
        super().__init__(network, config.node, seed, tick_ms=400)
        self.config, self._keys, self._limits = config, keys, limits
        self.chronicle = chronicle
        self.disk = TornDisk()
        self.cuts = self.kills = 0
        self._dark = False  # whether the operation that is waited for ends the power, too
        self._back_ms = 0
        self._how: object = 0
        self.link: SimLink | None = None

    def open(self) -> None:
        """As `edge_opid.service.wiring` does."""
        chance = dice(self.seed, self.client, "nonce", self.life)
        disk = TornDisk() if self.disk.away else self.disk
        store, found = WatchedStore.open(disk, self._limits, lambda: chance.randbytes(8))
        if disk is not self.disk and not found.end:
            raise Ended("the folder holds no state, and it must")
        records = list(found.records)
        self.chronicle.noted(found.notes)
        self.chronicle.recovered(found.index, found.end, records)
        self.node = Node(self.config, self._keys)
        self.node.restore(found.snapshot, records, durable=store.settled)
        self.chronicle.restored(self.node, durable=store.settled)
        store.chronicle = self.chronicle  # type: ignore[attr-defined]
        self.link = self._link()
        topic = str(NodeTopics(self.config.site, self.config.node).to(Channel.STATUS))
        self.service = NodeLoop(
            self.node,
            self.link,
            store,
            SteadyClock(self.wall.wall, self.wall.monotonic),
            Systemd({}),
            status_topic=topic,
            saved_at=found.index,
            poll_s=0.0,
        )
        self.service.start()

    def _link(self) -> SimLink:
        topic = str(NodeTopics(self.config.site, self.config.node).to(Channel.STATUS))
        now = self.node.status(0)
        will = Status.last_will(now.layout_version, now.model_version, now.version)
        return SimLink(
            self.network,
            self.client,
            will=Will(topic, encode(will)),
            life=self.life,
            on_arrival=self.wake,
        )

    def go_round(self) -> None:
        """One turn of the service."""
        self.service.round()

    # --- what can happen to it --------------------------------------------------------------------

    def crash(self, after_steps: int, back_ms: int, *, dark: bool, how: object = 0) -> None:
        """Die at the so-manieth operation of the disk from now, or soon; come back later.

        `how` decides what is left on the disk, so that it does not depend on crashes before.
        """
        if not self.alive:
            return
        self._dark, self._back_ms, self._how = dark, back_ms, how
        self.disk.cut_at = self.disk.step + after_steps if after_steps else None
        wait_ms = PATIENCE_MS if after_steps else 0
        self.clock.after(wait_ms, partial(self._die_at_last, self.life))

    def stop(self, back_ms: int) -> None:
        """Somebody stops the service in order, and starts it again."""
        if not self.alive:
            return
        self._dark, self._back_ms = False, back_ms
        self.guarded(self.service.drain)
        if self.alive:
            self.alive, self.link = False, None
            self.boot_later(back_ms)

    def link_fault(self, *, deadly: bool) -> None:
        """An error in the network's thread, which costs a connection, or the thread."""
        if self.link is not None:
            self.link.die() if deadly else self.link.fault()

    def refuse(self, *, writes: bool) -> None:
        """The disk is full, or is not any more."""
        changing = ("create", "write")
        self.disk.fail = lambda what, _name, _step: (
            errno.ENOSPC if writes and what in changing else None
        )

    def unmount(self, back_ms: int, *, deleted: bool) -> None:
        """The state folder is moved away underneath, or deleted; later it, or a copy, is back."""
        if not self.disk.away:
            copied = self.disk.copied() if deleted else None
            self.disk.away = True
            self.clock.after(back_ms, partial(self._mount, copied))

    def _mount(self, copied: TornDisk | None) -> None:
        """What was moved is there again. After a copy was put back, somebody restarts the node."""
        self.disk.away = False
        if copied is None:
            return
        if self.alive:
            self.ended()
        copied.fail, self.disk = self.disk.fail, copied

    def _die_at_last(self, life: int) -> None:
        if self.alive and life == self.life:
            self.died()

    def ended(self) -> None:
        """As if it had been killed."""
        self._dark, self._back_ms = False, SUPERVISOR_MS
        self.died()

    def died(self) -> None:
        """A process that is killed leaves the page cache to the next; a power cut takes it."""
        self.alive = False
        if self._dark:
            self.cuts += 1
            chance = dice(self.seed, self.client, "power", self._how)
            fail, self.disk = self.disk.fail, self.disk.crash(chance, spoil=chance.random() < 0.3)
            self.disk.fail = fail
        else:
            self.kills += 1
            self.disk.dead, self.disk.cut_at = False, None
        if self.link is not None:
            self.link.go_dark() if self._dark else self.link.abort()
            self.link = None
        self.boot_later(self._back_ms)
