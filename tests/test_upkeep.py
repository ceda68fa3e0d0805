"""What an operator does now and then, as docs/upkeep.md prints it: nothing else changes by it."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import sqlite3
import stat
import subprocess
import sys
import tarfile
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import paho.mqtt.client as paho
import pytest
from support import store_records as some
from support.mosquitto import HOST, Mosquitto
from support.postgres import find_program
from test_gateway_acl import PLAN, guest, passwords
from test_gateway_store_leader import SERVE

from edge_opid.cli import main as opid_node
from edge_opid.cli.parser import parser as node_parser
from edge_opid.config.service import load_config as load_node
from edge_opid.service.status_file import write_status
from edge_opid.store import RealDisk
from edge_opid.wire import Ack, Reading, decode, encode
from gateway.__main__ import main
from gateway.cli.parser import parser as gateway_parser
from gateway.config import load_config, load_signing_key
from gateway.setup.initialise import initialise
from gateway.store import FleetStore
from gateway.store.database import make_private

PAGE = Path(__file__).resolve().parents[1] / "docs" / "upkeep.md"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """A folder that init made, and a database with a node in it."""
    folder = tmp_path / "fleet"
    initialise(folder, PLAN)
    with FleetStore.open(database(folder)) as store:
        store.claim()
        store.save([some.node(), some.change(), some.example()])
    return folder


def database(folder: Path) -> str:
    return f"sqlite:///{folder}/gateway.sqlite"


def rows(path: Path) -> str:
    with sqlite3.connect(path) as connection:
        return "\n".join(line for line in connection.iterdump() if "leader" not in line)


@contextmanager
def served(folder: Path):
    """Another process leads the database."""
    command = [sys.executable, "-c", SERVE, database(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "serving\n"
        yield process.pid
        process.kill()


def test_every_command_of_the_page_is_one_that_can_be_typed():
    lines = re.findall(r"(?m)^\$ (opid-\S+) (.*)$", PAGE.read_text("utf-8"))
    assert len(lines) == 11
    for program, words in lines:
        parser = node_parser() if program == "opid-node" else gateway_parser()
        parser.parse_args(words.split())


# --- status ---------------------------------------------------------------------------------------


def test_status_says_first_whether_a_gateway_runs_who_it_is_and_since_when(fleet, capsys):
    config = str(fleet / "gateway.toml")
    assert main(["status", config]) == 1
    assert capsys.readouterr().out.startswith("not running: no gateway serves sqlite:///")
    with served(fleet) as pid:
        assert main(["status", config]) == 0
        told = capsys.readouterr().out
        assert re.match(rf"running: process {pid} on '.+', since 20\d\d-\d\d-\d\d ", told)
        assert "  nodes: 0 online, 1 offline, 1 never\n" in told
        assert main(["status", config, "--json"]) == 0
        facts = json.loads(capsys.readouterr().out)
        lock = (fleet / "gateway.sqlite.lock").stat()
        assert facts["since_ms"] == lock.st_mtime_ns // 1_000_000
        assert facts["open_changes"] == [some.change().id]
        [row] = re.findall(
            r"(?m)^\| `status` \| (.*) \|$", (PAGE.parent / "gateway.md").read_text()
        )
        assert set(facts) == set(re.findall(r"`(\w+)`", row))
    assert main(["status", config]) == 1


def test_status_says_that_a_running_gateway_has_no_broker_and_what_it_refused(fleet, capsys):
    """It runs, and nothing of the fleet reaches it: the second line says so, and the exit code."""
    config, file = fleet / "gateway.toml", fleet / "status.json"
    text = config.read_text()
    config.write_text(text.replace("# status_file = ", f'status_file = "{file}" # '))
    said = {"count": 3, "why": "other classes", "do": "give it the group's classes"}
    since_ms = int(time.time() * 1000) - 2 * 3_600_000 - 300_000
    where = {"broker": "broker pi:1883", "not_connected_since_ms": since_ms}
    away = {"running": True, "connected": False, "not_connected": "refused", **where}
    with served(fleet):
        write_status(file, {**away, "noted": {"refused-introduction": said}})
        assert main(["status", str(config)]) == 1
        told = capsys.readouterr().out.splitlines()
        assert told[0].startswith("running: process ")
        assert told[1] == "  not connected to broker pi:1883 for 2 h: refused"
        assert "  refused-introduction: 3 times: other classes" in told
        write_status(file, {"running": True, "connected": True})
        assert main(["status", str(config)]) == 0
        write_status(file, away)
        os.utime(file, (0, 0))  # of a life before
        assert main(["status", str(config)]) == 0


def test_status_of_a_gateway_that_never_ran_is_no_mistake_of_whoever_asks(tmp_path, capsys):
    initialise(tmp_path, PLAN)
    before = contents(tmp_path)
    assert main(["status", str(tmp_path / "gateway.toml")]) == 1
    told = capsys.readouterr().out
    assert told.startswith("not running: no gateway has run with this configuration yet")
    assert contents(tmp_path) == before


def test_the_leader_of_either_database_can_be_named_by_others(database_url):
    with FleetStore.open(database_url) as store, FleetStore.open(database_url) as other:
        assert other.leader() is None
        store.claim()
        found = other.leader()
        assert found is not None
        assert str(os.getpid()) in found.process
        assert found.since_ms is not None
        assert found.since_ms > 1_700_000_000_000


# --- copies of the database -----------------------------------------------------------------------


def test_a_backup_is_made_while_the_gateway_runs_and_restored_while_none_does(fleet, capsys):
    """The copy is one moment; what has come since is kept beside it, not mixed in."""
    config, file = str(fleet / "gateway.toml"), fleet / "copy.sqlite"
    target = fleet / "gateway.sqlite"
    then = rows(target)
    with served(fleet):
        assert main(["backup", config, str(file)]) == 0
        assert main(["restore", config, str(file)]) == 2
        assert "is being served by process" in capsys.readouterr().err
    assert (rows(file), rows(target), mode(file)) == (then, then, 0o600)
    with FleetStore.open(database(fleet)) as store:
        store.claim()
        store.save([some.node("later")])
    since = rows(target)
    assert since != then
    assert main(["restore", config, str(file)]) == 0
    assert rows(target) == then
    assert rows(fleet / "gateway.sqlite.before-restore") == since
    assert mode(target) == mode(fleet / "gateway.sqlite.before-restore") == 0o600
    assert main(["restore", config, str(file)]) == 2
    assert "from another restore" in capsys.readouterr().err
    assert not list(fleet.glob("*.new*"))


def test_a_backup_overwrites_nothing_and_a_restore_takes_only_what_is_ours(fleet, tmp_path, capsys):
    config, file = str(fleet / "gateway.toml"), tmp_path / "other"
    file.write_text("mine")
    before = contents(fleet)
    assert main(["backup", config, str(file)]) == 2
    assert file.read_text() == "mine"
    assert main(["restore", config, str(file)]) == 1
    assert "is not a database" in capsys.readouterr().err
    file.unlink()
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE somebody (x)")
    assert main(["restore", config, str(file)]) == 2
    assert "is not a gateway's database" in capsys.readouterr().err
    assert main(["restore", config, str(tmp_path / "nothing")]) == 2
    changed = {name for name, data in contents(fleet).items() if before.get(name) != data}
    assert {Path(name).name for name in changed} <= {"gateway.sqlite.lock"}


def test_a_database_that_is_gone_comes_back_from_its_copy(fleet):
    config, file = str(fleet / "gateway.toml"), fleet / "copy.sqlite"
    then = rows(fleet / "gateway.sqlite")
    assert main(["backup", config, str(file)]) == 0
    for path in fleet.glob("gateway.sqlite*"):
        path.unlink()
    assert main(["restore", config, str(file)]) == 0
    assert rows(fleet / "gateway.sqlite") == then


def test_what_holds_labelled_readings_is_its_owners_alone(fleet, tmp_path):
    """Under the most careless umask, and where somebody had opened it to all."""
    before = os.umask(0)
    try:
        with FleetStore.open(database(tmp_path)) as store:
            store.claim()
        file = tmp_path / "copy.sqlite"
        assert main(["backup", str(fleet / "gateway.toml"), str(file)]) == 0
    finally:
        os.umask(before)
    assert {mode(path) for path in tmp_path.glob("*.sqlite*")} == {0o600}
    file.chmod(0o644)
    make_private(file)
    assert mode(file) == 0o600


def test_for_postgresql_the_verbs_name_the_commands_and_those_work(tmp_path, postgres):
    """The printed lines are run: what the server has afterwards is what it had at the copy."""
    initialise(tmp_path, PLAN)
    url = postgres.database("upkeep")
    file = postgres.folder / "upkeep.dump"
    with FleetStore.open(url) as store:
        store.claim()
        store.save([some.node(), some.change()])
        then = store.fleet()
    run_what_is_printed("backup", tmp_path, url, file)
    with FleetStore.open(url) as store:
        store.claim()
        store.save([some.node("later")])
    run_what_is_printed("restore", tmp_path, url, file)
    with FleetStore.open(url) as store:
        assert store.fleet().nodes == then.nodes


def run_what_is_printed(verb: str, folder: Path, url: str, file: Path) -> None:
    command = [sys.executable, "-m", "gateway", verb, str(folder / "gateway.toml"), str(file)]
    environment = {**os.environ, "OPID_GATEWAY_DATABASE": url}
    ran = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 2
    program, *words = shlex.split(ran.stderr.strip().rpartition("run: ")[2])
    subprocess.run([find_program(program), *words], check=True, capture_output=True, timeout=60)


# --- keys -----------------------------------------------------------------------------------------


def test_a_key_is_replaced_in_two_steps_and_no_node_is_left_behind(fleet, capsys):
    config, keys = str(fleet / "gateway.toml"), fleet / "keys"
    old = (keys / "gateway.key").read_text()
    was = (keys / "gateway.pub").read_text().strip()
    assert main(["key", "use", config]) == 2
    assert main(["key", "new", config]) == 0
    told = capsys.readouterr().out
    new = load_signing_key(keys / "gateway.key.next").verify_key.encode().hex()
    line = re.search(r"keys = \[.*\]", told)
    assert line is not None
    assert line[0] == f'keys = ["{was}", "{new}"]'
    assert (keys / "gateway.key").read_text() == old
    node = fleet / "nodes/street-north/node.toml"
    node.write_text(re.sub(r"(?m)^keys = .*$", line[0], node.read_text()))
    assert load_node(node, {}).gateway_keys == (was, new)
    assert main(["key", "new", config]) == 2
    assert main(["key", "use", config]) == 0
    key = load_signing_key(load_config(Path(config), {}).key_file)
    assert key.verify_key.encode().hex() == new
    assert (keys / "gateway.pub").read_text().strip() == new
    assert (keys / "gateway.key.old").read_text() == old
    assert [mode(keys / name) for name in ("gateway.key", "gateway.key.old")] == [0o600, 0o600]
    assert not (keys / "gateway.key.next").exists()
    capsys.readouterr()
    assert main(["key", "show", config]) == 0
    assert capsys.readouterr().out == f"gateway.key  {new}\n"
    assert old.strip() not in told


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_new_key_belongs_to_whoever_has_the_old_one(fleet):
    os.chown(fleet / "keys/gateway.key", 65_534, 65_534)
    for verb in ("new", "use"):
        assert main(["key", verb, str(fleet / "gateway.toml")]) == 0
    for name in ("gateway.key", "gateway.key.old", "gateway.pub"):
        assert (fleet / "keys" / name).stat().st_uid == 65_534


# --- accounts -------------------------------------------------------------------------------------


def test_a_renewed_password_opens_and_a_removed_name_does_not_and_others_stay(fleet, tmp_path):
    before = passwords(fleet)
    with (
        Mosquitto(tmp_path / "broker", config=fleet / "mosquitto/opid.conf") as broker,
        guest(broker.port, "gateway", before["gateway"]) as gateway,
    ):
        assert main(["account", "renew", str(fleet), "street.north"]) == 0
        assert main(["account", "remove", str(fleet), "street.south"]) == 0
        broker.reload()
        after = passwords(fleet)
        assert after["street.north"] != before["street.north"]
        assert not [name for name in after if name.startswith("street.south")]
        assert {n: p for n, p in after.items() if n != "street.north"} == {
            n: p for n, p in before.items() if n != "street.north" and "south" not in n
        }
        for user, password, opens in (
            ("street.north", before["street.north"], False),
            ("street.north", after["street.north"], True),
            ("street.north.sensors", before["street.north.sensors"], True),
            ("street.south", before["street.south"], False),
            ("street.south.attic", before["street.south.attic"], False),
            ("operator", before["operator"], True),
        ):
            with guest(broker.port, user, password) as one:
                assert one.answer.is_failure is not opens, user
        gateway.subscribe("the/end")
        assert not gateway.gone.is_set()


def test_an_unknown_name_is_one_sentence_and_changes_nothing(fleet, capsys):
    before = contents(fleet)
    for verb, name in (("renew", "street.west"), ("remove", "nobody"), ("remove", "gateway")):
        assert main(["account", verb, str(fleet), name]) == 2
    assert "it has: gateway, operator, street.north" in capsys.readouterr().err
    assert contents(fleet) == before


def test_a_removed_node_that_is_added_again_gets_another_password(fleet):
    """A stolen card: its owner removes the account, puts a new node in its place, and the thief's
    password would have held again.
    """
    before = passwords(fleet)
    assert main(["account", "remove", str(fleet), "street.south"]) == 0
    assert main(["init", str(fleet), "--add-nodes", "--group", PLAN.group, "--node", "south"]) == 0
    after = passwords(fleet)
    for name in ("street.south", "street.south.sensors"):
        assert after[name] != before[name]
    assert after["street.north"] == before["street.north"]


def test_every_account_that_init_makes_can_be_renewed(tmp_path, capsys):
    """Home Assistant's was refused as one that init had not made, and listed in the same line."""
    fleet = tmp_path / "fleet"
    shared = replace(PLAN, homeassistant=True, database="postgresql://db/opid")
    initialise(fleet, shared)
    before = passwords(fleet)
    for name in before:
        assert main(["account", "renew", str(fleet), name]) == 0
    after = passwords(fleet)
    assert before.keys() == after.keys()
    assert not [name for name in before if before[name] == after[name]]
    assert main(["account", "remove", str(fleet), "gateway-street"]) == 2
    assert "the gateway must be able to log in" in capsys.readouterr().err
    assert passwords(fleet) == after


