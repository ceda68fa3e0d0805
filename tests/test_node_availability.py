"""A device that says it died need not be waited for; one that is back is waited for anew."""

from __future__ import annotations

import json

import pytest
from support.rig import Rig

from edge_opid.config.node import ForeignConfig, NodeConfig, SensorConfig
from edge_opid.config.service import parse_config
from edge_opid.discovery.heard import Heard
from edge_opid.discovery.proposal import propose, toml_lines
from edge_opid.errors import SettingError, WireError
from edge_opid.wire import Channel, SensorReturned, SensorSilent
from edge_opid.wire.foreign import is_online

SENSORS = tuple(
    SensorConfig(name, reference=0.0, scale=1.0, timeout_s=600.0)
    for name in ("attic-t", "attic-h", "hall-t")
)
FIELDS = {"t": "{1}-t", "h": "{1}-h"}
CLIMATE = ForeignConfig("z/+", "{1}", FIELDS, availability="z/+/availability")


def rig_of(**changes) -> Rig:
    rig = Rig.make(**{"sensors": SENSORS, "foreign": (CLIMATE,), **changes})
    for second in range(1, 6):
        tell(rig, "attic", second, t=1.0, h=2.0)
        tell(rig, "hall", second, t=3.0)
    return rig


def tell(rig, device, second, **values):
    rig.handle(f"z/{device}", json.dumps(values).encode(), 1_000 * second, token=second)


def say(rig, device, payload, second, retained=False):
    topic = f"z/{device}/availability"
    rig.handle(topic, payload, 1_000 * second, token=second, retained=retained)


def silent(rig):
    return rig.node.state.local_models.silent


def events(rig, kind):
    return [each.sensor for each in rig.messages(Channel.EVENT, kind)]


def replayed(rig):
    rig.commit(0)
    assert rig.reborn().frozen() == rig.frozen()


@pytest.mark.parametrize("payload", [b'{"state":"offline"}', b"Offline", b"offline\n"])
def test_a_device_that_says_it_died_is_not_waited_for(payload):
    """Ten minutes would pass before its timeout does; and nobody else falls silent with it."""
    rig = rig_of()
    say(rig, "attic", payload, 10)
    assert silent(rig) == ("attic-t", "attic-h")
    assert events(rig, SensorSilent) == ["attic-t", "attic-h"]
    assert rig.node.counts["device-offline"] == 1
    say(rig, "attic", payload, 11)  # and once more
    assert events(rig, SensorSilent) == ["attic-t", "attic-h"]
    replayed(rig)


def test_it_returns_by_a_reading():
    rig = rig_of()
    say(rig, "attic", b"offline", 10)
    tell(rig, "attic", 20, t=1.5, h=2.5)
    assert silent(rig) == ()
    assert events(rig, SensorReturned) == ["attic-t", "attic-h"]
    replayed(rig)


def test_it_returns_by_its_word_and_has_its_time_to_speak():
    """Its last value is an hour old: judged by that, it would fall silent at the next tick."""
    rig = rig_of()
    say(rig, "attic", b"offline", 10)
    for second in range(60, 3_600, 60):
        tell(rig, "hall", second, t=3.0)
        rig.tick(1_000 * second)
    say(rig, "attic", b"online", 3_600)
    tell(rig, "hall", 3_660, t=3.0)
    rig.tick(3_660_000)
    assert silent(rig) == ()
    for second in range(3_720, 4_400, 60):
        tell(rig, "hall", second, t=3.0)
        rig.tick(1_000 * second)
    assert silent(rig) == ("attic-t", "attic-h")  # it said so, and then said nothing
    replayed(rig)


def test_what_the_broker_has_kept_is_so_still():
    """A node that was away learns at its first breath that a device is gone."""
    rig = rig_of()
    say(rig, "attic", b'{"state":"offline"}', 10, retained=True)
    assert silent(rig) == ("attic-t", "attic-h")


@pytest.mark.parametrize(
    "payload", [b"", b"maybe", b"{}", b'{"state": null}', b'{"state": [', b"\xff"]
)
def test_what_says_neither_changes_nothing(payload):
    rig = rig_of()
    before = rig.frozen()
    say(rig, "attic", payload, 10)
    assert sum(n for name, n in rig.node.counts.items() if name.startswith("refused-")) == 1
    assert rig.frozen() == before
    with pytest.raises(WireError):
        is_online(payload)


def test_the_last_device_is_not_given_up():
    """With nobody left there is nothing to predict from: what is held is better."""
    rig = rig_of()
    say(rig, "attic", b"offline", 10)
    say(rig, "hall", b"offline", 11)
    assert silent(rig) == ("attic-t", "attic-h")
    replayed(rig)


def test_strangers_change_nothing():
    rig = rig_of()
    before = rig.frozen()
    say(rig, "cellar", b"offline", 10)
    assert rig.frozen() == before


def test_an_availability_that_could_not_say_whose_it_is_is_refused():
    foreign = ForeignConfig("z/+", "{1}", FIELDS, availability="z/availability")
    options = {"site": "farm", "node": "n1", "classes": ("x", "y"), "sensors": SENSORS}
    with pytest.raises(SettingError, match="availability"):
        NodeConfig(**options, foreign=(foreign,))
    assert "z/+/availability" in rig_of().node.subscriptions()


def announced(state_topic, **config):
    name = state_topic.replace("/", "-")
    return f"homeassistant/sensor/{name}/t/config", json.dumps(
        {"state_topic": state_topic, "unit_of_measurement": "°C", "name": "t", **config}
    ).encode()


@pytest.mark.parametrize(
    ("messages", "wanted"),
    [
        ({"z/Hall": b'{"t": 1.5}', "z/Hall/availability": b'{"state":"online"}'},
         "z/Hall/availability"),
        ({"tele/desk/SENSOR": b'{"t": 1.5}', "tele/desk/LWT": b"Online"}, "tele/desk/LWT"),
        ({"esp/sensor/t/state": b"1.5", "esp/status": b"online"}, "esp/status"),
        ({"x/t": b"1.5", **dict([announced("x/t", availability_topic="x/there")])}, "x/there"),
        ({"x/t": b"1.5", **dict([announced("x/t", avty=[{"t": "~/lwt"}], **{"~": "x"})])}, "x/lwt"),
        ({"x/t": b"1.5", **dict([announced("x/t", avty_t="x/a", pl_avail="yes")])}, None),
        ({"x/t": b"1.5", "x/t/availability": b"7"}, None),
        ({"x/t": b"1.5"}, None),
    ],
)  # fmt: skip
def test_what_is_there_is_proposed_with_its_availability(messages, wanted):
    """As each kind of device says it, and only where a node would understand it."""
    heard = Heard()
    for topic, payload in messages.items():
        heard.add(topic, payload, retained=False, at_s=0.0)
    lines = "\n".join(toml_lines(propose(heard)))
    text = '[node]\nsite="s"\nnode="n"\nclasses=["a","b"]\n[state]\nfolder="x"\n' + lines
    found = [each.availability for each in parse_config(text, {}).node.foreign]
    assert found == [wanted or ""]
