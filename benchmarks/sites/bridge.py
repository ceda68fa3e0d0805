"""A site's broker bridged to a central one, which is killed while events are on their way.

    python -m benchmarks.sites.bridge [--kills 20] [--events 300] [--without-autosave] [--seed 0]

The files are those that `opid-gateway init --site-broker` writes: accounts, rules and bridge
included. A real node (its decisions; the clock is ours) tells of labelled instances at its site's
broker, a real gateway hears them at the central one. Somewhere in the middle that one is ended with
`kill -9` and started again. In turn the gateway is there; it is away, and comes back afterwards; or
it is busy, and has acknowledged nothing yet, as one that waits for its database. Counted are

- events **lost on the way**: the brokers did not deliver them. mosquitto 2.0 confirms a message
  before it saves it, and does not save what is on its way to a gateway that is there;
- events **missing in the gateway's book** after the node has repeated what the gateway had not
  confirmed. That is the promise: 0, or the exit code is 1.

`--without-autosave` takes out the two lines by which the centre saves every change.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from nacl.signing import SigningKey

from benchmarks.common.command import command_line
from benchmarks.common.verdict import verdict
from edge_opid.config.node import NodeConfig, SensorConfig
from edge_opid.link.background import BackgroundLink
from edge_opid.link.options import MqttOptions
from edge_opid.node import actions as of_node
from edge_opid.node.node import Node
from edge_opid.wire import Channel, Example, InstanceId, NodeTopics, Reading, decode, encode
from edge_opid.wire.topics import gateway_filters
from firmware_sim.live.mosquitto import Mosquitto, free_port
from firmware_sim.live.processes import LiveError, Together, wait_until
from gateway.decisions import actions as of_gateway
from gateway.decisions.gateway import Gateway
from gateway.policy import Group, Policy
from gateway.setup.initialise import SITE_HOME, initialise
from gateway.setup.plan import SetupPlan

SITE, NODE, GROUP, CLASSES = "street", "north", "air", ("fresh", "stale")
TOPICS = NodeTopics(SITE, NODE)
READINGS = str(TOPICS.to(Channel.READING, "attic"))
ARRIVE_S = 20.0
REPEATS_S = (31, 121, 481)  # after which a node repeats what was not confirmed, each time
PAUSE_S = 0.05
THERE, AWAY, BUSY = "there", "away", "busy"
STEP_MS = 10  # of our clock, for one reading
SAVING = ("autosave_on_changes true\n", "autosave_interval 1\n")


class BridgedSite(Together):
    """A central broker, a site's broker, a node at the one and a gateway at the other."""

    def __init__(self, folder: Path, *, autosave: bool = True, events_max: int = 10_000) -> None:
        super().__init__()
        self._folder, self._autosave = folder, autosave
        self.heard: set[bytes] = set()
        """All that came to the gateway."""
        self._now_ms, self._seq = int(time.time() * 1000), 0
        key = SigningKey.generate()
        sensors = tuple(SensorConfig(name, reference=0.0, scale=1.0) for name in ("hum", "temp"))
        config = NodeConfig(
            site=SITE,
            node=NODE,
            classes=CLASSES,
            sensors=sensors,
            rate_per_second=1e6,
            rate_burst=10**6,
            commit_records=1,
        )
        self.decides = Node(config, [key.verify_key])
        policy = Policy(settle_s=0, batch_max=events_max, first_batch=events_max)
        self.book = Gateway(policy, [Group(GROUP, SITE, CLASSES, (NODE,))], key)

    def _open(self) -> None:
        home, central, local = self._folder / "fleet", free_port(), free_port()
        plan = SetupPlan(
            site=SITE,
            group=GROUP,
            classes=CLASSES,
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
        filters = map(str, TOPICS.node_filters())
        self.node = self._link(home / plan.folder(NODE) / "credentials", local, *filters)
        source = home / plan.folder(NODE) / "sensors.credentials"
        self.source = self._link(source, local)

    def _broker(self, name: str, conf: Path, port: int) -> Mosquitto:
        broker = Mosquitto(self._folder / name, config=conf, port=port)
        return self.stack.enter_context(broker)

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
        self.stack.callback(link.stop, 1.0)
        link.wait_connected(30.0)
        return link

    def gateway_comes(self) -> None:
        """It has a session at the centre, and listens."""
        filters = [str(each) for each in gateway_filters(SITE)]
        self.gateway = self._link(self._secret, self._port, *filters, READINGS)

    # -- both sides decide, and we do what they say --------------------------------------------

    def meet(self) -> None:
        """The gateway adopts the node, and asks it for labelled instances."""
        self._do(self.decides.on_connected(self._now_ms))
        self._until(lambda: self.decides.state.version > 0, "the node has its first order")
        self.book.relearn((SITE, NODE), self._now_ms)
        self._until(lambda: self.decides.state.examples.owed > 0, "examples are asked for")

    def _until(self, true: Callable[[], object], what: str) -> None:
        wait_until(true, what, ARRIVE_S, meanwhile=self.serve)

    def serve(self) -> None:
        """Whatever has arrived on either side."""
        self._now_ms += 1
        while (delivery := self.node.poll(0.0)) is not None:
            self._do(self.decides.handle(delivery.topic, delivery.payload, self._now_ms, None))
            self.node.acknowledge(delivery)
        self.listen()

    def listen(self) -> None:
        """What the gateway hears is in its book; then it is confirmed, and acknowledged."""
        deliveries = []
        while (delivery := self.gateway.poll(0.0)) is not None:
            self.heard.add(delivery.payload)
            self.book.handle(delivery.topic, delivery.payload, self._now_ms)
            deliveries.append(delivery)
        for action in self.book.tick(self._now_ms):
            if isinstance(action, of_gateway.Publish):
                self.gateway.publish(action.topic, action.payload, retain=action.retain)
        for each in deliveries:
            self.gateway.acknowledge(each)

    def _do(self, actions: list[of_node.Action]) -> list[of_node.Publish]:
        """What the node wants said; its disk is always well."""
        for action in actions:
            if isinstance(action, of_node.Publish):
                self.node.publish(action.topic, action.payload, retain=action.retain)
            elif isinstance(action, of_node.Commit):
                self._do(self.decides.on_committed(self._now_ms))
        return [each for each in actions if isinstance(each, of_node.Publish)]

    def tell(self) -> bytes:
        """The node learns a labelled reading, and tells its gateway: the event."""
        self._seq, self._now_ms = self._seq + 1, self._now_ms + STEP_MS
        values, label = {"hum": 0.1, "temp": float(self._seq % 2)}, CLASSES[self._seq % 2]
        reading = encode(Reading(1, self._seq, self._now_ms, values, label))
        said = self._do(self.decides.handle(READINGS, reading, self._now_ms, None))
        [event] = [each.payload for each in said if each.topic == str(TOPICS.to(Channel.EVENT))]
        return event

    # -- trials ----------------------------------------------------------------------------------

    def trial(self, events: int, kill_at: int | None, gateway: str = THERE) -> tuple[int, int]:
        """So many events, the centre killed at one of them: how many were lost, and are missing."""
        if gateway == AWAY:
            self.gateway.stop(1.0)
        told = []
        for place in range(events):
            told.append(self.tell())
            if place == kill_at:
                self.centre.kill()
            if place % 10 == 0:
                time.sleep(PAUSE_S)  # or all of it would still be at the site when the centre dies
                if gateway == THERE:
                    self.serve()
        if kill_at is not None:
            self.centre.start()
        if gateway == AWAY:
            self.gateway_comes()
        self._wait_for(lambda: self.heard.issuperset(told))
        lost = len(set(told) - self.heard)
        wanted = [decode(each, Example).instance for each in told]
        for pause_s in REPEATS_S:
            if not self.missing(wanted):
                break
            self._now_ms += 1000 * pause_s
            self._do(self.decides.tick(self._now_ms))
            self._wait_for(lambda: not self.missing(wanted))
        return lost, self.missing(wanted)

    def missing(self, wanted: list[InstanceId]) -> int:
        """How many of these are not in the gateway's book."""
        batch = self.book.fleet.examples[self.book.fleet.layouts[SITE, NODE].change]
        return sum((SITE, NODE, i.source, i.boot, i.seq) not in batch for i in wanted)

    def _wait_for(self, true: Callable[[], object]) -> None:
        until_s = time.monotonic() + ARRIVE_S
        while not true() and time.monotonic() < until_s:
            self.serve()
            time.sleep(0.005)

    def order_arrives(self) -> bool:
        """Whether another order of the gateway reaches the node, and is obeyed."""
        wait_until(lambda: self.gateway.connected, "the gateway is connected", ARRIVE_S)
        self.book.orders.want((SITE, NODE))
        self.listen()
        version = self.book.fleet.orders[SITE, NODE].version
        try:
            self._until(lambda: self.decides.state.version >= version, "the order is obeyed")
        except LiveError:
            return False
        return True


class Outcome(NamedTuple):
    """What became of all events, and of the orders after each trial."""

    lost: int
    missing: int
    orders_lost: int


def kills(
    count: int, events: int, seed: int, *, autosave: bool, say: Callable[[str], object]
) -> Outcome:
    """As many kills, each in the middle of as many events."""
    chance, found = random.Random(seed), Outcome(0, 0, 0)
    most = count * events + 100
    with (
        tempfile.TemporaryDirectory() as folder,
        BridgedSite(Path(folder), autosave=autosave, events_max=most) as site,
    ):
        site.meet()
        assert site.trial(10, None) == (0, 0), "the bridge does not carry anything"
        for number in range(1, count + 1):
            kill_at, gateway = chance.randrange(events), (THERE, AWAY, BUSY)[number % 3]
            lost, missing = site.trial(events, kill_at, gateway)
            ordered = site.order_arrives()
            found = Outcome(
                found.lost + lost, found.missing + missing, found.orders_lost + (not ordered)
            )
            say(
                f"  kill {number} at event {kill_at}, gateway {gateway}: "
                f"{lost} lost on the way, {missing} missing in the book; an order "
                f"{'arrived' if ordered else 'did NOT arrive'}"
            )
    return found


def main() -> None:
    """Print each trial and the verdict."""
    parser = command_line(__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--events", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--without-autosave", action="store_true")
    given = parser.parse_args()
    autosave = not given.without_autosave
    found = kills(given.kills, given.events, given.seed, autosave=autosave, say=_line)
    of = f"of {given.kills * given.events} events"
    print(f"lost on the way, {of}: {found.lost}")
    print(verdict(f"missing in the gateway's book, {of}", found.missing, 0, at_least=False))
    print(verdict("orders that did not arrive", found.orders_lost, 0, at_least=False))
    sys.exit(1 if found.missing or found.orders_lost else 0)


def _line(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
