"""A configuration is right, or the error names its file, line and key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edge_opid.config.node import ForeignConfig, NodeConfig, SensorConfig
from edge_opid.config.service import LISTS, SECTIONS, _kinds, load_config, parse_config
from edge_opid.errors import ConfigError, SettingError

EXAMPLE = Path(__file__).parent.parent / "docs" / "node.example.toml"
GOOD = """\
[node]
site = "farm"
node = "n1"
classes = ["fresh", "stale"]
gate = 8.0
[broker]
host = "broker.local"
port = 1884
[state]
folder = "state"
[[sensors]]
id = "temp"
[[sensors]]
id = "co2"
knots = 8
[[foreign]]
filter = "zigbee2mqtt/attic"
source = "attic"
fields = { temperature = "temp" }
[[truth]]
filter = "zigbee2mqtt/hall"
"""
KEY = "ab" * 32

# What is changed in GOOD, by what, and the sentence that must come of it.
MISTAKES = [
    ('site = "farm"', 'site = "Farm/1"', "node.toml, line 2: node.site must be 1 to 32 of a-z"),
    ('site = "farm"', "", "node.toml, line 1: node.site is missing: add site = … under [node]"),
    ("gate = 8.0", "gaet = 8.0", "line 5: node.gaet is not a key; did you mean gate?"),
    ("gate = 8.0", "gate = 0", "line 5: node.gate must be above 0 and at most 1e+06, got 0.0"),
    ("gate = 8.0", "gate = nan", "line 5: node.gate must be an ordinary number, got nan"),
    ("gate = 8.0", 'gate = "8"', "line 5: node.gate must be a number, got '8'"),
    ("gate = 8.0", "gate = true", "line 5: node.gate must be a number, got True"),
    ("gate = 8.0", "gate = = 8", "node.toml is not TOML: Invalid value (at line 5, column 8)"),
    ("gate = 8.0", "rho = -1", "line 5: node.rho must be above 0, got -1.0"),
    ("gate = 8.0", "lam = -1", "line 5: node.lam must be from 0 to 3.40282e+38, got -1.0"),
    ("gate = 8.0", "forgetting = 1.1", "node.forgetting must be above 0 and at most 1, got 1.1"),
    ("gate = 8.0", "recent = 0", "line 5: node.recent must be a whole number from 1 to 4096"),
    ("gate = 8.0", "recent = 1.5", "line 5: node.recent must be a whole number, got 1.5"),
    ("gate = 8.0", "commit_s = 0", "line 5: node.commit_s must be above 0 and at most 3600"),
    ("gate = 8.0", 'format = "xml"', "must be json or msgpack, got 'xml'"),
    ("gate = 8.0", 'vanishing = ["tmp"]', "line 5: node.vanishing names no sensor 'tmp'"),
    ("gate = 8.0", 'vanishing = ["co2", "co2"]', "must differ from the others, got 'co2' twice"),
    ("gate = 8.0", 'instances = "all"', "must be readings or labels or beat, got 'all'"),
    ("gate = 8.0", "every_s = 0", "line 5: node.every_s must be from 0.1 to 86400, got 0.0"),
    ('id = "co2"', 'id = "co2"\nhold_s = -1', "line 15: sensors[1].hold_s must be from 0 to"),
    ('"zigbee2mqtt/hall"', '"opid/1/#"', "line 21: truth[0].filter must not reach opid/1/"),
    ('mqtt/hall"', 'mqtt/hall"\nfield = "a..b"', "line 22: truth[0].field cannot be: field path"),
    ('mqtt/hall"', 'mqtt/hall"\nvalid_s = -1', "line 22: truth[0].valid_s must be from 0 to"),
    (
        'mqtt/hall"',
        'mqtt/hall"\nvalues = { on = "busy" }',
        "line 22: truth[0].values says that 'on' means 'busy'; classes are ['fresh', 'stale']",
    ),
    ('mqtt/hall"', 'mqtt/hall"\nvalues = "on"', "truth[0].values must be a table of texts"),
    ('source = "attic"', 'source = "held"', "line 18: foreign[0].source must not be 'held'"),
    ('["fresh", "stale"]', '["fresh"]', "line 4: node.classes must be 2 to 16 names, got 1"),
    ('["fresh", "stale"]', '["fresh", "fresh"]', "line 4: node.classes must differ"),
    ('["fresh", "stale"]', '["fresh", ""]', "line 4: node.classes cannot be: a class must be one"),
    ('["fresh", "stale"]', '["fresh", 2]', "line 4: node.classes must be a list of texts"),
    ("[broker]", "[borker]", "line 6: borker is not a section; did you mean broker?"),
    ("[broker]", "[[broker]]", "line 6: broker must be a section, [broker]"),
    ("[[sensors]]", "[sensors]", "node.toml is not TOML"),
    ("port = 1884", "port = 70000", "line 8: broker.port must be from 1 to 65535, got 70000"),
    ("port = 1884", 'password = "x"', "line 8: broker.password is not a key; there are host"),
    ("port = 1884", 'tls_key = "k"', "line 8: broker.tls_key needs tls_certificate beside it"),
    ("port = 1884", 'tls_certificate = "k"', "line 8: broker.tls_certificate needs tls_ca"),
    ('host = "broker.local"', 'host = ""', "line 7: broker.host must not be empty"),
    ('folder = "state"', "", "line 9: state.folder is missing"),
    (
        'folder = "state"',
        'folder = "s"\n[log]\nlevel = "loud"',
        "line 12: log.level must be one of",
    ),
    ('folder = "state"', 'folder = "s"\n[gateway]\nkeys = ["AB"]', "line 12: gateway.keys must be"),
    ('id = "co2"', 'id = "temp"', "line 14: sensors[1].id must differ from the others, got 'temp'"),
    ('id = "co2"', 'id = "bias"', "line 14: sensors[1].id must not be 'bias'"),
    ('id = "co2"', 'role = "co2"', "line 13: sensors[1].id is missing"),
    ('id = "co2"', 'id = "co2"\nrole = "temp"', "line 15: sensors[1].role must differ"),
    ('id = "co2"', 'id = "co2"\nscale = 2.0', "line 15: sensors[1].scale needs reference beside"),
    ('id = "co2"', 'id = "co2"\ntimeout_s = 0', "line 15: sensors[1].timeout_s must be above 0"),
    ("knots = 8", "knots = 33", "line 15: sensors[1].knots must be a whole number from 1 to 32"),
    ('"zigbee2mqtt/attic"', '"opid/#"', "line 17: foreign[0].filter must not reach opid/1/"),
    ('"zigbee2mqtt/attic"', '"a/#/b"', "line 17: foreign[0].filter cannot be: filter"),
    ('source = "attic"', 'source = "{1}"', "line 18: foreign[0].source cannot be: source '{1}'"),
    ('= "temp" }', '= "tmp" }', "line 19: foreign[0].fields names no sensor 'tmp'"),
    ("temperature =", '"a..b" =', "line 19: foreign[0].fields cannot be: field path"),
    ('{ temperature = "temp" }', "3", "line 19: foreign[0].fields must be a table of texts"),
]


def test_a_good_file_is_read():
    config = parse_config(GOOD, {}, Path("/etc/opid/node.toml"))
    assert config.node.sensors[1] == SensorConfig("co2", role="co2", knots=8)
    assert config.node.foreign[0].topic.sensors == {"temperature": "temp"}
    assert (config.broker.host, config.broker.port) == ("broker.local", 1884)
    assert config.broker.client_id == "opid-farm-n1"
    assert config.state_folder == Path("/etc/opid/state")
    assert config.status_file is None
    assert config.gateway_keys == ()


@pytest.mark.parametrize(("old", "new", "sentence"), MISTAKES)
def test_a_mistake_is_named_with_its_key_and_line(old, new, sentence):
    assert old in GOOD
    with pytest.raises(ConfigError) as caught:
        parse_config(GOOD.replace(old, new, 1), {})
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_port_follows_tls_and_paths_follow_the_file():
    text = GOOD.replace("port = 1884", 'tls_ca = "ca.pem"\ncredentials = "/etc/secret"')
    broker = parse_config(text, {}, Path("/etc/opid/node.toml")).broker
    assert broker.port == 8883
    assert broker.tls is not None
    assert broker.tls.ca == Path("/etc/opid/ca.pem")
    assert broker.credentials == Path("/etc/secret")


def test_the_environment_replaces_keys_and_adds_sections():
    environment = {
        "OPID_BROKER_HOST": "10.0.0.5",
        "OPID_NODE_NODE": "n2",
        "OPID_NODE_GATE": "6",
        "OPID_NODE_CLASSES": '["x", "y", "z"]',
        "OPID_LOG_LEVEL": "debug",
        "OPID_SIM_SEED": "3",  # another program's
        "HOME": "/root",
    }
    config = parse_config(GOOD, environment)
    assert (config.broker.host, config.node.node, config.node.gate) == ("10.0.0.5", "n2", 6.0)
    assert config.node.classes == ("x", "y", "z")
    assert config.log_level == "debug"


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("OPID_NODE_GAET", "6", "environment variable OPID_NODE_GAET: node.gaet is not a key"),
        (
            "OPID_NODE_GATE",
            "six",
            "environment variable OPID_NODE_GATE: node.gate must be a number",
        ),
        ("OPID_NODE_GATE", "-6", "environment variable OPID_NODE_GATE: node.gate must be above 0"),
        ("OPID_BROKER_PASSWORD", "x", "broker.password is not a key"),
        ("OPID_NODE_NODE", "N 2", "environment variable OPID_NODE_NODE: node.node must be 1 to 32"),
    ],
)
def test_a_mistake_in_the_environment_names_the_variable(variable, value, sentence):
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        parse_config(GOOD, {variable: value})


def test_a_gateway_key_is_taken():
    assert parse_config(GOOD + f'[gateway]\nkeys = ["{KEY}"]', {}).gateway_keys == (KEY,)


def test_a_missing_file_is_one_sentence(tmp_path):
    with pytest.raises(ConfigError, match=r"absent\.toml cannot be read"):
        load_config(tmp_path / "absent.toml", {})


def test_bytes_that_are_not_text_are_one_sentence(tmp_path):
    path = tmp_path / "node.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(path, {})


# --- the example ----------------------------------------------------------------------------------


def test_the_example_is_valid_as_it_is_and_with_every_option_on():
    text = EXAMPLE.read_text("utf-8")
    parse_config(text, {})
    everything = re.sub(r"(?m)^# (\w+ = )", r"\1", text)
    config = parse_config(everything, {})
    assert config.broker.tls is not None
    assert config.node.foreign[0].label_field == "state"


def test_the_example_explains_every_key_and_shows_the_true_defaults():
    text = EXAMPLE.read_text("utf-8")
    known = [*SECTIONS.values(), *map(_kinds, LISTS.values())]
    for name in {name for kinds in known for name in kinds}:
        assert re.search(rf"(?m)^(# )?{name} = ", text), f"{name} is not in the example"
    defaults = re.sub(r"(?m)^# (\w+ = )", r"\1", text)
    for line in ("gate", "lam", "rho", "forgetting", "recent", "commit_s", "commit_records"):
        defaults = re.sub(rf"(?m)^{line} = .*$", "", defaults)
    shown, left_out = (
        parse_config(re.sub(r"(?m)^# (\w+ = )", r"\1", text), {}),
        parse_config(defaults, {}),
    )
    assert shown == left_out


# --- NodeConfig by itself -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memory_mb", "most", "advice"),
    [(64, 236, "a node.memory_mb of 65"), (100, 320, "use fewer knots")],
)
def test_no_more_columns_are_taken_than_the_memory_holds_or_the_wire_carries(
    memory_mb, most, advice
):
    """As many as fit, and one more: at `check`, and not when the first sensor dies."""
    many, left = divmod(most - 1, 32)
    lifted = [SensorConfig(f"s{i}", knots=32) for i in range(many)]

    def made(knots: int) -> NodeConfig:
        sensors = (*lifted, SensorConfig("t", knots=knots))
        named = {"site": "s", "node": "n", "classes": ("a", "b")}
        return NodeConfig(**named, sensors=sensors, memory_mb=memory_mb)

    assert made(left).columns == most
    words = f"at most {most} columns, the bias included, in {memory_mb} MB, got {most + 1}"
    with pytest.raises(SettingError, match=words) as caught:
        made(left + 1)
    assert str(caught.value).endswith(advice)


def test_a_node_needs_a_sensor():
    with pytest.raises(SettingError, match="sensors must be 1 to 160, got 0"):
        NodeConfig(site="s", node="n", classes=("a", "b"), sensors=())


def test_a_configuration_cannot_be_changed_behind_its_back():
    fields = {"temperature": "temp"}
    foreign = ForeignConfig("z/attic", "attic", fields)
    fields["humidity"] = "hum"
    assert dict(foreign.fields) == {"temperature": "temp"}


@pytest.mark.parametrize("wide", ["zigbee2mqtt/hall", "zigbee2mqtt/+"])
def test_a_foreign_mapping_that_never_has_its_turn_is_refused(wide):
    """Two mappings of one topic: the second was taken, shown by `check`, and never used."""
    mapping = '[[foreign]]\nfilter = "{}"\nsource = "s{}"\nfields = {{ temperature = "temp" }}\n'
    hall, other = mapping.format("zigbee2mqtt/hall", 1), mapping.format(wide, 2)
    with pytest.raises(ConfigError, match=r"foreign\[2\]\.filter is 'zigbee2mqtt/hall': foreign"):
        parse_config(GOOD + other + hall, {})
    if other != hall.replace("s1", "s2"):
        assert len(parse_config(GOOD + hall + other, {}).node.foreign) == 3  # narrower first
