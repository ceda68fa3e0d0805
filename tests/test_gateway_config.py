"""The gateway's file is right, or the error names its file, line and key, and no secret."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from nacl.signing import SigningKey

from edge_opid.errors import ConfigError
from gateway.config import SHAPE, load_config, load_signing_key, parse_config
from gateway.policy import Group, Policy
from gateway.setup.plan import SetupPlan
from gateway.setup.starting_files import gateway_toml

EXAMPLE = Path(__file__).parent.parent / "docs" / "gateway.example.toml"
EXAMPLE_PLAN = SetupPlan(
    site="greenhouse",
    group="climate",
    classes=("fine", "too-dry", "too-warm"),
    nodes=("north", "south"),
)
GOOD = """\
[gateway]
database = "sqlite:///gateway.sqlite"
key = "keys/gateway.key"
silence_s = 3600
[broker]
host = "127.0.0.1"
port = 1884
[[groups]]
id = "air"
site = "street"
classes = ["fresh", "stale"]
nodes = ["north", "south"]
[[groups]]
id = "noise"
site = "street"
classes = ["calm", "loud"]
nodes = ["east"]
[log]
level = "info"
"""
HERE = Path("/etc/opid/gateway.toml")
SECRET = "hunter2"
WITH_PASSWORD = f"postgresql://opid:{SECRET}@db.local/fleet"

# What is changed in GOOD, by what, and the sentence that must come of it.
MISTAKES = [
    ("silence_s = 3600", "silense_s = 1", "line 4: gateway.silense_s is not a key; did you mean"),
    (
        "silence_s = 3600",
        "silence_s = -1",
        "line 4: gateway.silence_s must be from 0 to 3.15576e+09, got -1.0",
    ),
    (
        "silence_s = 3600",
        "silence_s = nan",
        "line 4: gateway.silence_s must be an ordinary number, got nan",
    ),
    (
        "silence_s = 3600",
        'silence_s = "1h"',
        "line 4: gateway.silence_s must be a number, got '1h'",
    ),
    ("silence_s = 3600", "first_batch = 3", "line 4: gateway.first_batch must be from 6 to 960"),
    (
        "silence_s = 3600",
        "first_batch = 6.5",
        "gateway.first_batch must be a whole number, got 6.5",
    ),
    ("silence_s = 3600", "rho = 0", "line 4: gateway.rho must be from"),
    ("silence_s = 3600", 'weights = "int8"', "line 4: gateway.weights must be float32 or float16"),
    ("silence_s = 3600", "kernels = 1", "line 4: gateway.kernels must be true or false, got 1"),
    ("silence_s = 3600", 'password = "x"', "line 4: gateway.password is not a key"),
    ("silence_s = 3600", "silence_s = = 1", "gateway.toml is not TOML"),
    ('key = "keys/gateway.key"', "", "line 1: gateway.key is missing: add key = … under [gateway]"),
    ('key = "keys/gateway.key"', "key = 5", "line 3: gateway.key must be text in quotes, got 5"),
    ("[gateway]", "[gatevay]", "line 1: gatevay is not a section; did you mean gateway?"),
    ("port = 1884", "port = 0", "line 7: broker.port must be from 1 to 65535, got 0"),
    ("port = 1884", 'tls_key = "k"', "line 7: broker.tls_key needs tls_certificate beside it"),
    ('level = "info"', 'level = "loud"', "line 19: log.level must be one of debug, info"),
    ("[log]", '[fits]\nwhere = "moon"\n[log]', "line 19: fits.where must be one of thread, proc"),
    ("[log]", '[fits]\nwhere = "dask"\n[log]', "line 18: fits.address is missing: add address ="),
    (
        "[log]",
        '[fits]\nwhere = "dask"\naddress = "here"\n[log]',
        "line 20: fits.address must be a scheduler's address such as tcp://host:8786, got 'here'",
    ),
    (
        "[log]",
        '[fits]\naddress = "tcp://h:1"\n[log]',
        'line 19: fits.address is for where = "dask": delete it',
    ),
    (
        "[log]",
        '[fits]\nwhere = "processes"\nworkers = 0\n[log]',
        "line 20: fits.workers must be from 1 to 256, got 0",
    ),
    ("[log]", "[fits]\nworkers = 2\n[log]", 'line 19: fits.workers is for where = "processes"'),
    ('id = "air"', 'id = "Air"', "line 9: groups[0].id must be 1 to 32 of a-z"),
    ('id = "air"', "", "line 8: groups[0].id is missing"),
    ('id = "noise"', 'id = "air"', "line 14: groups[1].id must differ, got 'air' twice"),
    ('"south"]', '"a/b"]', "line 12: groups[0].nodes[1] must be 1 to 32 of a-z"),
    ('"south"]', '"north"]', "line 12: groups[0].nodes must differ from the others, got 'north'"),
    (
        '["east"]',
        '["north"]',
        "line 17: groups[1].nodes must have each node once, got street/north",
    ),
    ('["fresh", "stale"]', '["fresh"]', "line 11: groups[0].classes must be 2 to 16 names, got 1"),
    ('["fresh", "stale"]', '"fresh"', "line 11: groups[0].classes must be a list of texts"),
    ('database = "sqlite:///gateway.sqlite"', "", "gateway.database is missing: add database ="),
    (
        "sqlite:///gateway.sqlite",
        "gateway.sqlite",
        "line 2: gateway.database must be like sqlite",
    ),
    ("sqlite:///gateway.sqlite", "sqlite://", "line 2: gateway.database must name a file"),
    ("sqlite:///gateway.sqlite", "sqlite:///:memory:", "line 2: gateway.database must name a file"),
    ("sqlite:///gateway.sqlite", "sqlite:///file:x", "line 2: gateway.database must name a file"),
    ("sqlite:///gateway.sqlite", "postgresql+asyncpg://h/x", "got 'postgresql+asyncpg'"),
    ("sqlite:///gateway.sqlite", "mysql://h/x", "must be an sqlite or postgresql URL, got 'mysql'"),
]


def test_a_good_file_is_read():
    config = parse_config(GOOD, {}, HERE)
    assert config.policy == Policy(silence_s=3600.0)
    assert config.groups[0] == Group("air", "street", ("fresh", "stale"), ("north", "south"))
    assert (config.broker.port, config.broker.client_id) == (1884, "opid-gateway")
    assert config.database == "sqlite:////etc/opid/gateway.sqlite"
    assert config.key_file == Path("/etc/opid/keys/gateway.key")
    assert config.log_level == "info"


@pytest.mark.parametrize(("old", "new", "sentence"), MISTAKES)
def test_a_mistake_is_named_with_its_key_and_line(old, new, sentence):
    assert old in GOOD
    with pytest.raises(ConfigError) as caught:
        parse_config(GOOD.replace(old, new, 1), {}, HERE)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_without_groups_serves_nobody():
    with pytest.raises(ConfigError, match=r"gateway\.toml: groups are missing: add \[\[groups\]\]"):
        parse_config(GOOD[: GOOD.index("[[groups]]")], {}, HERE)


def test_the_environment_replaces_keys_of_every_kind():
    environment = {
        "OPID_GATEWAY_SILENCE_S": "60",
        "OPID_GATEWAY_KEY": "/run/key",
        "OPID_BROKER_HOST": "10.0.0.5",
        "OPID_LOG_LEVEL": "debug",
        "OPID_NODE_NODE": "n2",  # another program's
    }
    config = parse_config(GOOD, environment, HERE)
    assert (config.policy.silence_s, config.broker.host) == (60.0, "10.0.0.5")
    assert (config.key_file, config.log_level) == (Path("/run/key"), "debug")
    assert config.groups == parse_config(GOOD, {}, HERE).groups


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("OPID_GATEWAY_SILENSE_S", "6", "OPID_GATEWAY_SILENSE_S: gateway.silense_s is not a key"),
        ("OPID_GATEWAY_RHO", "big", "OPID_GATEWAY_RHO: gateway.rho must be a number, got 'big'"),
        ("OPID_GATEWAY_RHO", "-1", "OPID_GATEWAY_RHO: gateway.rho must be from"),
        ("OPID_GATEWAY_DATABASE", "x", "OPID_GATEWAY_DATABASE: gateway.database must be like sql"),
    ],
)
def test_a_mistake_in_the_environment_names_the_variable(variable, value, sentence):
    with pytest.raises(ConfigError, match=re.escape(f"environment variable {sentence}")):
        parse_config(GOOD, {variable: value}, HERE)


# --- the database and its password ----------------------------------------------------------------


def test_a_relative_sqlite_file_lies_beside_the_configuration(tmp_path):
    """Whatever the folder is called, the URL leads back to it."""
    folder = tmp_path / "a b%20c#é"
    config = parse_config(GOOD, {}, folder / "gateway.toml")
    from sqlalchemy import create_engine, text  # noqa: PLC0415 - this test alone opens one

    folder.mkdir()
    engine = create_engine(config.database)
    with engine.begin() as connection:
        connection.execute(text("create table t (x integer)"))
    engine.dispose()
    assert [path.name for path in folder.iterdir()] == ["gateway.sqlite"]


def test_a_password_in_the_configuration_itself_is_refused_and_not_repeated():
    for url in (WITH_PASSWORD, f"postgresql://h/fleet?password={SECRET}"):
        with pytest.raises(ConfigError, match=r"line 2: gateway\.database must not hold") as caught:
            parse_config(GOOD.replace("sqlite:///gateway.sqlite", url), {}, HERE)
        assert SECRET not in str(caught.value)


def test_a_password_comes_from_a_file_or_the_environment_and_is_never_shown(tmp_path):
    """Both ways lead to the same URL; no `repr` and nothing meant for people has the password."""
    secret = tmp_path / "database.url"
    secret.write_text(WITH_PASSWORD + "\n")
    secret.chmod(0o600)
    text = GOOD.replace('database = "sqlite:///gateway.sqlite"', 'database_file = "database.url"')
    by_file = parse_config(text, {}, tmp_path / "gateway.toml")
    by_variable = parse_config(GOOD, {"OPID_GATEWAY_DATABASE": WITH_PASSWORD}, HERE)
    wins = parse_config(text, {"OPID_GATEWAY_DATABASE": WITH_PASSWORD}, HERE)  # no such file there
    for config in (by_file, by_variable, wins):
        assert config.database == f"postgresql+psycopg://opid:{SECRET}@db.local/fleet"
        assert SECRET not in repr(config) + config.database_shown
    assert by_file.database_shown == "postgresql+psycopg://opid:***@db.local/fleet"


@pytest.mark.parametrize(
    "line",
    [
        f'database = ["{WITH_PASSWORD}"]',
        f'database = {{ url = "{WITH_PASSWORD}" }}',
        f'database = "postgresql://opid:{SECRET}@db.local:port/fleet"',
        f'database = "mysql://opid:{SECRET}@db.local/fleet"',
        f'database = "{SECRET}"',
        f'database = "sqlite:///x"\ndatabase_file = "{SECRET}"',
    ],
)
def test_no_mistake_about_the_database_shows_its_password(line):
    with pytest.raises(ConfigError, match=r"gateway\.database") as caught:
        parse_config(GOOD.replace('database = "sqlite:///gateway.sqlite"', line), {}, HERE)
    assert SECRET not in str(caught.value)


def test_a_section_that_is_none_does_not_show_what_is_in_it():
    with pytest.raises(ConfigError, match="gateway must be a section") as caught:
        parse_config(f'[[gateway]]\ndatabase = "{WITH_PASSWORD}"', {}, HERE)
    assert SECRET not in str(caught.value)


def test_a_database_file_that_others_can_read_is_refused(tmp_path):
    secret = tmp_path / "database.url"
    secret.write_text(WITH_PASSWORD)
    secret.chmod(0o644)
    text = GOOD.replace('database = "sqlite:///gateway.sqlite"', 'database_file = "database.url"')
    with pytest.raises(ConfigError, match="mode 0644, which lets others in") as caught:
        parse_config(text, {}, tmp_path / "gateway.toml")
    assert SECRET not in str(caught.value)
    assert secret.stat().st_mode & 0o777 == 0o644


# --- the signing key ------------------------------------------------------------------------------


def key_file(folder: Path, text: str, mode: int) -> Path:
    path = folder / "gateway.key"
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_key_of_our_own_is_loaded(tmp_path, mode):
    key = SigningKey(bytes(range(32)))
    assert load_signing_key(key_file(tmp_path, f"{bytes(key).hex()}\n", mode)) == key


@pytest.mark.parametrize("mode", [0o640, 0o644, 0o604, 0o660, 0o620, 0o601])
def test_a_key_that_others_may_touch_is_refused_with_what_to_do(tmp_path, mode):
    path = key_file(tmp_path, "ab" * 32, mode)
    with pytest.raises(ConfigError) as caught:
        load_signing_key(path)
    for part in (str(path), f"mode {mode:04o}", "0600 or 0400", f"chmod 600 {path}"):
        assert part in str(caught.value)
    assert path.stat().st_mode & 0o777 == mode


@pytest.mark.parametrize("text", ["", "ab" * 31, "ab" * 33, "xy" * 32, "ab" * 32 + "\n\nab"])
def test_a_key_file_cut_short_or_of_another_kind_is_refused_unquoted(tmp_path, text):
    path = key_file(tmp_path, text, 0o600)
    with pytest.raises(ConfigError, match="must hold 64 hex digits") as caught:
        load_signing_key(path)
    assert "abab" not in str(caught.value)
    assert "xyxy" not in str(caught.value)
    assert path.read_text() == text


def test_a_key_file_that_is_missing_or_enormous_is_one_sentence(tmp_path):
    with pytest.raises(ConfigError, match=r"absent\.key cannot be read: No such file"):
        load_signing_key(tmp_path / "absent.key")
    with pytest.raises(ConfigError, match="at most 4096 bytes"):
        load_signing_key(key_file(tmp_path, "a" * 5_000, 0o600))
    (tmp_path / "gateway.key").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="must be UTF-8"):
        load_signing_key(tmp_path / "gateway.key")


# --- the example ----------------------------------------------------------------------------------


def everything_on(text: str) -> str:
    return re.sub(r"(?m)^# (\w+ = )", r"\1", text)


def test_the_example_is_what_init_writes_and_loads():
    assert EXAMPLE.read_text("utf-8") == gateway_toml(EXAMPLE_PLAN)
    config = load_config(EXAMPLE, {})
    assert config.policy == Policy()
    assert config.groups[0].nodes == ("north", "south")


def test_the_example_explains_every_key_and_shows_the_true_defaults():
    text = EXAMPLE.read_text("utf-8")
    groups = {each.name for each in fields(Group)}
    for name in {name for kinds in SHAPE.sections.values() for name in kinds} | groups:
        assert re.search(rf"(?m)^(# )?{name} = ", text), f"{name} is not in the example"
    shown = everything_on(re.sub(r"(?m)^# (database_file|tls_\w+|workers|address) = .*$", "", text))
    assert parse_config(shown, {}, HERE).policy == Policy()
    with_tls = everything_on(re.sub(r"(?m)^# (database_file|workers|address) = .*$", "", text))
    broker = parse_config(with_tls, {}, HERE).broker
    assert broker.tls is not None
    assert broker.client_id == load_config(EXAMPLE, {}).broker.client_id
