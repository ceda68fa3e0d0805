"""Recordings played back: in time order, gaps as dropouts, and every mistake with its line."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_opid.errors import WireError
from firmware_sim.scenario.player import Played, Player
from firmware_sim.world import RecordingError
from firmware_sim.world.recording import Recording, read_recording

CSV = """\
when,station,temp,co2,people
2024-05-01T10:00:00Z,attic,20.5,400,0
2024-05-01 10:01:00,attic,,410,0
2024-05-01T12:02:00+02:00,"attic, left",21,NaN,2

"""


@pytest.fixture
def attic(tmp_path):
    path = tmp_path / "attic.csv"
    path.write_text(CSV)
    return path


def play(path, nodes=None, **options):
    nodes = nodes or {"n1": {"temp": "temp-1", "co2": "co2-1"}}
    return Player(read_recording(path), nodes, **({"time": "when"} | options))


def test_a_csv_file_arrives_as_it_was_written(attic):
    """Dates in three spellings, an empty cell and NaN as dropouts, an unused column of words."""
    played = list(play(attic, label="people", classes={"0": "empty", "2": "full"}))
    assert played == [
        Played(0.0, "n1", {"temp-1": 20.5, "co2-1": 400.0}, "empty"),
        Played(60.0, "n1", {"co2-1": 410.0}, "empty"),
        Played(120.0, "n1", {"temp-1": 21.0}, "full"),
    ]


def test_an_npz_file_arrives_as_it_was_written(tmp_path):
    """Rows out of order, NaN as a dropout, a missing label, an array that is not ours."""
    np.savez(
        tmp_path / "a.npz",
        X=np.array([[1.5, np.nan], [2.5, 4.0]], dtype=np.float32),
        feature_names=np.array(["a", "b"]),
        y=np.array([1.0, np.nan]),
        t=np.array([50, 40]),
        notes=np.array(["of another length"]),
    )
    player = play(tmp_path / "a.npz", {"n1": {"a": "s1", "b": "s2"}}, time="t", label="y")
    assert list(player) == [
        Played(0.0, "n1", {"s1": 2.5, "s2": 4.0}, None),
        Played(10.0, "n1", {"s1": 1.5}, "1"),
    ]
    assert player.classes == ("1",)
    assert player.nodes == {"n1": ("s1", "s2")}


def test_columns_without_names_are_numbered(tmp_path):
    """An array without `feature_names`, as many data sets are."""
    np.savez(tmp_path / "a.npz", train=np.arange(6).reshape(2, 3))
    recording = read_recording(tmp_path / "a.npz", values="train")
    assert recording.columns == ("x0", "x1", "x2")
    assert recording.numbers("x2").tolist() == [2.0, 5.0]


@settings(max_examples=50, deadline=None)
@given(
    times=st.lists(st.integers(-1000, 1000), min_size=1, max_size=20),
    gaps=st.sets(st.integers(0, 19)),
)
def test_every_instance_comes_once_in_the_order_of_time(times, gaps):
    """Sorted by time, equal times as they stand, from 0 on; a row without a value is none."""
    cells = ["" if row in gaps else str(row) for row in range(len(times))]
    recording = Recording("r", {"at": times, "v": cells})
    played = list(Player(recording, {"n1": {"v": "s1"}}, time="at"))
    order = sorted((time, row) for row, time in enumerate(times))
    assert [(p.time_s, p.values["s1"]) for p in played] == [
        (time - min(times), row) for time, row in order if row not in gaps
    ]


def test_a_loop_goes_on_one_step_after_its_end(attic):
    """The second round begins one usual step after the first has ended; without loop it ends."""
    player = play(attic, {"n1": {"co2": "c"}, "n2": {"temp": "t", "co2": "c"}}, loop=True)
    times = [played.time_s for played in islice(player, 15)]
    assert player.lasts_s == 180.0
    assert times == [*(0, 0, 60, 60, 120), *(180, 180, 240, 240, 300), *(360, 360, 420, 420, 480)]
    assert len(list(play(attic))) == 3
    assert len(list(play(attic))) == len(list(play(attic, time=None, period_s=0.5)))


def test_a_player_can_be_played_again(attic):
    """An iterator would be empty the second time."""
    player = play(attic)
    first = list(player)
    assert len(first) == 3
    assert list(player) == first


# -- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"nodes": {"n1": {"pm": "s"}}}, r"attic.csv has no column 'pm'; it has \['when', 'sta"),
        ({"label": "class"}, "attic.csv has no column 'class'"),
        ({"time": "at"}, "attic.csv has no column 'at'"),
        ({"nodes": {"n1": {"station": "s"}}}, "line 2: column 'station' must be a number, got 'at"),
        ({"time": "station"}, "line 2: column 'station' must be a number"),
        ({"time": "temp"}, "line 3: column 'temp' must be a time, got none"),
        ({"label": "people", "classes": {"0": "empty"}}, r"line 4: .*one of \['0'\], got '2'"),
        ({"classes": {"0": "empty"}}, "need a label column"),
        ({"time": None}, "needs a time column or a period_s, got neither"),
        ({"period_s": 1.0}, "got time='when' and period_s=1.0"),
        ({"time": None, "period_s": 0.0}, "period_s of attic.csv must be above 0, got 0.0"),
        ({"nodes": {"n1": {}}}, "each node of attic.csv needs a column"),
        (
            {"nodes": {"n1": {"temp": "s", "co2": "s"}}},
            r"node 'n1': sensor 's' must be one column of attic.csv, got \['temp', 'co2'\]",
        ),
    ],
)
def test_a_mistake_in_the_options_is_refused_in_one_sentence(attic, options, sentence):
    """A column that is not there, a label without a class, a period of nothing."""
    with pytest.raises(RecordingError, match=sentence):
        play(attic, **options)


def test_a_sensor_name_that_no_topic_can_carry_is_refused(attic):
    """A slash in it would open another topic."""
    with pytest.raises(WireError, match="sensor of node 'n1' must be 1 to 32"):
        play(attic, {"n1": {"temp": "attic/temp"}})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "line 1 must be names that differ, got"),
        ("a,a\n1,2\n", r"line 1 must be names that differ, got \['a', 'a'\]"),
        ("a,b\n1,2\n3\n", "line 3 must have 2 cells as the first line has, got 1"),
        ("a,b\n", "must have columns of one length, above 0"),
        ("a\ninf\n", "line 2: column 'a' must be a number, got 'inf'"),
        ("a\n1\n\n1,5\n", "line 4 must have 1 cells"),
        ("a\n\xff\n", "cannot read"),
    ],
)
def test_a_broken_csv_file_is_refused_with_its_mistake(tmp_path, text, sentence):
    """Read as far as it goes, it would be another recording."""
    path = tmp_path / "broken.csv"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(RecordingError, match=sentence):
        read_recording(path).numbers("a")


def test_a_broken_npz_file_is_refused_with_its_mistake(tmp_path):
    """Cut off, of another format, or with pickled objects, which can run anything."""
    path = tmp_path / "broken.npz"
    for content in (b"", b"PK\x03\x04 and no more", b"something else"):
        path.write_bytes(content)
        with pytest.raises(RecordingError, match=r"broken\.npz"):
            read_recording(path)
    np.savez(path, X=np.zeros((2, 2)), feature_names=np.array(["a", "a"]))
    with pytest.raises(RecordingError, match="feature_names must be 2 names that differ"):
        read_recording(path)
    np.savez(path, X=np.array([[object()]]))
    with pytest.raises(RecordingError, match="must hold plain arrays only"):
        read_recording(path)
    with path.open("wb") as file:
        np.save(file, np.zeros((2, 2)))
    with pytest.raises(RecordingError, match=r"needs a two-dimensional array 'X'; it has \{\}"):
        read_recording(path)
    np.savez(path, Z=np.zeros(3))
    with pytest.raises(RecordingError, match=r"needs a two-dimensional array 'X'; it has .*\(3,\)"):
        read_recording(path)


def test_a_file_of_another_kind_or_none_is_refused(tmp_path):
    """A spreadsheet, and a name with a typing error."""
    with pytest.raises(RecordingError, match=r"must be a file of \['.csv', '.npz'\], got '.xlsx'"):
        read_recording(tmp_path / "a.xlsx")
    with pytest.raises(RecordingError, match="cannot read"):
        read_recording(tmp_path / "missing.csv")


# -- real data -----------------------------------------------------------------------------------


def test_a_real_star_network_drives_its_seven_nodes(data_folder):
    """Room occupancy: S1 to S7 are seven nodes, all 10,129 rows, in the order of their time."""
    recording = read_recording(data_folder / "room_occupancy.npz")
    sensors = [name for name in recording.columns if name not in ("y", "t")]
    nodes = {}
    for name in sensors:
        nodes.setdefault(name.split("_")[0].lower(), {})[name] = name.lower()
    classes = {str(count): f"{count} people" for count in range(4)}
    player = Player(recording, nodes, time="t", label="y", classes=classes)
    assert player.classes == ("0 people", "1 people", "2 people", "3 people")
    played = list(player)
    assert len(played) == 10_129 * len(nodes)
    times = [instance.time_s for instance in played]
    assert times[0] == 0.0
    assert times == sorted(times)
    first = {sensor for instance in played[: len(nodes)] for sensor in instance.values}
    assert first == {name.lower() for name in sensors}
