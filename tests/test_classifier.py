"""What `edge_opid.Classifier` promises to somebody who has never heard of a layout."""

from __future__ import annotations

import pickle
import subprocess
import sys
from copy import deepcopy

import numpy as np
import pytest

from edge_opid import (
    Classifier,
    Layout,
    LayoutError,
    MismatchError,
    OpidError,
    ReadingError,
    Sensor,
    WarmUp,
    WoodburyLearner,
)
from edge_opid.node.journal_records import pack_state

SENSORS = [Sensor("co2", 450, 80), Sensor("temp", 20, 2)]


def room(chance, classes=("empty", "full")):
    """A reading of three sensors, two of which see nearly the same."""
    label = chance.integers(len(classes))
    co2 = chance.normal(420 + 150 * label, 60)
    return {
        "co2": co2,
        "air": co2 / 100 + chance.normal(0, 0.1),
        "temp": chance.normal(20 + label, 1),
    }, classes[label]


def stream(seed, n, names=("co2", "temp"), classes=("empty", "full")):
    chance = np.random.default_rng(seed)
    rows = [room(chance, classes) for _ in range(n)]
    return [({name: x[name] for name in names}, y) for x, y in rows]


def taught(rows, **options):
    classifier = Classifier(**options)
    for x, y in rows:
        classifier.learn_one(x, y)
    return classifier


def bits(classifier):
    return pack_state(classifier.state())


def long_memory(classifier):
    return classifier.state()["memories"]["learner"]


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert np.array_equal(value, other[name]), name


def right(classifier, rows):
    return np.mean([classifier.predict_one(x) == y for x, y in rows])


# -- the same learner ------------------------------------------------------------------------------


def test_it_is_the_learner_and_the_layout_to_the_bit():
    """A second implementation that drifts away from the node's would be seen here."""
    rows, layout = stream(1, 300), Layout(SENSORS)
    learner = WoodburyLearner(0, layout.width, classes=2)
    for x, y in rows:
        learner.learn_one(layout.encode(x), 0 if y == rows[0][1] else 1)
    assert_same(long_memory(taught(rows, sensors=SENSORS)), learner.state())


def test_scales_are_those_of_a_warm_up_to_the_bit():
    """Estimated at 2, 4, 8 … 64 readings and frozen at 100; every reading has been learned."""
    rows, classes = stream(2, 150), {}
    warmup = WarmUp(["co2", "temp"], 100, first=2)
    for x, y in rows[:100]:
        warmup.add(x, classes.setdefault(y, len(classes)))
    layout, learner = warmup.layout(), WoodburyLearner(0, 3, classes=2)
    for x, y in [*warmup.rows(), *((x, classes[y]) for x, y in rows[100:])]:
        learner.learn_one(layout.encode(x), y)
    classifier = taught(rows, warmup=100)
    assert classifier.layout == layout
    assert_same(long_memory(classifier), learner.state())


def test_a_class_that_comes_late_is_as_if_it_had_been_expected():
    """The first 200 readings have two classes, then a third one comes: one column of zeros."""
    rows = stream(3, 200) + stream(4, 100, classes=("empty", "full", "crowded"))
    order = list(dict.fromkeys(y for _, y in rows))
    layout = Layout(SENSORS)
    learner = WoodburyLearner(0, layout.width, classes=3)
    for x, y in rows:
        learner.learn_one(layout.encode(x), order.index(y))
    classifier = taught(rows, sensors=SENSORS)
    assert classifier.classes == order
    assert_same(long_memory(classifier), learner.state())


def test_many_rows_are_learned_as_one_after_the_other():
    rows = stream(5, 120)
    columns = {name: np.array([x[name] for x, _ in rows]) for name in ("co2", "temp")}
    many = Classifier()
    many.learn_many(columns, np.array([y for _, y in rows]))
    one = taught(rows)
    assert bits(many) == bits(one)
    assert many.predict_many(columns) == [one.predict_one(x) for x, _ in rows]
    found = many.predict_proba_many(columns)
    assert [found["full"][k] for k in (0, 1)] == [
        one.predict_proba_one(x)["full"] for x, _ in rows[:2]
    ]


