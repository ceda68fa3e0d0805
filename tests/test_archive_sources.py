"""Archives that are no files of columns: a real PostgreSQL, and Home Assistant's recorder."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.archives import (
    START_MS,
    arrow_table,
    rows,
    write_fleet,
    write_parquet,
    write_recorder,
)
from support.oracle import relative
from support.postgres import Postgres

from edge_opid.wire import SummaryMessage, decode
from gateway.__main__ import main
from gateway.archive.hands import OwnHands
from gateway.archive.learning import Checkpoint, learn
from gateway.archive.mapping import ArchiveMapping, read_mapping
from gateway.archive.plan import plan
from gateway.archive.sources import SourceError, open_archive, postgresql, recorder
from gateway.policy import Group
from gateway.registry.fleet import Fleet
from gateway.store import FleetStore

N = 900


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("sources")
    write_fleet(found)
    return found


def kept(folder: Path, name: str):
    with FleetStore.open(f"sqlite:///{folder}/gateway.sqlite") as store:
        return [each for each in store.archives("air") if each.archive == name]


# -- PostgreSQL ------------------------------------------------------------------------------------


def test_a_table_of_postgresql_teaches_what_the_same_rows_in_parquet_teach(folder, monkeypatch):
    """The order of the rows differs, so the sums do in their last bits: float32, 6e-8 and room."""
    monkeypatch.setattr(postgresql, "PART_ROWS", N // 4)  # co goes at the edge of a part
    table, config = rows(N), str(folder / "gateway.toml")
    write_parquet(folder / "years", table)
    words = ["--mapping", str(folder / "mapping.toml"), "--workers", "1"]
    assert main(["backfill", config, "air", str(folder / "years"), *words, "--name", "files"]) == 0
    with Postgres() as server:
        url = server.database("years")
        fill(server, table)
        told = [*words, "--table", "public.readings", "--name"]
        assert main(["backfill", config, "air", url, *told, "table"]) == 0
        assert main(["backfill", config, "air", url, *told, "again", "--workers", "2"]) == 0
        with pytest.raises(SourceError, match="a database needs a table"):
            open_archive([url], read_mapping(folder / "mapping.toml"))
        bad = replace(read_mapping(folder / "mapping.toml"), table="nothing")
        with pytest.raises(SourceError, match='relation "nothing" does not exist'):
            open_archive([url], bad)
    files, tables, again = (kept(folder, name) for name in ("files", "table", "again"))
    assert [each.payload for each in again] == [each.payload for each in tables]
    assert [each.readings for each in files] == [each.readings for each in tables]
    for one, other in zip(files, tables, strict=True):
        ours, theirs = (decode(each.payload, SummaryMessage) for each in (one, other))
        assert relative(theirs.gram_array(), ours.gram_array()) < 1e-6
        assert relative(theirs.moment_array(), ours.moment_array()) < 1e-6


def fill(server: Postgres, table: dict[str, list]) -> None:
    """A table with a timestamp, numbers with gaps and text."""
    names = [*table]
    kinds = {"device": "text", "state": "text", "at": "timestamptz"}
    columns = ", ".join(f"{name} {kinds.get(name, 'double precision')}" for name in names)
    server.sql("years", f"CREATE TABLE readings ({columns})")
    lines = []
    for row in zip(*table.values(), strict=True):
        shown = []
        for name, value in zip(names, row, strict=True):
            if value is None:
                shown.append("NULL")
            elif name == "at":
                shown.append(f"to_timestamp({value / 1000})")
            else:
                shown.append(f"'{value}'" if isinstance(value, str) else repr(value))
        lines.append(f"({', '.join(shown)})")
    script = server.folder / "fill.sql"
    script.write_text(f"INSERT INTO readings VALUES {', '.join(lines)};")
    script.chmod(0o644)
    server.run("psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", str(script), "years")


def test_a_database_that_does_not_answer_is_one_sentence():
    """The password is in the address, and must not be in the sentence."""
    mapping = ArchiveMapping(columns={"a": "a"}, table="t", time="at")
    with pytest.raises(SourceError, match="the database does not answer") as caught:
        open_archive(["postgresql://opid:hunter2@127.0.0.1:1/years"], mapping)
    assert "hunter2" not in str(caught.value)


# -- Home Assistant's recorder ---------------------------------------------------------------------

T0 = START_MS / 1000
HOUR = 3600.0
STATES = {
    "sensor.attic_temperature": [
        (T0, "20.5"),
        (T0 + 90, "21.0"),
        (T0 + 200, "unavailable"),
        (T0 + 290, "22.0"),
    ],
    "binary_sensor.window": [(T0 + 60, "on"), (T0 + 130, "off")],
    "input_select.air": [(T0 + 30, "fresh"), (T0 + 170, "stale"), (T0 + 250, "unknown")],
}
MEANS = {
    "sensor.attic_temperature": [
        (T0 - 3 * HOUR, 18.0),
        (T0 - 2 * HOUR, None),
        (T0 - HOUR, 19.0),
        (T0 + HOUR, 99.0),  # the states know better
    ]
}


def recorder_of(tmp_path: Path, label: str | None = "input_select.air"):
    path = write_recorder(tmp_path / "home-assistant_v2.db", STATES, MEANS)
    mapping = ArchiveMapping(
        columns={"sensor.attic_temperature": "temp", "binary_sensor.window": "window"},
        label=label,
        every_s=60.0,
    )
    return open_archive([str(path)], mapping)


def test_a_recorder_holds_each_state_until_the_next_one(tmp_path):
    """By hand: every minute the last state of each entity; `unavailable` ends one."""
    archive = recorder_of(tmp_path)
    means, states = archive.parts
    (batch,) = states.batches()
    assert [at - T0 for at in batch.column("time").to_pylist()] == [0, 60, 120, 180, 240]
    temperatures = batch.column("sensor.attic_temperature").to_pylist()
    assert temperatures[:4] == [20.5, 20.5, 21.0, 21.0]
    assert math.isnan(temperatures[4])
    windows = batch.column("binary_sensor.window").to_pylist()
    assert math.isnan(windows[0])
    assert windows[1:] == [1.0, 1.0, 0.0, 0.0]
    said = batch.column("input_select.air").to_pylist()
    assert said == [None, "fresh", "fresh", "stale", "stale"]
    (hours,) = means.batches()
    assert hours.column("sensor.attic_temperature").to_pylist() == [18.0, 19.0]
    assert hours.column("input_select.air").to_pylist() == [None, None]


def test_a_recorder_in_short_parts_says_what_it_says_in_one(tmp_path, monkeypatch):
    """What held when a part begins was said in another one."""
    (whole,) = recorder_of(tmp_path).parts[1].batches()
    monkeypatch.setattr(recorder, "PART_S", 120.0)
    (tmp_path / "again").mkdir()
    parts = [p for p in recorder_of(tmp_path / "again").parts if isinstance(p, recorder.StatesPart)]
    assert len(parts) == 3
    rows_of = [row for part in parts for batch in part.batches() for row in batch.to_pylist()]
    assert repr(rows_of) == repr(whole.to_pylist())  # NaN is not equal to itself


def test_a_recorder_is_learned_with_its_labels_and_its_years_without(tmp_path):
    """States teach with labels, hourly means without; a home is one node, in two epochs."""
    archive = recorder_of(tmp_path)
    group = Group("air", "home", ("fresh", "stale"), ("attic",))
    found = plan(archive, Fleet([group]), group)
    checkpoint = Checkpoint(tmp_path / "checkpoint.npz", archive, found.task)
    total = learn(archive, found.task, OwnHands(), checkpoint, lambda *_: None)
    old, new = total.epochs.values()
    assert (old.sensors, old.sums.readings, old.sums.others) == (("temp",), 0, 2)
    assert (new.sensors, new.sums.readings, new.sums.others) == (("temp", "window"), 4, 1)
    assert (old.from_ms, new.until_ms) == (START_MS - 3 * 3_600_000, START_MS + 240_000)


@pytest.mark.parametrize(
    ("columns", "what"),
    [
        ({"sensor.cellar": "temp"}, "has no entity 'sensor.cellar'"),
        ({"sensor.attic_temperature": "temp"}, ""),
    ],
)
def test_an_entity_that_is_not_there_is_named(tmp_path, columns, what):
    """A typing error would else be years of nothing."""
    path = write_recorder(tmp_path / "home.db", STATES, MEANS)
    if not what:
        assert open_archive([str(path)], ArchiveMapping(columns=columns)).rows > 0
        return
    with pytest.raises(SourceError, match=what):
        open_archive([str(path)], ArchiveMapping(columns=columns))


def test_a_file_of_sqlite_that_is_no_recorder_is_refused(folder):
    """The gateway's own database, by mistake."""
    with pytest.raises(SourceError, match="is not a recorder's: it has no table states"):
        open_archive([str(folder / "gateway.sqlite")], ArchiveMapping(columns={"a": "a"}))


def test_times_may_be_seconds_milliseconds_or_timestamps():
    """Below 10¹¹ a number is seconds: it is reached in the year 5138."""
    from gateway.archive.task import times_of  # noqa: PLC0415 - with pyarrow

    table = arrow_table(rows(4)).to_batches()[0]
    assert times_of(table, "at").tolist() == [START_MS + 60_000 * i for i in range(4)]
    for unit in (1, 1000):
        at = np.array([START_MS // 1000 * unit])
        batch = type(table).from_pydict({"at": at})
        assert times_of(batch, "at").tolist() == [START_MS]
