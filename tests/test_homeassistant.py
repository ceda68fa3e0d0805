"""A node as a device of Home Assistant: its announcement, its events, and when they are said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jinja2
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rig import CLASSES, KEY, TOPICS, Rig, config, description, desired

from edge_opid.config.service import parse_config
from edge_opid.discovery.heard import Heard
from edge_opid.discovery.proposal import Known, propose
from edge_opid.errors import ConfigError
from edge_opid.homeassistant.announcer import BIRTH_MS, SETTLE_MS, SPREAD_MS, STEP_MS, Announcer
from edge_opid.homeassistant.documents import Described, Kept, announcement, object_id
from edge_opid.node.node import Node
from edge_opid.wire import Channel, Status, encode_as, to_json
from gateway.setup.initialise import SetupPlan, add_nodes, initialise

ids = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,31}", fullmatch=True)
CONFIG = "homeassistant/device/opid_farm_n1/config"
EVENT = "homeassistant/device/opid_farm_n1/event"
BIRTH = "homeassistant/status"
NODE = Described("farm", "n1", CLASSES, {"a": "a", "b": "b", "c": "c"})
BLUEPRINT = Path(__file__).parents[1] / "docs/homeassistant/asked.yaml"


def rig_of(**changes) -> Rig:
    """A node that was just put together."""
    node = Node(config(homeassistant=True, **changes), [KEY.verify_key])
    node.homeassistant = Announcer(node.config, node.tally)
    return Rig(node)


def said(rig, topic=CONFIG):
    """The documents on a topic, the oldest first; each is retained where it must be."""
    found = [(payload, retain) for where, payload, retain in rig.published if where == topic]
    assert all(retain == (topic == CONFIG) for _, retain in found)
    return [json.loads(payload) for payload, _ in found]


def connect(rig, now_ms, kept: bytes | None = None):
    """A connection, and what the broker has kept; every tick until all is said."""
    rig.run(rig.node.on_connected(now_ms), now_ms)
    if kept is not None:
        rig.handle(CONFIG, kept, now_ms + 100, token="kept", retained=True)
    for later_ms in range(0, SETTLE_MS + STEP_MS + 1_000, 250):
        rig.tick(now_ms + later_ms)


def roles(document):
    """Role → whether it is there in full, or as a tombstone."""
    found = document["components"].items()
    return {k.removeprefix("role_"): len(c) > 1 for k, c in found if k.startswith("role_")}


def rendered(template, said=None, **more):
    """A template as Home Assistant renders it, with the JSON that arrived."""
    document = {} if said is None else {"value_json": json.loads(said)}
    return jinja2.Environment(autoescape=False).from_string(template).render(**document, **more)


# -- the document ----------------------------------------------------------------------------------


@settings(deadline=None, max_examples=50)
@given(ids, ids, ids, ids)
def test_no_two_nodes_share_a_name(site, node, other_site, other_node):
    """Site a_b with node c, and site a with node b_c: joined carelessly they are one device."""
    same = (site, node) == (other_site, other_node)
    assert (object_id(site, node) == object_id(other_site, other_node)) == same


def test_a_replaced_sensor_keeps_its_entity():
    """By the sensor's id, a new probe would be a new entity without a past."""
    before = json.loads(announcement(NODE))["components"]["role_b"]
    another = Described("farm", "n1", CLASSES, {"a": "a", "b": "b-2", "c": "c"})
    after = json.loads(announcement(another))["components"]["role_b"]
    assert before["unique_id"] == after["unique_id"] == "opid_farm_n1_role_b"
    assert before["value_template"] != after["value_template"]


@settings(deadline=None, max_examples=50)
@given(st.lists(ids, min_size=1, max_size=40, unique=True))
def test_every_entity_has_a_name_of_its_own(names):
    """A role called `prediction`, or two that differ in an underscore, must not take another's."""
    document = json.loads(announcement(Described("s", "n", CLASSES, dict.fromkeys(names, "x"))))
    unique = [each["unique_id"] for each in document["components"].values()]
    assert len(set(unique)) == len(unique) == len(names) + 8