def test_a_data_frame_is_learned_as_its_rows():
    """pandas, or anything that has columns by name."""
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    rows = stream(5, 50)
    frame = pandas.DataFrame([x for x, _ in rows])
    classifier = Classifier()
    classifier.learn_many(frame, pandas.Series([y for _, y in rows]))
    assert bits(classifier) == bits(taught(rows))
    assert classifier.predict_many(frame) == [classifier.predict_one(x) for x, _ in rows]


def test_the_order_of_sensors_is_irrelevant():
    rows = stream(6, 60, names=("co2", "air", "temp"))
    turned = [(dict(reversed(x.items())), y) for x, y in rows]
    assert bits(taught(rows)) == bits(taught(turned))


# -- before anything, and bad input ----------------------------------------------------------------


def test_it_answers_before_it_has_learned():
    classifier = Classifier()
    assert classifier.predict_one({"co2": 500}) is None
    assert classifier.predict_proba_one({"co2": 500}) == {}
    assert classifier.predict_many({"co2": [500, 600]}) == [None, None]
    assert repr(classifier) == "<Classifier: 0 sensors, 0 classes, 0 readings>"
    classifier.learn_one({"co2": 500}, "empty")
    assert classifier.predict_proba_one({"temp": 3}) == {"empty": 1.0}


@pytest.mark.parametrize("learned", [0, 1, 30, 250])
@pytest.mark.parametrize(
    ("x", "y", "blamed"),
    [
        ({"co2": "high"}, "full", "sensor 'co2' is 'high'"),
        ({"co2": float("inf")}, "full", "sensor 'co2' is inf"),
        ({"co2": 1e39}, "full", r"sensor 'co2' is 1e\+39"),
        ({"co2": [1, 2]}, "full", r"sensor 'co2' is \[1, 2\]"),
        ({}, "full", "no value"),
        ({"co2": None, "temp": float("nan")}, "full", "no value"),
        ([500, 21], "full", "must be a dict of names and numbers, got list"),
        ({"co2": 500}, None, "label must be .* got None"),
        ({"co2": 500}, float("nan"), "label must be .* got nan"),
        ({"co2": 500}, ["full"], r"label must be .* got \['full'\]"),
        ({"co2": 500, "n" * 65: 1}, "new", "1..64 characters"),
        ({"co2": 500, "bias": 1}, "new", "none be 'bias'"),
        ({f"s{k}": 1.0 for k in range(40)}, "new", "columns_max is 30"),
    ],
)
def test_a_bad_reading_is_refused_by_name_and_changes_nothing(learned, x, y, blamed):
    """Before anything was learned, while scales are estimated, and afterwards."""
    classifier = taught(stream(7, learned), columns_max=30)
    before = bits(classifier)
    with pytest.raises(OpidError, match=blamed):
        classifier.learn_one(x, y)
    assert bits(classifier) == before


def test_one_bad_row_of_many_costs_all_and_changes_nothing():
    classifier = taught(stream(7, 30))
    before = bits(classifier)
    for columns, labels, blamed in [
        ({"co2": [400, "x"]}, ["full", "full"], "sensor 'co2' is 'x'"),
        ({"co2": [400, 10**400]}, ["full", "full"], "sensor 'co2' is beyond every float"),
        ({"co2": [400, np.nan]}, ["full", "new"], "no value"),
        ({"co2": [400, 500]}, ["full"], "each of 2 rows, got 1"),
        ({"co2": [400, 500], "temp": [20]}, ["full", "full"], "of one length"),
    ]:
        with pytest.raises(ReadingError, match=blamed):
            classifier.learn_many(columns, labels)
    assert bits(classifier) == before


@pytest.mark.parametrize(
    ("change", "blamed"),
    [
        (lambda c: c.retire("radar"), "no sensor 'radar'; there are \\['co2', 'temp'\\]"),
        (lambda c: c.deploy(Sensor("co2")), "cannot deploy 'co2': it is in use"),
        (lambda c: c.deploy("co2"), "cannot deploy 'co2': it is in use"),
        (lambda c: c.replace("radar", "lidar"), "no sensor 'radar'"),
        (lambda c: c.replace("co2", "temp"), "must differ"),
        (lambda c: c.retire("co2", carry=2.0), "carry must be 0..1, got 2.0"),
        (lambda c: c.deploy(Sensor("wide", knots=tuple(range(40)))), "columns_max is 30"),
    ],
)
def test_a_change_that_cannot_be_is_refused_and_changes_nothing(change, blamed):
    classifier = taught(stream(8, 250), columns_max=30)
    before = bits(classifier)
    with pytest.raises(LayoutError, match=blamed):
        change(classifier)
    assert bits(classifier) == before


