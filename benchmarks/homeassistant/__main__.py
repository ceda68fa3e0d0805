"""A real node, gateway and broker in a real Home Assistant, judged by what its REST API says.

    python -m benchmarks.homeassistant [--root .cache/ha/root] [--nodes 100] [--json FILE]

`make ha` makes the root first. The broker runs with the accounts and rules that `opid-gateway init
--homeassistant` writes. Everything listens on the loopback interface. Each line of the table is a
promise: what Home Assistant must say, and what it said.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common.command import add_json_option, command_line, write_json
from benchmarks.homeassistant.crowd import Crowd
from benchmarks.homeassistant.house import ApiError, HomeAssistant, Phone
from edge_opid.link.options import MqttOptions, read_credentials
from edge_opid.service.wiring import look_at_node
from edge_opid.source import Source, connect
from edge_opid.wire import Asked, Channel, InstanceId, Prediction, Status
from edge_opid.wire.labels import parse_instance
from firmware_sim.live.mosquitto import Mosquitto, free_port
from firmware_sim.live.observer import Observer
from firmware_sim.live.processes import Child, LiveError, wait_until
from firmware_sim.live.services import NodeProcess
from gateway.setup.initialise import SetupPlan, initialise
from gateway.setup.mosquitto_files import password_line

SITE, NODE, CLASSES = "home", "north", ("dry", "damp")
SENSORS = {"temp-1": "temp", "co2-1": "co2", "hum-1": "hum"}
FIXED = (
    "binary_sensor.north_degraded",
    "button.north_prediction_is_right",
    "event.north_event",
    "select.north_what_is_it_now",
    "sensor.north_accuracy",
    "sensor.north_confidence",
    "sensor.north_model_version",
    "sensor.north_prediction",
)
PREDICTION, SELECT, EVENT = "sensor.north_prediction", FIXED[3], FIXED[2]
PATIENCE_S = 90.0  # an end to waiting, by which nothing is judged
ROLES_OF_CROWD = 4
QUICK = {"settle_s": "5.0", "summary_wait_s": "60.0", "overlap_readings": "50", "retry_s": "30.0"}
"""What the gateway's file says of its patience, which is then none."""


def main() -> None:
    """Run everything, print the table, and fail where a line does."""
    parser = command_line(__doc__)
    parser.add_argument("--root", type=Path, default=Path(".cache/ha/root"))
    parser.add_argument("--nodes", type=int, default=100, help="of the crowd (default 100)")
    add_json_option(parser)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started is ended
    table = Checklist()
    with tempfile.TemporaryDirectory(prefix="opid-ha-") as folder, ExitStack() as stack:
        home = Home(Path(folder), given.root.absolute(), table, stack)
        run(home, given.nodes)
        version = home.house.call("/api/config")["version"]
        resident_mb = home.resident_mb()
    failed = table.show(f"Home Assistant {version}, {resident_mb:.0f} MB resident at the end")
    write_json(given.json, {"version": version, "lines": table.lines})
    sys.exit(1 if failed else 0)


def run(home: Home, nodes: int) -> None:
    """All parts, in an order in which each leaves the house as the next one needs it."""
    for part in (
        announced,
        shown,
        selected,
        confirmed,
        killed,
        silent,
        replaced,
        retired,
        restarted,
        retired_while_away,
        node_restarted,
        asked,
    ):
        with home.table.part(part.__name__.replace("_", " ")):
            part(home)
    with home.table.part(f"{nodes} nodes"):
        crowded(home, nodes)
    with home.table.part("log"):
        logged(home)


@dataclass
class Checklist:
    """What was expected, and what was so."""

    lines: list[tuple[str, str, str, bool]] = field(default_factory=list)
    _part: str = ""

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """A part that breaks off fails; the next one begins all the same."""
        self._part = name
        began = time.monotonic()
        try:
            yield
        except (LiveError, ApiError, OSError, LookupError, ValueError) as error:
            self.lines.append((name, "goes to its end", f"{error}"[:300], False))
        sys.stderr.write(f"{name}: {time.monotonic() - began:.0f} s\n")

    def equal(self, what: str, got: object, wanted: object) -> None:
        """One line."""
        self.lines.append((f"{self._part}: {what}", str(wanted), str(got), got == wanted))

    def same(self, what: str, got: Sequence[str], wanted: Sequence[str]) -> None:
        """One line about two lists: how many, and what one has and the other has not."""
        differ = sorted(set(got) ^ set(wanted))
        told = f"{len(got)}, of which differ: {differ}" if differ else str(len(got))
        self.equal(what, told, str(len(wanted)))

    def show(self, title: str) -> int:
        """The table; how many lines have failed."""
        print(f"\n{title}\n")
        for what, wanted, got, good in self.lines:
            told = got if good else f"{got} instead of {wanted}"
            print(f"{'ok  ' if good else 'FAIL'}  {what}: {told}")
        failed = sum(not line[3] for line in self.lines)
        print(f"\n{len(self.lines) - failed} of {len(self.lines)} as expected")
        return failed