def test_every_template_takes_what_a_node_says_and_its_last_will():
    """The will has hardly a key: a template that needs more logs an error at every power cut."""
    rig = rig_of()
    rig.read(1, {"a": 1.0, "b": 0.0, "c": 1.0}, "stale")
    rig.read(2, {"a": 1.0, "b": 0.0, "c": 1.0})
    unknown, known = (p for t, p, _ in rig.published if t.endswith("/prediction"))
    will = encode_as("json", Status.last_will(1, 2, 3))
    whole = to_json(
        Status(
            online=True,
            layout_version=1,
            model_version=2,
            accuracy={"own": 0.5, "model": 0.912, "bridge": 0.99},
            degraded=("silent: b",),
            silent=("b",),
        )
    )
    document = json.loads(announcement(NODE))
    parts, [online] = document["components"], document["availability"]
    assert [rendered(online["value_template"], s) for s in (whole, will)] == ["online", "offline"]

    def value(name, payload):
        return rendered(parts[name]["value_template"], payload)

    assert [value("prediction", p) for p in (unknown, known)] == ["None", "stale"]
    assert 0 < float(value("confidence", known)) <= 100
    assert [value("accuracy", s) for s in (whole, will)] == ["91.2", "None"]
    assert [value("degraded", s) for s in (whole, will)] == ["ON", "OFF"]
    assert [value("role_b", s) for s in (whole, will)] == ["OFF", "ON"]
    assert value("role_a", whole) == "ON"
    assert value("model_version", will) == "2"
    reasons = rendered(parts["degraded"]["json_attributes_template"], whole)
    assert json.loads(reasons) == {"reasons": ["silent: b"]}
    pressable = parts["right"]["availability"][1]["value_template"]
    assert [rendered(pressable, p) for p in (unknown, known)] == ["offline", "online"]


@pytest.mark.parametrize("entity", ["label", "right"])
def test_an_answer_is_learned_for_the_instance_that_was_shown(entity):
    """Readings go on while a person makes up their mind."""
    rig = rig_of()
    for seq in range(1, 6):
        rig.read(seq, {"a": float(seq), "b": 0.0, "c": 1.0}, "bad" if seq == 1 else None)
    shown = [p for t, p, _ in rig.published if t.endswith("/prediction")][2]
    component = json.loads(announcement(NODE))["components"][entity]
    attributes = json.loads(rendered(component["json_attributes_template"], shown))
    command = rendered(
        component["command_template"], value="stale", this={"attributes": attributes}
    )
    assert component["command_topic"] == str(TOPICS.to(Channel.LABEL))
    rig.handle(component["command_topic"], command.encode(), 600, token=0)
    wanted = "stale" if entity == "label" else json.loads(shown)["label"]
    entry = rig.node.state.recent.find(rig.predictions()[2].instance)
    assert CLASSES[entry.lesson.label] == wanted
    assert rig.node.counts["learned"] == 2  # the first reading's, and this one


def test_a_label_given_before_any_prediction_is_about_now():
    """A select that has no instance yet sends null."""
    component = json.loads(announcement(NODE))["components"]["label"]
    command = rendered(component["command_template"], value="stale", this={"attributes": {}})
    assert json.loads(command) == {"label": "stale", "instance": None}


# -- when it is said -------------------------------------------------------------------------------


def test_a_node_announces_itself_once_after_each_connection():
    """Not at every status, and not before the broker had time to bring what it has kept."""
    rig = rig_of()
    connect(rig, 0)
    assert [roles(each) for each in said(rig)] == [dict.fromkeys("abc", True)]
    for now_ms in range(10_000, 100_000, 1_000):
        rig.tick(now_ms)
    assert len(said(rig)) == 1
    rig.node.on_disconnected()
    connect(rig, 100_000, kept=json.dumps(said(rig)[-1]).encode())
    assert len(said(rig)) == 2
    assert said(rig, EVENT) == []
    assert rig.node.counts["announced"] == 2


def test_home_assistant_is_told_again_some_seconds_after_its_birth_message():
    """It says so before it has subscribed to anything, and nobody keeps the message."""
    rig = rig_of()
    connect(rig, 0)
    rig.handle(BIRTH, b"online", 10_000, token="birth")
    rig.tick(10_000 + BIRTH_MS - 1)
    assert len(said(rig)) == 1
    rig.tick(10_000 + BIRTH_MS + SPREAD_MS)
    assert len(said(rig)) == 2
    rig.handle(BIRTH, b"offline", 30_000, token="death")
    rig.tick(60_000)
    assert len(said(rig)) == 2
    assert rig.released == ["birth", "death"]


def test_a_hundred_nodes_do_not_answer_at_once():
    """A thousand entities in one moment would be what Home Assistant begins its day with."""
    late = [Announcer(config(node=f"n{n}"), rig_of().node.tally)._late_ms for n in range(100)]
    assert len(set(late)) > 90
    assert max(late) - min(late) > SPREAD_MS / 2
    assert max(late) < SPREAD_MS


