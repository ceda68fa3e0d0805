"""What `init` leaves behind: whole files, secrets of their owner's, and nothing overwritten."""

from __future__ import annotations

import fcntl
import os
import pwd
import re
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from edge_opid.cli import main as opid_node
from edge_opid.config.service import load_config as load_node
from edge_opid.errors import ConfigError, OpidError, SettingError
from edge_opid.link.options import read_credentials
from gateway.__main__ import main
from gateway.config import load_config, load_signing_key
from gateway.setup.initialise import FolderError, SetupPlan, add_nodes, initialise, next_steps
from gateway.setup.mosquitto_files import names_in

PLAN = SetupPlan(site="street", group="air", classes=("fresh", "stale"), nodes=("north", "south"))
MORE = replace(PLAN, nodes=("east",))
FILES = [
    "gateway.toml",
    "keys/gateway.credentials",
    "keys/gateway.key",
    "keys/gateway.pub",
    "keys/operator.credentials",
    "keys/web.credentials",
    "keys/web.token",
    "mosquitto/acl",
    "mosquitto/opid.conf",
    "mosquitto/passwords",
    "nodes/street-north/credentials",
    "nodes/street-north/node.toml",
    "nodes/street-north/sensors.credentials",
    "nodes/street-south/credentials",
    "nodes/street-south/node.toml",
    "nodes/street-south/sensors.credentials",
]
PUBLIC = ("gateway.toml", "keys/gateway.pub", "mosquitto/opid.conf", "node.toml")


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def names(folder: Path, written: list[Path]) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in written)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


# --- a new folder ---------------------------------------------------------------------------------


def test_every_secret_is_its_owners_alone_and_everything_loads(tmp_path, capsys):
    """Under the most careless umask; each node's file passes `opid-node check` as it is."""
    folder = tmp_path / "fleet"
    before = os.umask(0)
    try:
        written = initialise(folder, PLAN)
    finally:
        os.umask(before)
    assert names(folder, written) == sorted(contents(folder)) == FILES
    for path in written:
        public = str(path.relative_to(folder)).endswith(PUBLIC)
        assert path.stat().st_mode & 0o777 == (0o644 if public else 0o600), path
    config = load_config(folder / "gateway.toml", {})
    assert (config.groups[0].nodes, config.groups[0].classes) == (PLAN.nodes, PLAN.classes)
    public = load_signing_key(config.key_file).verify_key.encode().hex()
    assert (folder / "keys/gateway.pub").read_text() == f"{public}\n"
    for node in PLAN.nodes:
        file = folder / f"nodes/street-{node}/node.toml"
        assert opid_node(["check", str(file)]) == 0
        found = load_node(file, {})
        assert (found.node.site, found.node.node, found.gateway_keys) == ("street", node, (public,))
        assert read_credentials(found.broker.credentials)[0] == f"street.{node}"
    assert "1 trusted key" in capsys.readouterr().out
    assert sorted(contents(folder)) == FILES


def test_no_two_secrets_are_alike_and_no_readable_file_has_one(tmp_path):
    """Two folders: seven passwords, a key and a token each; the broker has hashes only."""
    folders = [tmp_path / "one", tmp_path / "two"]
    secrets = []
    for folder in folders:
        initialise(folder, PLAN)
        users = [read_credentials(path) for path in folder.rglob("*credentials")]
        assert {user for user, _ in users} == names_in((folder / "mosquitto/passwords").read_text())
        secrets += [password for _, password in users]
        secrets.append((folder / "keys/gateway.key").read_text().strip())
        secrets.append((folder / "keys/web.token").read_text().strip())
    assert len(set(secrets)) == len(secrets) == 18
    for folder in folders:
        for name, content in contents(folder).items():
            if not name.endswith(("credentials", ".key", ".token")):
                assert not [each for each in secrets if each.encode() in content], name


def test_a_second_init_is_refused_and_changes_nothing(tmp_path):
    initialise(tmp_path, PLAN)
    before = contents(tmp_path)
    for plan in (PLAN, MORE):
        with pytest.raises(FolderError, match="already exists, and init overwrites nothing"):
            initialise(tmp_path, plan)
    assert contents(tmp_path) == before


def test_a_folder_of_other_things_is_left_alone(tmp_path):
    (tmp_path / "mosquitto").mkdir()
    (tmp_path / "mosquitto/passwords").write_text("somebody:else\n")
    with pytest.raises(FolderError, match="must be empty or new"):
        initialise(tmp_path, PLAN)
    assert contents(tmp_path) == {"mosquitto/passwords": b"somebody:else\n"}


