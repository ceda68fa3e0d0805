"""What a broker has to offer: every device as its own makers let it speak, and no other words."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.home import LIVE, RETAINED, payload
from support.mosquitto import HOST, Mosquitto, free_port

from edge_opid.cli.discover import known_of
from edge_opid.config.service import parse_config
from edge_opid.config.starting_file import starting_file
from edge_opid.discovery import homeassistant, zigbee2mqtt
from edge_opid.discovery.heard import Heard, HeardTopic
from edge_opid.discovery.names import sensor_id, slug, unique
from edge_opid.discovery.proposal import Known, propose, toml_lines
from edge_opid.service.status_file import write_status
from edge_opid.wire.foreign import parse

CLASSES = ("empty", "occupied")


def home(*, rounds: int = 3, every_s: float = 10.0) -> Heard:
    heard = Heard()
    for topic, said in RETAINED.items():
        heard.add(topic, payload(said), retained=True, at_s=0.0)
    for number in range(rounds):
        for topic, said in LIVE.items():
            heard.add(topic, payload(said), retained=False, at_s=every_s * number)
    return heard


def whole_file(lines: str, classes: tuple[str, ...] = CLASSES) -> str:
    return starting_file(
        site="home", node="n1", classes=classes, host=HOST, port=1883, sensors=lines
    )


def written(heard: Heard, known: Known | None = None) -> str:
    return "".join(f"{line}\n" for line in toml_lines(propose(heard, known)))


def fields(text: str) -> dict[tuple[str, str], str]:
    """(topic, path) → sensor id, as the file says."""
    found = {}
    for each in tomllib.loads(text)["foreign"]:
        named = each["fields"]
        for path, sensor in named.items() if isinstance(named, dict) else [("", named)]:
            found[each["filter"], path] = sensor
    return found


EXPECTED = {
    ("zigbee2mqtt/Living Room", "temperature"): "living-room-temperature",
    ("zigbee2mqtt/Living Room", "humidity"): "living-room-humidity",
    ("zigbee2mqtt/Schlafzimmer Größe 2", "temperature"): "schlafzimmer-grosse-temperature",
    ("zigbee2mqtt/Schlafzimmer Größe 2", "humidity"): "schlafzimmer-grosse-2-humidity",
    ("zigbee2mqtt/upstairs/Hall PIR", "occupancy"): "upstairs-hall-pir-occupancy",
    ("zigbee2mqtt/upstairs/Hall PIR", "illuminance"): "upstairs-hall-pir-illuminance",
    ("zigbee2mqtt/Front door", "contact"): "front-door-contact",
    ("zigbee2mqtt/Lamp", "state"): "lamp-state",
    ("zigbee2mqtt/Lamp", "brightness"): "lamp-brightness",
    ("zigbee2mqtt/Lamp", "color.x"): "lamp-x",
    ("zigbee2mqtt/Lamp", "color.y"): "lamp-y",
    ("tele/wash/SENSOR", "ENERGY.Power"): "wash-machine-power",
    ("tele/wash/SENSOR", "ENERGY.Voltage"): "wash-machine-voltage",
    ("tele/wash/SENSOR", "ENERGY.Today"): "wash-machine-today",
    ("tele/wash/SENSOR", "DS18B20-1.Temperature"): "wash-machi-ds18b20-1-temperature",
    ("tele/wash/SENSOR", "DS18B20-2.Temperature"): "wash-machi-ds18b20-2-temperature",
    ("tele/wash/STATE", "POWER"): "tele-wash-state-power",
    ("esp-kitchen/sensor/kitchen_co2/state", ""): "esp-kitchen-kitchen-co2",
    ("shelly-1/status/switch:0", "apower"): "boiler-power",
    ("esp-attic/sensor/air_temp/state", ""): "esp-attic-air-temp",
    ("esp-attic/binary_sensor/motion/state", ""): "esp-attic-motion",
    ("greenhouse/bench 3/soil", ""): "greenhouse-bench-3-soil",
    ("greenhouse/weather", "wind.speed"): "greenhouse-weather-wind-speed",
    ("greenhouse/weather", "rain"): "greenhouse-weather-rain",
}


def test_every_value_of_a_home_is_proposed_once_under_a_name_that_can_be_read():
    """Capitals, blanks, slashes and umlauts are usual in names; `+` cannot stand for them."""
    text = written(home())
    assert fields(text) == EXPECTED
    config = parse_config(whole_file(text), {})
    assert len(config.node.sensors) == len(EXPECTED)
    assert not [each.filter for each in config.node.foreign if "+" in each.filter]


def test_what_is_proposed_is_what_a_node_then_reads():
    """The oracle is the node's own reading of the very messages that were heard."""
    config = parse_config(whole_file(written(home())), {})
    read = {}
    for each in config.node.foreign:
        said = LIVE.get(each.filter, RETAINED.get(each.filter))
        if said == "nan":
            continue
        values, label = parse(payload(said), each.filter, each.topic)
        assert label is None
        read |= values
    assert read["living-room-temperature"] == 21.5
    assert read["upstairs-hall-pir-occupancy"] == 1.0
    assert read["front-door-contact"] == 0.0
    assert read["boiler-power"] == 1200.5
    assert read["esp-kitchen-kitchen-co2"] == 742.0
    silent = {"schlafzimmer-grosse-2-humidity", "esp-attic-air-temp"}  # null, and nan
    assert read.keys() == {each.id for each in config.node.sensors} - silent


