"""The gateway on a simulated machine: the real loop, its database, and a fuse.

The database outlives the process, as a file would. The fuse kills the process
at any of the points where it matters: before and after a transaction, before a message leaves,
before a delivery is acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, cast

from nacl.signing import SigningKey

from edge_opid.link.contract import Delivery
from edge_opid.service.systemd import Systemd
from edge_opid.wire import Channel, Topic
from firmware_sim.chaos.witness import Witness
from firmware_sim.simulated.clock import VirtualClock
from firmware_sim.simulated.link import SimLink
from firmware_sim.simulated.network import Network
from firmware_sim.simulated.node_device import PATIENCE_MS, SUPERVISOR_MS, Device
from gateway.clock import GatewayClock
from gateway.decisions.gateway import Gateway
from gateway.fitting.job import FitJob
from gateway.fitting.worker import Outcome, attempt
from gateway.loop import GatewayLoop
from gateway.policy import Group, Policy
from gateway.recall import recalled
from gateway.registry import FitRecord, Record
from gateway.store import FleetStore

CLIENT = "gateway"
FIT_MS = 700  # a fit takes its time, in which the gateway may die


class Killed(Exception):  # noqa: N818 - nobody's error
    """The process is gone."""


class Fuse:
    """Counts what the process does to the world; at a chosen point it does nothing any more."""

    def __init__(self) -> None:
        self.left: int | None = None

    def step(self) -> None:
        """One more deed."""
        if self.left is not None:
            self.left -= 1
            if self.left <= 0:
                raise Killed


class FusedStore:
    """What `save` becomes when a kill may take the transaction, or what should follow it."""

    def __init__(self, store: FleetStore, fuse: Fuse) -> None:
        self._store, self._fuse = store, fuse

    def save(self, records: Iterable[Record], outcomes: Mapping[int, str] | None = None) -> None:
        """As `FleetStore` does."""
        self._fuse.step()
        self._store.save(records, outcomes)
        self._fuse.step()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class GatewayLink(SimLink):
    """A link that shows the witness every order, and may be the process's last deed."""

    fuse: Fuse
    witness: Witness

    def publish(self, topic: str, payload: bytes, qos: int = 1, retain: bool = False) -> bool:
        """As `SimLink` does."""
        self.fuse.step()
        parsed = Topic.parse(topic)
        if parsed.channel is Channel.DESIRED:
            self.witness.ordered(parsed.node, payload)
        return super().publish(topic, payload, qos, retain)

    def acknowledge(self, delivery: Delivery) -> None:
        """As `SimLink` does."""
        self.fuse.step()
        super().acknowledge(delivery)


class Fitting(Protocol):
    """A way to fit: `gateway.fitting.worker.attempt`, or a cheaper one."""

    def __call__(self, job: FitJob, now_ms: int) -> Outcome:
        """The outcome of a job."""


def cheap_attempt(job: FitJob, now_ms: int) -> Outcome:
    """What the group knew, by the real fit, as if the batch added nothing: milliseconds."""
    outcome = attempt(replace(job, size=0, previous=None), now_ms)
    return (
        replace(outcome, size=job.size, pushed=True) if isinstance(outcome, FitRecord) else outcome
    )


class SimFitter:
    """Fits at once, and tells of it when that much simulated time has passed."""

    def __init__(self, clock: VirtualClock, fit: Fitting) -> None:
        self._clock, self._fit = clock, fit
        self._line: list[tuple[int, Outcome]] = []

    def submit(self, job: FitJob, now_ms: int) -> None:
        """Fit now."""
        self._line.append((self._clock.now_ms + FIT_MS, self._fit(job, now_ms)))

    def take_finished(self) -> list[Outcome]:
        """The outcomes whose time has come."""
        ready = [outcome for when_ms, outcome in self._line if when_ms <= self._clock.now_ms]
        self._line = [each for each in self._line if each[0] > self._clock.now_ms]
        return ready

    def stop(self) -> None:
        """What is not finished is forgotten."""
        self._line.clear()


class GatewayDevice(Device):
    """The gateway of one fleet. A crash comes out of its fuse."""

    deaths = (Killed,)

    def __init__(
        self,
        network: Network,
        policy: Policy,
        group: Group,
        key: SigningKey,
        witness: Witness,
        seed: object,
        store: FleetStore,
        fit: Fitting = cheap_attempt,
    ) -> None:
        super().__init__(network, CLIENT, seed, tick_ms=250)
        self.policy, self.group, self.witness = policy, group, witness
        self._key, self._fit = key, fit
        self.fuse = Fuse()
        self.store = store
        self._back_ms = 0

    def open(self) -> None:
        """As `gateway.wiring` does."""
        self.store.claim()
        self.store.forget_closed()
        self.gateway = Gateway(self.policy, [self.group], self._key, *recalled(self.store))
        self.link = GatewayLink(self.network, CLIENT, life=self.life, outbox_messages_max=65_536)
        self.link.fuse, self.link.witness = self.fuse, self.witness
        self.runner = GatewayLoop(
            self.gateway,
            self.link,
            cast(FleetStore, FusedStore(self.store, self.fuse)),
            GatewayClock(self.wall.wall, self.wall.monotonic),
            SimFitter(self.clock, self._fit),
            Systemd({}),
            poll_s=0.0,
        )
        self.runner.start()

    def go_round(self) -> None:
        """One turn of the runner."""
        self.runner.round()

    def crash(self, after_steps: int, back_ms: int) -> None:
        """Die at the so-manieth deed from now, or soon; come back later."""
        self._back_ms = back_ms
        if self.alive:
            self.fuse.left = after_steps or None
            wait_ms = PATIENCE_MS if after_steps else 0
            self.clock.after(wait_ms, partial(self._die_at_last, self.life))

    def _die_at_last(self, life: int) -> None:
        if self.alive and life == self.life:
            self.died()

    def link_fault(self, *, deadly: bool) -> None:
        """An error in the network's thread, which costs a connection, or the thread."""
        if self.alive:
            self.link.die() if deadly else self.link.fault()

    def ended(self) -> None:
        """As if it had been killed."""
        self._back_ms = SUPERVISOR_MS
        self.died()

    def died(self) -> None:
        """Its kernel hangs up, and somebody starts it again."""
        self.alive, self.fuse.left = False, None
        self.link.abort()
        self.boot_later(self._back_ms)

    def close(self) -> None:
        """Let go of the database."""
        self.store.close()
