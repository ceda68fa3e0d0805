"""The time layer: what it learns from order, what it ignores, and nothing from the future."""

from __future__ import annotations

import math
import random
from array import array

import numpy as np
import pytest

from edge_opid import WoodburyLearner, native
from edge_opid.config.node import SensorConfig, TruthConfig
from edge_opid.node.compiled_time_layer import (
    CompiledTimeLayer,
    restored_time_layer,
    time_layer,
)
from edge_opid.node.predicting import encoded, predicted
from edge_opid.node.scoreboard import PredictorName
from edge_opid.node.time_layer import SURE, TimeLayer, logarithm
from edge_opid.wire import InstanceId
from tests.support.rig import CLASSES, Rig

OWN = PredictorName.OWN
MINUTE_MS = 60_000


class Stream:
    """Classes that last, and a model that is right in three of four cases."""

    def __init__(self, seed: int, *, lasts: int, readings: int = 1500) -> None:
        rng = random.Random(seed)
        self.truths = [0]
        while len(self.truths) < readings:
            self.truths.append(rng.randrange(3) if rng.random() < 1 / lasts else self.truths[-1])
        self.scores = []
        for truth in self.truths:
            said = truth if rng.random() < 0.75 else rng.randrange(3)
            self.scores.append([0.6 if k == said else 0.2 for k in range(3)])

    def shuffled(self) -> Stream:
        """The same readings in no order."""
        places = list(range(len(self.truths)))
        random.Random(9).shuffle(places)
        other = object.__new__(Stream)
        other.truths = [self.truths[place] for place in places]
        other.scores = [self.scores[place] for place in places]
        return other


def run(
    stream: Stream, *, every: int = 1, delay: int = 0, layer: TimeLayer | None = None
) -> tuple[list[list[float]], TimeLayer]:
    """What the layer said of each reading; every so-many-th label comes, after `delay` readings."""
    layer, found, waiting = layer or time_layer(3), [], {}
    for place, scores in enumerate(stream.scores):
        seen = layer.evidence(scores, OWN, MINUTE_MS * place)
        found.append(layer.probabilities(seen))
        layer.go_on(seen)
        if place % every == 0:
            waiting[place] = seen
        if place - delay in waiting:
            layer.learn(waiting.pop(place - delay), stream.truths[place - delay])
    return found, layer


def accuracy(found: list[list[float]], stream: Stream) -> float:
    hits = [p.index(max(p)) == y for p, y in zip(found, stream.truths, strict=True)]
    return sum(hits) / len(hits)