def test_units_examples_and_rhythm_stand_beside_the_proposals():
    text = written(home())
    assert 'id = "living-room-temperature"  # 21.5 °C' in text
    assert 'id = "wash-machine-power"  # 412 W' in text
    assert 'id = "esp-kitchen-kitchen-co2"  # 742 ppm' in text
    assert "# zigbee2mqtt: Living Room (heard 3 times, about every 10 s)" in text
    assert "# Home Assistant discovery: esp-kitchen (retained, not heard live)" in text
    assert "# Home Assistant discovery: Boiler (heard 3 times, about every 10 s)" in text


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("zigbee2mqtt/Living Room: linkquality", "about the device itself"),
        ("zigbee2mqtt/Living Room: battery", "about the device itself"),
        ("zigbee2mqtt/Lamp: effect", "can be set but is not published"),
        ("zigbee2mqtt/Lamp: transition", "a setting of the device"),
        ("zigbee2mqtt/Safe: state", "'LOCK' and 'UNLOCK'"),
        ("zigbee2mqtt/a+b: temperature", "+ or #"),
        ("shelly-1/mode: (text)", "more than a path"),
        ("greenhouse/weather: sky", "'cloudy' is neither a number"),
        ("greenhouse/picture", "not text"),
    ],
)
def test_what_cannot_be_mapped_is_said_with_its_reason(what, why):
    line = next(line for line in written(home()).splitlines() if line.startswith(f"#   {what}: "))
    assert why in line


@pytest.mark.parametrize(
    "topic",
    [
        "zigbee2mqtt/bridge",
        "availability",
        "LWT",
        "greenhouse/pump/set",
        "opid/1",
        "homeassistant/",
    ],
)
def test_orders_announcements_and_our_own_topics_are_not_sensors(topic):
    lines = [each for each in written(home()).splitlines() if not each.startswith("availability")]
    assert topic not in "\n".join(lines)


def test_presence_is_proposed_as_truth_too_and_as_a_comment_only():
    """Learned from and learned as at once, it would be right every time and useless."""
    text = written(home(), Known(classes=CLASSES))
    assert '# [[truth]]\n# filter = "zigbee2mqtt/upstairs/Hall PIR"\n# field = "occupancy"' in text
    assert '# values = { true = "occupied", false = "empty" }' in text
    assert '# values = { on = "occupied", off = "empty" }' in text
    assert "truth" not in tomllib.loads(text)
    kept = [line for line in text.splitlines() if "front-door-contact" not in line]
    assert "contact" not in "\n".join(line for line in kept if line.startswith("# field"))


