"""A site's broker bridged to a central one, which is killed while events are on their way.

    python -m benchmarks.sites.bridge [--kills 20] [--events 300] [--without-autosave] [--seed 0]

The files are those that `opid-gateway init --site-broker` writes: accounts, rules and bridge
included. A node publishes events at its site's broker; somewhere in the middle the central one is
ended with `kill -9` and started again; counted is what a gateway's session there receives. In every
second trial the gateway is away meanwhile, and comes back afterwards: then all depends on what the
centre has saved. `--without-autosave` takes out the two lines by which it saves every change.

The aim is 0 lost. mosquitto 2.0 acknowledges a message before it saves it, so a crash may cost the
one message of that instant: more than one a crash is a failure (exit code 1).
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.common.command import command_line
from benchmarks.common.verdict import verdict
from edge_opid.link.background import BackgroundLink
from edge_opid.link.options import MqttOptions
from firmware_sim.live.mosquitto import Mosquitto, free_port
from firmware_sim.live.processes import wait_until
from gateway.setup.initialise import SITE_HOME, initialise
from gateway.setup.plan import SetupPlan

SITE, NODE = "street", "north"
EVENTS = f"opid/1/{SITE}/{NODE}/event"
ORDERS = f"opid/1/{SITE}/{NODE}/desired"
READINGS = f"opid/1/{SITE}/{NODE}/reading/attic"
ARRIVE_S = 20.0
PAUSE_S = 0.05
SAVING = ("autosave_on_changes true\n", "autosave_interval 1\n")


class BridgedSite:
    """A central broker, a site's broker, a node at the one and a gateway at the other."""

    def __init__(self, folder: Path, *, autosave: bool = True) -> None:
        self._folder, self._autosave = folder, autosave
        self.heard: list[bytes] = []
        self._stack = ExitStack()

    def __enter__(self) -> BridgedSite:
        try:
            self._open()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _open(self) -> None:
        home, central, local = self._folder / "fleet", free_port(), free_port()
        plan = SetupPlan(
            site=SITE,
            group="air",
            classes=("fresh", "stale"),
            nodes=(NODE,),
            broker_port=central,
            site_broker=f"127.0.0.1:{local}",
        )
        initialise(home, plan)
        conf = home / "mosquitto" / "opid.conf"
        if not self._autosave:
            text = conf.read_text()
            for line in SAVING:
                text = text.replace(line, "")
            conf.write_text(text)
        self.centre = self._broker("centre", conf, central)
        folder = home / plan.site_folder
        here = folder / "here.conf"
        both = (folder / "opid.conf").read_text() + (folder / "bridge.conf").read_text()
        here.write_text(both.replace(str(SITE_HOME), str(folder)))
        self.site = self._broker("site", here, local)
        self._secret, self._port = home / "keys" / "gateway.credentials", central
        self.gateway_comes()
        self.node = self._link(home / plan.folder(NODE) / "credentials", local, ORDERS)
        source = home / plan.folder(NODE) / "sensors.credentials"
        self.source = self._link(source, local)

    def _broker(self, name: str, conf: Path, port: int) -> Mosquitto:
        broker = Mosquitto(self._folder / name, config=conf, port=port)
        return self._stack.enter_context(broker)

    def _link(self, credentials: Path, port: int, *filters: str) -> BackgroundLink:
        options = MqttOptions(
            client_id="unused",  # the broker calls us by our user
            port=port,
            credentials=credentials,
            reconnect_first_s=0.2,
            reconnect_most_s=1.0,
        )
        link = BackgroundLink(options)
        link.subscribe(filters)
        link.start()
        self._stack.callback(link.stop, 1.0)
        link.wait_connected(30.0)
        return link

    def gateway_comes(self) -> None:
        """It has a session at the centre, and listens."""
        self.gateway = self._link(self._secret, self._port, EVENTS, READINGS)

    def listen(self) -> None:
        """What the gateway hears, acknowledged."""
        while (delivery := self.gateway.poll(0.01)) is not None:
            self.heard.append(delivery.payload)
            self.gateway.acknowledge(delivery)

    def trial(self, number: int, events: int, kill_at: int | None, *, away: bool = False) -> int:
        """Publish so many events, kill the centre at one of them; how many were lost."""
        if away:
            self.gateway.stop(1.0)
        wanted = {f"event {number} {each}".encode() for each in range(events)}
        self.heard.clear()
        for place, payload in enumerate(sorted(wanted)):
            self.node.publish(EVENTS, payload)
            if place == kill_at:
                self.centre.kill()
            if place % 10 == 0:
                time.sleep(PAUSE_S)  # or all of it would still be at the site when the centre dies
                self.listen()
        if kill_at is not None:
            self.centre.start()
        if away:
            self.gateway_comes()
        until_s = time.monotonic() + ARRIVE_S
        while not wanted <= set(self.heard) and time.monotonic() < until_s:
            self.listen()
        return len(wanted - set(self.heard))

    def order_arrives(self, payload: bytes) -> bool:
        """Whether an order that is published at the centre reaches the node."""
        wait_until(lambda: self.gateway.connected, "the gateway is connected", ARRIVE_S)
        self.gateway.publish(ORDERS, payload, retain=True)
        until_s = time.monotonic() + ARRIVE_S
        while time.monotonic() < until_s:
            delivery = self.node.poll(0.1)
            if delivery is not None:
                self.node.acknowledge(delivery)
                if delivery.payload == payload:
                    return True
        return False


@contextmanager
def bridged(*, autosave: bool = True) -> Iterator[BridgedSite]:
    """In a folder of its own."""
    with (
        tempfile.TemporaryDirectory() as folder,
        BridgedSite(Path(folder), autosave=autosave) as it,
    ):
        yield it


def kills(
    count: int, events: int, seed: int, *, autosave: bool, say: Callable[[str], object]
) -> int:
    """As many kills, each in the middle of as many events; how many events were lost in all."""
    chance, lost = random.Random(seed), 0
    with bridged(autosave=autosave) as site:
        assert site.trial(0, 10, None) == 0, "the bridge does not carry anything"
        for number in range(1, count + 1):
            kill_at = chance.randrange(events)
            away = number % 2 == 0
            gone = site.trial(number, events, kill_at, away=away)
            ordered = site.order_arrives(f"order {number}".encode())
            lost += gone
            here = "arrived" if ordered else "did NOT arrive"
            where = "away" if away else "there"
            say(
                f"  kill {number} at event {kill_at}, gateway {where}: {gone} lost; an order {here}"
            )
    return lost


def main() -> None:
    """Print each trial and the verdict."""
    parser = command_line(__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--events", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--without-autosave", action="store_true")
    given = parser.parse_args()
    autosave = not given.without_autosave
    lost = kills(given.kills, given.events, given.seed, autosave=autosave, say=_line)
    print(verdict(f"lost of {given.kills * given.events} events", lost, 0, at_least=False))
    sys.exit(1 if lost > given.kills else 0)


def _line(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
