"""`opid-node init`: from an installed program to a service, in a root of its own."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from support.home import LIVE, payload
from support.mosquitto import HOST, Mosquitto, free_port

from edge_opid.cli import main
from edge_opid.config.service import load_config
from gateway.setup.initialise import SetupPlan, initialise

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes users")
CLASSES = ["--class", "empty", "--class", "occupied"]
FILES = ["etc/opid-node/node.toml", "etc/systemd/system/opid-node.service"]


def init(root: Path, *words: object) -> int:
    return main(["init", "--root", str(root), "--port", str(free_port()), *map(str, words)])


def listed(root: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Every path below the root: owner, group, mode, content."""
    found = {}
    for path in sorted(root.rglob("*")):
        about = path.stat()
        content = path.read_bytes() if path.is_file() else b""
        name = str(path.relative_to(root))
        found[name] = about.st_uid, about.st_gid, stat.S_IMODE(about.st_mode), content
    return found


def account(root: Path) -> tuple[int, int]:
    (line,) = [
        each for each in (root / "etc/passwd").read_text().splitlines() if "opid-node" in each
    ]
    assert line.endswith("/usr/sbin/nologin")
    return int(line.split(":")[2]), int(line.split(":")[3])


@as_root
def test_init_makes_user_folders_modes_unit_and_a_file_that_check_accepts(tmp_path, capsys):
    assert init(tmp_path, *CLASSES, "--site", "farm", "--node", "north") == 0
    told = capsys.readouterr()
    uid, gid = account(tmp_path)
    found = listed(tmp_path)
    assert found["etc/opid-node"][:3] == (0, gid, 0o750)
    assert found["etc/opid-node/node.toml"][:3] == (0, gid, 0o640)
    assert found["var/lib/opid-node"][:3] == (uid, gid, 0o700)
    assert found["etc/systemd/system/opid-node.service"][:3] == (0, 0, 0o644)
    config = load_config(tmp_path / "etc/opid-node/node.toml", {})
    assert (config.node.site, config.node.node) == ("farm", "north")
    assert config.node.classes == ("empty", "occupied")
    assert main(["check", str(tmp_path / "etc/opid-node/node.toml")]) == 0
    assert "no broker answered" in told.err
    assert "create the user opid-node\n" in told.out
    assert "systemctl enable --now opid-node" in told.out


@as_root
def test_the_unit_starts_this_program_as_the_user_that_was_made(tmp_path):
    assert init(tmp_path, *CLASSES) == 0
    text = (tmp_path / "etc/systemd/system/opid-node.service").read_text()
    program = f"{sys.prefix}/bin/opid-node"
    assert f"ExecStart={program} run /etc/opid-node/node.toml\n" in text
    assert f"ExecStartPre=-{Path(program).parent}/python -c " in text
    assert "User=opid-node\n" in text
    assert init(tmp_path / "other", *CLASSES, "--user", "sensor-node") == 0
    text = (tmp_path / "other/etc/systemd/system/opid-node.service").read_text()
    assert "User=sensor-node\nGroup=sensor-node\n" in text


@as_root
def test_a_second_init_changes_nothing(tmp_path, capsys):
    """Not even with other words: what is there is somebody's."""
    assert init(tmp_path, *CLASSES) == 0
    before = listed(tmp_path)
    capsys.readouterr()
    assert init(tmp_path, "--class", "wet", "--class", "dry", "--site", "elsewhere") == 0
    assert capsys.readouterr().out.startswith("nothing is missing; nothing was done\n")
    assert listed(tmp_path) == before


def test_a_dry_run_says_all_and_does_nothing(tmp_path, capsys):
    assert init(tmp_path, *CLASSES, "--dry-run") == 0
    told = capsys.readouterr().out
    assert f"would create the user opid-node\nwould create {tmp_path}/etc/opid-node" in told
    assert all(f"would write {tmp_path}/{name}\n" in told for name in FILES)
    assert list(tmp_path.iterdir()) == []


def test_without_root_init_says_what_to_run_and_does_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys, "argv", ["opid-node", "init", "--class", "in use"])
    assert init(tmp_path, *CLASSES) == 2
    told = capsys.readouterr()
    assert (
        f"run sudo {sys.prefix}/bin/opid-node init --class 'in use', or add --dry-run" in told.err
    )
    assert list(tmp_path.iterdir()) == []


@as_root
def test_without_classes_init_asks_for_them_and_does_nothing(tmp_path, capsys):
    assert init(tmp_path) == 2
    assert "needs the classes to tell apart" in capsys.readouterr().err
    assert init(tmp_path, *CLASSES, "--node", "Not An Id") == 2
    assert "node.node must be 1 to 32 of a-z" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@as_root
