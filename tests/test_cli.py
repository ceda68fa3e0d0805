"""`opid-node` as a person or systemd meets it: a process, its output and its exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.links import visitor
from support.mosquitto import HOST, Mosquitto
from support.state_folder import live

from edge_opid.cli import main
from edge_opid.cli.label import typed_stretch
from edge_opid.link.background import BackgroundLink
from edge_opid.store.real_disk import RealDisk
from edge_opid.wire import Ack, Channel, NodeTopics, Reading, Status, decode, encode
from firmware_sim.live.processes import WAIT_S, wait_until

EXAMPLE = Path(__file__).parent.parent / "docs" / "node.example.toml"
TOPICS = NodeTopics("farm", "n1")


def opid_node(*arguments, **environment):
    """Run the command to its end."""
    command = [sys.executable, "-m", "edge_opid", *map(str, arguments)]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("OPID_")}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**inherited, **environment}
    )


def write_config(folder: Path, port: int = 1883, more: str = "") -> Path:
    path = folder / "node.toml"
    path.write_text(
        f"""
[node]
site = "farm"
node = "n1"
classes = ["fresh", "stale"]
commit_s = 0.2
[broker]
host = "{HOST}"
port = {port}
{more}
[state]
folder = "state"
status_file = "status.json"
[[sensors]]
id = "temp"
reference = 20.0
scale = 5.0
"""
    )
    return path


# --- check ----------------------------------------------------------------------------------------


def test_the_example_passes_and_says_what_it_would_do():
    done = opid_node("check", EXAMPLE, OPID_BROKER_HOST="10.0.0.5")
    assert (done.returncode, done.stderr) == (0, "")
    for part in (
        "node north of site greenhouse: 4 sensors, 19 columns (8 vanish): WoodburyLearner 5.0 kB",
        "sensor soil-2: 8 hats; reference and scale from the first 200 readings",
        "listens to opid/1/greenhouse/north/reading/+, ",
        "foreign esphome/door/state as source door: door from the payload",
        "broker 10.0.0.5:1883 as client opid-greenhouse-north; without TLS; no password",
        "state in /var/lib/opid-node",
        "committed after 128 records or 5 s",
    ):
        assert part in done.stdout


def test_a_mistake_is_one_sentence_and_exit_code_2(tmp_path):
    path = write_config(tmp_path, more="prot = 1883")
    done = opid_node("check", path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "opid-node: node.toml, line 10: broker.prot is not a key; did you mean port?\n"
    )


def test_secrets_that_others_may_read_do_not_pass_and_are_not_shown(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("node\nhunter2\n")
    secret.chmod(0o644)
    path = write_config(tmp_path, more='credentials = "secret"')
    done = opid_node("check", path)
    assert done.returncode == 2
    assert "has mode 0644, which lets others in" in done.stderr
    secret.chmod(0o600)
    done = opid_node("check", path)
    assert done.returncode == 0
    assert f"password from {secret}" in done.stdout
    assert "hunter2" not in done.stdout + done.stderr


def test_a_missing_file_and_a_missing_verb_are_exit_code_2(tmp_path):
    assert opid_node("check", tmp_path / "absent.toml").returncode == 2
    assert opid_node().returncode == 2


# --- run, status, export --------------------------------------------------------------------------


@contextmanager
def running(path: Path):
    """A node in a process of its own, which is gone at the end."""
    log = path.with_name("log")
    with log.open("a") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "edge_opid", "run", str(path)], stderr=errors
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


eventually = partial(wait_until, what="the node has done its part")


def acknowledged(link: BackgroundLink, seq: int) -> bool:
    delivery = link.poll(0.1)
    return delivery is not None and decode(delivery.payload, Ack) == Ack(1, seq)


def send(link: BackgroundLink, first: int, last: int) -> None:
    topic = str(TOPICS.to(Channel.READING, "attic"))
    for seq in range(first, last + 1):
        label = ("fresh", "stale")[seq % 2]
        reading = Reading(1, seq, seq, {"temp": 20.0 + 5 * (seq % 2)}, label)
        assert link.publish(topic, encode(reading))


def last_status(broker: Mosquitto) -> Status:
    with visitor(broker.port, str(TOPICS.to(Channel.STATUS))) as link:
        delivery = link.poll(WAIT_S)
    assert delivery is not None
    return decode(delivery.payload, Status)


@pytest.fixture
def broker(tmp_path):
    folder = tmp_path / "broker"
    folder.mkdir()
    with Mosquitto(folder) as found:
        yield found


def test_sigterm_commits_what_was_received_and_says_goodbye(tmp_path, broker):
    """A life on the real broker: run, learn, SIGTERM, export; run again with all it had learned."""
    path = write_config(tmp_path, broker.port)
    with (
        running(path) as process,
        visitor(broker.port, str(TOPICS.to(Channel.ACK, "attic"))) as link,
    ):
        eventually((tmp_path / "status.json").exists)
        send(link, 1, 40)
        eventually(lambda: acknowledged(link, 40))
        busy = opid_node("export", tmp_path / "out.npz", path)
        assert (busy.returncode, "another process has it open" in busy.stderr) == (1, True)
        environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        assert b"OPENBLAS_NUM_THREADS=1" in environment
        assert b"MALLOC_ARENA_MAX=1" in environment
        assert b"MALLOC_MMAP_THRESHOLD_=131072" in environment
        eventually(lambda: json.loads(opid_node("status", "--json", path).stdout)["committed"] > 0)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
    assert last_status(broker).online is False
    assert "level=info event=stopped unsent=0 not_committed=0" in (tmp_path / "log").read_text()

    told = opid_node("status", path)
    assert (told.returncode, told.stdout.startswith("stopped ")) == (1, True)
    done = opid_node("export", tmp_path / "out.npz", path)
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "out.npz") as saved:
        assert list(saved["columns"]) == ["temp", "bias"]
        assert list(saved["classes"]) == ["fresh", "stale"]
        assert saved["W"].shape == (2, 2)
        assert json.loads(str(saved["layout"]))["sensors"][0][0] == "temp"

    with (
        running(path) as process,
        visitor(broker.port, str(TOPICS.to(Channel.ACK, "attic"))) as link,
    ):
        send(link, 40, 41)
        eventually(lambda: acknowledged(link, 41))
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 0


def test_a_node_without_a_broker_starts_all_the_same(tmp_path):
    path = write_config(tmp_path, port=1)
    with running(path) as process:
        eventually((tmp_path / "status.json").exists)
        told = opid_node("status", path)
        assert told.returncode == 1
        assert told.stdout.startswith("not connected to broker 127.0.0.1:1 for ")
        assert "online True" not in told.stdout
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0


def test_a_folder_that_cannot_be_written_is_one_line_of_log_and_exit_code_1(tmp_path):
    path = write_config(tmp_path)
    (tmp_path / "state").write_text("a file where the folder should be")
    done = opid_node("run", path)
    assert done.returncode == 1
    assert 'level=error event="cannot go on" why=' in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_status_without_a_node_is_one_sentence(tmp_path):
    done = opid_node("status", write_config(tmp_path))
    assert done.returncode == 1
    file = tmp_path / "status.json"
    told = f"opid-node: there is no status: {file} does not exist; start the node\n"
    assert done.stderr == told


@pytest.mark.parametrize(
    ("archive", "sentence"),
    [
        ("gone.tar.gz", "no such file or directory"),
        (".", "is a directory"),
        ("text.tar.gz", "is not a backup of a node: file could not be opened successfully"),
    ],
)
def test_a_restore_from_what_is_no_backup_is_one_sentence(tmp_path, archive, sentence):
    path, given = write_config(tmp_path), tmp_path / archive
    (tmp_path / "text.tar.gz").write_text("hello")
    done = opid_node("restore", given, path)
    assert done.returncode == 1
    assert done.stderr.startswith(f"opid-node: {given}")
    assert done.stderr.endswith(f"{sentence}\n")
    assert "Errno" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("spoilt", [0.3, 0.6, -0.001])
def test_a_backup_with_one_rotten_byte_is_refused(tmp_path, capsys, spoilt):
    """It was unpacked all the same: tar looks at no checksum behind the last file."""
    path, archive = write_config(tmp_path), tmp_path / "old.tar.gz"
    (tmp_path / "journal-00000001").write_bytes(np.random.default_rng(1).bytes(40_000))
    with tarfile.open(archive, "w:gz") as whole:
        whole.add(tmp_path / "journal-00000001", arcname="journal-00000001")
    data = bytearray(archive.read_bytes())
    data[int(spoilt * len(data))] ^= 0xFF
    archive.write_bytes(data)
    assert main(["restore", str(archive), str(path)]) == 1
    assert f"{archive} is not a backup of a node: " in capsys.readouterr().err
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("time", ["0001-01-01 00:00", "9999-12-31 23:59"])
def test_a_time_at_the_end_of_the_calendar_is_one_sentence(tmp_path, time):
    """An hour east of Greenwich it is in the year 0, or may be in 10000, which no clock knows."""
    config = write_config(tmp_path)
    done = opid_node("label", "fresh", "--at", time, "--config", config, TZ="XXX-1")
    assert done.returncode == 2
    assert done.stderr.startswith("opid-node: --at must be like 14:05")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("now", "begin", "until", "meant"),
    [
        ("18 17:00", "14:00", "16:00", ("18 14:00", "18 16:00")),
        ("18 15:30", "14:00", "16:00", ("17 14:00", "17 16:00")),
        ("18 13:00", "14:00", "16:00", ("17 14:00", "17 16:00")),
        ("18 08:00", "22:00", "06:00", ("17 22:00", "18 06:00")),
        ("18 23:30", "23:00", "01:00", ("17 23:00", "18 01:00")),
        ("18 15:30", "14:00", None, ("18 14:00", None)),
        ("18 13:00", "14:00", None, ("17 14:00", None)),
        ("18 15:30", "2026-11-18 14:00", "2026-11-18 16:00", ("18 14:00", "18 16:00")),
    ],
)
def test_hours_without_a_date_are_of_the_last_such_stretch_that_is_over(now, begin, until, meant):
    """At half past three, 14:00 to 16:00 began today and had ended yesterday: refused."""

    def of(text: str | None) -> int | None:
        when = None if text is None else datetime.strptime(f"2026-11-{text}", "%Y-%m-%d %H:%M")
        return when and round(1000 * when.timestamp())

    now_s = of(now) / 1000
    assert typed_stretch((begin, "--from"), (until, "--until"), lambda: now_s) == (
        of(meant[0]),
        of(meant[1]),
    )


def test_export_writes_through_no_planted_link(tmp_path):
    """Somebody lays a link to a file of the operator's where the export will be written."""
    victim, out = tmp_path / "precious", tmp_path / "out.npz"
    victim.write_text("precious")
    out.symlink_to(victim)
    (tmp_path / "out.npz.new").symlink_to(victim)
    path = write_config(tmp_path)
    live(path, [({"temp": 20.0}, "fresh")])
    done = opid_node("export", out, path)
    assert done.returncode == 0, done.stderr
    assert victim.read_text() == "precious"
    assert not out.is_symlink()
    with np.load(out) as saved:
        assert list(saved["columns"]) == ["temp", "bias"]


