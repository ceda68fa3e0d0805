"""`opid-gateway backfill`: an archive becomes what a group knows, whoever gathered it."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.archives import COLUMNS, GROUP_ROWS, MAPPING, ROLES, rows, write_fleet, write_parquet
from support.fleet_rig import CLASSES, SITE, FleetRig
from support.oracle import relative

from edge_opid import Layout, Sensor
from edge_opid.archive import gather
from edge_opid.wire import SummaryMessage, decode
from gateway.__main__ import main
from gateway.archive.sources import parquet
from gateway.fitting.models import fitted_model
from gateway.store import FleetStore

N = 1_800
WAIT_S = 120.0


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A fleet, and an archive of 12 parts."""
    folder = tmp_path_factory.mktemp("home")
    write_fleet(folder)
    write_parquet(folder / "years", rows(N))
    return folder


@pytest.fixture
def folder(home, tmp_path, monkeypatch):
    """A database of one's own; row groups are parts, so that a few rows make many."""
    monkeypatch.setattr(parquet, "PART_ROWS", GROUP_ROWS)
    for name in ("gateway.sqlite", "gateway.toml", "key", "mapping.toml"):
        (tmp_path / name).write_bytes((home / name).read_bytes())
    (tmp_path / "key").chmod(0o600)
    (tmp_path / "years").symlink_to(home / "years")
    return tmp_path


def backfill(folder: Path, *words: object, source: str = "years") -> int:
    given = [str(folder / "gateway.toml"), "air", str(folder / source), "--mapping"]
    return main(["backfill", *given, str(folder / "mapping.toml"), *map(str, words)])


def kept(folder: Path):
    with FleetStore.open(f"sqlite:///{folder}/gateway.sqlite") as store:
        return store.archives("air")


def dump(folder: Path) -> str:
    with sqlite3.connect(folder / "gateway.sqlite") as connection:
        return "\n".join(connection.iterdump())


def payloads(folder: Path) -> list[bytes]:
    return [each.payload for each in kept(folder)]