def test_a_folder_somebody_is_writing_is_left_to_them(tmp_path):
    handle = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(FolderError, match="being written by another process"):
            initialise(tmp_path, PLAN)
    finally:
        os.close(handle)
    assert contents(tmp_path) == {}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"site": "a/b"}, "plan.site must be 1 to 32 of a-z"),
        ({"group": "Air"}, "plan.group must be 1 to 32 of a-z"),
        ({"nodes": ("north", "so+uth")}, "plan.nodes[1] must be 1 to 32 of a-z"),
        ({"nodes": ("north", "north")}, "plan.nodes must differ from the others, got 'north'"),
        ({"nodes": ()}, "plan.nodes must have at least one"),
        ({"classes": ("fresh",)}, "plan.classes must be 2 to 16 names, got 1"),
        ({"sources": ("attic", "attic")}, "plan.sources[1] must differ"),
        ({"sources": ("sensors",)}, "plan.sources[0] must differ from 'sensors'"),
        ({"sources": ("#",)}, "plan.sources[0] must be 1 to 32 of a-z"),
        ({"broker_host": 'h"\nport = 1'}, "plan.broker_host must be a name or an address"),
        ({"broker_port": 70_000}, "plan.broker_port must be 1 to 65535, got 70000"),
    ],
)
def test_a_plan_that_could_not_be_is_one_sentence(change, sentence):
    with pytest.raises(SettingError, match=re.escape(sentence)) as caught:
        replace(PLAN, **change)
    assert "\n" not in str(caught.value)


def test_a_class_no_node_would_take_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ConfigError, match=r"node\.classes cannot be"):
        initialise(tmp_path / "fleet", replace(PLAN, classes=("fresh", "x" * 1_000)))
    assert list(tmp_path.iterdir()) == []


def test_classes_with_quotes_and_other_alphabets_survive_both_files(tmp_path):
    classes = ('so "so"', "größer", "a\\b", "]", "#")
    initialise(tmp_path, replace(PLAN, classes=classes))
    assert load_config(tmp_path / "gateway.toml", {}).groups[0].classes == classes
    assert load_node(tmp_path / "nodes/street-north/node.toml", {}).node.classes == classes


def test_a_broker_elsewhere_is_in_every_file_and_listens_to_all(tmp_path):
    initialise(tmp_path, replace(PLAN, broker_host="broker.local", broker_port=1884))
    for config in (
        load_config(tmp_path / "gateway.toml", {}),
        load_node(tmp_path / "nodes/street-north/node.toml", {}),
    ):
        assert (config.broker.host, config.broker.port) == ("broker.local", 1884)
    conf = (tmp_path / "mosquitto/opid.conf").read_text()
    assert re.search(r"(?m)^listener 1884$", conf)
    assert "travel in the clear" in conf


# --- cut off half way -----------------------------------------------------------------------------


class PowerCutError(Exception):
    """What no handler expects, as a kill would be."""