def test_a_folder_that_a_gateway_made_becomes_readable_for_the_service_and_stays(tmp_path):
    """Root carried it there: the service's user could not read its own password."""
    fleet = tmp_path / "fleet"
    plan = SetupPlan(site="street", group="air", classes=("fresh", "stale"), nodes=("north",))
    initialise(fleet, plan)
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    carried = root / "etc/opid-node"
    (fleet / "nodes/street-north").rename(carried)
    before = {path.name: path.read_bytes() for path in carried.iterdir()}
    assert init(root) == 0
    _, gid = account(root)
    found = listed(root)
    assert found["etc/opid-node"][:3] == (0, gid, 0o750)
    assert found["etc/opid-node/credentials"][:3] == (0, gid, 0o640)
    assert found["etc/opid-node/node.toml"][:3] == (0, gid, 0o640)
    assert found["etc/opid-node/sensors.credentials"][:3] == (0, 0, 0o600)
    assert {path.name: path.read_bytes() for path in carried.iterdir()} == before
    assert main(["check", str(carried / "node.toml")]) == 0


@as_root
def test_the_first_file_lists_what_the_broker_has_and_a_node_runs_with_it(tmp_path):
    """One command from a broker to a node that predicts from its devices."""
    root = tmp_path / "root"
    secret = tmp_path / "secret"
    secret.write_text("n1\nx\n")
    secret.chmod(0o600)
    with Mosquitto(tmp_path / "broker", users={"n1": "x", "home": "y"}) as broker:
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, "home")
        client.username_pw_set("home", "y")
        client.connect(HOST, broker.port)
        client.loop_start()
        for topic, said in LIVE.items():
            client.publish(topic, payload(said), qos=1, retain=True).wait_for_publish(10)
        words = [*CLASSES, "--host", HOST, "--port", broker.port, "--seconds", 1]
        assert init(root, *words, "--node", "n1", "--credentials", secret) == 0
        file = root / "etc/opid-node/node.toml"
        ids = {each.id for each in load_config(file, {}).node.sensors}
        assert {"zigbee2mqtt-living-room-humidity", "tele-wash-sensor-energy-power"} <= ids
        assert listed(root)["etc/opid-node/credentials"][2:] == (0o640, b"n1\nx\n")
        state = {
            "OPID_STATE_FOLDER": str(root / "var/lib/opid-node"),
            "OPID_STATE_STATUS_FILE": str(tmp_path / "status.json"),
        }
        heard: list[str] = []
        client.on_message = lambda _c, _u, message: heard.append(message.topic)
        client.subscribe("opid/1/home/n1/prediction", qos=1)
        with subprocess.Popen(
            [sys.executable, "-m", "edge_opid", "run", str(file)],
            env={**os.environ, **state},
            stderr=subprocess.PIPE,
        ) as node:
            try:
                end = time.monotonic() + 60
                while not heard and node.poll() is None and time.monotonic() < end:
                    for topic, said in LIVE.items():
                        client.publish(topic, payload(said), qos=1).wait_for_publish(10)
                    time.sleep(0.1)
            finally:
                node.kill()
        client.disconnect()
        client.loop_stop()
        assert heard


REPOSITORY = Path(__file__).resolve().parents[1]
UNITS = {
    "opid-node": REPOSITORY / "edge_opid/service/opid-node.service",
    "opid-gateway": REPOSITORY / "gateway/opid-gateway.service",
}


def test_the_shipped_units_run_what_the_pages_install_as_their_own_user():
    for name, unit in UNITS.items():
        text = unit.read_text()
        assert f"ExecStart=/opt/{name}/bin/{name} run /etc/{name}/" in text
        assert f"User={name}\nGroup={name}\nStateDirectory={name}\n" in text
        assert re.search(r"(?m)^RestartPreventExitStatus=2$", text)


@pytest.mark.parametrize("name", sorted(UNITS))
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_understands_every_line_of_the_units(tmp_path, name):
    """A misspelt key is a warning in the log that nobody reads, and a limit that does not hold."""
    text = UNITS[name].read_text()
    unit = tmp_path / f"{name}.service"
    unit.write_text(text.replace(f"/opt/{name}/bin/{name}", "/bin/true"))
    command = ["systemd-analyze", "verify", str(unit)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (ran.returncode, unit.name in ran.stderr) == (0, False), ran.stderr
    unit.write_text(
        unit.read_text().replace("MemoryMax", "MemroyMax").replace("TasksMax", "TaskMx")
    )
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert unit.name in ran.stderr  # or the line above would prove nothing


@as_root
def test_a_unit_that_the_debian_package_brought_is_left_alone(tmp_path):
    """A copy in /etc would hide the package's unit, and with it every upgrade of it."""
    packaged = tmp_path / "usr/lib/systemd/system/opid-node.service"
    packaged.parent.mkdir(parents=True)
    packaged.write_text("[Service]\nExecStart=/usr/bin/opid-node run\n")
    assert init(tmp_path, *CLASSES) == 0
    assert not (tmp_path / "etc/systemd/system").exists()
    assert packaged.read_text() == "[Service]\nExecStart=/usr/bin/opid-node run\n"
    assert (tmp_path / "etc/opid-node/node.toml").exists()