def test_the_truth_that_is_proposed_is_one_that_a_node_takes():
    """Whoever follows the comment deletes the sensor and its field, and takes away the hashes."""
    text = written(home(), Known(classes=CLASSES))
    text = re.sub(r"(?m)^# (?=\[\[truth|filter = |field = |values = |valid_s = )", "", text)
    text = text.replace('occupancy = "upstairs-hall-pir-occupancy", ', "")
    text = re.sub(r'(?s)\[\[sensors\]\]\nid = "upstairs-hall-pir-occupancy".*?\n\n', "", text)
    config = parse_config(whole_file(text), {})
    hall, attic = config.node.truth
    assert (hall.valid_s, attic.valid_s) == (1800, 1800)  # without it, one instance a message
    assert hall.topic.label_in(payload(LIVE["zigbee2mqtt/upstairs/Hall PIR"])) == "occupied"
    assert hall.topic.label_in(b'{"occupancy": false}') == "empty"
    assert attic.topic.label_in(b"OFF") == "empty"
    assert "upstairs-hall-pir-occupancy" not in {each.id for each in config.node.sensors}


def test_what_a_configuration_has_is_not_proposed_again_and_no_name_is_taken_twice():
    known = Known(
        names=frozenset({"living-room-humidity", "lamp-x"}),
        topics=frozenset({"zigbee2mqtt/Front door"}),
    )
    found = fields(written(home(), known))
    assert ("zigbee2mqtt/Front door", "contact") not in found
    assert found["zigbee2mqtt/Living Room", "humidity"] == "living-room-humidity-2"
    assert found["zigbee2mqtt/Lamp", "color.x"] == "lamp-x-2"
    assert len(set(found.values())) == len(found) == len(EXPECTED) - 1


def test_more_than_a_node_can_hold_is_cut_and_said():
    heard = Heard()
    for number in range(200):
        heard.add(f"field/{number}/temp", b"1", retained=False, at_s=0.0)
    text = written(heard)
    config = parse_config(whole_file(text), {})
    assert config.node.columns == 161
    assert text.count("a node has room for 160 sensors") == 200 - 160


def test_a_sensor_takes_one_place_whatever_its_role_is_called():
    """Its id and its role were counted as two: with 80 sensors, nothing more was proposed."""
    heard = Heard()
    heard.add("field/temp", b"1", retained=False, at_s=0.0)
    names = frozenset(f"{what}-{number}" for number in range(159) for what in ("id", "role"))
    assert "[[sensors]]" in written(heard, Known(names=names, sensors=159))
    assert "room for 160 sensors" in written(heard, Known(names=names, sensors=160))
    lines = "".join(f'[[sensors]]\nid = "s{n}"\nrole = "r{n}"\n' for n in range(100))
    assert known_of(parse_config(whole_file(lines), {})).sensors == 100


def test_a_field_that_a_file_cannot_hold_is_said_and_costs_nothing_else():
    """JSON may escape half a character: `discover` ended in a traceback, and printed nothing."""
    heard = Heard()
    heard.add("field/box", b'{"half \\ud83d": 1, "temp": 2}', retained=False, at_s=0.0)
    template = "{{ value_json['\\ud83d'] }}"
    config = f'{{"state_topic": "field/other", "value_template": "{template}"}}'
    heard.add("homeassistant/sensor/x/config", config.encode(), retained=True, at_s=0.0)
    text = written(heard)
    assert text.encode().count(b"not text that a file can hold") == 2
    assert fields(text) == {("field/box", "temp"): "field-box-temp"}


@pytest.mark.parametrize(
    ("template", "path"),
    [
        ("{{ value_json['1'] }}", "1"),
        ("{{ value_json[1] }}", "[1]"),
        ("{{ value_json['a.b'] }}", None),
        ("{{ value_json['[0]'] }}", None),
        ("{{ value_json.a['b c'][2].d }}", "a.b c[2].d"),
    ],
)
def test_a_template_is_understood_as_the_same_value_or_not_at_all(template, path):
    """A path that leads elsewhere is a sensor that is never heard, and nobody is told."""
    assert homeassistant._path(template) == path