def test_where_classes_last_it_is_better_than_the_model_and_than_the_last_label() -> None:
    """A model right in 83 %, and a label every ten readings of classes that last forty."""
    stream = Stream(1, lasts=40)
    model = [s.index(0.6) == y for s, y in zip(stream.scores, stream.truths, strict=True)]
    last = [stream.truths[k // 10 * 10 - (10 if k % 10 == 0 else 0)] for k in range(10, 1500)]
    label = [a == b for a, b in zip(last, stream.truths[10:], strict=True)]
    found, _ = run(stream, every=10)
    assert accuracy(found, stream) > max(sum(model) / 1500, sum(label) / 1490) + 0.02


def test_where_there_is_no_order_the_answers_are_the_models() -> None:
    """The same readings, shuffled: the last label and the last readings say nothing."""
    stream = Stream(1, lasts=40).shuffled()
    found, _ = run(stream)
    differ = [p.index(max(p)) != s.index(0.6) for p, s in zip(found, stream.scores, strict=True)]
    assert sum(differ) <= 3  # of 1,500: while it does not know yet


@pytest.mark.parametrize("late", [0, 100])
def test_few_labels_of_many_classes_do_not_make_an_order(late: int) -> None:
    """Shuffled digits, one in fifty labelled: each of these few labels moves all scores.

    The layer once took that for an order, and 208 of 1,797 answers were not the model's.
    """
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    order = np.random.default_rng(3).permutation(len(digits.target))
    model, layer = WoodburyLearner(0, digits.data.shape[1], 10, rho=10.0), time_layer(10)
    waiting, differ = {}, 0
    for place, row in enumerate(order):
        x = (digits.data[row] / 16).astype(np.float32)
        seen, told = layer.answer(model.predict_one(x), OWN, MINUTE_MS * place)
        differ += int(np.argmax(told)) != int(np.argmax(seen.scores))
        layer.go_on(seen)
        if place % 50 == 0:
            waiting[place] = x, seen, int(digits.target[row])
        if place - late in waiting:
            x, seen, label = waiting.pop(place - late)
            model.learn_one(x, label)
            layer.learn(seen, label)
    assert differ <= 3  # of 1,797
    assert not layer.sees_order


@pytest.mark.parametrize("kind", [TimeLayer, CompiledTimeLayer])
def test_without_order_a_lucky_guess_of_the_frequent_class_does_not_lead(
    kind: type[TimeLayer],
) -> None:
    """Every other label is of class 0, and at all of them the model was wrong: chance."""
    layer, rng = kind(3), random.Random(5)
    labels = iter([0, 1, 0, 2] * 5)
    for place in range(200):
        label = next(labels) if place % 10 == 0 else None
        says = rng.randrange(3) if label is None else (label + 1) % 3
        scores = [0.6 if k == says else 0.2 for k in range(3)]
        seen, told = layer.answer(array("d", scores), OWN, MINUTE_MS * place)
        assert told.index(max(told)) == says
        layer.go_on(seen)
        if label is not None:
            layer.learn(seen, label)


def test_a_label_that_comes_later_changes_nothing_said_before_it() -> None:
    """Delays of 0, 10 and 100: up to its first label each says what a layer without labels says."""
    stream = Stream(2, lasts=40, readings=400)
    without, _ = run(stream, every=1000, delay=500)
    for delay in (0, 10, 100):
        found, _ = run(stream, delay=delay)
        assert found[: delay + 1] == without[: delay + 1]
        assert found != without


def test_other_labels_in_the_future_leave_what_was_said_as_it_is() -> None:
    """All labels from reading 200 on are exchanged; they come with a delay of 25."""
    stream, other = Stream(3, lasts=40, readings=400), Stream(3, lasts=40, readings=400)
    other.truths[200:] = [(truth + 1) % 3 for truth in other.truths[200:]]
    mine, theirs = run(stream, delay=25)[0], run(other, delay=25)[0]
    assert mine[: 200 + 25 + 1] == theirs[: 200 + 25 + 1]
    assert mine[226:] != theirs[226:]


def test_after_a_day_without_labels_the_last_one_counts_for_nothing() -> None:
    """Labels stop at noon; the next reading comes a day later."""
    stream = Stream(4, lasts=10)
    _, layer = run(stream)
    scores = [0.3, 0.4, 0.3]
    soon = layer.evidence(scores, OWN, MINUTE_MS * 1500)
    later = layer.evidence(scores, OWN, MINUTE_MS * (1500 + 24 * 60))
    assert soon.stays > 0.5
    assert later.stays < 0.05


def test_a_burst_of_labels_teaches_little_more_than_one_of_them() -> None:
    """A hundred labels within two minutes, a day after the last: one look back, not a hundred."""
    _, layer = run(Stream(5, lasts=40))
    _, again = run(Stream(5, lasts=40))
    day = 1500 * MINUTE_MS + 86_400_000
    burst = [layer.evidence([0.2, 0.6, 0.2], OWN, day + 1000 * k) for k in range(100)]
    before = again.weights[2]
    again.learn(burst[0], 1)
    one = abs(again.weights[2] - before)
    for seen in burst:
        layer.learn(seen, 1)
    assert abs(layer.weights[2] - before) <= 1.2 * one + 0.01


@pytest.mark.parametrize("kind", [TimeLayer, CompiledTimeLayer])
def test_one_change_that_labels_show_a_hundred_readings_late_is_one_reason_for_doubt(
    kind: type[TimeLayer],
) -> None:
    """Ninety mistakes in a row among a thousand readings: counted singly, they left .80."""
    layer, waiting = kind(2), []
    for minute in range(1000):
        truth = int(minute >= 800)
        says = int(minute >= 890)  # the model has learned by then that the world is another one
        seen = layer.evidence([0.95 - 0.9 * says, 0.05 + 0.9 * says], OWN, MINUTE_MS * minute)
        layer.go_on(seen)
        waiting.append((seen, truth))
        if minute >= 100:
            layer.learn(*waiting[minute - 100])
    said = layer.probabilities(layer.evidence([0.05, 0.95], OWN, MINUTE_MS * 1000))
    assert 0.95 < said[1] < 0.99


@pytest.mark.parametrize(("delay", "shuffled", "least"), [(0, False, 0.99), (50, True, 0.95)])
def test_labels_that_do_not_overlap_count_in_full(delay: int, shuffled: bool, least: float) -> None:
    """At once, or late where there is no order: the record holds as much as labels came."""
    stream = Stream(1, lasts=40, readings=600)
    _, layer = run(stream.shuffled() if shuffled else stream, delay=delay)
    labels = 600 - delay
    faded = (1 - 0.9995**labels) / (1 - 0.9995)
    held = sum(count for count, _ in layer.state()["record"])
    assert least * faded <= held <= faded + 1e-6


def test_late_labels_of_one_stretch_count_for_that_stretch() -> None:
    """All labels, fifty readings late, in order: the record grows by about one for fifty."""
    _, layer = run(Stream(1, lasts=40, readings=1500), delay=50)
    held = sum(count for count, _ in layer.state()["record"])
    assert held < 0.25 * 1450  # more than a fiftieth: at first no order was known


def test_a_clock_that_was_wrong_once_does_not_keep_its_label_for_good() -> None:
    """One instance claims to be of the year 2100; the next label is of today."""
    _, layer = run(Stream(6, lasts=40))
    far = layer.evidence([0.2, 0.6, 0.2], OWN, 4_102_444_800_000)
    layer.learn(far, 1)
    now = 1501 * MINUTE_MS
    seen = layer.evidence([0.6, 0.2, 0.2], OWN, now)
    layer.go_on(seen)
    layer.learn(seen, 0)
    assert layer.evidence([0.6, 0.2, 0.2], OWN, now + 1).label == 0


def test_of_what_is_said_with_eighty_percent_eighty_are_right() -> None:
    """Expected calibration error in ten bins, after 200 labels; all labels, and one in ten."""
    for every in (1, 10):
        stream = Stream(7, lasts=40, readings=6000)
        found, _ = run(stream, every=every)
        rows = [(max(p), p.index(max(p)) == y) for p, y in zip(found, stream.truths, strict=True)]
        error, rows = 0.0, rows[200 * every :]
        for low in range(10):
            part = [row for row in rows if low / 10 <= row[0] < (low + 1) / 10 or row[0] == low + 1]
            error += abs(sum(sure for sure, _ in part) - sum(right for _, right in part))
        assert error / len(rows) < 0.03


def test_probabilities_add_up_to_one_and_are_finite_whatever_a_model_says() -> None:
    """Scores of a broken model: huge, all equal, negative."""
    layer = TimeLayer(2)
    for place, scores in enumerate([[1e30, -1e30], [0.0, 0.0], [-5.0, -5.0], [1e-30, 0.0]] * 20):
        seen = layer.evidence(scores, OWN, 1000 * place)
        found = layer.probabilities(seen)
        assert math.isclose(sum(found), 1.0, abs_tol=1e-9)
        assert all(0 <= each <= 1 for each in found)
        layer.go_on(seen)
        layer.learn(seen, place % 2)


def test_a_restored_layer_goes_on_to_the_same_bits() -> None:
    """Saved in the middle of a stream, as a snapshot is."""
    stream = Stream(8, lasts=20)
    _, layer = run(stream, every=3)
    again = restored_time_layer(layer.state())
    assert again.state() == layer.state()
    more = Stream(9, lasts=20, readings=200)
    assert run(more, layer=layer)[0] == run(more, layer=again)[0]
    assert again.state() == layer.state()


@pytest.mark.parametrize("kind", [TimeLayer, CompiledTimeLayer])
def test_a_state_from_before_labels_were_counted_is_read(kind: type[TimeLayer]) -> None:
    """It is taken for one whose last label was long ago, and all else is as it was saved."""
    _, layer = run(Stream(5, lasts=40, readings=300), every=10)
    saved = layer.state()
    older = {name: value for name, value in saved.items() if name != "labels"}
    restored = kind(3)
    restored.restore(older)
    assert restored.state() == {**saved, "labels": [0, saved["order"][0]]}


def test_its_state_does_not_grow() -> None:
    """Bytes after 100 readings and after 1,500."""
    assert run(Stream(1, lasts=9, readings=100))[1].nbytes == run(Stream(1, lasts=9))[1].nbytes


def test_classes_that_change_places_keep_what_is_known_of_them() -> None:
    """The last of three classes becomes the first, and one is new."""
    _, layer = run(Stream(10, lasts=40))
    before = layer.evidence([0.2, 0.3, 0.5], OWN, 1500 * MINUTE_MS)
    layer.with_classes([2, 0, 1, None])
    after = layer.evidence([0.5, 0.2, 0.3, 0.0], OWN, 1500 * MINUTE_MS)
    assert after.label == [2, 0, 1].index(before.label)
    assert math.isclose(after.stays, before.stays, rel_tol=1e-4)  # less chance, with a class more
    assert len(layer.probabilities(after)) == 4


@pytest.mark.parametrize("x", [1e-9, 0.3, 1.0, 2.5, 1e12])
def test_its_logarithm_is_one(x: float) -> None:
    """Plain arithmetic against the C library: twenty operations, each off by 2e-16 at most."""
    assert math.isclose(logarithm(x), math.log(x), rel_tol=1e-12, abs_tol=1e-12)


@pytest.mark.parametrize("kind", [TimeLayer, CompiledTimeLayer])
def test_it_sees_whether_readings_follow_an_order(kind: type[TimeLayer]) -> None:
    """Classes that last forty readings, and the same readings shuffled; no label is needed."""
    stream = Stream(1, lasts=40)
    _, layer = run(stream, every=10_000, layer=kind(3))
    _, other = run(stream.shuffled(), every=10_000, layer=kind(3))
    assert layer.sees_order
    assert not other.sees_order
    assert not kind(3).sees_order


def test_what_model_and_label_agree_on_is_said_although_the_model_was_surer_at_the_label() -> None:
    """Labels a hundred minutes late: it was right there and sure, and is less sure now."""
    layer, waiting = time_layer(2), []
    for minute in range(1500):
        truth = minute // 300 % 2
        seen = layer.evidence([1.0 - truth, 0.0 + truth], OWN, MINUTE_MS * minute)
        layer.go_on(seen)
        waiting.append((seen, truth))
        if minute >= 100:
            layer.learn(*waiting[minute - 100])
    unsure = layer.evidence([0.51, 0.49], OWN, MINUTE_MS * 1500)
    assert (unsure.label, unsure.stays > 0.2) == (0, True)
    said = layer.probabilities(unsure)
    assert said.index(max(said)) == 0


def test_a_node_blends_its_memories_gently_where_readings_follow_an_order() -> None:
    """Two nodes: one sees classes that last, the other the same readings shuffled."""
    rng = random.Random(3)
    rows = [(k // 40 % 2, rng.gauss(2.0 * (k // 40 % 2), 0.4)) for k in range(400)]
    shuffled = rng.sample(rows, len(rows))
    for given, ordered in ((rows, True), (shuffled, False)):
        rig = Rig.make(sensors=(SensorConfig("a", reference=0.0, scale=1.0),))
        for seq, (truth, value) in enumerate(given, 1):
            rig.read(seq, {"a": value}, CLASSES[truth])
        state = rig.node.state
        assert state.time_layer.sees_order is ordered
        x = encoded(state, {"a": 0.9})
        said = predicted(state, {"a": 0.9}, InstanceId("s", 1, 999), 1_000_000, x)[0].scores
        gentle, strict = (state.local_models.guess(x, ordered=o)[0][0] for o in (True, False))
        assert said.tolist() == (gentle if ordered else strict).tolist()
        assert gentle.tolist() != strict.tolist()


def test_a_prediction_says_how_sure_it_is_and_below_the_threshold_that_it_does_not_know() -> None:
    """`confidence_min` of 1: nothing is ever that sure; what is learned does not differ."""
    told, silent = Rig.make(), Rig.make(confidence_min=1.0)
    for rig in (told, silent):
        for seq in range(1, 6):
            rig.read(seq, {"a": float(seq), "b": 1.0, "c": -1.0}, CLASSES[seq % 2])
    pairs = list(zip(told.predictions(), silent.predictions(), strict=True))
    assert pairs[0][0].label == "unknown"  # nothing was learned yet
    for sure, unsure in pairs[1:]:
        assert sure.confidence == max(sure.scores.values()) == sure.scores[sure.label]
        assert (unsure.label, unsure.scores) == ("unknown", sure.scores)
    assert told.durable[1:] == silent.durable[1:]


def test_a_truth_that_stands_for_a_while_is_as_old_as_its_last_instance() -> None:
    """A span of ten minutes with a reading each: its label ages from its end, and counts once."""
    sensors = (SensorConfig("a", reference=0.0, scale=1.0),)
    stands = TruthConfig(filter="z/hall", field="on", values={"true": CLASSES[0]}, valid_s=600.0)
    rig = Rig.make(sensors=sensors, truth=(stands,))
    rig.handle("z/hall", b'{"on": true}', 1_000, token=1)
    for seq in range(1, 16):
        rig.read(seq, {"a": float(seq % 3)}, now_ms=MINUTE_MS * seq)
    layer = rig.node.state.time_layer
    assert rig.node.counts["learned"] == 10
    last = 10 * MINUTE_MS
    seen = layer.evidence([0.5, 0.3, 0.2], OWN, last + 5 * MINUTE_MS)
    assert (seen.label, seen.age_ms) == (0, 5 * MINUTE_MS)
    looks = sum(count for count, _ in layer.state()["held"][0])
    assert looks == pytest.approx(9, abs=0.05)  # nine looks back of a minute each, hardly faded
    rig.commit(0)
    assert rig.reborn().frozen() == rig.frozen()


@pytest.mark.parametrize("delay", [1, 10])
def test_a_node_says_nothing_that_only_a_later_label_could_tell_it(delay: int) -> None:
    """Labels shifted by one and by ten readings: up to the first that differs, all is the same."""
    said = []
    for other in (0, 1):
        stream, layer = Stream(11, lasts=20, readings=300), TimeLayer(3)
        stream.truths[150] = (stream.truths[150] + other) % 3
        said.append(run(stream, delay=delay, layer=layer)[0])
    until = 150 + delay + 1
    assert said[0][:until] == said[1][:until]
    assert said[0][until] != said[1][until]


def test_the_record_holds_what_was_said_and_not_what_would_be_said_today() -> None:
    """A late label of a surely wrong answer; since then the layer has learned better."""
    early, late = TimeLayer(2), TimeLayer(2)
    for layer in (early, late):
        seen = layer.evidence([0.9, 0.1], OWN, 0)
        sure = max(seen.said)
        if layer is late:
            for minute in range(1, 200):
                layer.learn(layer.evidence([0.9, 0.1], OWN, MINUTE_MS * minute), minute % 2)
        before = layer.state()["record"]
        layer.learn(seen, 1)
        after = layer.state()["record"]
        grown = [b[0] - 0.9995 * a[0] for a, b in zip(before, after, strict=True)]
        knots = [k for k, more in zip(SURE, grown, strict=True) if more > 1e-9]
        assert min(knots) <= sure <= max(knots)


def lived(layer: TimeLayer, seed: int, classes: int, readings: int = 400) -> list[object]:
    """Everything a layer says in a life of clocks that jump, late labels and many predictors."""
    rng, told, waiting, time_ms, truth = random.Random(seed), [], [], 0, 0
    for _ in range(readings):
        time_ms = max(0, time_ms + rng.choice([1000, 0, 60_000, 5, -3000]))
        truth = rng.randrange(classes) if rng.random() < 0.05 else truth
        scores = array("d", [rng.gauss(0.3, 0.2) + 0.3 * (k == truth) for k in range(classes)])
        predictor = rng.choice([OWN] * 6 + list(PredictorName))
        seen, said = layer.answer(scores, predictor, time_ms)
        told.append((seen.plain(), said))
        layer.go_on(seen)
        waiting += [(seen, truth)] if rng.random() < 0.6 else []
        while waiting and rng.random() < 0.5:
            layer.learn(*waiting.pop(rng.randrange(len(waiting))))
        if rng.random() < 0.01:
            layer.renew(OWN)
            layer.take_back(seen, truth, 3, None)
    return [told, layer.state()]


@pytest.mark.skipif("compiled" not in native.available, reason="no compiler was found")
@pytest.mark.parametrize("classes", [2, 3, 16])
def test_the_layer_in_c_is_the_layer_in_python_to_the_bit(classes):
    """A journal written with one is replayed with the other: a Pi, and a laptop without a gcc."""
    for seed in range(5):
        expected = lived(TimeLayer(classes), seed, classes)
        assert lived(CompiledTimeLayer(classes), seed, classes) == expected


@pytest.mark.skipif("compiled" not in native.available, reason="no compiler was found")
def test_the_layer_in_c_refuses_arrays_and_places_that_do_not_fit():
    """Labels and predictors are indices there: a wrong one must never reach beyond an array."""
    steps, layer = native.available["compiled"], CompiledTimeLayer(2)
    state, seen, scores = layer._numbers, layer._blank[:], array("d", [0.5, 0.5])
    before = state[:]
    for bad in (
        [state[:-1], seen, 0, scores, 0],
        [state, seen[:-1], 0, scores, 0],
        [state, seen, 9, scores, 0],
        [state, seen, -1, scores, 0],
        [state, seen, 0, scores[:1], 0],
        [state, seen, 0, array("i", [1, 2]), 0],
    ):
        with pytest.raises((ValueError, TypeError)):
            steps.time_answer(*bad)
    for truth in (2, -1):
        with pytest.raises(ValueError, match=r"truth must be 0\.\.1"):
            steps.time_learn(state, seen, 0, truth)
    for label in (2.0, -2.0, math.nan, math.inf):
        seen[-4] = label
        with pytest.raises(ValueError, match="a label of the time layer"):
            steps.time_learn(state, seen, 0, 0)
    assert state == before