@pytest.mark.parametrize("options", [{"rho": 0}, {"forgetting": 2}, {"knots": 0}, {"warmup": 1}])
def test_a_setting_that_cannot_be_is_refused_at_once(options):
    with pytest.raises(OpidError):
        Classifier(**options)


# -- sensors come and go ---------------------------------------------------------------------------


def test_a_missing_sensor_is_solved_for_and_not_filled_in():
    """The CO2 sensor dies after training; its twin knows as much, if it is asked alone."""
    names = ("co2", "air", "temp")
    classifier = taught(stream(9, 1000, names))
    later = stream(10, 500, names)
    without = [({n: v for n, v in x.items() if n != "co2"}, y) for x, y in later]
    filled = [({**x, "co2": classifier.layout.sensors[1].reference}, y) for x, y in later]
    before = bits(classifier)
    assert right(classifier, without) > right(classifier, later) - 0.02
    assert right(classifier, without) > right(classifier, filled) + 0.04
    nothing = [
        ({**x, "co2": gone}, y) for (x, y), gone in zip(without, [None, np.nan] * 250, strict=True)
    ]
    assert right(classifier, nothing) == right(classifier, without)
    assert bits(classifier) == before


def test_a_sensor_that_stays_away_is_left_out_and_taken_back():
    classifier = taught(stream(11, 300, ("co2", "temp")), sensors=SENSORS)
    for x, y in stream(12, 20, ("temp",)):
        classifier.learn_one(x, y)
    assert classifier.state()["memories"]["silent"] == ("co2",)
    assert classifier.layout.names == ("co2", "temp")
    for x, y in stream(13, 5):
        classifier.learn_one(x, y)
    assert classifier.state()["memories"]["silent"] == ()
    assert right(classifier, stream(14, 500)) > 0.88


def test_a_new_name_joins_after_twenty_values_and_costs_nothing():
    """Nothing that is known of the others is lost; and then it helps."""
    classifier = taught(stream(15, 300, ("temp",)))
    later = stream(16, 500, ("temp", "co2"))
    alone = right(classifier, [({"temp": x["temp"]}, y) for x, y in later])
    joining = stream(17, 20, ("temp", "co2"))
    for x, y in joining[:-1]:
        classifier.learn_one(x, y)
    assert classifier.layout.names == ("temp",)
    assert right(classifier, later) == pytest.approx(alone, abs=0.02)
    classifier.learn_one(*joining[-1])
    assert classifier.layout.names == ("co2", "temp")
    assert right(classifier, later) == pytest.approx(alone, abs=0.05)
    for x, y in stream(18, 200, ("temp", "co2")):
        classifier.learn_one(x, y)
    assert right(classifier, later) > alone + 0.1
    assert classifier.readings == 520