def test_accounts_of_a_site_with_its_own_broker_are_in_that_brokers_file(tmp_path, capsys):
    """They were not found, and could neither be renewed nor, after a theft, be removed."""
    fleet, central = tmp_path / "fleet", "mosquitto/passwords"
    initialise(fleet, replace(PLAN, site_broker="192.168.7.2"))
    before, names = passwords(fleet), (fleet / central).read_text()
    assert main(["account", "renew", str(fleet), "street.north"]) == 0
    assert main(["account", "remove", str(fleet), "street.south"]) == 0
    own = fleet / "sites/street/passwords"
    assert f"copy {own} to the site's broker as /etc/opid-broker/passwords" in (
        capsys.readouterr().out
    )
    assert passwords(fleet)["street.north"] != before["street.north"]
    assert "street.south" not in own.read_text()
    assert "street.north:" in own.read_text()
    assert (fleet / central).read_text() == names


def test_the_password_of_a_bridge_is_renewed_where_the_sites_broker_reads_it(tmp_path, capsys):
    """It was refused as an account that init had not created, and listed in the same line. A site
    that is given up is removed, and gets another password if it comes again.
    """
    fleet, plan = tmp_path / "fleet", replace(PLAN, site_broker="192.168.7.2")
    conf = fleet / "sites/street/bridge.conf"
    initialise(fleet, plan)
    before, text = passwords(fleet), conf.read_text()
    assert main(["account", "renew", str(fleet), "bridge-street"]) == 0
    said, after = capsys.readouterr().out, passwords(fleet)
    assert f"copy {conf} to the site's broker as /etc/opid-broker/bridge.conf" in said
    assert "restart the site's broker" in said
    assert [name for name in before if before[name] != after[name]] == ["bridge-street"]
    assert before.keys() == after.keys()
    renewed = text.replace(before["bridge-street"], after["bridge-street"])
    assert conf.read_text() == renewed != text
    assert main(["account", "remove", str(fleet), "bridge-street"]) == 0
    assert before.keys() - passwords(fleet).keys() == {"bridge-street"}
    again = ["init", str(fleet), "--add-nodes", "--group", PLAN.group, "--node", "west"]
    assert main([*again, "--site-broker", "192.168.7.2"]) == 0
    password = passwords(fleet)["bridge-street"]
    assert password not in (before["bridge-street"], after["bridge-street"])
    assert f"remote_password {password}\n" in conf.read_text()


