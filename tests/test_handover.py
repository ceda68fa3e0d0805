"""What sensors hand on without labels: to those that survive them, and to those that come."""

from dataclasses import replace

import numpy as np
import pytest
from support.rig import CLASSES, Rig, description, desired, folded
from test_node_life import accuracy, world

from edge_opid import GramLearner, Layout, WoodburyLearner
from edge_opid.learner.handover import Overlap, best_ridge, regressed
from edge_opid.learner.statistics import Statistics
from edge_opid.native import available
from edge_opid.node.memories import Learning, Memories, Together
from edge_opid.node.scoreboard import PredictorName

LAYOUT = Layout([f"s{place}" for place in range(6)])


def readings(seed: int, n: int, noise: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    """Six sensors that look at three hidden causes, the bias, and the class: the largest cause."""
    rng = np.random.default_rng(seed)
    causes = rng.normal(size=(n, 3))
    X = causes @ np.random.default_rng(9).normal(size=(3, 6)) + noise * rng.normal(size=(n, 6))
    return np.column_stack([X, np.ones(n)]).astype(np.float32), causes.argmax(axis=1)


def summed(X: np.ndarray, y: np.ndarray) -> Statistics:
    X, Y = X.astype(float), np.eye(3)[y]
    return Statistics(X.T @ X, X.T @ Y, len(X), float(len(X)))


def test_distilling_from_sums_is_regressing_what_the_teacher_says_of_every_reading():
    """The oracle has the readings: it asks the teacher about each, and fits the survivors to it."""
    X, y = readings(1, 500)
    learner = GramLearner(0, 7, 3, rho=2.0, dtype="float64")
    learner.learn_many(X[:40], y[:40])
    everything, kept = X.astype(float).T @ X.astype(float), [0, 2, 3, 6]
    known = summed(X[:40], y[:40])
    ridge = max(2.0, best_ridge(known), best_ridge(known.ordered(kept)))
    teacher = np.linalg.solve(known.gram + ridge * np.eye(7), known.moments)
    rows = np.vstack([X[:, kept], np.eye(4)])  # a ridge of 1 is a row of 1 for each column
    said = np.vstack([X @ teacher, np.zeros((4, 3))])
    oracle = np.linalg.lstsq(rows.astype(float), said, rcond=None)[0]
    # 1e-6: the readings are float32, and their sums were added in another order
    np.testing.assert_allclose(learner.distil(kept, everything), oracle, atol=1e-6)


@pytest.mark.parametrize("kind", [GramLearner, WoodburyLearner])
def test_inherited_sums_are_those_of_a_learner_that_always_had_the_new_columns(kind):
    """The oracle learned every reading with the new columns filled in by their relation."""
    X, y = readings(3, 300)
    relation = np.random.default_rng(4).normal(size=(2, 7))
    sources = (None, 1, 4, None, 6)
    learner = kind(0, 7, 3, dtype="float64")
    learner.learn_many(X, y)
    heir = learner.rearrange(sources, 0, relation=relation)
    oracle = kind(0, 5, 3, dtype="float64")
    new = X.astype(float) @ relation.T
    oracle.learn_many(np.column_stack([new[:, 0], X[:, 1], X[:, 4], new[:, 1], X[:, 6]]), y)
    # 1e-7: five columns of rank three leave the ridge to decide, at a condition of some 1e3
    np.testing.assert_allclose(heir.weights()[0], oracle.weights()[0], atol=1e-7)
    assert heir.readings == oracle.readings == 300


def test_without_a_relation_new_columns_start_from_nothing_as_ever():
    """A relation of zeros says no more than none: the same bits."""
    X, y = readings(5, 200)
    learner = WoodburyLearner(0, 7, 3)
    learner.learn_many(X, y)
    plain = learner.rearrange((0, None, 6), 0)
    zeros = learner.rearrange((0, None, 6), 0, relation=np.zeros((1, 7)))
    np.testing.assert_array_equal(plain.weights()[0], zeros.weights()[0])


def test_a_column_that_follows_from_no_other_is_given_no_relation():
    """Noise beside six sensors: a ridge that found something in it would carry nonsense."""
    X, _ = readings(6, 200)
    noise = np.random.default_rng(7).normal(size=(200, 1))
    assert np.abs(Overlap(X.astype(float), noise).relation()).max() < 0.1
    late = np.where(np.arange(200) < 50, 5.0, -1.0)[:, None] * noise  # one stretch is like no other
    assert np.isfinite(regressed(X.astype(float), late)).all()


def taught(labels: int, n: int = 600, seed: int = 8, **options) -> Memories:
    memories = Memories(LAYOUT, Learning(3, 1.0, 1.0, 1.0, **options))
    X, y = readings(seed, n)
    for place, x in enumerate(X):
        memories.observe(x)
        if place < labels:
            memories.learn(x, int(y[place]))
    return memories


def share_right(memories: Memories, X: np.ndarray, y: np.ndarray) -> float:
    return float(np.mean([memories.own(x).argmax() == k for x, k in zip(X, y, strict=True)]))


def test_a_new_sensor_that_speaks_beside_the_old_ones_needs_no_label():
    """Four of six sensors go at once and two come; nobody labels anything after the change."""
    target = Layout(["s4", "s5", "s6", "s7"])
    rng = np.random.default_rng(10)
    mixing = np.random.default_rng(9).normal(size=(3, 6))
    more = np.random.default_rng(11).normal(size=(3, 2))

    def world(n):
        causes = rng.normal(size=(n, 3))
        both = causes @ np.hstack([mixing, more]) + 0.3 * rng.normal(size=(n, 8))
        ones = np.ones((n, 1))
        old = np.hstack([both[:, :6], ones]).astype(np.float32)
        return old, np.hstack([both[:, 4:], ones]).astype(np.float32), causes.argmax(axis=1)

    old, new, _ = world(200)
    _, X, y = world(1000)
    found = {}
    for name, together in {"overlap": Together(old, new), "alone": None}.items():
        memories = taught(labels=200)
        memories.change(target, 1.0, together=together)
        found[name] = share_right(memories, X, y)
    assert found["overlap"] > found["alone"] + 0.05
    assert memories.learner.readings == 200  # readings without labels are not counted as labelled


def test_a_bridge_from_few_labels_is_better_for_the_readings_without():
    """Twenty labels among 600 readings, then a third of the sensors dies; twenty draws."""
    gains = []
    for seed in range(20, 40):
        X, y = readings(seed + 100, 400)
        survivors = X[:, [0, 1, 2, 3, 6]]
        right = []
        for unlabelled in (True, False):
            memories = taught(20, seed=seed, unlabelled=unlabelled)
            memories.change(LAYOUT.retire("s4", "s5"), 1.0)
            guesses = (survivors @ memories.bridge.W).argmax(axis=1)
            right.append(float((guesses == y).mean()))
        gains.append(right[0] - right[1])
    assert np.mean(gains) > 2 * np.std(gains) / np.sqrt(len(gains)) > 0


def test_where_most_readings_have_labels_those_without_do_not_interfere():
    """More than half of the readings labelled: the labels know more than a teacher they taught."""
    bridges = []
    for unlabelled in (True, False):
        memories = taught(301, unlabelled=unlabelled)
        assert not memories.has_few_labels
        memories.change(LAYOUT.retire("s4"), 1.0)
        bridges.append(memories.bridge.W)
    np.testing.assert_array_equal(*bridges)


def test_a_sensor_that_returns_finds_the_logistic_memory_as_it_was():
    """Its weights were lent to the others while it was silent, and again when a second one was."""
    memories = taught(100)
    before = memories.logistic.weights.copy()
    memories.silence(["s1"], 1.0)
    assert np.abs(memories.logistic.weights - before).max() > 0.01
    memories.silence(["s2"], 1.0)
    memories.take_back(["s1"])
    memories.take_back(["s2"])
    # 1e-12: what is added and taken away again is rounded twice in float64
    np.testing.assert_allclose(memories.logistic.weights, before, atol=1e-12)
    assert memories.state()["lent"] is None


def test_the_readings_without_labels_survive_silence_and_a_save():
    """Saved while a sensor is silent, with everything parked: the same bits, and the same life."""
    memories = taught(100)
    memories.silence(["s1"], 1.0)
    copy = Memories(LAYOUT, memories.learning)
    copy.restore(memories.state())
    for each in (memories, copy):
        each.take_back(["s1"])
    assert copy.everything is not None
    np.testing.assert_array_equal(copy.everything.gram(), memories.everything.gram())
    np.testing.assert_array_equal(copy.logistic.weights, memories.logistic.weights)
    assert memories.everything.readings == 600


def test_what_is_switched_off_costs_no_byte_and_bridges_as_before():
    """A node without room for a second matrix."""
    off, on = taught(100, unlabelled=False), taught(100)
    assert off.everything is None
    assert on.nbytes - off.nbytes == GramLearner(0, 7, 1).nbytes
    off.silence(["s1"], 1.0)
    off.take_back(["s1"])
    assert set(off.scores(readings(1, 1)[0][0])) >= {PredictorName.OWN, PredictorName.LONG}


def grown(rig, rows, labels, newcomer, every):
    """A life in which the newcomer speaks beside the others, with a label now and then."""
    for seq, (row, label) in enumerate(zip(rows, labels, strict=True), 1):
        values = {**row, "d": row["a"] - row["b"]} if newcomer else row
        rig.read(seq, values, label if seq % every == 0 else None, now_ms=100 * seq)
        rig.tick(100 * seq)


def test_a_node_knows_a_newcomer_before_its_first_label():
    """`d` speaks without a column for a while; then a and b go, it comes, and nobody labels."""
    rows, labels = world(600, seed=3)
    right = {}
    for newcomer in (True, False):
        rig = Rig.make()
        grown(rig, rows, labels, newcomer, every=3)
        rig.order(desired(1, 1, sensors=("c", "d")), now_ms=60_100)
        fresh, truths = world(300, seed=4)
        for seq, row in enumerate(fresh, len(rows) + 1):
            values = {"c": row["c"], "d": row["a"] - row["b"]}
            rig.read(seq, values, None, now_ms=100 * seq + 200)
        right[newcomer] = accuracy(rig, truths, len(truths))
    assert right[True] > right[False] + 0.05
    assert rig.node.state.local_models.learner.readings == 200  # what had no label was not labelled


def test_an_overlap_is_used_though_a_silent_sensor_goes_with_it():
    """`c` fell silent within the overlap; the order that retires it brings the newcomer."""
    rows, labels = world(300, seed=7)
    rig = Rig.make()
    grown(rig, rows, labels, newcomer=True, every=3)
    for seq, row in enumerate(rows, 301):
        values = {"a": row["a"], "b": row["b"], "d": row["a"] - row["b"]}
        rig.read(seq, values, None, now_ms=100 * seq)
        rig.tick(100 * seq)
    assert rig.node.state.local_models.silent == ("c",)
    rig.order(desired(1, 1, sensors=("a", "d")), now_ms=61_000)
    assert rig.node.state.version == 1
    assert np.abs(rig.node.state.local_models.learner.weights()[0][1]).max() > 0.01  # d's
    assert rig.node.counted()["input-failed"] == 0


def test_what_a_newcomer_said_survives_a_restart_to_the_bit():
    """A restart, from a snapshot in the middle and the journal after it, just before the order."""
    rows, labels = world(200, seed=5)
    rig = Rig.make()
    grown(rig, rows[:100], labels[:100], newcomer=True, every=4)
    rig.commit(10_000)
    mark, saved = len(rig.durable), rig.frozen()
    for seq, row in enumerate(rows[100:], 101):
        rig.read(seq, {**row, "d": row["a"]}, None, now_ms=100 * seq)
    rig.commit(20_000)
    again = rig.reborn(saved, since=mark)
    for each in (rig, again):
        each.order(desired(1, 1, sensors=("b", "d")), now_ms=30_000)
    assert again.frozen() == rig.frozen()


def test_strangers_without_number_take_no_memory():
    """A thousand invented sensors: the 64 heard last are remembered, and the node answers."""
    rows, labels = world(1000, seed=6)
    rig = Rig.make()
    for seq, (row, label) in enumerate(zip(rows, labels, strict=True), 1):
        rig.read(seq, {**row, f"x{seq}": 1.0}, label, now_ms=100 * seq)
    assert list(rig.node.state.newcomers.state()) == [f"x{seq}" for seq in range(937, 1001)]
    assert accuracy(rig, labels, 300) > 0.7


@pytest.mark.parametrize("native", sorted(available))
def test_a_first_value_next_to_nothing_leaves_finite_sums(native):
    """1e-30 squared is 0 in float32: a share of it was divided by that, and all sums were NaN."""
    learner = GramLearner(0, 3, 2, native=native)
    learner.learn_one([1e-30, 2.0, 1.0], 0)
    learner.learn_one([1.0, -1.0, 1.0], 1)
    found = learner.gram()
    # 1e-6: float32 sums of two readings
    np.testing.assert_allclose(found, [[1, -1, 1], [-1, 5, 1], [1, 1, 2]], atol=1e-6)


def test_a_node_whose_first_values_are_next_to_nothing_survives_a_silence():
    """The fuzzer's find: values of 1e-30 of a scale, and then the sensor falls silent."""
    rows, labels = world(200, seed=8)
    rig = Rig.make()
    for seq, (row, label) in enumerate(zip(rows, labels, strict=True), 1):
        tiny = {**row, "a": 1e-30 if seq < 5 else row["a"], "b": 1e-12 if seq < 9 else row["b"]}
        rig.read(seq, tiny, label if seq % 4 == 0 else None, now_ms=100 * seq)
    for seq, row in enumerate(rows, 201):
        rig.read(seq, {"b": row["b"], "c": row["c"]}, None, now_ms=100 * seq)
        rig.tick(100 * seq)
    assert rig.node.state.local_models.silent == ("a",)
    assert np.isfinite(rig.node.state.local_models.bridge.W).all()


# -- a replacement in the same role ------------------------------------------------------------


def replaced(say, together=100):
    """Two of six sensors are replaced in their roles by ones that `say` something of the old."""
    rng = np.random.default_rng(12)
    old, _ = readings(13, together)
    X, y = readings(14, 1000)

    def renewed(rows):
        new = rows.copy()
        new[:, [1, 3]] = say(rows[:, [1, 3]], rng).astype(np.float32)
        return np.clip(new, -8, 8)

    new, fresh = renewed(old), renewed(X)
    alone, heard = taught(labels=200), taught(labels=200)
    alone.change(LAYOUT, 1.0)
    heard.change(LAYOUT, 1.0, together=Together(old, new))
    return share_right(heard, fresh, y), share_right(alone, fresh, y), heard.unlike


@pytest.mark.parametrize(
    "say",
    [
        pytest.param(lambda z, _: -z, id="upside-down"),
        pytest.param(lambda z, _: 2.5 * z, id="another-gain"),
        pytest.param(lambda z, _: z + 3.0, id="another-offset"),
        pytest.param(lambda z, rng: rng.normal(size=z.shape), id="something-else"),
    ],
)
def test_a_replacement_that_says_something_else_is_taken_for_what_it_is(say):
    """In its role, and with the old one's columns: what it really says is known without a label."""
    heard, alone, unlike = replaced(say)
    assert unlike == ("s1", "s3")
    assert heard > alone + 0.02


@pytest.mark.parametrize("noise", [0.0, 0.3, 0.7])
def test_a_replacement_that_is_alike_continues_to_the_letter(noise):
    """The same quantity, with noise of its own: a regression would only forget something."""
    heard, alone, unlike = replaced(lambda z, rng: z + noise * rng.normal(size=z.shape))
    assert unlike == ()
    assert heard == alone


def with_replacement(say, together, weights=None):
    """A node whose sensor `b` is replaced by `b-2`, which says `say(b)`; nobody labels it then."""
    rows, labels = world(400, seed=11)
    rig = Rig.make()
    for seq, (row, label) in enumerate(zip(rows, labels, strict=True), 1):
        new = {"b-2": say(row["b"])} if together and seq > 300 else {}
        rig.read(seq, {**row, **new}, label if seq % 4 == 0 else None, now_ms=100 * seq)
        rig.tick(100 * seq)
    sensors = description("a"), description("b-2", role="b"), description("c")
    order = replace(desired(1, 1), sensors=sensors)
    rig.order(order, now_ms=40_100)
    if weights is not None:
        rig.order(replace(order, version=2, weights=folded(weights)), now_ms=40_200)
    fresh, truths = world(300, seed=12)
    for seq, row in enumerate(fresh, len(rows) + 1):
        values = {"a": row["a"], "b-2": say(row["b"]), "c": row["c"]}
        rig.read(seq, values, None, now_ms=100 * seq + 300)
    return rig, accuracy(rig, truths, len(truths))


def test_a_node_notices_that_a_replacement_is_upside_down():
    """Wired the wrong way round, in the role of the old one; both had been heard together."""
    rig, right = with_replacement(lambda value: -value, together=True)
    _, before = with_replacement(lambda value: -value, together=False)
    assert right > before + 0.2
    assert rig.node.state.local_models.unlike == ("b",)
    assert "b-2" not in {name for values, _ in rig.node.state.trial.rows() for name in values}


def weights_without(role):
    """What a gateway pushes before it has a batch: it knows nothing of this role's column."""
    rows, labels = world(400, seed=11)
    layout = Layout(["a", "b", "c"])
    X = np.array([layout.encode(row) for row in rows])
    places = [place for place, name in enumerate(layout.columns) if name != role]
    W = np.zeros((4, 3))
    Y = np.eye(3)[[CLASSES.index(label) for label in labels]]
    W[places] = np.linalg.lstsq(X[:, places], Y, rcond=None)[0]
    return W


def test_pushed_weights_that_know_nothing_of_a_new_sensor_follow_an_overlap():
    """W^(s) has zeros for it; the node has heard it beside the old one, and goes on with that."""
    W = weights_without("b")
    rig, right = with_replacement(lambda value: value, together=True, weights=W)
    assert {each.predictor for each in rig.predictions()[-300:]} == {"own"}
    assert rig.node.state.pushed_models.version() == 2  # it has them, and labels may speak for them
    alone, before = with_replacement(lambda value: value, together=False, weights=W)
    assert {each.predictor for each in alone.predictions()[-300:]} == {"model"}
    assert right > before + 0.02
    again = rig.reborn(rig.frozen(), len(rig.durable))
    assert again.frozen() == rig.reborn().frozen() == rig.frozen()


def test_pushed_weights_for_the_old_sensor_follow_a_node_that_knows_the_new_one_is_another():
    """The gateway takes the replacement for the old one; the node has heard that it is not."""
    W = weights_without(None)
    rig, right = with_replacement(lambda value: -value, together=True, weights=W)
    _, before = with_replacement(lambda value: -value, together=False, weights=W)
    assert right > before + 0.2
    assert {each.predictor for each in rig.predictions()[-300:]} == {"own"}


def test_labels_speak_for_pushed_weights_that_followed_an_overlap():
    """They were right all the same: after some labels they are served."""
    W = weights_without("b")
    rig, _ = with_replacement(lambda value: value, together=True, weights=W)
    state = rig.node.state
    for _ in range(30):
        state.scoreboard.record({"model": 0, "own": 1}, 0)
    rig.read(701, {"a": 0.1, "b-2": 1.0, "c": 0.1}, None, now_ms=71_000)
    assert rig.predictions()[-1].predictor == "model"


def test_pushed_weights_that_know_all_sensors_are_served_as_ever():
    """A like replacement: the gateway's weights know it, whoever has heard it before."""
    W = weights_without(None)
    rig, _ = with_replacement(lambda value: value, together=True, weights=W)
    assert {each.predictor for each in rig.predictions()[-300:]} == {"model"}


@pytest.mark.parametrize("native", sorted(available))
@pytest.mark.parametrize("n", [15, 60, 300])
def test_columns_that_follow_from_each_other_leave_sums_that_are_right(native, n):
    """Fewer readings than columns, and one-hot ones: rounding became a divisor, sums 3× wrong."""
    rng = np.random.default_rng(n)
    share = rng.uniform(0.05, 0.5, size=60)
    X = ((rng.random((n, 60)) < share) - share) / np.sqrt(share * (1 - share))
    X[:, 2::3] = -X[:, 0::3] - X[:, 1::3]
    X = np.column_stack([X, np.ones(n)]).astype(np.float32)
    learner = GramLearner(0, 61, 1, native=native)
    for x in X:
        learner.learn_one(x, 0)
    truth = X.astype(float).T @ X.astype(float)
    # 1e-4: what is left of a column that others say is kept only above 1e-6 of a reading
    np.testing.assert_allclose(learner.gram(), truth, atol=1e-4 * truth.max())
