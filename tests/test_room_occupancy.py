"""Sixteen real channels in time order: what the lift is worth on data nobody here made."""

from __future__ import annotations

import numpy as np

from benchmarks.room_occupancy import LiftedLearner, run

FOREST = 0.9877  # river's adaptive random forest, the best of three seeds (`make bench-room`)


def test_the_lifted_learner_keeps_up_with_a_forest_on_room_occupancy(data_folder):
    """At least the forest minus 0.005, and well above the linear form, warm-up included."""
    saved = np.load(data_folder / "room_occupancy.npz", allow_pickle=False)
    names = [str(name) for name in saved["feature_names"]]
    rows = [dict(zip(names, map(float, x), strict=True)) for x in saved["X"]]
    labels = [int(label) for label in saved["y"]]
    accuracy = {}
    for knots in (1, 8):
        learner = LiftedLearner(names, knots=knots)
        accuracy[knots] = np.mean(run("", learner.predict_then_learn, rows, labels).hits)
    assert accuracy[8] >= FOREST - 0.005
    assert accuracy[8] > accuracy[1] + 0.01