@pytest.mark.parametrize("site", ["operator", "homeassistant", "gateway-hall", "bridge-hall"])
def test_a_site_may_be_called_as_an_account_is(tmp_path, capsys, site):
    """Removing `operator` took the passwords of all nodes of the site `operator`; and nodes of a
    site `gateway-hall` were taken for gateways, which nobody may remove.
    """
    fleet = tmp_path / "fleet"
    initialise(fleet, replace(PLAN, site=site, homeassistant=True))
    before = passwords(fleet)
    if site in before:
        assert main(["account", "remove", str(fleet), site]) == 0
        assert capsys.readouterr().out.splitlines()[0] == f"{site} can no longer log in"
        assert before.keys() - passwords(fleet).keys() == {site}
    assert main(["account", "remove", str(fleet), f"{site}.south"]) == 0
    gone = {name for name in before if name == site or name.startswith(f"{site}.south")}
    after = passwords(fleet)
    assert before.keys() - after.keys() == gone
    assert after.items() <= before.items()


@pytest.mark.parametrize("verb", ["renew", "remove"])
def test_a_misspelt_folder_does_not_come_into_being(tmp_path, capsys, verb):
    """`account remove /etc/opid-gatway n1` made that folder, and said that n1 is not in it."""
    folder = tmp_path / "opid-gatway"
    assert main(["account", verb, str(folder), "street.north"]) == 2
    assert f"{folder} is not a folder created by init" in capsys.readouterr().err
    assert not folder.exists()


