"""The parts of `make pi` that decide: what a page says, what a power cut leaves of a disk."""

from __future__ import annotations

import os
import random
import re
import struct
from pathlib import Path

import pytest

from edge_opid.config.service import parse_config
from emulation import ROOT, debian, world
from emulation import __main__ as make_pi
from emulation.architectures import ARCHITECTURES, ARM64
from emulation.crash_points import must_have
from emulation.image import Image
from emulation.pages import (
    NODE,
    PAGES,
    PROMPT,
    RASPBERRY_PI,
    README,
    TFLITE,
    UPGRADE,
    commands,
    lines_for,
)
from emulation.write_log import BLOCK, FLUSH, FUA, MAGIC, CrashedDisk, LogError, Request, requests

SECTOR = 512


def entry(sector, data, flags=0):
    head = struct.pack("<QQQQ", sector, len(data) // SECTOR, flags, 0)
    return head.ljust(SECTOR, b"\0") + data


def written(path, *entries, magic=MAGIC):
    head = struct.pack("<QQQI", magic, 1, len(entries), SECTOR).ljust(SECTOR, b"\0")
    path.write_bytes(head + b"".join(entries))
    return path


def test_a_log_of_writes_is_read_to_its_last_whole_entry(tmp_path):
    """The emulator was killed in the middle of a write: the half entry is no entry."""
    whole = [entry(8, b"a" * BLOCK), entry(0, b"", FLUSH)]
    log = written(tmp_path / "log", *whole, entry(16, b"b" * BLOCK)[:-1])
    assert [(each.at, each.data[:1], each.is_flush) for each in requests(log)] == [
        (4096, b"a", False),
        (0, b"", True),
    ]
    assert [each.end for each in requests(log)] == [
        2 * SECTOR + BLOCK,
        3 * SECTOR + BLOCK,
    ]


@pytest.mark.parametrize(
    ("log", "complaint"),
    [
        ({"magic": 1}, "does not begin as a log"),
        ({"flags": FUA}, "durable by itself"),
    ],
)
def test_a_log_that_is_not_understood_is_refused(tmp_path, log, complaint):
    """Read wrongly, it would promise less than the disk did, and no loss would be found."""
    first = entry(0, b"a" * BLOCK, log.get("flags", 0))
    path = written(tmp_path / "log", first, magic=log.get("magic", MAGIC))
    with pytest.raises(LogError, match=complaint):
        list(requests(path))


def test_a_cut_keeps_what_was_flushed_and_any_part_of_the_rest():
    """A disk that kept everything, or nothing, of what was not flushed would be a kind one."""
    blocks = [bytes([n]) * BLOCK for n in range(1, 7)]
    life = [Request(n * BLOCK, data, False, 0) for n, data in enumerate(blocks)]
    life.insert(3, Request(0, b"", True, 0))
    chance, seen = random.Random(1), set()
    for _ in range(200):
        disk = CrashedDisk(bytes(6 * BLOCK), life)
        assert disk.after(0, chance) == bytes(6 * BLOCK)
        found = disk.after(len(life), chance)
        assert found[: 3 * BLOCK] == b"".join(blocks[:3])
        rest = [found[n * BLOCK : (n + 1) * BLOCK] for n in range(3, 6)]
        assert all(
            each in (bytes(BLOCK), block) for each, block in zip(rest, blocks[3:], strict=True)
        )
        seen.add(tuple(any(each) for each in rest))
    assert len(seen) == 8  # every subset


def test_a_cut_before_the_flush_promises_nothing():
    life = [Request(0, b"x" * BLOCK, False, 0), Request(0, b"", True, 0)]
    found = {CrashedDisk(bytes(BLOCK), life).after(1, random.Random(n)) for n in range(20)}
    assert found == {bytes(BLOCK), b"x" * BLOCK}


def test_what_had_to_be_there_is_what_was_acknowledged_before_the_cut():
    """An acknowledgement that came later must not count, or a right state would be called lost."""
    noted = [(100, 3), (200, 8), (300, 9)]
    assert [must_have(noted, end) for end in (0, 99, 100, 250, 1000)] == [0, 0, 3, 8, 9]


def test_the_pages_have_lines_for_a_raspberry_pi():
    """A page is rewritten, and `make pi` has nothing left to carry out."""
    assert any("opid-node init" in line for line in commands(README.read_text("utf-8")))
    page = RASPBERRY_PI.read_text("utf-8")
    for heading in ("With the Debian package", "With pip, 64 bits", "With pip, 32 bits"):
        assert any("opid-node init" in line for line in commands(page, heading))
    with pytest.raises(ValueError, match="no section is called 'Nowhere'"):
        commands(page, "Nowhere")


@pytest.mark.parametrize(
    ("page", "heading", "word"),
    [
        (RASPBERRY_PI, "Is it the same on yours?", "selftest"),
        (NODE, "Devices you already have", "discover"),
        (UPGRADE, "Upgrade", "pip install --upgrade"),
        (UPGRADE, "Uninstall", "userdel"),
        (TFLITE, "A runtime on Debian 13", "litert"),
        (TFLITE, "A runtime on Debian 12", "tflite"),
        (TFLITE, "Serve it", "model.tflite"),
    ],
)
def test_the_sections_that_make_pi_carries_out_later_are_there(page, heading, word):
    """A heading is rewritten, and `make pi` finds out after an hour."""
    assert any(word in line for line in commands(page.read_text("utf-8"), heading))


def test_every_page_with_a_line_for_a_pi_is_one_that_make_pi_reads():
    """A page is added, and its lines are typed by nobody."""
    pages = [README, *sorted((ROOT / "docs").rglob("*.md"))]
    assert {page for page in pages if PROMPT.search(page.read_text("utf-8"))} == set(PAGES)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_line_that_nobody_has_typed_is_found(bench, architecture):
    """A page is edited after the machine was tried, and what was found is kept without that line.

    The README's comments and the order of pages make no difference.
    """
    lines = lines_for(architecture)
    assert "sudo opid-node check" in lines
    assert "sudo opid-node selftest" in lines
    assert any("aarch64.whl" in line for line in lines) == (architecture == "arm64")
    assert any("armv7l.whl" in line for line in lines) == (architecture == "armhf")
    here = bench(ARCHITECTURES[architecture])
    here.once("upkeep", lambda: {"lines": [[f"a.md: {each}  # why", "ok"] for each in lines[1:]]})
    assert here.untyped() == lines[:1]
    here.once("day one", lambda: {"lines": [[f"b.md: {lines[0]}", "ok"]]})
    assert here.untyped() == []


OF_APT = """#!/bin/sh
echo "$@" >> "$0.calls"
[ "$(wc -l < "$0.calls")" -gt 2 ] && exit 0
echo "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1 (apt-get)" >&2
exit 100
"""


def test_two_machines_that_are_made_at_once_wait_for_each_others_packages(tmp_path, monkeypatch):
    """`make pi` for both, from nothing: `apt-get update` fails at once where another one works."""
    apt = tmp_path / "apt-get"
    apt.write_text(OF_APT)
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(debian.time, "sleep", lambda _: None)
    monkeypatch.setitem(debian.TOOLS, "no-such-program", "its-package")
    debian.need("no-such-program")
    verbs = [line.split()[2] for line in Path(f"{apt}.calls").read_text().splitlines()]
    assert verbs == ["update"] * 3 + ["install"]


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """Builds the bench of one run after another, with a cache and packages of its own."""
    monkeypatch.setattr(make_pi, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(make_pi, "DIST", tmp_path / "dist")
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist/opid-node_1_arm64.deb").write_bytes(b"package")
    return lambda architecture=ARM64: make_pi.Bench(architecture, anew=False)


def test_a_part_that_succeeded_is_not_done_again_unless_something_else_is_asked(bench, tmp_path):
    """The command was interrupted; or fifty points were found, and a thousand are asked for."""
    done = []

    def look(points):
        done.append(points)
        return {"points": points}

    for points in (50, 50, 1000):
        found = bench().once("points", lambda: look(points), points=points)  # noqa: B023 - now
        assert found["points"] == points
    assert done == [50, 1000]
    (tmp_path / "dist/opid-node_1_arm64.deb").write_bytes(b"another package")
    assert "points" not in bench().found


def test_a_part_that_failed_is_not_kept(bench):
    with pytest.raises(RuntimeError):
        bench().once("day one", lambda: (_ for _ in ()).throw(RuntimeError))
    assert "day one" not in bench().found


def only_64_bits_work(name):
    """Stands for the work on one machine, in a process of its own."""
    if name != "arm64":
        raise SystemExit(f"{name} does not boot")


def test_a_machine_that_fails_leaves_the_other_one_alone():
    """An hour of pulled plugs is not thrown away because the other architecture has a fault."""
    assert make_pi.side_by_side(["armhf", "arm64"], only_64_bits_work) == ["arm64"]


def test_pulls_of_earlier_runs_count(bench, monkeypatch):
    """Two pulls, and then twenty are asked for: eighteen more, each row with another seed."""
    rows = []

    def pulls(_, row, count, _rate):
        rows.append((row, count))
        return {"pulls": count}

    monkeypatch.setattr(make_pi.Bench, "pulls", pulls)
    for asked in (2, 20, 20):
        bench().pull_until(asked, rate=10.0)
    assert rows == [(0, 2), (1, 10), (2, 8)]


def test_the_table_counts_every_row_of_pulls_and_hides_no_loss(bench, monkeypatch, capsys):
    """A fault in the table is otherwise met after an hour, or never: a lost reading that it leaves
    out would be called a success.
    """
    image = Image(Path("disk"), Path("kernel"), Path("initrd"), minutes=4.0)
    monkeypatch.setattr(make_pi.Bench, "image", lambda *_: image)
    here = bench()
    every = [[f"a.md: {line}", "ok"] for line in lines_for("arm64")]
    here.once("day one", lambda: {"lines": every})
    for row, (pulls, readings) in enumerate([(10, 900), (2, 100)]):
        found = {"pulls": pulls, "readings": readings, "sent again": pulls * 2}
        times = {"to first prediction": [20.0 + row], "to first acknowledgement": [30.0 - row]}
        here.once(f"row {row}", lambda found=found | times: found)
    cuts = {"points": 50, "requests": 7, "flushes": 3}
    here.once("points", lambda: cuts)
    assert make_pi.report(here) is False
    said = capsys.readouterr().out
    for words in (
        r"12 plug pulls +1000 readings, 0 lost, 0 twice, bits equal\n",
        r"repetitions per reading, through the pulls +0\.02\n",
        r"to first prediction +median 20 s, at most 21 s\n",  # 20.5, to the even second
        r"to first acknowledgement +median 30 s, at most 30 s\n",
        r"50 crash points of 7 writes, 3 flushes +0 lost, 0 twice, 0 other bits, 0 quarantined\n",
        r"were typed +(\d+) of \1, as printed\n",
        r"0 min, and 8 min once for two images\n",
    ):
        assert re.search(words, said), words
    here.once("points", lambda: cuts | {"lost": 1}, points=50)
    assert make_pi.report(here) is True
    assert "1 lost, 0 twice" in capsys.readouterr().out


def test_the_world_is_the_same_however_much_of_it_is_asked_for():
    """A machine is told it in one piece, and the undisturbed node reading by reading."""
    assert world.readings(1_000)[:7] == world.readings(7)
    node = parse_config(world.settings(), {}).node
    by_one, at_once = world.Undisturbed(node, boot=1), world.Undisturbed(node, boot=1)
    assert [by_one.after(count) for count in range(30)][-1] == at_once.after(29)