def test_a_payload_is_one_value_or_several_and_not_both():
    """Two announcements contradict each other: the second sensor would never have had a value."""
    heard = Heard()
    for name, template in (("whole", "{{ value }}"), ("part", "{{ value_json.t }}")):
        config = json.dumps({"state_topic": "field/box", "value_template": template})
        heard.add(f"homeassistant/sensor/{name}/config", config.encode(), retained=True, at_s=0.0)
    text = written(heard)
    assert list(fields(text)) == [("field/box", "")]
    assert len(parse_config(whole_file(text), {}).node.sensors) == 1
    assert "field/box: t: another value of this topic is announced" in text


def test_a_name_that_would_end_the_line_stays_in_it():
    """Anybody may call a device so; the file must still say what it says."""
    heard = Heard()
    value = {"type": "numeric", "property": "t", "access": 1, "unit": "\n[node]"}
    names = ('x"\n[node]\nsite = "evil', "x\" [node] 'y")
    devices = [{"friendly_name": name, "definition": {"exposes": [value]}} for name in names]
    heard.add("zigbee2mqtt/bridge/devices", json.dumps(devices).encode(), retained=True, at_s=0.0)
    text = written(heard)
    config = parse_config(whole_file(text), {})
    assert (config.node.site, len(config.node.sensors)) == ("home", 1)
    assert config.node.foreign[0].filter == "zigbee2mqtt/x\" [node] 'y"
    assert "must be printable text" in text


@pytest.mark.parametrize(
    ("device", "measure", "name"),
    [
        ("Living Room", "temperature", "living-room-temperature"),
        ("Attic Temperature", "temperature", "attic-temperature"),
        ("esp-1", "esp-1 co2", "esp-1-co2"),
        ("客厅", "温度", "device"),
        ("", "temp", "temp"),
        ("x" * 40, "temperature", "x" * 20 + "-temperature"),
        ("a", "y" * 40, "y" * 32),
    ],
)
def test_the_rule_for_names(device, measure, name):
    assert sensor_id(device, measure) == name


def test_numbered_names_keep_within_their_length():
    assert unique("x" * 32, {"x" * 32}) == "x" * 30 + "-2"
    assert slug("  Ünder_the—Stairs!! ") == "under-the-stairs"


# --- whatever arrives -----------------------------------------------------------------------------

KEYS = st.sampled_from(
    (
        *("friendly_name", "definition", "exposes", "property", "type", "access", "features"),
        *("unit", "value_on", "value_off", "stat_t", "val_tpl", "dev", "name", "p", "cmps", "~"),
        *("dn", "t", "ft", "tp", "sn", "Temperature", "a.b", "x[0]", "[0]", "battery"),
        "half of \ud83d",
    )
)
TEXTS = (
    *("x", "numeric", "binary", "sensor", "composite", "{{ value }}", "{{ value_json.a }}", "~/a"),
    *("%topic%", "\x00", "ON", "nan", "é" * 40, "+", "#/", "opid/1/x"),
)
LEAVES = st.sampled_from((None, True, 1, -1.5, 1e308, *TEXTS))
DOCUMENTS = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6)
)
TOPICS = st.sampled_from(
    (
        *("z/bridge/devices", "h/sensor/n/o/config", "h/device/o/config", "a/b"),
        *("h/binary_sensor/o/config", "tasmota/discovery/A/config", "e/sensor/x/state"),
        "tasmota/discovery/A/sensors",
    )
)


@settings(max_examples=120, deadline=None)
@given(st.lists(st.tuples(TOPICS, DOCUMENTS, st.booleans()), max_size=6))
def test_whatever_devices_say_the_proposal_is_a_file_that_loads(messages):
    """Anybody may publish anything under these names."""
    heard = Heard()
    for topic, said, raw in messages:
        data = str(said).encode(errors="replace") if raw else json.dumps(said).encode()
        heard.add(topic, data, retained=raw, at_s=1.0)
    text = written(heard)
    text.encode()
    tomllib.loads(text)
    if "[[sensors]]" in text:
        parse_config(whole_file(text), {})