# --- a node's state -------------------------------------------------------------------------------

NODE = """
[node]
site = "farm"
node = "{node}"
classes = ["dry", "wet"]
[[sensors]]
id = "a"
reference = 0.0
scale = 1.0
[state]
folder = "{folder}"
"""


def node_file(folder: Path, node: str = "n1") -> Path:
    path = folder / f"{node}.toml"
    path.write_text(NODE.format(node=node, folder=folder / "state"))
    return path


def live(file: Path, port: int, first: int, last: int) -> None:
    """A node of its own process learns these readings, acknowledges the last, and is stopped."""
    topic = "opid/1/farm/n1"
    acks: list[int] = []
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, f"source-{first}")
    client.on_message = lambda _c, _u, m: acks.append(decode(m.payload, Ack).seq)
    client.connect(HOST, port)
    client.loop_start()
    client.subscribe(f"{topic}/ack/attic", qos=1)
    environment = {**os.environ, "OPID_BROKER_PORT": str(port), "OPID_NODE_COMMIT_S": "0.05"}
    command = [sys.executable, "-m", "edge_opid", "run", str(file)]
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as node:
        try:
            while not acks or max(acks) < last:
                for number in range(first, last + 1):
                    label = "wet" if number % 3 else "dry"
                    reading = Reading(7, number, 1_000 * number, {"a": number % 3 - 1.0}, label)
                    client.publish(f"{topic}/reading/attic", encode(reading), qos=1)
                time.sleep(0.2)
                assert node.poll() is None
            node.terminate()
            assert node.wait(30) == 0
        finally:
            node.kill()
    client.disconnect()
    client.loop_stop()


