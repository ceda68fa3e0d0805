"""One site, served by this process while its lease holds: a gateway of its own, in a thread.

It is the loop that serves a whole database elsewhere (`gateway.loop`), with one more rule: before
it takes in, publishes or waits, it asks whether the lease still holds. If not, it ends on the spot
and its link with it, without a goodbye; whoever serves the site next reads all of it anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from edge_opid import log
from edge_opid.errors import sentence_of
from edge_opid.link.contract import Connected
from gateway.loop import GatewayLoop
from gateway.sites.lease import Lease, steady_s
from gateway.store import LeaderError
from gateway.store.sites import Tenure

STUCK_S = 60.0  # a site whose loop has not gone round for so long hangs


class SiteLoop(GatewayLoop):
    """The loop of a site; `guard` raises once it must do nothing more."""

    def __init__(self, *parts: Any, tenure: Tenure, guard: Callable[[], None]) -> None:
        super().__init__(*parts)
        self._guard = guard
        self._where = {"site": tenure.site, "epoch": tenure.epoch}
        self.rounds = 0

    def round(self) -> None:
        """One turn, if we still may."""
        self._guard()
        super().round()
        self.rounds += 1

    def _publish(self, topic: str, payload: bytes, *, retain: bool, qos: int = 1) -> bool:
        self._guard()
        taken = super()._publish(topic, payload, retain=retain, qos=qos)
        log.debug("acted", **self._where, steady_s=f"{steady_s():.6f}", topic=topic)
        return taken

    def _on_connected(self, event: Connected) -> None:
        log.info("site connected", **self._where, steady_s=f"{steady_s():.6f}")
        super()._on_connected(event)

    def _say_alive(self) -> None:
        """The process as a whole feeds the watchdog; this is where waiting for a database ends."""
        self._guard()
        self._link.check()


Opener = Callable[[Tenure, Callable[[], None], Callable[[], bool]], Any]
"""From a tenure, a guard and the link's permission to a context with a loop."""


class SiteThread:
    """A site that this process holds: opened, run and closed in a thread of its own."""

    def __init__(self, tenure: Tenure, term: int, lease: Lease, opener: Opener) -> None:
        self.tenure, self.term = tenure, term
        self._lease, self._open = lease, opener
        self._loop: SiteLoop | None = None
        self._stopping = False
        self.lost = False
        """Whether it ended because another may serve the site; else it was told to, or failed."""
        self._lock = threading.Lock()
        self._seen = -1, lease.now_s()
        name = f"site-{tenure.site}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether nothing is done for the site any more."""
        return not self._thread.is_alive()

    @property
    def is_stopping(self) -> bool:
        """Whether somebody has asked it to end."""
        return self._stopping

    def stop(self) -> None:
        """Save, say goodbye, end; as a gateway that is told to stop."""
        with self._lock:
            self._stopping = True
            if self._loop is not None:
                self._loop.stop()

    def join(self, timeout_s: float) -> None:
        """Wait for its end."""
        self._thread.join(timeout_s)

    def is_stuck(self) -> bool:
        """Whether its loop has not gone round for a long time."""
        rounds, now_s = self._loop.rounds if self._loop else -1, self._lease.now_s()
        if rounds != self._seen[0]:
            self._seen = rounds, now_s
        return not self.is_over and now_s - self._seen[1] > STUCK_S

    def health(self) -> dict[str, Any] | None:
        """How its loop is; None while there is none."""
        loop = self._loop
        return None if loop is None or self.is_over else loop.health()

    # -- its thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        where = {"site": self.tenure.site, "epoch": self.tenure.epoch}
        log.info("serving", **where)
        try:
            with self._open(self.tenure, self._guard, self._may_act) as loop, self._shown(loop):
                loop.run()
        except LeaderError as error:
            self.lost = True
            log.warning("site lost", **where, why=sentence_of(error))
        except Exception as error:  # noqa: BLE001 - the other sites go on; this one is tried again
            log.error("site failed", **where, why=sentence_of(error), trace=True)
        log.info("serving no more", **where)

    @contextmanager
    def _shown(self, loop: SiteLoop) -> Iterator[None]:
        with self._lock:
            self._loop = loop
            if self._stopping:
                loop.stop()
        yield

    def _may_act(self) -> bool:
        return self._lease.is_valid(self.term)

    def _guard(self) -> None:
        self._lease.check(self.term, self.tenure.site)
