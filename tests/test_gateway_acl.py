"""Who may say and hear what, asked of a real mosquitto with the files that `init` writes.

mosquitto answers "granted" to a forbidden SUBSCRIBE, and over MQTT 3.1.1 acknowledges a forbidden
PUBLISH: what counts here is what is delivered.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from support.mosquitto import HOST, Mosquitto, find_mosquitto, free_port

from edge_opid.config.service import load_config as load_node
from edge_opid.link.background import BackgroundLink
from edge_opid.link.options import read_credentials
from edge_opid.wire import NodeTopics
from edge_opid.wire.topics import gateway_filters
from firmware_sim.live.mosquitto import connects
from firmware_sim.live.processes import WAIT_S, Server
from gateway.config import load_config
from gateway.setup.initialise import FolderError, SetupPlan, add_nodes, initialise
from gateway.setup.other_broker import with_listener

PLAN = SetupPlan(
    site="street",
    group="air",
    classes=("fresh", "stale"),
    nodes=("north", "south"),
    sources=("attic",),
)
BOTH = [paho.MQTTv311, paho.MQTTv5]

# What each name may do with the topics of node north: r hears, w says.
RIGHTS = """\
topic              north  north.sensors  north.attic  south  south.sensors  south.attic  gateway  operator web
reading/attic      r      w              w            -      -              -            r        r        r
reading/cellar     r      w              -            -      -              -            r        r        r
label              r      w              w            -      -              -            rw       rw       -
label/now          r      -              -            -      -              -            -        rw       -
ack/attic          w      r              r            -      -              -            -        r        -
ack/cellar         w      r              -            -      -              -            -        r        -
prediction         w      -              -            -      -              -            -        r        r
asked              w      -              -            -      -              -            -        r        r
status             w      -              -            -      -              -            r        r        -
event              w      -              -            -      -              -            r        rw       -
summary            w      -              -            -      -              -            r        r        -
confirmed          r      -              -            -      -              -            w        r        -
desired            r      -              -            -      -              -            w        r        -
"""  # noqa: E501 - a table
NOBODYS = [
    "opid/1/street/north",
    "opid/1/street/north/reading",
    "opid/1/street/north/reading/attic/more",
    "opid/1/street/north/else",
    "opid/1/street/west/status",
    "opid/1/farm/north/desired",
    "opid/2/street/north/status",
    "zigbee2mqtt/attic",
]


def rights() -> dict[tuple[str, str], str]:
    """(user, topic) → rights, for both nodes: south's are north's with the names exchanged."""
    header, *rows = (line.split() for line in RIGHTS.splitlines())
    found: dict[tuple[str, str], str] = {}
    for topic, *cells in rows:
        for name, cell in zip(header[1:], cells, strict=True):
            services = name in ("gateway", "operator", "web")
            other = name.replace("north", "?").replace("south", "north").replace("?", "south")
            found[name if services else f"street.{name}", f"opid/1/street/north/{topic}"] = cell
            found[name if services else f"street.{other}", f"opid/1/street/south/{topic}"] = cell
    return found


@dataclass
class Guest:
    """One connection: what it has heard, and whether the broker still wants it."""

    client: paho.Client
    heard: list[tuple[str, str]] = field(default_factory=list)
    answer: Any = None
    answered: threading.Event = field(default_factory=threading.Event)
    gone: threading.Event = field(default_factory=threading.Event)

    def subscribe(self, topic: str) -> None:
        """Whatever was on its way to us before the answer has been heard when this returns."""
        self.answered.clear()
        self.client.subscribe(topic, qos=1)
        assert self.answered.wait(WAIT_S)

    def say(self, topic: str, payload: str, *, retain: bool = False) -> None:
        self.client.publish(topic, payload, qos=1, retain=retain).wait_for_publish(WAIT_S)


@contextmanager
def guest(
    port: int,
    user: str | None,
    password: str = "",
    client_id: str = "any",
    protocol: int = paho.MQTTv5,
) -> Iterator[Guest]:
    client = paho.Client(
        paho.CallbackAPIVersion.VERSION2, client_id, protocol=protocol, reconnect_on_failure=False
    )
    one = Guest(client)

    def connected(_c: object, _u: object, _f: object, reason: Any, _p: object) -> None:
        one.answer = reason
        one.answered.set()

    client.on_connect = connected
    client.on_subscribe = lambda *_: one.answered.set()
    client.on_disconnect = lambda *_: one.gone.set()
    client.on_message = lambda _c, _u, m: one.heard.append((m.topic, m.payload.decode()))
    if user is not None:
        client.username_pw_set(user, password)
    client.connect(HOST, port)
    client.loop_start()
    try:
        assert one.answered.wait(WAIT_S)
        yield one
    finally:
        client.disconnect()
        client.loop_stop()


def passwords(folder: Path) -> dict[str, str]:
    return dict(read_credentials(path) for path in folder.rglob("*credentials"))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Mosquitto]]:
    folder = tmp_path_factory.mktemp("a fleet") / "with a space"
    initialise(folder, PLAN)
    config = folder / "mosquitto" / "opid.conf"
    with Mosquitto(tmp_path_factory.mktemp("broker"), config=config) as broker:
        yield folder, broker


@contextmanager
def everybody(folder: Path, port: int, protocol: int = paho.MQTTv5) -> Iterator[dict[str, Guest]]:
    with ExitStack() as stack:
        found = {}
        for user, password in passwords(folder).items():
            found[user] = stack.enter_context(guest(port, user, password, protocol=protocol))
            assert not found[user].answer.is_failure, user
        yield found


# --- the table ------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", BOTH)
@pytest.mark.parametrize("wildcard", [True, False])
def test_everybody_hears_and_says_what_the_table_allows_and_no_more(fleet, protocol, wildcard):
    """Every name says something on every topic, and every name listens to all of them."""
    folder, broker = fleet
    table = rights()
    topics = [*dict.fromkeys(topic for _, topic in table), *NOBODYS]
    with everybody(folder, broker.port, protocol) as guests:
        assert guests.keys() == {user for user, _ in table}
        for each in guests.values():
            for topic in ["#"] if wildcard else topics:
                each.subscribe(topic)
        for user, each in guests.items():
            for topic in topics:
                each.say(topic, user)
        for user, each in guests.items():
            each.subscribe("the/end")
            expected = {
                (topic, speaker)
                for topic in topics
                for speaker in guests
                if "r" in table.get((user, topic), "") and "w" in table.get((speaker, topic), "")
            }
            assert set(each.heard) == expected, user
            assert len(each.heard) == len(expected)
            assert not each.gone.is_set()


def test_every_topic_of_the_table_has_a_speaker_and_a_listener():
    """Or the test above would prove nothing about it; and only the gateway says `desired`."""
    table = rights()
    topics = {topic for _, topic in table}
    assert "opid/1/street/north/desired" in topics
    for topic in topics:
        cells = {user: cell for (user, each), cell in table.items() if each == topic}
        assert any("r" in cell for cell in cells.values())
        assert any("w" in cell for cell in cells.values())
        if topic.endswith("/desired"):
            assert [user for user, cell in cells.items() if "w" in cell] == ["gateway"]


@pytest.mark.parametrize("protocol", BOTH)
def test_what_the_broker_keeps_is_given_to_those_who_may_hear_it_only(fleet, protocol):
    """A retained order is there for who comes later; nobody but the gateway can take it away."""
    folder, broker = fleet
    topic = "opid/1/street/north/desired"
    with everybody(folder, broker.port, protocol) as guests:
        guests["gateway"].say(topic, "order", retain=True)
        for user, each in guests.items():
            if user != "gateway":
                each.say(topic, "", retain=True)
    with everybody(folder, broker.port, protocol) as guests:
        for each in guests.values():
            each.subscribe("#")
        for each in guests.values():
            each.subscribe("the/end")
        heard = {user for user, each in guests.items() if (topic, "order") in each.heard}
        assert heard == {"street.north", "operator"}
        guests["gateway"].say(topic, "", retain=True)


# --- the door -------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", BOTH)
@pytest.mark.parametrize(
    ("user", "password"),
    [
        ("street.north", "wrong"),
        ("street.north", ""),
        ("street.west", "any"),
        ("street.north/desired", "any"),
        ("root", "root"),
        (None, ""),
    ],
)
def test_strangers_and_wrong_passwords_stay_outside(fleet, protocol, user, password):
    _, broker = fleet
    with guest(broker.port, user, password, protocol=protocol) as one:
        assert one.answer.is_failure
        assert "ot authori" in str(one.answer)
        assert one.gone.wait(WAIT_S)


def test_the_nameless_stay_outside_by_two_rules(tmp_path):
    """`use_username_as_clientid` would refuse them, too: without it, the other rule still does."""
    initialise(tmp_path / "fleet", PLAN)
    config = tmp_path / "fleet/mosquitto/opid.conf"
    text = config.read_text().replace("use_username_as_clientid true", "")
    config.write_text(text)
    with (
        Mosquitto(tmp_path / "broker", config=config) as broker,
        guest(broker.port, None) as one,
    ):
        assert one.answer.is_failure
        assert one.gone.wait(WAIT_S)


def test_one_names_password_opens_no_other_name(fleet):
    folder, broker = fleet
    known = passwords(folder)
    with guest(broker.port, "street.north", known["street.south"]) as one:
        assert one.answer.is_failure
    with guest(broker.port, "street.north", known["street.north"]) as one:
        assert not one.answer.is_failure


@pytest.mark.parametrize("client_id", ["street.north", "opid-street-north"])
def test_nobody_takes_over_the_session_of_another_by_its_client_id(fleet, client_id):
    folder, broker = fleet
    known = passwords(folder)
    with guest(broker.port, "street.north", known["street.north"], "opid-street-north") as node:
        node.subscribe("opid/1/street/north/label")
        sensors = guest(
            broker.port, "street.north.sensors", known["street.north.sensors"], client_id
        )
        with sensors as thief:
            thief.say("opid/1/street/north/label", "still there")
            node.subscribe("the/end")
        assert node.heard == [("opid/1/street/north/label", "still there")]
        assert not node.gone.is_set()


def test_two_processes_with_one_name_push_each_other_out_so_each_has_its_own(fleet):
    """Which is why a plan has `sources`: sensors beside the first get names of their own."""
    folder, broker = fleet
    known = passwords(folder)
    with ExitStack() as stack:
        names = ("street.north.sensors", "street.north.attic", "street.north.sensors")
        guests = [
            stack.enter_context(guest(broker.port, name, known[name], f"script-{index}"))
            for index, name in enumerate(names)
        ]
        assert guests[0].gone.wait(WAIT_S)
        for each in guests[1:]:
            each.subscribe("the/end")
            assert not each.gone.is_set()


# --- the programs' own way in ---------------------------------------------------------------------


@contextmanager
def link(options: Any, port: int) -> Iterator[BackgroundLink]:
    one = BackgroundLink(replace(options, port=port))
    one.start()
    try:
        one.wait_connected(WAIT_S)
        yield one
    finally:
        one.abort()


def heard_by(one: BackgroundLink) -> tuple[str, bytes]:
    delivery = one.poll(WAIT_S)
    assert delivery is not None
    one.acknowledge(delivery)
    return delivery.topic, delivery.payload


def test_node_and_gateway_meet_with_the_files_they_were_given(tmp_path):
    """Status one way, an order the other, through the subscriptions the programs really make.

    Both are retained, so it does not matter whose subscription is first.
    """
    folder = tmp_path / "fleet"
    initialise(folder, PLAN)
    node = load_node(folder / "nodes/street-north/node.toml", {}).broker
    gateway = load_config(folder / "gateway.toml", {}).broker
    config = folder / "mosquitto/opid.conf"
    with (
        Mosquitto(tmp_path / "broker", config=config) as broker,
        link(node, broker.port) as north,
        link(gateway, broker.port) as centre,
    ):
        north.subscribe([str(each) for each in NodeTopics("street", "north").node_filters()])
        centre.subscribe([str(each) for each in gateway_filters("street")])
        north.publish("opid/1/street/north/status", b"here", retain=True)
        assert heard_by(centre) == ("opid/1/street/north/status", b"here")
        centre.publish("opid/1/street/north/desired", b"order", retain=True)
        assert heard_by(north) == ("opid/1/street/north/desired", b"order")
        assert (north.counters.reconnects, centre.counters.reconnects) == (0, 0)


# --- nodes that come later ------------------------------------------------------------------------


def test_added_nodes_are_let_in_after_a_reload_and_the_others_notice_nothing(tmp_path):
    """Also beside a user that `mosquitto_passwd` added to our file."""
    folder = tmp_path / "fleet"
    initialise(folder, PLAN)
    config = folder / "mosquitto" / "opid.conf"
    file = folder / "mosquitto" / "passwords"
    command = ["mosquitto_passwd", "-b", str(file), "extra", "secret"]
    with Mosquitto(tmp_path / "broker", config=config) as broker:
        known = passwords(folder)
        subprocess.run(command, check=True, capture_output=True, timeout=WAIT_S)
        add_nodes(folder, replace(PLAN, nodes=("east",)))
        east = passwords(folder)["street.east"]
        with guest(broker.port, "street.east", east) as early:
            assert early.answer.is_failure
        with (
            guest(broker.port, "gateway", known["gateway"]) as gateway,
            guest(broker.port, "street.north", known["street.north"]) as north,
        ):
            gateway.subscribe("opid/1/street/+/status")
            broker.reload()
            with guest(broker.port, "street.east", east) as late:
                assert not late.answer.is_failure
                late.say("opid/1/street/east/status", "new")
                late.say("opid/1/street/north/status", "forged")
            north.say("opid/1/street/north/status", "old")
            gateway.subscribe("the/end")
            assert gateway.heard == [
                ("opid/1/street/east/status", "new"),
                ("opid/1/street/north/status", "old"),
            ]
            assert not gateway.gone.is_set()
            assert not north.gone.is_set()
        with guest(broker.port, "extra", "secret") as extra:
            assert not extra.answer.is_failure
        assert passwords(folder).items() >= known.items()


# --- beside somebody else's broker ----------------------------------------------------------------

THEIRS = """\
# their broker, one listener for all
{where}
allow_anonymous false
include_dir {folder}/conf.d
"""


def their_broker(folder: Path, port: int, where: str) -> Path:
    """A mosquitto.conf as of a home: zigbee2mqtt and Home Assistant with rules of their own."""
    (folder / "conf.d").mkdir(parents=True)
    words = ["mosquitto_passwd", "-b"]
    for flag, user in (("-c", "zigbee2mqtt"), ("", "homeassistant")):
        command = [*words, *flag.split(), str(folder / "passwd"), user, f"{user}-secret"]
        subprocess.run(command, check=True, capture_output=True, timeout=WAIT_S)
    (folder / "acl").write_text(
        "user zigbee2mqtt\ntopic readwrite zigbee2mqtt/#\ntopic write homeassistant/#\n\n"
        "user homeassistant\ntopic readwrite zigbee2mqtt/#\ntopic read homeassistant/#\n"
    )
    (folder / "conf.d/home.conf").write_text(
        f"password_file {folder}/passwd\nacl_file {folder}/acl\n"
    )
    path = folder / "mosquitto.conf"
    path.write_text(THEIRS.format(where=where.format(port=port, more=free_port()), folder=folder))
    return path


@contextmanager
def started(conf: Path, folder: Path, *ports: int) -> Iterator[None]:
    """The broker with exactly this configuration; as root it stays root, to read these folders."""
    file = folder / "run.conf"
    file.write_text(("user root\n" if os.geteuid() == 0 else "") + conf.read_text())
    server = Server("broker", [find_mosquitto(), "-c", file], folder / "mosquitto.log")
    server.answers = lambda: all(connects(port) for port in ports)  # type: ignore[method-assign]
    with server:
        yield


def their_life(port: int) -> set[str]:
    """What their accounts can do: two clients of one name at once, and their topics, no others."""
    with (
        guest(port, "homeassistant", "homeassistant-secret", "ha") as home,
        guest(port, "zigbee2mqtt", "zigbee2mqtt-secret", "z2m") as bridge,
        guest(port, "zigbee2mqtt", "zigbee2mqtt-secret", "z2m-map") as second,
        guest(port, None) as stranger,
    ):
        for topic in ("zigbee2mqtt/#", "homeassistant/#", "opid/#"):
            home.subscribe(topic)
        bridge.say("zigbee2mqtt/Living Room", "21.5")
        second.say("homeassistant/sensor/x/config", "{}")
        bridge.say("opid/1/street/north/desired", "forged")
        home.subscribe("the/end")
        assert not bridge.gone.is_set()
        assert not second.gone.is_set()
        assert stranger.answer.is_failure
        return {topic for topic, _ in home.heard}


@pytest.mark.parametrize(
    "where",
    [
        "listener {port} 127.0.0.1",
        "port {port}\nbind_address 127.0.0.1",
        "port {port}\nbind_address 127.0.0.1\nlistener {more} 127.0.0.1",
    ],
)
def test_a_broker_that_others_use_serves_them_as_before_and_us_beside_them(tmp_path, where):
    """One set of rules for all listeners put their accounts out, or forced a client id on them."""
    theirs, ours = free_port(), free_port()
    conf = their_broker(tmp_path / "home", theirs, where)
    before = conf.read_text()
    with started(conf, tmp_path, theirs):
        life = their_life(theirs)
    assert life == {"zigbee2mqtt/Living Room", "homeassistant/sensor/x/config"}
    plan = replace(PLAN, broker_port=ours, foreign=("zigbee2mqtt/#",))
    written = initialise(tmp_path / "fleet", plan, conf)
    merged = tmp_path / "fleet/mosquitto/mosquitto.conf"
    assert merged in written
    known = passwords(tmp_path / "fleet")
    with started(merged, tmp_path, theirs, ours):
        assert their_life(theirs) == life
        with (
            guest(ours, "street.north", known["street.north"]) as node,
            guest(ours, "gateway", known["gateway"]) as gateway,
            guest(theirs, "zigbee2mqtt", "zigbee2mqtt-secret", "z2m") as bridge,
            guest(ours, "zigbee2mqtt", "zigbee2mqtt-secret", "z2m-2") as lost,
            guest(theirs, "street.north", known["street.north"], "n") as astray,
        ):
            assert lost.answer.is_failure
            assert astray.answer.is_failure
            node.subscribe("zigbee2mqtt/#")
            node.subscribe("homeassistant/#")
            node.subscribe("opid/1/street/north/desired")
            bridge.say("zigbee2mqtt/Living Room", "22")
            node.say("zigbee2mqtt/Living Room/set", "forged")
            gateway.say("opid/1/street/north/desired", "order")
            node.subscribe("the/end")
            assert node.heard == [
                ("zigbee2mqtt/Living Room", "22"),
                ("opid/1/street/north/desired", "order"),
            ]
    assert conf.read_text() == before


def test_their_port_is_not_taken_and_nothing_is_written(tmp_path):
    conf = their_broker(tmp_path / "home", 1883, "listener {port}")
    with pytest.raises(FolderError, match=r"port 1883 is used .* --broker-port 1884"):
        initialise(tmp_path / "fleet", PLAN, conf)
    assert not (tmp_path / "fleet").exists()


def test_a_broker_without_a_word_about_strangers_stays_as_open_as_it_was():
    """Without a listener mosquitto 2 serves this machine, nameless; with ours beside it, still."""
    text = with_listener("persistence false\n", "listener 1884\n", 1884)
    assert text.splitlines() == [
        "per_listener_settings true",
        "listener 1883 localhost",
        "allow_anonymous true",
        "persistence false",
        "listener 1884",
    ]


@pytest.mark.parametrize(
    ("named", "listener"),
    [
        ("port 1882", "listener 1882"),
        ("port 1882\nbind_address 10.0.0.5", "listener 1882 10.0.0.5"),
        ("bind_address 10.0.0.5", "listener 1883 10.0.0.5"),
    ],
)
@pytest.mark.parametrize("others", ["", "listener 9001\nprotocol websockets\n"])
def test_a_listener_of_the_old_spelling_is_kept_beside_the_others(named, listener, others):
    """`port 1883` and a websocket beside it: everybody on 1883 was put out, and `bind_address`
    alone became a listener for this machine, open to everybody on it.
    """
    text = with_listener(f"{named}\npassword_file p\n{others}", "listener 1884\n", 1884)
    expected = ["per_listener_settings true", listener, "password_file p"]
    if others:
        expected += ["listener 9001", "password_file p", "protocol websockets"]
    assert text.splitlines() == [*expected, "listener 1884"]
    port = int(listener.split()[1])
    with pytest.raises(FolderError, match=f"port {port} is used"):
        with_listener(f"{named}\n{others}", f"listener {port}\n", port)


def test_a_listener_without_a_port_is_left_for_mosquitto_to_refuse():
    """A line that somebody has not finished was a traceback."""
    assert with_listener("listener\n", "listener 1884\n", 1884).splitlines()[1] == "listener"


def test_rules_that_are_per_listener_already_are_left_as_they_are():
    theirs = "per_listener_settings true\nlistener 1883\nallow_anonymous true\n"
    assert with_listener(theirs, "listener 1884\n", 1884) == theirs + "listener 1884\n"