def weights(file: Path, folder: Path, name: str) -> np.ndarray:
    assert opid_node(["export", str(folder / name), str(file)]) == 0
    with np.load(folder / name) as found:
        return found["W"]


def test_a_nodes_state_is_copied_and_comes_back_to_the_same_bits(tmp_path, capsys):
    """The card has died: what the node had learned at the copy is what it goes on with."""
    file, archive = node_file(tmp_path), tmp_path / "n1.tar.gz"
    state = tmp_path / "state"
    with Mosquitto(tmp_path / "broker") as broker:
        live(file, broker.port, 1, 60)
        then = weights(file, tmp_path, "then.npz")
        assert opid_node(["backup", str(archive), str(file)]) == 0
        assert mode(archive) == 0o600
        live(file, broker.port, 61, 90)
        assert (weights(file, tmp_path, "later.npz") != then).any()
        assert opid_node(["restore", str(archive), str(file)]) == 2
        assert "is not empty" in capsys.readouterr().err
        shutil.rmtree(state)
        assert opid_node(["restore", str(archive), str(file)]) == 0
        np.testing.assert_array_equal(weights(file, tmp_path, "again.npz"), then)
        assert mode(state) == 0o700
        assert {mode(path) for path in state.iterdir()} == {0o600}
        live(file, broker.port, 61, 90)  # a source that still has them sends them again
    shutil.rmtree(state)
    capsys.readouterr()
    assert opid_node(["restore", str(archive), str(node_file(tmp_path, "n2"))]) == 2
    assert "the state is that of farm/n1" in capsys.readouterr().err
    assert not state.exists()