class Home:
    """A broker with the accounts of a fleet, its gateway, one node, its sensors, and the house."""

    def __init__(self, folder: Path, root: Path, table: Checklist, stack: ExitStack) -> None:
        self.folder, self.fleet, self.table = folder, folder / "fleet", table
        self.sensors = dict(SENSORS)
        enter = stack.enter_context
        self.port = free_port()
        self._broker(enter)
        toml = self.fleet / "gateway.toml"
        text = toml.read_text()
        for key, usual in QUICK.items():
            assert f"# {key} = {usual}\n" in text
            text = text.replace(f"# {key} = {usual}\n", f"{key} = {0.5 if '.' in usual else 0}\n")
        toml.write_text(text)
        run_gateway = [sys.executable, "-m", "gateway", "run", str(toml)]
        enter(Child("gateway", run_gateway, folder / "gateway.log"))
        key = (self.fleet / "keys/gateway.pub").read_text().strip()
        account = self.fleet / f"nodes/{SITE}-{NODE}/credentials"
        settings = node_settings(key)
        broker = f'credentials = "{account}"'
        self.node = enter(NodeProcess(folder / NODE, self.port, settings, broker))
        options = MqttOptions(
            client_id="operator",
            port=self.port,
            credentials=self.fleet / "keys/operator.credentials",
        )
        self.ear = enter(Observer(options, [f"opid/1/{SITE}/{NODE}/{c}" for c in HEARD]))
        self.source: Source = enter(
            connect(
                SITE,
                NODE,
                "box",
                folder / "spool",
                port=self.port,
                credentials=self.fleet / f"nodes/{SITE}-{NODE}/sensors.credentials",
            )
        )
        self.phone = enter(Phone())
        self.house = HomeAssistant(root, folder)
        stack.callback(self.house.kill)
        self.house.start()
        self.house.onboard()
        self.house.wait_running()
        account_of_house = read_credentials(self.fleet / "keys/homeassistant.credentials")
        self.house.add_mqtt(self.port, *account_of_house)

    def _broker(self, enter: Callable[[Any], Any]) -> None:
        """Mosquitto with the files of `init`, and an account for the crowd."""
        plan = SetupPlan(
            site=SITE,
            group="hall",
            classes=CLASSES,
            nodes=(NODE,),
            homeassistant=True,
            broker_port=self.port,
        )
        initialise(self.fleet, plan)
        passwords, acl = self.fleet / "mosquitto/passwords", self.fleet / "mosquitto/acl"
        passwords.write_text(passwords.read_text() + password_line("crowd", "crowd"))
        crowd = "user crowd\ntopic readwrite #\nuser homeassistant\ntopic read opid/1/+/+/+\n"
        acl.write_text(f"{acl.read_text()}\n{crowd}")
        self.crowd_file = self.folder / "crowd.credentials"
        self.crowd_file.touch(mode=0o600)
        self.crowd_file.write_text("crowd\ncrowd\n")
        config = self.fleet / "mosquitto/opid.conf"
        enter(Mosquitto(self.folder / "broker", config=config, port=self.port))

    # -- what happens --------------------------------------------------------------------------

    def read(
        self, times: int = 1, *, labelled: bool = False, damp: bool = True, but: str = ""
    ) -> InstanceId:
        """Readings of all sensors `but` one; the last of them, once the node has taken it."""
        number = None
        for each in range(times):
            wet = damp if not labelled else each % 2 == 0
            values = {sensor: _value(role, each, wet=wet) for sensor, role in self.sensors.items()}
            values.pop(but, None)
            number = self.source.send(values, CLASSES[wet] if labelled else None)
        assert number is not None
        if not self.source.drained(PATIENCE_S):
            raise LiveError(f"the node does not acknowledge its readings: {self.source.trouble}")
        return InstanceId("box", number.boot, number.seq)

    def shown(self, **options: Any) -> InstanceId:
        """An unlabelled reading whose prediction Home Assistant shows.

        It subscribes a moment after it has made an entity, so the first one may go unheard.
        """
        for _ in range(10):
            instance = self.read(**options).plain()
            if wait(partial(self.shows, instance), 10):
                return InstanceId(**instance)
        raise LiveError("Home Assistant shows no prediction")

    def shows(self, instance: dict[str, Any]) -> bool:
        """Whether a label given now would be about this instance."""
        return bool(self.house.attributes(SELECT).get("instance") == instance)

    def label_of(self, instance: InstanceId) -> str | None:
        """The label with which the node has learned an instance, by its journal."""
        node = look_at_node(self.node.config)
        entry = None if node is None else node.state.recent.find(instance)
        if node is None or entry is None or entry.lesson is None:
            return None
        return node.state.settings.classes[entry.lesson.label]

    def has_label(self, instance: InstanceId, label: str) -> bool:
        """Whether the node has learned it so."""
        return self.label_of(instance) == label

    def operate(self, *words: str, meanwhile: str = "") -> None:
        """A verb of the gateway's command line, with readings coming in until it is done."""
        verb, sensor, *options = words
        toml = str(self.fleet / "gateway.toml")
        command = [sys.executable, "-m", "gateway", "sensor", verb, toml, f"{SITE}/{NODE}", sensor]
        with subprocess.Popen(
            [*command, *options, "--wait"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            end = time.monotonic() + PATIENCE_S
            while process.poll() is None and time.monotonic() < end:
                self.read(2, labelled=True, but=meanwhile)
                time.sleep(0.2)
            process.kill()
            told = process.communicate()[0]
        if process.returncode != 0:
            raise LiveError(f"{' '.join(words)} ended with {process.returncode}: {told[-300:]}")

    def resident_mb(self) -> float:
        """Of Home Assistant."""
        children = Path(f"/proc/{self.house.pid}/task/{self.house.pid}/children").read_text()
        pages = int(Path(f"/proc/{children.split()[0]}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    # -- how it stands -------------------------------------------------------------------------

    @property
    def entities(self) -> list[str]:
        """Those that there should be."""
        return sorted([*FIXED, *(f"binary_sensor.north_{role}" for role in self.sensors.values())])

    def registered(self) -> list[str]:
        """Those that there are, by the registry."""
        return self.house.registered(PREDICTION)

    def available(self, entities: Sequence[str]) -> int:
        """How many of these say something."""
        states = self.house.states()
        return sum(states.get(each, GONE)["state"] not in ("unavailable", "") for each in entities)


HEARD = (Channel.PREDICTION, Channel.STATUS, Channel.ASKED)
GONE = {"state": ""}


def node_settings(key: str, asks_per_hour: float = 0.0) -> str:
    """Three sensors that are standardised already, and an impatient node."""
    sensors = "".join(
        f'[[sensors]]\nid = "{sensor}"\nrole = "{role}"\nreference = {NORMAL[role]}\n'
        f"scale = {SCALE[role]}\ntimeout_s = 3.0\n"
        for sensor, role in SENSORS.items()
    )
    return (
        f'[node]\nsite = "{SITE}"\nnode = "{NODE}"\nclasses = {json.dumps(CLASSES)}\n'
        "commit_s = 0.2\nrate_per_second = 1000.0\n"
        f"[asking]\nper_hour = {asks_per_hour}\n[homeassistant]\ndiscovery = true\n"
        f'[gateway]\nkeys = ["{key}"]\n{sensors}'
    )


NORMAL = {"temp": 20.0, "co2": 600.0, "hum": 50.0}
SCALE = {"temp": 5.0, "co2": 200.0, "hum": 20.0}


def _value(role: str, number: int, *, wet: bool) -> float:
    """All three tell dry from damp, and none of them stands still."""
    return NORMAL[role] + SCALE[role] * ((1.0 if wet else -1.0) + 0.01 * (number % 7))


def wait(true: Callable[[], object], seconds: float = PATIENCE_S) -> bool:
    """Whether it became true in time; whoever asks says what else it is."""
    try:
        wait_until(true, "it is so", seconds, pause_s=0.2)
    except LiveError:
        return False
    return True


# -- the parts -------------------------------------------------------------------------------------


def announced(home: Home) -> None:
    """One device, with an entity for each role."""
    wait(lambda: home.house.state(PREDICTION) and len(home.registered()) >= len(home.entities))
    home.table.same("entities of the device", home.registered(), home.entities)


def shown(home: Home) -> None:
    """What the node says is what the entities show."""
    home.read(60, labelled=True)
    instance, house, table = home.shown(), home.house, home.table
    before = len(home.ear.heard[Channel.STATUS])
    said: Prediction = home.ear.last(Channel.PREDICTION, Prediction)
    table.equal("prediction", house.state(PREDICTION), said.label)
    table.equal("select", house.state(SELECT), said.label)
    confidence = float(house.state("sensor.north_confidence") or "nan")
    table.equal("confidence in %", confidence, round(100 * (said.confidence or 0), 1))
    table.equal("instance in the select", house.attributes(SELECT)["instance"], instance.plain())
    wait(lambda: len(home.ear.heard[Channel.STATUS]) > before)  # the next one, after 30 s
    status: Status = home.ear.last(Channel.STATUS, Status)
    best = round(100 * max(status.accuracy.get(name, 0.0) for name in ("model", "own")), 1)
    wait(lambda: house.state("sensor.north_accuracy") == str(best), 10)
    table.equal("accuracy in %", house.state("sensor.north_accuracy"), str(best))
    version = str(status.model_version)
    table.equal("model version", house.state("sensor.north_model_version"), version)
    degraded = "on" if status.degraded else "off"
    table.equal("degraded", house.state("binary_sensor.north_degraded"), degraded)
    roles = [house.state(f"binary_sensor.north_{role}") for role in SENSORS.values()]
    table.equal("roles connected", roles, ["on"] * len(roles))


def selected(home: Home) -> None:
    """Labels by the select, each about the instance that was shown, whatever came next."""
    right, others = 0, 0
    for turn in range(6):
        before = home.shown()
        instance = home.shown(damp=turn % 2 == 0)
        wanted = CLASSES[turn % 2]  # what the node would not have said
        home.house.serve("select", "select_option", entity_id=SELECT, option=wanted)
        home.read()  # the world goes on
        right += wait(partial(home.has_label, instance, wanted), 20)
        others += home.label_of(before) is not None
    home.table.equal("labels learned for their instance", right, 6)
    home.table.equal("other instances labelled", others, 0)


def confirmed(home: Home) -> None:
    """The button says that the prediction is right."""
    instance = home.shown()
    said: Prediction = home.ear.last(Channel.PREDICTION, Prediction)
    home.house.serve("button", "press", entity_id="button.north_prediction_is_right")
    wait(lambda: home.label_of(instance) is not None, 20)
    home.table.equal("label learned", home.label_of(instance), said.label)


def killed(home: Home) -> None:
    """The broker says for a killed node that it is gone."""
    home.node.kill()
    entities = home.entities
    wait(lambda: home.available(entities) == 0)
    gone = len(entities) - home.available(entities)
    home.table.equal("unavailable after kill -9", gone, len(entities))
    home.node.start()
    wait(lambda: home.available(entities) == len(entities))
    home.table.equal("available after its start", home.available(entities), len(entities))


def silent(home: Home) -> None:
    """A sensor that falls silent, and returns."""
    hum = "binary_sensor.north_hum"
    home.read(2)
    until(home, lambda: home.house.state(hum) == "off", but="hum-1")
    home.table.equal("role of a silent sensor", home.house.state(hum), "off")
    wait(lambda: home.house.attributes(EVENT).get("event_type") == "silent", 10)
    found = home.house.attributes(EVENT)
    told = [found.get(key) for key in ("event_type", "role", "sensor")]
    home.table.equal("event", told, ["silent", "hum", "hum-1"])
    until(home, lambda: home.house.state(hum) == "on")
    home.table.equal("role when it speaks again", home.house.state(hum), "on")
    wait(lambda: home.house.attributes(EVENT).get("event_type") == "returned", 10)
    event = home.house.attributes(EVENT).get("event_type")
    home.table.equal("event then", event, "returned")


def until(home: Home, true: Callable[[], bool], but: str = "") -> None:
    """Readings until something is so, for at most a minute or so."""
    for _ in range(100):
        if true():
            return
        home.read(but=but)
        time.sleep(0.5)


def replaced(home: Home) -> None:
    """Another sensor in the same role: the same entity."""
    temp = "binary_sensor.north_temp"
    home.sensors["temp-2"] = home.sensors["temp-1"]
    options = ("--role", "temp", "--replaces", "temp-1", "--reference", "20", "--scale", "5")
    home.operate("deploy", "temp-2", *options, "--timeout-s", "3")
    del home.sensors["temp-1"]
    wait(lambda: home.house.attributes(EVENT).get("sensor") == "temp-2", 20)
    found = home.house.attributes(EVENT)
    told = [found.get(key) for key in ("event_type", "role", "sensor")]
    home.table.equal("event", told, ["deployed", "temp", "temp-2"])
    home.table.same("entities", home.registered(), home.entities)
    home.table.equal("role", home.house.state(temp), "on")
    until(home, lambda: home.house.state(temp) == "off", but="temp-2")
    home.table.equal("role when the new sensor is silent", home.house.state(temp), "off")
    until(home, lambda: home.house.state(temp) == "on")
    home.table.equal("role when it speaks", home.house.state(temp), "on")


def retired(home: Home) -> None:
    """A role that goes for good takes its entity with it."""
    home.operate("retire", "hum-1", "--reason", "broken", meanwhile="hum-1")
    del home.sensors["hum-1"]
    wait(lambda: home.registered() == home.entities, 30)
    home.table.same("entities", home.registered(), home.entities)
    home.table.equal("state of its role", home.house.state("binary_sensor.north_hum"), "")


def restarted(home: Home) -> None:
    """Home Assistant starts again, and finds what there was."""
    home.house.stop()
    home.house.start()
    home.house.wait_running()
    wait(lambda: home.house.state(PREDICTION))
    # The button waits for the first prediction that this Home Assistant hears.
    until(home, lambda: home.available(home.entities) == len(home.entities))
    time.sleep(20)  # its birth message, the full announcement, the tombstones
    home.table.same("entities", home.registered(), home.entities)
    available = home.available(home.entities)
    home.table.equal("available", available, len(home.entities))


def retired_while_away(home: Home) -> None:
    """A role goes while Home Assistant is down, which still has it in its registry."""
    home.house.stop()
    home.operate("retire", "co2-1", "--reason", "broken", meanwhile="co2-1")
    del home.sensors["co2-1"]
    time.sleep(6)  # the tombstone is published, and heard by nobody
    home.house.start()
    home.house.wait_running()
    wait(lambda: home.house.state(PREDICTION))
    wait(lambda: home.registered() == home.entities, 60)
    home.table.same("entities after its start", home.registered(), home.entities)


def node_restarted(home: Home) -> None:
    """The node starts again, with nothing but the broker's copy to remember by."""
    home.node.kill()
    home.node.start()
    wait(lambda: home.available(home.entities) >= len(home.entities) - 1)
    time.sleep(12)
    home.read()
    home.table.same("entities", home.registered(), home.entities)


def asked(home: Home) -> None:
    """A question becomes a notification, and a tap on it a label of that instance."""
    home.node.kill()
    toml = home.node.toml
    toml.write_text(toml.read_text().replace("per_hour = 0.0", "per_hour = 3600.0"))
    home.node.start()
    device = home.house.add_phone(home.phone.port)
    home.house.add_automation("asked", {"events": [EVENT], "phone": device, "patience": 2})
    for number in range(300):
        if home.phone.pushed:
            break
        home.source.send({"temp-2": 20.0 + 0.01 * (number % 5)})
        time.sleep(0.2)
    first = home.phone.pushed[0]
    action = first["data"]["actions"][1]
    buttons = [each["title"] for each in first["data"]["actions"]]
    home.table.equal("buttons", sorted(buttons), sorted(CLASSES))
    home.table.equal("title", first["title"], "north: what is it?")
    instance = parse_instance(first["data"]["tag"].split()[-1])
    questions = [each.instance for each in home.ear.all(Channel.ASKED, Asked)]
    home.table.equal("it is about a question of the node", instance in questions, True)
    home.house.tap(action["action"])
    wait(lambda: home.label_of(instance) is not None, 20)
    home.table.equal("label learned", home.label_of(instance), action["title"])


def crowded(home: Home, count: int) -> None:
    """Many nodes at once."""
    options = MqttOptions(client_id="crowd", port=home.port, credentials=home.crowd_file)
    wanted = count * (len(FIXED) + ROLES_OF_CROWD)
    with Crowd(options, count, ROLES_OF_CROWD) as crowd:
        began = time.monotonic()
        sizes = crowd.announce()
        wait(lambda: _of_crowd(home) >= wanted, 240)
        took_s = time.monotonic() - began
        home.table.equal("entities", _of_crowd(home), wanted)
        for _ in range(10):  # it may hear a prediction only after it has subscribed
            crowd.speak()
            if wait(lambda: _of_crowd(home, speaking=True) >= wanted, 12):
                break
        home.table.equal("entities available", _of_crowd(home, speaking=True), wanted)
    sys.stderr.write(
        f"  {wanted} entities after {took_s:.1f} s; {max(sizes)} bytes a node at most\n"
    )


def _of_crowd(home: Home, *, speaking: bool = False) -> int:
    found = [each for name, each in home.house.states().items() if ".many_" in name]
    return sum(not speaking or each["state"] != "unavailable" for each in found)


def logged(home: Home) -> None:
    """It has complained about nothing that we have sent it."""
    lines = [line for line in home.house.log().splitlines() if "components.mqtt" in line]
    home.table.equal("complaints of its MQTT integration", lines[:5], [])


if __name__ == "__main__":
    main()