def test_each_node_and_set_of_sensors_is_the_summary_of_its_rows(folder, capsys):
    """n2 had no co in the second half: two epochs, and n1 one. Sums in float32: 6e-8 and room."""
    assert backfill(folder, "--workers", 1) == 0
    found = kept(folder)
    assert [(each.node, each.epoch, len(each.sensors)) for each in found] == [
        ("n1", 1, 4),
        ("n2", 1, 4),
        ("n2", 2, 3),
    ]
    table = rows(N)
    for record, half in zip(found, (slice(None), slice(0, N // 2), slice(N // 2, N)), strict=True):
        mine = [i for i in range(N)[half] if table["device"][i] == record.node]
        roles = [each.role for each in record.sensors]
        some = {r: np.array([table[f"{r}_value"][i] for i in mine], float) for r in roles}
        some["state"] = [table["state"][i] for i in mine]
        names = {f"is {each}": each for each in CLASSES}
        expected = gather(
            some, Layout([Sensor(r) for r in roles]), classes=CLASSES, label="state", labels=names
        )
        summary = decode(record.payload, SummaryMessage)
        assert relative(summary.gram_array(), expected.summary.gram) < 1e-6
        assert relative(summary.moment_array(), expected.summary.moments) < 1e-6
        assert summary.everything is not None
        assert relative(summary.everything.gram_array(), expected.everything.gram) < 1e-6
        assert (record.labelled, record.readings) == (expected.summary.readings, len(mine))
        assert (record.from_ms, record.until_ms) == (table["at"][mine[0]], table["at"][mine[-1]])
    out = capsys.readouterr().out
    assert "Parquet, 1800 rows in 12 parts" in out
    assert "as 2 of 2 nodes of the group have it" in out


def test_a_sensor_that_dies_in_the_middle_of_a_part_is_gone_from_the_next_day_on(folder):
    """A million rows may be two years: a sensor that was there for one must not be zero in both."""
    days, each = 6, 48
    at = 1_600_041_600_000 + np.arange(days * each) * 1_800_000  # from midnight, every half hour
    values = np.random.default_rng(2).normal(size=(2, len(at)))
    dying = np.where(np.arange(len(at)) < 2.5 * each, values[1], np.nan)
    arrays = {"a": values[0], "b": pa.array(dying, from_pandas=True), "at": at}
    pq.write_table(pa.table(arrays), folder / "one.parquet")
    words = ["--columns", "a=pm", "b=no", "--time", "at", "--workers", "1"]
    config, source = str(folder / "gateway.toml"), str(folder / "one.parquet")
    assert main(["backfill", config, "air", source, *words]) == 0
    found = [([each.role for each in one.sensors], one.readings) for one in kept(folder)]
    assert found == [(["no", "pm"], 3 * each), (["pm"], 3 * each)]


def test_any_number_of_workers_gives_the_same_bits(folder):
    """Sums of floats depend on their order: parts are added as they lie, not as they come."""
    found = []
    for workers in (1, 2, 4):
        assert backfill(folder, "--workers", workers) == 0
        found.append(payloads(folder))
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 3


def test_a_run_that_is_killed_goes_on_from_its_checkpoint_to_the_same_bits(folder):
    """Kill -9 after the fifth of twelve parts; the next run gathers the other seven alone."""
    assert backfill(folder, "--workers", 1) == 0
    expected = payloads(folder)
    code = (
        "import os, signal, sys\n"
        "from gateway.__main__ import main\n"
        "from gateway.archive import learning\n"
        "from gateway.archive.sources import parquet\n"
        f"parquet.PART_ROWS, learning.CHECKPOINT_S = {GROUP_ROWS}, 0.0\n"
        "save = learning.Checkpoint.save\n"
        "def save_and_die(self, total):\n"
        "    save(self, total)\n"
        "    if total.parts == 5:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "learning.Checkpoint.save = save_and_die\n"
        "main(sys.argv[1:])\n"
    )
    words = ["backfill", "gateway.toml", "air", "years", "--mapping", "mapping.toml"]
    process = subprocess.run(
        [sys.executable, "-c", code, *words, "--name", "again", "--workers", "1"],
        cwd=folder,
        timeout=WAIT_S,
        capture_output=True,
        check=False,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr
    checkpoint = folder / "backfill-air-again.npz"
    assert checkpoint.exists()
    assert payloads(folder) == expected  # nothing of the killed run is kept
    gathered = []
    batches = parquet.ParquetPart.batches
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            parquet.ParquetPart,
            "batches",
            lambda self: (gathered.append(self), batches(self))[1],
        )
        patch.chdir(folder)
        assert main([*words, "--name", "again", "--workers", "1"]) == 0
    assert len(gathered) == 7
    assert [each.payload for each in kept(folder) if each.archive == "again"] == expected
    assert not checkpoint.exists()


def test_a_checkpoint_of_another_archive_is_refused_and_stays(folder, capsys):
    """The operator added a file, or another scale: half of each would be no sum of either."""
    checkpoint = folder / "backfill-air-archive.npz"
    np.savez(checkpoint, about=np.frombuffer(b'{"digest": "x"}', np.uint8))
    before, rest = checkpoint.read_bytes(), dump(folder)
    assert backfill(folder, "--workers", 1) == 2
    assert "is of another archive, mapping or group" in capsys.readouterr().err
    checkpoint.write_bytes(b"torn")
    assert backfill(folder, "--workers", 1) == 2
    assert "is not a checkpoint" in capsys.readouterr().err
    assert (len(before) > 0, dump(folder)) == (True, rest)


def test_a_worker_that_dies_over_a_part_does_not_change_the_bits(folder):
    """The kernel takes a worker process; its part is gathered again by another."""
    from gateway.archive.hands import ProcessHands  # noqa: PLC0415

    assert backfill(folder, "--workers", 1) == 0
    expected, killed = payloads(folder), []
    submit = ProcessHands._submit

    def and_kill(self, part, task):
        ticket = submit(self, part, task)
        if len(killed) == 0 and part.address.endswith("2021.parquet"):
            killed.append(part)
            os.kill(next(iter(self._pool._processes)), signal.SIGKILL)
        return ticket

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ProcessHands, "_submit", and_kill)
        assert backfill(folder, "--workers", 2) == 0
    assert (len(killed), payloads(folder)) == (1, expected)


def test_a_rehearsal_says_what_would_be_learned_and_changes_nothing(folder, capsys):
    """Before years are read, a wrong label column should be seen."""
    before = dump(folder)
    assert backfill(folder, "--dry-run") == 0
    out = capsys.readouterr().out
    assert "co_value is co: scale 1 about 0 (as 2 of 2 nodes of the group have it)" in out
    assert "classes calm, busy, alarm from state" in out
    assert "n1: " in out
    assert "nothing was learned" in out
    assert dump(folder) == before
    assert not list(folder.glob("backfill-*"))


def test_only_the_time_asked_for_is_learned(folder):
    """What nodes have learned themselves since they were deployed must not count twice."""
    assert backfill(folder, "--until", "2020-09-13T20:00+00:00", "--workers", 1) == 0
    assert sum(each.readings for each in kept(folder)) == sum(
        at < 1_600_027_200_000 for at in rows(N)["at"]
    )


def test_a_role_that_nobody_has_is_measured_or_given(folder, capsys):
    """The group has no humidity, and the archive's pressure is in another unit."""
    table = rows(300)
    arrays = {name: pa.array(values) for name, values in table.items()}
    arrays["humidity"] = pa.array(40 + 10 * np.random.default_rng(1).normal(size=300))
    pq.write_table(pa.table(arrays), folder / "more.parquet")
    (folder / "mapping.toml").write_text(
        'label = "state"\n[columns]\nhumidity = "hum"\npm_value = "pm"\n'
        "[sensors.pm]\nreference = 5.0\nscale = 2.0\n[sensors.hum]\nknots = 4\n"
        '[labels]\n"is calm" = "calm"\n'
    )
    assert backfill(folder, "--workers", 1, source="more.parquet") == 0
    said = capsys.readouterr()
    assert "pm_value is pm: scale 2 about 5 (given)" in said.out
    assert "4 hats (measured from its first 300 values in the archive)" in said.out
    assert "with a label that is not one of the group's classes count as unlabelled" in said.err
    record = kept(folder)[0]
    hum = next(each for each in record.sensors if each.role == "hum")
    assert abs(hum.reference - 40) < 2
    assert len(hum.knots) == 4


MISTAKES = {
    "no such file": ([], "nowhere", "", "there is no "),
    "no such column": ([], "years", 'db_value = "db"->dezibel = "db"', "no column 'dezibel'"),
    "no such group": ([], "years", "", "there is no group 'water': there are air"),
    "a class nobody has": (
        [],
        "years",
        '"is calm" = "calm"->"is calm" = "quiet"',
        "labels.is calm must be one of calm, busy, alarm, got 'quiet'",
    ),
    "a role twice": ([], "years", 'db_value = "db"->db_value = "pm"', "must give each role once"),
    "a bad role": ([], "years", 'db_value = "db"->db_value = "D B"', "columns.db_value must be"),
    "a scale alone": (
        [],
        "years",
        "[labels]->[sensors.pm]\nscale = 2.0\n[labels]",
        "sensors.pm needs both reference and scale",
    ),
    "an unknown key": (
        [],
        "years",
        "[columns]->[colums]",
        "mapping.toml, line 5: colums is not a key; there are columns",
    ),
    "a bad name": (["--name", "A b"], "years", "", "--name must be 1 to 32 of a-z"),
    "a bad address": (["--dask", "here"], "years", "", "--dask must be a scheduler's address"),
    "no archive at all": ([], "mapping.toml", "", "is not a Parquet file"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence_and_changes_nothing(folder, capsys, mistake):
    words, source, edit, sentence = MISTAKES[mistake]
    old, _, new = edit.partition("->")
    assert old in MAPPING
    (folder / "mapping.toml").write_text(MAPPING.replace(old, new, 1) if old else MAPPING)
    before = dump(folder)
    group = "water" if "water" in sentence else "air"
    given = [str(folder / "gateway.toml"), group, str(folder / source), "--mapping"]
    assert main(["backfill", *given, str(folder / "mapping.toml"), *words]) == 2
    said = capsys.readouterr()
    assert sentence in said.err
    assert said.err.count("\n") == 1
    assert dump(folder) == before


def test_archives_are_listed_replaced_and_forgotten(folder, capsys):
    """Learning the same name again replaces it; forgetting says what there is instead."""
    for _ in range(2):
        assert backfill(folder, "--name", "years", "--workers", 1, "--store-only") == 0
    assert "archive years existed already, and is replaced" in capsys.readouterr().err
    config = str(folder / "gateway.toml")
    assert main(["archive", "list", config, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(each["node"], each["epoch"]) for each in told] == [("n1", 1), ("n2", 1), ("n2", 2)]
    assert main(["archive", "forget", config, "air", "year"]) == 2
    assert "group air has no archive 'year': it has years" in capsys.readouterr().err
    assert main(["archive", "forget", config, "air", "years"]) == 0
    assert kept(folder) == []


def test_a_fleet_gets_weights_of_its_archive_and_change_show_lists_it(folder, capsys):
    """No sensor came or went, and no node has a label yet: the archive alone can tell classes."""
    assert backfill(folder, "--name", "years", "--workers", 1) == 0
    rig = FleetRig(names=("n1", "n2"))
    rig.pass_s(2)
    rig.store.replace_archive("air", "years", kept(folder))
    for name in rig.names:
        rig.decide(lambda name=name: rig.gateway.relearn((SITE, name), rig.now_ms) and None)
    rig.pass_s(10)
    assert rig.agreed()
    fit = rig.fits[0]
    assert fit.pushed
    assert fit.pooled == ("archive years/n1 #1", "archive years/n2 #1")
    assert "Of the archives' labelled readings 0.22 count." in fit.why
    model = fitted_model(fit, rig.gateway.fleet.changes[1])
    seen = [rig.world.instance({role: role for role in ROLES}) for _ in range(200)]
    X = np.array([[1.0, *(values[role] for role in ROLES)] for values, _ in seen])
    assert rig.gateway.fleet.changes[1].columns == ("bias", *ROLES)
    guesses = [CLASSES[place] for place in model.scores(X).argmax(1)]
    hits = sum(guess == truth for guess, (_, truth) in zip(guesses, seen, strict=True))
    assert hits > 140  # of three classes; without the archive nothing but `unknown` is said
    assert not any(rig.gateway.relearn((SITE, name), rig.now_ms) for name in rig.names)
    save = folder / "shown"
    save.mkdir()
    config = write_fleet(save, rig)
    capsys.readouterr()
    assert main(["change", "show", str(config), "1"]) == 0
    assert "archive years/n1 #1, archive years/n2 #1" in capsys.readouterr().out


def test_columns_given_as_options_are_those_of_a_mapping_file(folder):
    """Whoever has one file to learn should need no second one."""
    assert backfill(folder, "--workers", 1) == 0
    expected = payloads(folder)
    words = ["--label", "state", "--node", "device", "--time", "at"]
    words += ["--columns", *(f"{column}={role}" for column, role in COLUMNS.items())]
    words += ["--labels", *(f"is {each}={each}" for each in CLASSES)]
    given = [str(folder / "gateway.toml"), "air", str(folder / "years" / "*.parquet"), *words]
    assert main(["backfill", *given, "--workers", "1"]) == 0
    assert payloads(folder) == expected