def test_a_role_that_goes_for_good_is_announced_in_full_and_then_buried():
    """Left out it would stay, unavailable for ever; a tombstone alone is not understood."""
    rig = rig_of()
    connect(rig, 0)
    rig.order(desired(1, sensors=("a", "c")), now_ms=20_000)
    for now_ms in range(20_000, 30_000, 250):
        rig.tick(now_ms)
    assert [roles(each) for each in said(rig)[1:]] == [
        {"a": True, "c": True, "b": True},
        {"a": True, "c": True, "b": False},
    ]
    assert said(rig, EVENT) == [{"event_type": "retired", "role": "b", "sensor": "b"}]
    rig.handle(BIRTH, b"online", 40_000, token="birth")
    for now_ms in range(40_000, 60_000, 250):
        rig.tick(now_ms)
    assert [roles(each)["b"] for each in said(rig)[3:]] == [True, False]
    assert len(said(rig, EVENT)) == 1


def test_a_sensor_that_replaces_another_is_told_without_a_role_that_goes():
    """The role stays: only its sensor is another one."""
    rig = rig_of()
    connect(rig, 0)
    sensors = (description("a"), description("b-2", role="b"), description("c"))
    rig.order(replace(desired(1), sensors=sensors), now_ms=20_000)
    for now_ms in range(20_000, 30_000, 250):
        rig.tick(now_ms)
    assert said(rig, EVENT) == [
        {"event_type": "retired", "role": "b", "sensor": "b"},
        {"event_type": "deployed", "role": "b", "sensor": "b-2"},
    ]
    assert len(said(rig)) == 2
    assert roles(said(rig)[-1]) == dict.fromkeys("abc", True)
    assert "b-2" in said(rig)[-1]["components"]["role_b"]["value_template"]


def test_a_role_that_went_while_the_node_was_away_is_buried_by_what_the_broker_kept():
    """The file lost a sensor between two lives: nothing on this side remembers the role."""
    before = Described("farm", "n1", CLASSES, {"a": "a", "b": "b", "c": "c", "d": "d"})
    rig = rig_of()
    connect(rig, 0, kept=announcement(before, gone=["e"]))
    assert [roles(each) for each in said(rig)] == [
        {"a": True, "b": True, "c": True, "d": True, "e": True},
        {"a": True, "b": True, "c": True, "d": False, "e": False},
    ]
    assert said(rig, EVENT) == [{"event_type": "retired", "role": "d"}]


def test_a_role_that_returns_is_no_longer_buried():
    """The same unique_id is the same entity again."""
    rig = rig_of()
    connect(rig, 0, kept=announcement(NODE, gone=["b"]))
    assert [roles(each) for each in said(rig)] == [dict.fromkeys("abc", True)]


def test_silence_return_and_questions_are_events():
    """What a person should look at, with all that an answer needs."""
    rig = rig_of(asks_per_hour=3_600.0)
    connect(rig, 0)
    for seq in range(1, 60):
        values = {"a": float(seq % 2), "b": 0.0} | ({"c": 1.0} if seq < 10 else {})
        rig.read(seq, values, CLASSES[seq % 2] if seq < 30 else None, now_ms=10_000 + 1_000 * seq)
        rig.tick(10_000 + 1_000 * seq)
    rig.read(60, {"a": 1.0, "b": 0.0, "c": 1.0}, now_ms=80_000)
    told = said(rig, EVENT)
    kinds = [each["event_type"] for each in told]
    assert kinds.index("silent") < kinds.index("returned")
    assert [each["role"] for each in told if each["event_type"] == "silent"] == ["c"]
    questions = [each for each in told if each["event_type"] == "asked"]
    asked = [json.loads(p) for t, p, _ in rig.published if t.endswith("/asked")]
    assert [each["instance"] for each in questions] == [each["instance"] for each in asked]
    first = questions[0]
    assert first["classes"] == sorted(first["classes"], key=lambda c: -asked[0]["scores"][c])
    assert sorted(first["classes"]) == sorted(CLASSES)
    assert first["label_topic"] == str(TOPICS.to(Channel.LABEL))
    rig.commit(90_000)
    assert rig.reborn().frozen() == rig.frozen()  # nothing of all this is durable


@settings(deadline=None, max_examples=50)
@given(st.one_of(st.binary(max_size=200), st.just(b'{"components": [1]}'), st.just(b"[" * 9_000)))
def test_whatever_the_broker_has_kept_a_node_announces_itself(kept):
    """Somebody else has written to its topic."""
    rig = rig_of()
    connect(rig, 0, kept=kept)
    assert roles(said(rig)[-1]) == dict.fromkeys("abc", True)
    assert rig.node.counts["homeassistant-unfit"] == bool(kept)