def test_a_running_nodes_state_is_not_copied(tmp_path, capsys):
    file = node_file(tmp_path)
    (tmp_path / "state").mkdir()
    (tmp_path / "state/some").write_text("state")
    with RealDisk(tmp_path / "state"):
        assert opid_node(["backup", str(tmp_path / "copy"), str(file)]) == 1
    assert "another process has it open" in capsys.readouterr().err
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("name", ["../escaped", "/etc/escaped", "folder/file", "link"])
def test_an_archive_that_reaches_elsewhere_is_refused(tmp_path, capsys, name):
    """An archive may name any path, and links to any."""
    file, archive = node_file(tmp_path), tmp_path / "evil.tar.gz"
    with tarfile.open(archive, "w:gz") as made:
        member = tarfile.TarInfo(name)
        if name == "link":
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        else:
            member.size = 4
        made.addfile(member, io.BytesIO(b"evil"))
    assert opid_node(["restore", str(archive), str(file)]) == 1
    assert "is not a backup of a node" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evil.tar.gz", "n1.toml"]


def test_what_is_no_archive_and_no_state_is_refused_and_leaves_nothing(tmp_path, capsys):
    file, archive = node_file(tmp_path), tmp_path / "copy"
    archive.write_text("mine")
    assert opid_node(["restore", str(archive), str(file)]) == 1
    assert opid_node(["backup", str(archive), str(file)]) == 2
    assert archive.read_text() == "mine"
    with tarfile.open(tmp_path / "other", "w:gz") as made:
        made.addfile(tarfile.TarInfo("journal"))
    assert opid_node(["restore", str(tmp_path / "other"), str(file)]) == 1
    assert opid_node(["backup", str(tmp_path / "none"), str(file)]) == 1
    assert "there is no folder" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "n1.toml", "other"]