def test_features_within_features_end_somewhere(monkeypatch):
    """Later Pythons read JSON that is nested deeper than one function may call itself."""
    expose = {"property": "temperature", "access": 1, "type": "numeric"}
    for _ in range(2_000):
        expose = {"features": [expose]}
    device = {"friendly_name": "attic", "definition": {"exposes": [expose]}}
    monkeypatch.setattr(HeardTopic, "document", [device])
    heard = Heard()
    heard.add("zigbee2mqtt/bridge/devices", b"", retained=True, at_s=0.0)
    assert list(zigbee2mqtt.find(heard)) == []


def test_a_flood_of_topics_is_left_out_and_counted():
    heard = Heard()
    for number in range(5_100):
        heard.add(f"t/{number}", b"1", retained=False, at_s=0.0)
    assert (len(heard.topics), heard.left_out) == (5_000, 100)
    assert "100 messages of other topics were left out" in written(heard)


# --- the verb, with a real broker -----------------------------------------------------------------


def opid_node(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "edge_opid", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory):
    """A home that goes on speaking while the tests run."""
    with Mosquitto(tmp_path_factory.mktemp("broker")) as one:
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, "home")
        client.connect(HOST, one.port)
        client.loop_start()
        for topic, said in RETAINED.items():
            client.publish(topic, payload(said), qos=1, retain=True).wait_for_publish(10)
        over = threading.Event()

        def speak() -> None:
            while not over.wait(0.1):
                for topic, said in LIVE.items():
                    client.publish(topic, payload(said))

        thread = threading.Thread(target=speak)
        thread.start()
        yield one
        over.set()
        thread.join()
        client.disconnect()
        client.loop_stop()


def test_what_the_verb_prints_is_what_check_accepts(broker, tmp_path):
    """From a broker to a file that a node starts with, in two commands."""
    ran = opid_node("discover", "--host", HOST, "--port", broker.port, "--seconds", 2)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert f"# Heard from {HOST}:{broker.port} in 2 s: 24 sensors on 13 topics" in ran.stdout
    assert fields(ran.stdout) == EXPECTED
    assert "times, about every 0." in ran.stdout
    file = tmp_path / "node.toml"
    file.write_text(whole_file(ran.stdout))
    checked = opid_node("check", file)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "zigbee2mqtt/Living Room" in checked.stdout
    again = opid_node("discover", file, "--host", HOST, "--port", broker.port, "--seconds", 1)
    assert again.returncode == 0
    assert "[[sensors]]" not in again.stdout


def test_a_filter_narrows_what_is_heard(broker):
    words = ["discover", "--host", HOST, "--port", broker.port, "--seconds", 1]
    ran = opid_node(*words, "--filter", "greenhouse/#")
    assert {topic for topic, _ in fields(ran.stdout)} == {
        "greenhouse/bench 3/soil",
        "greenhouse/weather",
    }


def test_a_broker_that_is_silent_or_not_there_is_told_apart(tmp_path):
    with Mosquitto(tmp_path / "broker") as one:
        ran = opid_node("discover", "--host", HOST, "--port", one.port, "--seconds", 0.5)
    assert ran.returncode == 1
    assert "nothing was heard" in ran.stderr
    ran = opid_node("discover", "--host", HOST, "--port", free_port(), "--seconds", 0.5)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "cannot be reached" in ran.stderr


def test_a_running_node_is_not_pushed_out_by_its_own_name(tmp_path):
    """A broker that calls clients by their user name would end the node's session."""
    (tmp_path / "credentials").write_text("home.n1\nsecret\n")
    (tmp_path / "credentials").chmod(0o600)
    text = whole_file('[[sensors]]\nid = "t"\n').replace('# credentials = "', 'credentials = "')
    text = text.replace("/run/opid-node/status.json", str(tmp_path / "status.json"))
    file: Path = tmp_path / "node.toml"
    file.write_text(text)
    write_status(tmp_path / "status.json", {"running": True})
    ran = opid_node("discover", file, "--seconds", 0.5)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "is running" in ran.stderr
    assert "--credentials of another account" in ran.stderr
    os.utime(tmp_path / "status.json", (0, 0))  # it died long ago
    assert "is running" not in opid_node("discover", file, "--seconds", 0.5).stderr