def cut_off(monkeypatch: pytest.MonkeyPatch, step: int, when: str) -> None:
    """The power goes before or after the `step`-th file has its name, or while it is written."""
    replaced, synced, count = Path.replace, os.fsync, 0

    def name_it(path: Path, target: Path) -> Path:
        nonlocal count
        count += 1
        if count == step and when == "before":
            raise PowerCutError
        result = replaced(path, target)
        if count == step and when == "after":
            raise PowerCutError
        return result

    def sync(handle: int) -> None:
        if count + 1 == step and when == "within":
            if stat.S_ISREG(os.fstat(handle).st_mode):
                os.ftruncate(handle, os.fstat(handle).st_size // 2)
            raise PowerCutError
        synced(handle)

    monkeypatch.setattr(Path, "replace", name_it)
    monkeypatch.setattr(os, "fsync", sync)


@pytest.mark.parametrize("when", ["before", "within", "after"])
def test_cut_off_at_every_file_init_ends_complete_when_run_again(tmp_path, monkeypatch, when):
    """What had its name keeps its bytes; the end is the same as without the cut."""
    for step in range(1, len(FILES) + 2):  # one more: the mark of an unfinished folder
        folder = tmp_path / f"{step}"
        with monkeypatch.context() as patch:
            cut_off(patch, step, when)
            with pytest.raises(PowerCutError):
                initialise(folder, PLAN)
        left = {name: text for name, text in contents(folder).items() if not name.endswith(".new")}
        for name in left:
            assert not name.endswith((".key", "credentials", "passwords")) or (
                (folder / name).stat().st_mode & 0o777 == 0o600
            )
        initialise(folder, PLAN)
        found = contents(folder)
        assert sorted(found) == FILES, step
        left.pop("init.unfinished", None)
        assert {name: found[name] for name in left} == left, step
        users = [read_credentials(path)[0] for path in folder.rglob("*credentials")]
        assert set(users) == names_in((folder / "mosquitto/passwords").read_text())
        load_config(folder / "gateway.toml", {})


def test_an_unfinished_folder_is_finished_with_its_own_plan_only(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        cut_off(patch, 6, "after")
        with pytest.raises(PowerCutError):
            initialise(tmp_path, PLAN)
    before = contents(tmp_path)
    with pytest.raises(FolderError, match="started with other settings"):
        initialise(tmp_path, MORE)
    with pytest.raises(FolderError, match="not complete"):
        add_nodes(tmp_path, MORE)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("when", ["before", "within", "after"])
def test_cut_off_at_every_file_adding_ends_complete_when_run_again(tmp_path, monkeypatch, when):
    added = 6  # two credentials, node.toml, acl, passwords, gateway.toml
    for step in range(1, added + 1):
        folder = tmp_path / f"{step}"
        initialise(folder, PLAN)
        before = contents(folder)
        with monkeypatch.context() as patch:
            cut_off(patch, step, when)
            with pytest.raises(PowerCutError):
                add_nodes(folder, MORE)
        load_config(folder / "gateway.toml", {})
        add_nodes(folder, MORE)
        assert_added(folder, before)


# --- nodes that come later ------------------------------------------------------------------------


def assert_added(folder: Path, before: dict[str, bytes]) -> None:
    """East is there, once, and what was there before is as it was."""
    after = contents(folder)
    new = {"credentials", "node.toml", "sensors.credentials"}
    assert after.keys() - before.keys() == {f"nodes/street-east/{name}" for name in new}
    for name in before.keys() - {"gateway.toml"}:
        assert after[name].startswith(before[name]), name
        assert name.startswith("mosquitto/") or after[name] == before[name]
    assert load_config(folder / "gateway.toml", {}).groups[0].nodes == ("north", "south", "east")
    lines = (folder / "mosquitto/acl").read_text().splitlines()
    assert lines.count("user street.east") == 1
    assert (folder / "mosquitto/passwords").read_text().count("street.east:") == 1
    assert after["mosquitto/opid.conf"] == before["mosquitto/opid.conf"]


def test_added_nodes_leave_every_secret_as_it_was(tmp_path):
    """Adding again adds nothing."""
    initialise(tmp_path, PLAN)
    before = contents(tmp_path)
    assert len(add_nodes(tmp_path, MORE)) == 6
    assert_added(tmp_path, before)
    again = contents(tmp_path)
    assert add_nodes(tmp_path, MORE) == []
    assert add_nodes(tmp_path, replace(PLAN, nodes=("north", "south", "east"))) == []
    assert contents(tmp_path) == again


def test_a_node_folder_that_was_carried_away_is_not_made_again(tmp_path):
    """Its password would be another than the one on the node."""
    initialise(tmp_path, PLAN)
    for path in (tmp_path / "nodes/street-north").iterdir():
        path.unlink()
    (tmp_path / "nodes/street-north").rmdir()
    add_nodes(tmp_path, replace(PLAN, nodes=("north", "east")))
    assert sorted(path.name for path in (tmp_path / "nodes").iterdir()) == [
        "street-east",
        "street-south",
    ]


def test_what_somebody_else_wrote_into_the_files_stays(tmp_path):
    """Another user, a rule, a comment, a list over several lines, a last line without its end."""
    initialise(tmp_path, PLAN)
    with (tmp_path / "mosquitto/passwords").open("a") as file:
        file.write("zigbee2mqtt:$7$101$AAAA$BBBB")
    with (tmp_path / "mosquitto/acl").open("a") as file:
        file.write("user zigbee2mqtt\ntopic write zigbee2mqtt/#")
    config = tmp_path / "gateway.toml"
    edit(config, '["north", "south"]', '[\n  "north",\n  "south",\n]  # ours')
    add_nodes(tmp_path, replace(MORE, sources=("attic",)))
    lines = (tmp_path / "mosquitto/passwords").read_text().splitlines()
    assert "zigbee2mqtt:$7$101$AAAA$BBBB" in lines
    assert "topic write zigbee2mqtt/#" in (tmp_path / "mosquitto/acl").read_text().splitlines()
    assert names_in("\n".join(lines)) >= {"street.east", "street.east.attic", "zigbee2mqtt"}
    assert '[\n  "north",\n  "south", "east",\n]  # ours' in config.read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_the_brokers_files_stay_the_brokers(tmp_path):
    """It runs as a user of its own, who could not read a password file of root's."""
    initialise(tmp_path, PLAN)
    files = [tmp_path / "mosquitto/passwords", tmp_path / "mosquitto/acl"]
    for path in files:
        os.chown(path, 65_534, 65_534)
        path.chmod(0o640)
    add_nodes(tmp_path, MORE)
    for path in files:
        found = path.stat()
        assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (65_534, 65_534, 0o640)


def test_a_list_written_in_a_way_we_cannot_follow_is_left_to_its_writer(tmp_path):
    initialise(tmp_path, PLAN)
    config = tmp_path / "gateway.toml"
    edit(config, '["north", "south"]', '["north",\n"south" # by the river ]\n]')
    before = contents(tmp_path)
    sentence = r'gateway\.toml, line \d+: cannot add to this list: write it as nodes = \["north", '
    with pytest.raises(FolderError, match=sentence):
        add_nodes(tmp_path, MORE)
    assert contents(tmp_path) == before


def test_a_second_group_is_appended_and_a_node_of_another_is_refused(tmp_path):
    initialise(tmp_path, PLAN)
    noise = replace(PLAN, group="noise", classes=("calm", "loud"), nodes=("west",))
    add_nodes(tmp_path, noise)
    groups = load_config(tmp_path / "gateway.toml", {}).groups
    assert [(group.id, group.nodes) for group in groups] == [
        ("air", ("north", "south")),
        ("noise", ("west",)),
    ]
    before = contents(tmp_path)
    with pytest.raises(SettingError, match="must have each node once, got street/north"):
        add_nodes(tmp_path, replace(noise, nodes=("north",)))
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"classes": ("stale", "fresh")}, "has classes ('fresh', 'stale'), the plan ('stale',"),
        ({"site": "farm"}, "has site 'street', the plan 'farm'"),
    ],
)
def test_a_group_has_one_task(tmp_path, change, sentence):
    initialise(tmp_path, PLAN)
    before = contents(tmp_path)
    with pytest.raises(FolderError, match=re.escape(sentence)):
        add_nodes(tmp_path, replace(MORE, **change))
    assert contents(tmp_path) == before