def test_sensors_that_never_speak_together_are_all_learned():
    """Thirty sensors in turn, each of them seldom: none has a tenth of the warm-up."""
    rows = [({f"s{k % 30:02}": (k // 30) % 2}, (k // 30) % 2) for k in range(600)]
    classifier = taught(rows, warmup=100)
    assert len(classifier.layout.names) == 30
    assert right(classifier, rows) > 0.75


def test_a_retired_sensor_is_not_heard_until_it_is_deployed():
    """A script goes on sending what a dead sensor's register holds."""
    classifier = taught(stream(19, 300))
    classifier.retire("co2")
    expected = classifier.predict_proba_one({"temp": 21})
    assert classifier.predict_proba_one({"temp": 21, "co2": 65535}) == expected
    for x, y in stream(20, 40):
        classifier.learn_one({**x, "co2": 65535}, y)
    assert classifier.layout.names == ("temp",)
    classifier.deploy(SENSORS[0])
    assert classifier.layout.names == ("co2", "temp")
    assert classifier.layout.sensors[0] == SENSORS[0]


def test_a_replacement_continues_the_column_of_the_one_before():
    classifier = taught(stream(21, 300), sensors=SENSORS)
    later = stream(22, 300)
    before = [classifier.predict_proba_one(x) for x, _ in later]
    classifier.replace("co2", "a-new-co2")
    renamed = [{"a-new-co2": x["co2"], "temp": x["temp"]} for x, _ in later]
    assert classifier.layout.names == ("a-new-co2", "temp")
    agree = [
        max(p, key=p.get) == classifier.predict_one(x) for p, x in zip(before, renamed, strict=True)
    ]
    assert np.mean(agree) > 0.99


def test_memory_stays_the_same_whatever_is_said():
    """Readings for ever, and a fault that invents a name in each of them."""
    classifier = taught(stream(23, 1000), columns_max=20)
    size, solved = len(bits(classifier)), classifier.state()["memories"]["learner"]["B"].nbytes
    refused = 0
    for number, (x, y) in enumerate(stream(24, 2000)):
        try:
            classifier.learn_one({**x, f"stray-{number}": 1.0} if number % 2 else x, y)
        except LayoutError:
            refused += 1
        classifier.predict_one({"temp": x["temp"]})
    assert refused == 1000 - 17  # 20 columns, less co2, temp and the bias
    assert len(bits(classifier)) < size + 17 * 200
    assert classifier.state()["memories"]["learner"]["B"].nbytes == solved


# -- adding up, saving -----------------------------------------------------------------------------


def test_merged_they_know_what_one_knows_that_has_seen_it_all():
    """Each has estimated its own scales, met the classes in another order, and lacks a sensor."""
    north, south = stream(25, 300, ("co2", "temp")), stream(26, 500, ("air", "co2", "temp"))
    first, second = taught(north), taught(south[::-1])
    before = bits(second)
    first.merge(second)
    assert bits(second) == before
    assert first.readings == 800
    assert first.layout.names == ("air", "co2", "temp")
    both = taught(north + south[::-1], sensors=first.layout.sensors)
    found, truth = long_memory(first), long_memory(both)
    order = [first.classes.index(label) for label in both.classes]
    one = WoodburyLearner.from_state(found).weights()[0][:, order]
    np.testing.assert_allclose(one, WoodburyLearner.from_state(truth).weights()[0], atol=2e-4)
    first.retire("air")
    first.merge(second)  # and what is retired here stays so
    assert first.layout.names == ("co2", "temp")
    empty = Classifier()
    empty.merge(second)
    assert empty.readings == 500
    assert right(empty, south) > 0.85


def test_a_merge_that_does_not_fit_changes_nothing():
    classifier, other = taught(stream(27, 50)), taught(stream(28, 50), rho=2.0)
    bent = taught(stream(28, 50), knots=8)
    pascal = taught([({"co2": 1e30 * x["co2"], "temp": x["temp"]}, y) for x, y in stream(28, 50)])
    before = bits(classifier)
    with pytest.raises(MismatchError, match=r"too far apart to be added up: Sensor\(name='co2'"):
        classifier.merge(pascal)
    with pytest.raises(MismatchError, match=r"rho is 1.0 here and 2.0 there"):
        classifier.merge(other)
    with pytest.raises(MismatchError, match="only straight columns"):
        classifier.merge(bent)
    assert bits(classifier) == before


@pytest.mark.parametrize("learned", [0, 1, 50, 250, 265, 290])
@pytest.mark.parametrize("way", ["file", "pickle", "deepcopy"])
def test_it_goes_on_from_a_copy_to_the_bit(learned, way, tmp_path):
    """While scales are estimated, one joins (250), others are missed (265) and silent (290)."""
    rows = [({**x, "n": 1.0 * k}, y) for k, (x, y) in enumerate(stream(29, 300))]
    rows = [({"temp": x["temp"]}, y) if k > 255 else (x, y) for k, (x, y) in enumerate(rows)]
    rows = [({**x, "late": k % 3}, y) if k > 240 else (x, y) for k, (x, y) in enumerate(rows)]
    original = taught(rows[:learned])
    if way == "file":
        original.save(tmp_path / "room.opid")
        copy = Classifier.load(tmp_path / "room.opid")
        assert [path.name for path in tmp_path.iterdir()] == ["room.opid"]
    else:
        copy = pickle.loads(pickle.dumps(original)) if way == "pickle" else deepcopy(original)
    for x, y in rows[learned:]:
        assert copy.predict_proba_one(x) == original.predict_proba_one(x)
        copy.learn_one(x, y)
        original.learn_one(x, y)
    assert bits(copy) == bits(original)
    assert repr(copy) == repr(original)


def test_labels_come_back_as_they_were(tmp_path):
    for labels in (["empty", "full"], [3, 7], [False, True], [0.5, 1.5], list(np.array([1, 2]))):
        classifier = Classifier()
        for k in range(20):
            classifier.learn_one({"co2": k % 2}, labels[k % 2])
        classifier.save(tmp_path / "saved")
        found = Classifier.load(tmp_path / "saved").predict_one({"co2": 1})
        assert (found, type(found)) == (labels[1], type(np.array(labels[1]).item()))
    odd = taught([({"co2": 1}, ("a", 1)), ({"co2": 2}, ("b", 2))])
    assert odd.predict_one({"co2": 2}) in [("a", 1), ("b", 2)]
    with pytest.raises(TypeError, match=r"label \('a', 1\) cannot be saved"):
        odd.save(tmp_path / "odd")
    assert not (tmp_path / "odd").exists()


def test_a_file_that_is_none_of_ours_is_refused_by_name(tmp_path):
    for content in (b"", b"PK\x03\x04", pickle.dumps({}), b"\x82\xa6format\x01\xa5state\x80"):
        (tmp_path / "holiday.jpg").write_bytes(content)
        with pytest.raises(MismatchError, match=r"holiday\.jpg is not a saved classifier"):
            Classifier.load(tmp_path / "holiday.jpg")


def test_half_a_file_is_refused_wherever_it_ends(tmp_path):
    taught(stream(31, 30)).save(tmp_path / "room")
    whole = (tmp_path / "room").read_bytes()
    for end in range(0, len(whole), 37):
        (tmp_path / "half").write_bytes(whole[:end])
        with pytest.raises(MismatchError, match="half is not a saved classifier"):
            Classifier.load(tmp_path / "half")
    assert bits(Classifier.load(tmp_path / "room")) == bits(taught(stream(31, 30)))


def test_probabilities_are_honest():
    """Predicted before they are learned: of what is said with 80 %, some 80 % are right."""
    said, hits, classifier = [], [], Classifier()
    for x, y in stream(30, 3000):
        found = classifier.predict_proba_one(x)
        if len(hits) > 200 or len(found) == 2:
            best = max(found, key=found.get)
            said.append(found[best])
            hits.append(best == y)
        classifier.learn_one(x, y)
    said, hits = np.array(said), np.array(hits)
    groups = [(said > low) & (said <= low + 0.1) for low in np.arange(0.5, 1, 0.1)]
    error = sum(abs(said[g].mean() - hits[g].mean()) * g.mean() for g in groups if g.any())
    assert error < 0.03


def test_probabilities_are_honest_where_it_is_surest_and_wrong():
    """Far from the border a third of the labels is flipped: there, sharper scores say more."""
    rng = np.random.default_rng(44)
    classifier, told, sharp = Classifier(), [], []
    for place in range(3000):
        x = float(rng.uniform(-1, 1))
        flipped = abs(x) > 0.5 and rng.random() < 1 / 3
        y = (x > 0) != flipped
        if place > 500:
            found = classifier.predict_proba_one({"x": x})
            plain = classifier._sharpness.probabilities(classifier._scores({"x": x}))
            told.append((found[y] == max(found.values())) - max(found.values()))
            sharp.append((plain[list(found).index(y)] == plain.max()) - plain.max())
            far = abs(x) > 0.8
            told[-1], sharp[-1] = (told[-1], sharp[-1]) if far else (None, None)
        classifier.learn_one({"x": x}, y)
    corrected, alone = (np.mean([e for e in each if e is not None]) for each in (told, sharp))
    assert abs(corrected) < 0.05  # of 500: chance alone makes .02
    assert abs(corrected) < abs(alone) / 2


def test_a_node_does_not_load_it():
    """Neither `import edge_opid` nor a node's command loads the classifier, river or sklearn."""
    code = "import sys, edge_opid, edge_opid.cli; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(ran.stdout.split())
    assert "edge_opid.learner" in loaded
    assert not loaded & {"edge_opid.classifier", "river", "sklearn", "scipy", "pandas"}