def test_a_reader_that_has_seen_enough_and_ctrl_c_are_no_errors(tmp_path, capsys):
    """`opid-node check | head -1` complained of a broken pipe, and Ctrl-C printed a trace."""
    path, python = write_config(tmp_path), sys.executable
    command = f"{python} -m edge_opid check {path} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode in (0, 1), done.stderr) == (True, "")
    with Mosquitto(tmp_path / "broker") as broker:
        listening = subprocess.Popen(
            [python, "-m", "edge_opid", "discover", "--port", str(broker.port), "--seconds", "60"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        wait_until(lambda: "New client connected" in broker.log(), "it listens")
        listening.send_signal(signal.SIGINT)
        _, said = listening.communicate(timeout=WAIT_S)
    assert (listening.returncode, said) == (130, "")
    with pytest.raises(SystemExit):
        main(["run", "--speed", "fast"])
    assert "must be a number from 0.001 to 100000, got 'fast'" in capsys.readouterr().err


def test_a_closed_or_narrow_stdout_is_no_traceback(tmp_path):
    """A supervisor closes stdout; an old terminal has no ✓: neither is a bug of ours."""
    path, python = write_config(tmp_path), sys.executable
    path.write_text(path.read_text().replace("fresh", "gemütlich ✓"))
    closed = f"exec {python} -m edge_opid check {path} >&-"
    done = subprocess.run(["bash", "-c", closed], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    latin = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [python, "-m", "edge_opid", "check", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=latin)
    assert (done.returncode, done.stderr) == (0, "")
    assert "gem\\xfctlich \\u2713" in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can write what is another user's")
def test_what_root_writes_into_a_state_belongs_to_whom_the_folder_belongs(tmp_path):
    """`sudo opid-node classes …` begins a new journal file, which the service has to write."""
    folder = tmp_path / "state"
    folder.mkdir()
    os.chown(folder, 12_345, 12_346)
    with RealDisk(folder) as disk:
        disk.create("journal-1", 4096)
    found = (folder / "journal-1").stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (12_345, 12_346, 0o600)