def test_two_nodes_that_would_share_a_folder_are_told_apart(tmp_path):
    """`a-b` and `c`, or `a` and `b-c`: the names at the broker differ, the folders would not."""
    initialise(tmp_path, replace(PLAN, site="a-b", nodes=("c",)))
    other = replace(PLAN, site="a", group="other", nodes=("b-c",))
    before = contents(tmp_path)
    with pytest.raises(
        FolderError, match=r"belongs to user 'a-b\.c' and should belong to 'a\.b-c'"
    ):
        add_nodes(tmp_path, other)
    assert contents(tmp_path) == before


def test_added_nodes_go_to_the_broker_the_others_have(tmp_path):
    initialise(tmp_path, replace(PLAN, broker_host="broker.local", broker_port=1884))
    add_nodes(tmp_path, MORE)
    broker = load_node(tmp_path / "nodes/street-east/node.toml", {}).broker
    assert (broker.host, broker.port) == ("broker.local", 1884)


def test_a_folder_without_a_gateway_has_nothing_to_add_to(tmp_path):
    with pytest.raises(FolderError, match="run init first"):
        add_nodes(tmp_path / "absent", PLAN)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OpidError, match="cannot be written"):
        initialise(tmp_path / "file", PLAN)
    with pytest.raises(FolderError, match="must be printable"):
        initialise(tmp_path / "a\nallow_anonymous true", PLAN)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_operator_is_told_to_reload_the_broker(tmp_path):
    assert "SIGHUP" in next_steps(tmp_path, added=True)[0]
    assert "gateway.key" in next_steps(tmp_path, added=False)[0]


