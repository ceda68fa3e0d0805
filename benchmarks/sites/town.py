"""Several gateways on one PostgreSQL and one mosquitto, and their records of what they did."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from benchmarks.gateway.fleet import CLASSES, KEY
from benchmarks.sites.thin_sites import BATCH, ThinSites, meaning
from firmware_sim.live.mosquitto import ROOMY, Mosquitto
from firmware_sim.live.processes import Together, wait_until
from firmware_sim.live.services import GatewayProcess, all_obeyed
from firmware_sim.live.toml import toml_table
from gateway.sites.lease import steady_s
from gateway.store import FleetStore

WAIT_S = 240.0
ACTED = re.compile(r"event=acted site=(\S+) epoch=(\d+) steady_s=([0-9.]+)")
CONNECTED = re.compile(r'event="site connected" site=(\S+) epoch=(\d+) steady_s=([0-9.]+)')


@dataclass(frozen=True)
class Act:
    """Something that a gateway published for a site."""

    at_s: float
    epoch: int
    gateway: int


@dataclass
class Town(Together):
    """Gateways, sites and thin nodes: `with Town(folder, url, …) as town: town.play(…)`."""

    folder: Path
    url: str
    sites: Sequence[str]
    nodes: int
    gateways: int
    lease_s: float
    served_s: list[float] = field(default_factory=list)
    """From each kill or freeze until another gateway had connected for a site of the victim."""
    interrupted: int = 0
    """Sites of a victim whose change had not ended when it was killed or frozen."""
    states: list[dict[tuple[str, str], dict[str, object]]] = field(default_factory=list)
    """What every node was last told, after each round."""

    def _open(self) -> None:
        self.broker = self.stack.enter_context(Mosquitto(self.folder / "broker", extra=ROOMY))
        self.members = [self._gateway(number) for number in range(self.gateways)]
        for each in self.members:
            each.start()
            self.stack.callback(each.kill)
        self.store = self.stack.enter_context(FleetStore.open(self.url))
        self._until(self.is_shared, "all sites are shared")
        self._until(lambda: self._connected() >= set(self.sites), "all sites are connected")
        self.thin = ThinSites(self.broker.port, self.sites, self.nodes)
        self.stack.callback(self.thin.stop)
        self.thin.start()
        self._until(self._agreed, "every node is adopted")

    def _gateway(self, number: int) -> GatewayProcess:
        groups = "".join(
            toml_table(
                "[groups]",
                id=f"of-{site}",
                site=site,
                classes=CLASSES,
                nodes=[f"n{n}" for n in range(self.nodes)],
            )
            for site in self.sites
        )
        policy = (
            f"settle_s = 0.3\nsummary_wait_s = 600\nfirst_batch = {BATCH}\nbatch_max = {BATCH}\n"
            f"retry_s = 3\nretry_max_s = 6\nlease_s = {self.lease_s}\n"
        )
        log = '[log]\nlevel = "debug"\n'
        folder = self.folder / f"gateway-{number}"
        return GatewayProcess(folder, self.broker.port, KEY, policy, groups + log, self.url)

    # -- the story -----------------------------------------------------------------------------

    def round(self, changing: Sequence[str], meanwhile: Callable[[], None] = lambda: None) -> None:
        """These sites go through a change; then nothing is left to do, and all agree."""
        for site in changing:
            self.thin.change(site)
        meanwhile()
        self._until(lambda: self._fitted() and self._agreed(), "the changes have ended")
        self.states.append(
            {key: meaning(orders[-1][1]) for key, orders in sorted(self.thin.orders.items())}
        )

    def kill(self, victim: int, after_s: float) -> None:
        """`kill -9` of a gateway in the middle of it; it is back once its sites are served."""
        self._live(after_s)
        held, began_s = self.held_by(victim), steady_s()
        self.members[victim].kill()
        self._note_served(held, began_s)
        self.members[victim].start()

    def freeze(self, victim: int, after_s: float) -> None:
        """A gateway that stands still until its sites are another's, and then goes on."""
        self._live(after_s)
        held, began_s = self.held_by(victim), steady_s()
        os.kill(self.members[victim].pid, signal.SIGSTOP)
        try:
            self._note_served(held, began_s)
        finally:
            os.kill(self.members[victim].pid, signal.SIGCONT)

    def _note_served(self, held: dict[str, int], began_s: float) -> None:
        self.interrupted += len(held.keys() & self._changing())

        def served() -> dict[str, float]:
            return {
                site: at_s
                for site, epoch, at_s in self._connections()
                if site in held and epoch > held[site]
            }

        self._until(lambda: served().keys() == held.keys(), "the victim's sites are served")
        self.served_s += [at_s - began_s for at_s in served().values()]

    def _live(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self.thin.listen()

    def _until(self, true: Callable[[], bool], what: str) -> None:
        def meanwhile() -> None:
            if hasattr(self, "thin"):
                self.thin.listen(0.05)
            for each in self.members:
                each.check()

        wait_until(true, what, WAIT_S, meanwhile, pause_s=0.05)

    # -- how it stands -------------------------------------------------------------------------

    def held_by(self, number: int) -> dict[str, int]:
        """The sites of a gateway, and the epoch of each."""
        members, rows = self.store.membership()
        names = {each.name for each in members if each.pid in self._pids(number)}
        return {row.site: row.epoch for row in rows if row.member in names}

    def _pids(self, number: int) -> set[int]:
        """The process and what it became: the leash runs the program in its own place or below."""
        pid = self.members[number].pid
        below = Path(f"/proc/{pid}/task/{pid}/children")
        return {pid, *map(int, below.read_text().split())} if below.exists() else {pid}

    def is_shared(self) -> bool:
        """Whether every site is held, and all gateways hold as many as is fair."""
        counts = [len(self.held_by(number)) for number in range(self.gateways)]
        return sum(counts) == len(self.sites) and max(counts) - min(counts) <= 1

    def settle(self) -> None:
        """Until the sites are shared fairly again, and each has a connection."""
        self._until(self.is_shared, "the sites are shared again")

    def _agreed(self) -> bool:
        return all_obeyed(self.store.fleet(), len(self.sites) * self.nodes)

    def _fitted(self) -> bool:
        return not self._changing()

    def _changing(self) -> set[str]:
        """The sites whose last change has not been fitted on its whole batch."""
        newest = {change.group: change for change in reversed(self.store.changes(2_000))}
        return {
            name
            for name, site in self.thin.sites.items()
            if site.round and not self._is_done(newest.get(f"of-{name}"), site.round)
        }

    @staticmethod
    def _is_done(change: object, round_: int) -> bool:
        arrived = getattr(change, "arrived", ())
        return f"r{round_ + 3}" in arrived and getattr(change, "fitted", -1) == BATCH

    # -- what their records say ----------------------------------------------------------------

    def _connections(self) -> list[tuple[str, int, float]]:
        found = [match for each in self.members for match in CONNECTED.findall(each.log())]
        return [(site, int(epoch), float(at_s)) for site, epoch, at_s in found]

    def _connected(self) -> set[str]:
        return {site for site, _, _ in self._connections()}

    def acts(self) -> dict[str, list[Act]]:
        """Everything that gateways published, by site, in the order of time."""
        found: defaultdict[str, list[Act]] = defaultdict(list)
        for number, each in enumerate(self.members):
            for site, epoch, at_s in ACTED.findall(each.log()):
                found[site].append(Act(float(at_s), int(epoch), number))
        return {site: sorted(acts, key=lambda act: act.at_s) for site, acts in found.items()}

    def contradictions(self) -> list[str]:
        """Acts of a gateway after another, of a later epoch, had begun to act for the site."""
        found = []
        for site, acts in self.acts().items():
            owners = {act.epoch: act.gateway for act in acts}
            for before, after in pairwise(acts):
                if after.epoch < before.epoch or owners[after.epoch] != after.gateway:
                    found.append(f"{site}: {after} after {before}")
        return found

    def orders_twice(self) -> list[str]:
        """Versions with two contents, and versions that came after a higher one."""
        found = []
        for key, orders in self.thin.orders.items():
            contents: dict[int, bytes] = {}
            for version, payload in orders:
                if contents.setdefault(version, payload) != payload:
                    found.append(f"{'/'.join(key)}: version {version} twice, with two contents")
            versions = [version for version, _ in orders]
            if versions != sorted(versions):
                found.append(f"{'/'.join(key)}: versions went back: {versions}")
        return found


def story(seed: int, sites: Sequence[str], rounds: int, at_once: int) -> list[list[str]]:
    """Which sites change in which round: the same for whoever serves them."""
    chance = random.Random(seed)
    return [sorted(chance.sample(list(sites), at_once)) for _ in range(rounds)]
