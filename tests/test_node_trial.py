"""A pushed model is asked about what the node has seen: a signature says nothing of its labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.rig import CLASSES, Rig, desired, folded
from test_node_life import accuracy, live, world

from edge_opid import Layout
from edge_opid.node.scoreboard import Scoreboard
from edge_opid.node.trial import KEPT, Trial
from edge_opid.wire import SensorDescription

LAYOUT = Layout(["a", "b", "c"])


def fitted(rows, labels, layout=LAYOUT):
    """The best matrix for these readings."""
    X = np.array([layout.encode(row) for row in rows])
    Y = np.eye(len(CLASSES))[[CLASSES.index(label) for label in labels]]
    return np.linalg.lstsq(X, Y, rcond=None)[0]


@pytest.mark.parametrize("served_before", ["model", "own"])
def test_weights_that_contradict_all_a_node_has_seen_are_not_served(served_before):
    """Fitted on a liar's labels, signed by the gateway; and nobody labels anything any more."""
    rows, labels = world(500)
    good, rig = fitted(rows, labels), Rig.make()
    rig.order(desired(1, weights=folded(good) if served_before == "model" else None))
    live(rig, rows[:100], labels[:100])
    rig.order(desired(2, weights=folded(good[:, [1, 2, 0]])))
    live(rig, rows[100:400], [None] * 300, first_seq=101)
    assert accuracy(rig, labels[:400], 300) > 0.8
    assert {each.predictor for each in rig.predictions()[-300:]} == {served_before}
    status = rig.node.status(40_000)
    assert rig.node.counts["model-doubted"] == 1
    (doubt,) = status.degraded
    assert doubt.startswith("model 2 is doubted: right in ")
    assert f" of {KEPT}, the node itself in " in doubt
    assert status.version == 2  # the order is obeyed, and not sent again and again
    assert status.model_version == (1 if served_before == "model" else 2)
    again = rig.reborn(rig.frozen(), len(rig.durable))
    assert again.frozen() == rig.reborn().frozen() == rig.frozen()
    assert again.node.status(40_000).degraded == status.degraded


def test_a_doubted_model_is_not_served_however_short_the_nodes_own_record_is():
    """The first labels met guesses: the learners know more by now than their record says."""
    rows, labels = world(400)
    rig = Rig.make()
    live(rig, rows[:60], labels[:60])
    state = rig.node.state
    state.scoreboard = Scoreboard.from_state({"own": [0, 1] * 15, "frequent": [0] * 30})
    rig.order(desired(1, weights=folded(fitted(rows, labels)[:, [1, 2, 0]])))
    for hit in range(30):
        state.scoreboard.record({"model": 1}, hit % 5 > 2)  # 12 of 30: no sure difference to 15
    assert not state.scoreboard.is_ahead("own", "model")
    live(rig, rows[60:300], [None] * 240, first_seq=61)
    assert {each.predictor for each in rig.predictions()[60:]} == {"own"}
    assert accuracy(rig, labels[:300], 240) > 0.7
    assert rig.node.status(40_000).degraded != ()


def test_a_good_model_is_not_doubted_for_what_its_new_sensor_had_not_said_yet():
    """Two sensors die, a new one tells all: of old instances the model knows next to nothing."""
    rows, labels = world(400)
    rig = Rig.make()
    live(rig, rows[:100], labels[:100])
    truth = [CLASSES.index(label) for label in labels]
    new = [{"c": row["c"], "d": float(y - 1)} for row, y in zip(rows, truth, strict=True)]
    layout = Layout(["c", "d"])
    W = np.array([[1.0, 0.0, -1.0], [-3.0, 0.0, 3.0], [0.0, 1.0, 0.0]])
    W = W[[("c", "d", "bias").index(name) for name in layout.columns]]
    rig.order(desired(1, sensors=("c", "d"), weights=folded(W)))
    live(rig, new[100:200], [None] * 100, first_seq=101)
    assert rig.node.counts["model-swapped"] == 1
    assert rig.node.counts["model-doubted"] == 0
    assert {each.predictor for each in rig.predictions()[-100:]} == {"model"}
    assert rig.node.status(20_000).degraded == ()


def test_a_lie_about_a_replaced_sensor_is_seen_through_though_the_new_one_has_said_nothing_yet():
    """The old `a` is retired, then another one takes its role in another unit; only a liar labels.

    With the new sensor at its reference in every old instance the turned weights look harmless.
    """
    rows, labels = world(400)
    rig = Rig.make()
    live(rig, rows[:100], labels[:100])
    before = rig.node.state.local_models.sensors["a"]
    new = SensorDescription(id="a-2", role="a", reference=-50.0, scale=before.scale * 9)
    kept = desired(1).sensors[1:]
    rig.order(replace(desired(1), sensors=kept))
    again = rig.reborn(rig.frozen(), len(rig.durable))  # what it remembers of `a` is in its state
    layout = Layout(["a", "b", "c"])
    good, column = fitted(rows, labels, layout), layout.columns.index("a")
    turned = 0.1 * good
    turned[column] = good[column, [1, 2, 0]]
    again.order(replace(desired(2, 2), sensors=(new, *kept), weights=folded(turned)))
    doubt = again.node.state.doubted
    assert doubt is not None
    assert doubt.right < doubt.own / 2
    assert again.node.state.local_models.sensors["a-2"] == new


def test_a_doubted_model_is_served_once_labels_speak_for_it():
    """The world has turned round, and the gateway was the first to know."""
    rows, labels = world(500)
    turned = [CLASSES[(CLASSES.index(label) + 1) % 3] for label in labels]
    rig = Rig.make()
    live(rig, rows[:100], labels[:100])
    rig.order(desired(1, weights=folded(fitted(rows, turned))))
    assert rig.node.state.doubted is not None
    live(rig, rows[100:400], turned[100:400], first_seq=101)
    assert accuracy(rig, turned[:400], 100) > 0.75
    assert rig.node.state.doubted is None


def test_kept_instances_come_back_as_they_were():
    """Sensors that come and go between labels, and more labels than are kept."""
    trial, rng = Trial(), np.random.default_rng(1)
    for n in range(KEPT + 9):
        names = "abc"[: 1 + n // 7 % 3]
        trial.remember({name: float(rng.normal()) for name in names}, n % 3)
    assert list(Trial.restored(trial.state()).rows()) == list(trial.rows())
    assert len(list(trial.rows())) == KEPT
