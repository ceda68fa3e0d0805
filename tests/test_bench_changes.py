"""The benchmark of many changes: streams that differ, labels that leak, verdicts that lie."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="the gateway extra is not installed")
pytest.importorskip("rich", reason="the gateway extra is not installed")

from benchmarks.changes import few_labels
from benchmarks.changes.cells import StreamResults, read, run, write
from benchmarks.changes.peers import METHODS, applies, product
from benchmarks.changes.report import aims, place_of, precisions, signed
from benchmarks.changes.stats import ALL, Duel, accuracy, best_mode, duels, precision, seeds_of
from benchmarks.changes.streams import MEASURED, STREAMS, arranged, streams_data
from benchmarks.common.cells import SEED
from benchmarks.common.few_labels import Schedule
from benchmarks.common.statistics import compared

NOWHERE = Path("nowhere")
TIMED = "room"


@pytest.fixture(scope="module")
def digits():
    return streams_data(["digits"], NOWHERE)["digits"]


@pytest.fixture(scope="module")
def made_up():
    """A time series of its own, for the one stream whose rows must stay in order."""
    rng = np.random.default_rng(3)
    X = np.cumsum(rng.normal(size=(9000, 16)), axis=0)
    X[:, 0] = np.arange(9000)
    return X, (X[:, 1] > np.median(X[:, 1])).astype(np.int64)


def test_a_seed_always_gives_the_same_stream(digits):
    """A benchmark whose streams move from run to run compares nothing."""
    first, second, other = (arranged("digits", digits, seed) for seed in (5, 5, 6))
    assert np.array_equal(first.X, second.X)
    assert np.array_equal(first.y, second.y)
    assert not np.array_equal(first.X, other.X)
    assert first.X.shape == (STREAMS["digits"].readings, STREAMS["digits"].sensors)


def test_a_time_series_stays_in_the_order_of_its_time(made_up):
    """Shuffled like the others, it would let a method look into the future."""
    stream = arranged(TIMED, made_up, 7)
    clock = next(column for column in stream.X.T if np.all(np.diff(column) == 1))
    assert len(clock) == STREAMS[TIMED].readings
    assert clock[0] != arranged(TIMED, made_up, 8).X.min()


@pytest.mark.parametrize("name", STREAMS)
def test_sensors_leave_for_good_in_equal_numbers_and_stages_fit_a_node(name):
    """A sensor that returned, or a layout no node takes, would make the figures worthless."""
    setting = STREAMS[name]
    data = np.zeros((setting.readings, setting.sensors)), np.zeros(setting.readings, np.int64)
    windows = [set(stage.sensors) for stage in arranged(name, data, 1).stages()]
    for place, (old, new) in enumerate(pairwise(windows)):
        assert len(old - new) == len(new - old) == setting.replaced
        assert not (new - old) & set.union(*windows[: place + 1])
    assert setting.alive * (1 if setting.binary else setting.knots) + 1 <= 160
    assert setting.length >= 200


class Spy:
    """Says 0, and writes down what it was shown."""

    def __init__(self, stream):
        self.stream, self.shown, self.before = stream, [], []

    def change(self, stage):
        self.sensors = set(stage.sensors)
        self.before.append(self.stream.before(stage))

    def guess_then_learn(self, row, label):
        assert set(row) == self.sensors
        self.shown.append((tuple(row.values()), label))
        return 0


def test_a_method_sees_only_living_sensors_and_its_hits_are_counted_exactly(digits):
    """A spy in place of a method notes everything that it is shown."""
    stream = arranged("digits", digits, 5, short=True)
    spy = Spy(stream)
    found = run(spy, stream)
    assert [label for _, label in spy.shown] == stream.y.tolist()
    zeros = (stream.y == 0).reshape(3, 250)
    assert found[ALL] == zeros.sum(1).tolist()
    assert found["50"] == zeros[1:, :50].sum(1).tolist()
    assert [len(rows) for rows in spy.before] == [0, MEASURED, MEASURED]
    last = stream.row(249, [f"s{k:03}" for k in range(7, 28)])
    assert spy.before[1][-1] == last  # the readings just before the change, and no later one


@pytest.mark.parametrize("method", ["node, linear", "node, lifted", "restart", "zero-fill"])
def test_a_method_of_ours_gives_the_same_hits_every_time(digits, method):
    """A method with chance of its own would win or lose by luck."""
    stream = arranged("digits", digits, 5, short=True)
    first, second = (run(METHODS[method](stream, 5), stream) for _ in range(2))
    assert first == second
    assert sum(first[ALL]) / len(stream.y) > 0.3  # ten classes: by chance a tenth


def test_an_interrupted_run_ends_in_the_same_file_as_one_at_a_stroke(tmp_path):
    """Stopped after two of four seeds, with a torn file beside it."""
    found = [{ALL: [200 + k, 210], "50": [30], "100": [70 + k], "200": [160]} for k in range(4)]
    place = {"cpu": "one"}
    at_once, resumed = (StreamResults("digits", 250, where=place) for _ in range(2))
    for k in range(4):
        at_once.add("river LR", SEED + k, found[k])
    write(at_once, tmp_path / "a")
    for k in (2, 0):
        resumed.add("river LR", SEED + k, found[k])
    write(resumed, tmp_path / "b")
    (tmp_path / "b" / "digits.json.new").write_text("torn")
    again = read("digits", tmp_path / "b")
    assert [again.has("river LR", SEED + k) for k in range(4)] == [True, False, True, False]
    for k in (3, 1):
        again.add("river LR", SEED + k, found[k])
    write(again, tmp_path / "b")
    files = [(tmp_path / folder / "digits.json").read_bytes() for folder in "ab"]
    assert files[0] == files[1]
    assert read("splice", tmp_path / "b").runs == {}


def measured(**wholes) -> StreamResults:
    """Two stages of 100; the second one is the first 100 after the change, too."""
    results = StreamResults("digits", 100)
    for method, counts in wholes.items():
        for seed, count in enumerate(counts):
            halves = {ALL: [count, count], "50": [count // 2], "100": [count], "200": [count]}
            results.add(method.replace("_", " "), seed, halves)
    return results


def test_an_accuracy_is_that_of_its_own_window():
    """Hits of one window divided by the length of another would still look like a share."""
    results = measured(restart=[80])
    assert accuracy(results, "restart", 0, ALL) == 160 / 200
    assert accuracy(results, "restart", 0, "50") == 40 / 50
    assert accuracy(results, "restart", 0, "100") == 80 / 100
    assert seeds_of(results, ["restart", "oracle"]) == []


def test_the_paired_test_agrees_with_one_done_by_hand():
    """Differences 1, 2, 3: mean 2, standard error 1/√3, t = 2√3 = 3.46 < 4.30 for 2 degrees."""
    theirs = np.array([0.80, 0.85, 0.75])
    assert compared(theirs + np.array([0.01, 0.02, 0.03]), theirs) == 0
    # 1, 2, 3, 2: mean 2, standard error √(2/3)/2 = .408, t = 4.90 > 3.18 for 3 degrees.
    theirs = np.array([0.80, 0.85, 0.75, 0.79])
    ours = theirs + np.array([0.01, 0.02, 0.03, 0.02])
    assert compared(ours, theirs) == 1
    assert compared(theirs, ours) == -1


def test_a_peer_is_judged_in_the_mode_that_suits_it_best():
    """Judged in its worse mode, a rival would be beaten too easily."""
    results = measured(**{"node,_lifted": [80, 81, 82], "river_LR": [70, 71, 70]})
    results.runs["river LR, anew"] = measured(x=[90, 91, 93]).runs["x"]
    assert best_mode(results, "river LR", ALL) == "river LR, anew"
    [duel] = duels(results, ALL)
    assert (duel.method, duel.seeds, duel.mark) == ("river LR, anew", 3, -1)
    assert duel.ours == pytest.approx(0.81)
    assert "behind** river LR, anew" in "\n".join(aims([results]))


def test_a_verdict_needs_three_seeds_and_tells_first_from_tied():
    """Two seeds are no evidence, and a tie is no victory."""
    better, tied = Duel("a", 3, 0.9, 0.8, 1), Duel("b", 3, 0.9, 0.91, 0)
    assert place_of([better]) == "first"
    assert place_of([better, tied]) == "tied"
    few, worse = Duel("c", 2, 0.9, 0.8, 1), Duel("d", 3, 0.8, 0.9, -1)
    assert place_of([better, few]) == "**open**, fewer than 3 seeds of c"
    assert place_of([better, few, worse]) == "**behind** d"


def test_the_precisions_are_compared_on_the_seeds_they_share():
    """A third seed, which only one of them has run, would move the difference."""
    results = measured(**{"node,_lifted": [80, 82, 10], "node,_lifted,_float64": [80, 81]})
    [(form, seeds, mean, difference)] = precision(results)
    assert (form, seeds, mean) == ("node, lifted", 2, pytest.approx(0.81))
    assert difference == pytest.approx(0.005)
    assert "| +.0050 |" in "\n".join(precisions([results]))
    assert signed(-0.00001) == ".0000"


def test_methods_run_only_on_the_streams_they_apply_to():
    """Hats on binary columns, or a two-class method on three classes, say nothing."""
    assert not applies("node, lifted", "dna", 3)
    assert product("dna") == "node, linear"
    assert not applies("OpenMOA FESL, anew", "dna", 3)
    assert applies("OpenMOA FESL", "splice", 2)


class LateSpy:
    """Says every class alike, and writes down when it was told which label."""

    predictor = few_labels.PredictorName.OWN

    def __init__(self, classes):
        self.classes, self.asked, self.told = classes, -1, []

    def change(self, stage):
        del stage

    def probabilities(self, place, row):
        del row
        self.asked = place
        return [1 / self.classes] * self.classes

    def learn(self, place, row, label):
        self.told.append((self.asked, place, row, label))


@pytest.mark.parametrize("delay", [0, 10, 100])
def test_a_label_is_told_after_its_delay_with_the_reading_as_it_was(digits, delay):
    """A label a reading too early would be one from the future."""
    stream = arranged("digits", digits, 5, short=True)
    schedule = Schedule.drawn(len(stream.y), 0.1, delay, 5)
    spy = LateSpy(stream.classes)
    found = few_labels.run(spy, stream, schedule)
    sensors = {place: stage.sensors for stage in stream.stages() for place in stage.rows}
    expected = [
        (place + delay, place, stream.row(place, sensors[place]), int(stream.y[place]))
        for place in np.flatnonzero(schedule.labelled).tolist()
        if place + delay < len(stream.y)
    ]
    assert spy.told == expected
    assert found["alone"]["whole"] == (stream.y == 0).mean()


def test_with_all_labels_at_once_the_node_of_the_two_benchmarks_is_the_same(digits):
    """Labels by themselves, and labels in the reading: the model must not differ by much."""
    stream = arranged("digits", digits, 5, short=True)
    schedule = Schedule.drawn(len(stream.y), 1.0, 0, 5)
    found = few_labels.run(few_labels.CONTENDERS["node"](stream, 5), stream, schedule)
    whole = sum(run(METHODS["node, lifted"](stream, 5), stream)[ALL]) / len(stream.y)
    assert found["alone"]["whole"] == pytest.approx(whole, abs=0.01)  # the layer, few ties