def test_a_node_that_is_not_asked_says_and_hears_nothing_of_it():
    """A broker's rules may not allow it."""
    rig = Rig.make()
    connect(rig, 0)
    assert said(rig) == said(rig, EVENT) == []
    assert not [each for each in rig.node.subscriptions() if each.startswith("homeassistant")]
    asked = rig_of().node.subscriptions()
    assert {each: qos for each, qos in asked.items() if each.startswith("homeassistant")} == {
        BIRTH: 0,
        CONFIG: 0,
    }


# -- around it -------------------------------------------------------------------------------------

TOML = """
[node]
site = "farm"
node = "n1"
classes = {classes}
{more}
[homeassistant]
discovery = {discovery}
[[sensors]]
id = "a"
[state]
folder = "state"
"""


@pytest.mark.parametrize("name", ["none", "None", "unknown", "Unavailable"])
def test_a_class_that_home_assistant_could_not_show_is_refused(name):
    """Its select would show nothing, and nobody could tell why."""
    classes = json.dumps(["dry", name])
    with pytest.raises(ConfigError, match=r"line 5: node.classes .*(rename|another word)"):
        parse_config(TOML.format(classes=classes, more="", discovery="true"), {})
    if name != "unknown":  # which no node may have
        parse_config(TOML.format(classes=classes, more="", discovery="false"), {})


def test_home_assistant_needs_json():
    """Its templates read what the node says to the world."""
    text = TOML.format(classes='["dry", "damp"]', more='format = "msgpack"', discovery="true")
    with pytest.raises(ConfigError, match=r"line 6: node\.format must be json"):
        parse_config(text, {})


def test_discover_does_not_propose_a_node_to_another_node():
    """Its entities would look like sensors of a home."""
    heard = Heard()
    heard.add(CONFIG, announcement(NODE), retained=True, at_s=0.0)
    heard.add(EVENT, b'{"event_type": "silent", "role": "a"}', retained=False, at_s=1.0)
    proposal = propose(heard, Known())
    assert proposal.sensors == 0
    assert proposal.unmapped == []


def test_the_largest_node_fits_into_a_message():
    """160 sensors with the longest names, as many that have gone, sixteen classes."""
    names = [f"{number:03}{'x' * 29}" for number in range(160)]
    node = Described("s" * 32, "n" * 32, tuple(f"{'c' * 60}{n}" for n in range(16)), {})
    document = announcement(
        Described(node.site, node.node, node.classes, {n: n for n in names}), leaving=names[:64]
    )
    assert len(document) < 262_144  # what a link takes
    assert len(Kept.read(document).announced) == 160


def test_init_lets_nodes_announce_themselves_where_it_is_asked_to(tmp_path):
    """A broker that drops the announcement does not say so."""
    task = {"site": "farm", "group": "air", "classes": ("dry", "damp")}
    initialise(tmp_path / "fleet", SetupPlan(**task, nodes=("n1",)))
    acl = tmp_path / "fleet/mosquitto/acl"
    assert "homeassistant" not in acl.read_text().lower()
    later = SetupPlan(**task, nodes=("n1", "n2"), homeassistant=True)
    add_nodes(tmp_path / "fleet", later)
    once = acl.read_text()
    add_nodes(tmp_path / "fleet", later)
    assert acl.read_text() == once
    for node in ("n1", "n2"):
        rules = once.split(f"# opid/1/farm/{node} in Home Assistant")[1].split("\n\n")[0]
        place = f"homeassistant/device/opid_farm_{node}"
        assert rules.splitlines()[1:] == [
            f"user farm.{node}",
            "topic read homeassistant/status",
            f"topic readwrite {place}/config",
            f"topic write {place}/event",
            "user homeassistant",
            f"topic read opid/1/farm/{node}/prediction",
            f"topic read opid/1/farm/{node}/status",
            f"topic write opid/1/farm/{node}/label",
        ]
    assert (tmp_path / "fleet/keys/homeassistant.credentials").exists()
    made = (tmp_path / "fleet/nodes/farm-n2/node.toml").read_text()
    assert parse_config(made, {}).node.homeassistant


def test_the_blueprint_is_one():
    """`make ha` lets the real Home Assistant load it; this is for those who only have YAML."""

    class Loader(yaml.SafeLoader):
        """Knows what `!input` is."""

    Loader.add_constructor("!input", lambda loader, node: f"input {loader.construct_scalar(node)}")
    found = yaml.load(BLUEPRINT.read_text(), Loader)
    assert found["blueprint"]["domain"] == "automation"
    used = BLUEPRINT.read_text().split("!input ")[1:]
    assert {each.split()[0] for each in used} == set(found["blueprint"]["input"])