# --- who reads what -------------------------------------------------------------------------------


def test_nodes_are_added_to_a_group_by_its_name_alone(tmp_path, capsys):
    """Whoever adds a node had to type again which classes the group has had for a year."""
    initialise(tmp_path, PLAN)
    before = contents(tmp_path)
    assert main(["init", str(tmp_path), "--group", "air", "--node", "east", "--add-nodes"]) == 0
    assert_added(tmp_path, before)
    assert load_node(tmp_path / "nodes/street-east/node.toml", {}).node.classes == PLAN.classes
    capsys.readouterr()
    added = contents(tmp_path)
    assert main(["init", str(tmp_path), "--group", "roof", "--node", "top", "--add-nodes"]) == 2
    assert "no group 'roof': for a new one say --site and --class" in capsys.readouterr().err
    other = ["--class", "wet", "--class", "dry"]
    words = ["init", str(tmp_path), "--group", "air", "--node", "west", "--add-nodes", *other]
    assert main(words) == 2
    assert "has classes ('fresh', 'stale')" in capsys.readouterr().err
    assert contents(tmp_path) == added


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter, as /etc is."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def acting_as(user: str) -> Iterator[None]:
    """Root's process with the rights of this user, as far as files are concerned."""
    found, groups = pwd.getpwnam(user), os.getgroups()
    os.setgroups([])
    os.setegid(found.pw_gid)
    os.seteuid(found.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_the_services_user_reads_what_init_made_and_nobody_else_does(open_folder, capsys):
    """Root ran init, the unit runs as a user: it could not read its own credentials."""
    fleet = open_folder / "fleet"
    plan = ["--site", "street", "--group", "air", "--class", "fresh", "--class", "stale"]
    words = ["init", str(fleet), *plan, "--node", "north", "--user", "nobody"]
    assert main(words) == 0
    assert "chown nobody" not in capsys.readouterr().out
    for secret in ("keys/gateway.key", "keys/gateway.credentials"):
        found = (fleet / secret).stat()
        assert (found.st_mode & 0o777, found.st_uid) == (0o600, pwd.getpwnam("nobody").pw_uid)
    with acting_as("nobody"):
        assert main(["check", str(fleet / "gateway.toml")]) == 0
    capsys.readouterr()
    with acting_as("daemon"):
        assert main(["check", str(fleet / "gateway.toml")]) == 2
    assert "Permission denied" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_where_the_services_user_is_missing_init_says_what_to_type(tmp_path, capsys):
    fleet = tmp_path / "fleet"
    initialise(fleet, PLAN)
    words = ["init", str(fleet), "--group", "air", "--node", "east", "--add-nodes"]
    assert main([*words, "--user", "opid-nobody"]) == 0
    told = capsys.readouterr().out
    assert "sudo adduser --system --group --no-create-home opid-nobody" in told
    assert f"sudo chown opid-nobody: {fleet}/keys/gateway.credentials" in told
    assert (fleet / "keys/gateway.key").stat().st_uid == 0


def test_the_database_of_a_service_is_where_a_service_may_write(tmp_path, monkeypatch, capsys):
    """The unit sees /etc read-only; a folder elsewhere keeps its database beside it."""
    plan = ["--site", "street", "--group", "air", "--class", "a", "--class", "b", "--node", "n"]
    assert main(["init", str(tmp_path / "own"), *plan]) == 0
    own = load_config(tmp_path / "own/gateway.toml", {}).database
    assert own == f"sqlite:///{tmp_path}/own/gateway.sqlite"
    monkeypatch.setattr("gateway.cli.init.SYSTEM", tmp_path / "etc")
    assert main(["init", str(tmp_path / "etc/opid-gateway"), *plan]) == 0
    service = load_config(tmp_path / "etc/opid-gateway/gateway.toml", {}).database
    assert service == "sqlite:////var/lib/opid-gateway/gateway.sqlite"
    unit = tmp_path / "etc/opid-gateway/opid-gateway.service"
    assert f"sudo cp {unit} /etc/systemd/system/" in capsys.readouterr().out
    start = (
        f"ExecStart={sys.prefix}/bin/opid-gateway run {tmp_path}/etc/opid-gateway/gateway.toml\n"
    )
    assert start in unit.read_text()
    assert not (tmp_path / "own/opid-gateway.service").exists()
