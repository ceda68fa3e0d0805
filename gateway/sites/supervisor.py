"""The sites that this process holds: beat, see who is alive, take what is ours, give back.

A round, every quarter of the lease:

1. Beat. What the tables say then decides everything else; a database that does not answer decides
   nothing, and when the lease runs out every site ends by itself.
2. Sites whose thread has ended are given back, or opened again where they failed.
3. Sites that should be another's are stopped in order, and given back once they have ended.
4. Free sites that should be ours are taken and opened.

The deciding parts are `share`, `census` and `lease`.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from edge_opid import log
from edge_opid.errors import sentence_of
from edge_opid.reasons import Reason, ServiceReason
from edge_opid.service.base_loop import write_lines
from edge_opid.service.status_file import write_status
from edge_opid.service.systemd import Systemd
from edge_opid.tally import Tally
from gateway.reasons import GatewayReason
from gateway.sites.census import Census, Member
from gateway.sites.lease import Lease
from gateway.sites.share import moves
from gateway.sites.site_loop import Opener, SiteThread
from gateway.store import DatabaseError, LeaderError
from gateway.store.sites import MemberSession, SiteRow

BEATS = 4  # in a lease: three may be lost
STOP_S = 20.0  # for all sites to save and say goodbye
AGAIN_S, AGAIN_MAX_S = 1.0, 60.0  # before a site that failed is opened again; doubles each time
STATUS_S = 3.0


class Supervisor:
    """All sites of one process, until somebody calls `stop`."""

    def __init__(
        self,
        session: MemberSession,
        lease: Lease,
        opener: Opener,
        systemd: Systemd,
        status_file: Path | None = None,
        now_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        self._session, self._lease, self._open = session, lease, opener
        self._systemd, self._status_file, self._now_ms = systemd, status_file, now_ms
        self._census = Census()
        self._sites: dict[str, SiteThread] = {}
        self._again: dict[str, tuple[float, float]] = {}  # sites that failed: when, after how long
        self._tally = Tally()
        self._stop = threading.Event()
        self._status_s = 0.0

    def stop(self) -> None:
        """End after this round. A signal handler may call it: it only sets a flag."""
        self._stop.set()

    def run(self) -> int:
        """Share the sites until told to stop, then give all of them back; the exit code."""
        self._beat()  # what is wrong with the database at the start ends us
        self._systemd.tell_ready()
        while not self._stop.wait(self._lease.lease_s / BEATS):
            try:
                self._beat()
            except DatabaseError as error:
                self._note(GatewayReason.HEARTBEAT_LOST, error)
            self._write_status(running=True)
            if not any(site.is_stuck() for site in self._sites.values()):
                self._systemd.tell_alive(int(1000 * self._lease.now_s()))
        self._leave()
        return 0

    # -- a round -------------------------------------------------------------------------------

    def _beat(self) -> None:
        asked_s = self._lease.now_s()
        rows, sites = self._session.beat()
        term = self._lease.renew(asked_s)
        living = self._census.look(rows, asked_s, self._lease.now_s())
        dead = {row.name for row in rows} - living.keys()
        if dead:
            self._session.bury(dead)
        self._tidy_up({row.site: row for row in sites})
        self._share(living, sites, term)

    def _tidy_up(self, rows: Mapping[str, SiteRow]) -> None:
        """What has ended is given back; what failed is ours still, and opened again later."""
        for site, thread in list(self._sites.items()):
            if not thread.is_over:
                continue
            del self._sites[site]
            row = rows.get(site)
            if row is None or row.member != self._session.name or row.epoch != thread.tenure.epoch:
                continue  # another's already
            if thread.is_stopping:
                self._session.give(thread.tenure)
            elif not thread.lost:
                self._postpone(site)

    def _postpone(self, site: str) -> None:
        _, waited_s = self._again.get(site, (0.0, AGAIN_S / 2))
        wait_s = min(2 * waited_s, AGAIN_MAX_S)
        self._again[site] = self._lease.now_s() + wait_s, wait_s

    def _share(self, living: Mapping[str, Member], sites: list[SiteRow], term: int) -> None:
        me = self._session.name
        able = {name: member.sites for name, member in living.items()}
        holders = {row.site: row.member for row in sites}
        wanted = moves(me, able, holders)
        for site in wanted.give:
            if site in self._sites:
                self._sites[site].stop()
        for row in sites:
            ours = row.member == me and row.site not in wanted.give
            if (row.site in wanted.take or ours) and row.site not in self._sites:
                self._take(row, term)

    def _take(self, row: SiteRow, term: int) -> None:
        due_s, _ = self._again.get(row.site, (0.0, 0.0))
        if self._lease.now_s() < due_s:
            return
        try:
            tenure = self._session.take(row)
        except DatabaseError as error:  # its last holder has not let go of it: the next beat may
            self._note(GatewayReason.SITE_HELD, error)
            return
        if tenure is not None:
            self._sites[row.site] = SiteThread(tenure, term, self._lease, self._open)

    # -- the end -------------------------------------------------------------------------------

    def _leave(self) -> None:
        """Stop every site, beat on meanwhile, and give all back."""
        self._systemd.tell_stopping()
        for site in self._sites.values():
            site.stop()
        until_s = self._lease.now_s() + STOP_S
        while self._lease.now_s() < until_s and not all(s.is_over for s in self._sites.values()):
            for site in self._sites.values():
                site.join(self._lease.lease_s / BEATS / max(1, len(self._sites)))
            self._beat_alone()
        try:
            if all(site.is_over for site in self._sites.values()):
                self._session.leave()
        except (DatabaseError, LeaderError) as error:
            log.warning("sites not given back: others wait for the lease", why=sentence_of(error))
        self._write_status(running=False)

    def _beat_alone(self) -> None:
        """Keep the lease while the last things are saved."""
        sent_s = self._lease.now_s()
        try:
            self._session.beat()
            self._lease.renew(sent_s)
        except (DatabaseError, LeaderError) as error:
            self._note(GatewayReason.HEARTBEAT_LOST, error)

    # -- how it goes ---------------------------------------------------------------------------

    def _note(self, reason: Reason, error: Exception) -> None:
        self._tally.begin("", b"", self._now_ms())
        self._tally.note(reason, why=sentence_of(error))
        write_lines(self._tally.take_lines())

    def _write_status(self, *, running: bool) -> None:
        now_s = self._lease.now_s()
        if self._status_file is None or (running and now_s < self._status_s + STATUS_S):
            return
        self._status_s = now_s
        try:
            write_status(self._status_file, self.health(running=running))
        except Exception as error:  # noqa: BLE001 - a file for whoever looks must not end the sites
            self._note(ServiceReason.STATUS_FILE_REFUSED, error)

    def health(self, *, running: bool = True) -> dict[str, object]:
        """How this process is: each of its sites, and whether all are connected."""
        found = {site: thread.health() for site, thread in sorted(self._sites.items())}
        sites = {site: health for site, health in found.items() if health is not None}
        apart = {site: each for site, each in sites.items() if not each["connected"]}
        since_ms = [each["not_connected_since_ms"] for each in apart.values()]
        counts: Counter[str] = Counter()
        for each in sites.values():
            counts.update(each["counts"])
        return {
            "running": running,
            "pid": os.getpid(),
            "member": self._session.name,
            "time_ms": self._now_ms(),
            "connected": not apart,
            "not_connected_since_ms": min(filter(None, since_ms), default=None),
            "not_connected": "; ".join(
                f"{k}: {each['not_connected']}" for k, each in apart.items()
            ),
            "not_heard": [line for each in sites.values() for line in each["not_heard"]],
            "counts": dict(sorted(counts.items())),
            "noted": all_noted([self._tally.shown(), *(each["noted"] for each in sites.values())]),
            "sites": sorted(sites),
        }


def all_noted(many: Iterable[Mapping[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """What several have noted: of each reason the latest, and how often in all.

    >>> all_noted([{"late": {"count": 2, "at_ms": 5}}, {"late": {"count": 1, "at_ms": 9}}])
    {'late': {'count': 3, 'at_ms': 9}}
    """
    found: dict[str, dict[str, Any]] = {}
    for noted in many:
        for name, each in noted.items():
            before = found.get(name, {"count": 0, "at_ms": -1})
            latest = max(before, each, key=lambda one: int(one["at_ms"]))
            found[name] = {**latest, "count": before["count"] + each["count"]}
    return found
