"""A reading that is taken back was never learned: sums subtract."""

from __future__ import annotations

import numpy as np
import pytest

from edge_opid import GramLearner, WoodburyLearner
from edge_opid.errors import ReadingError

COLUMNS, CLASSES = 12, 3


def stream(n):
    rng = np.random.default_rng(n)
    X = np.c_[rng.normal(size=(n, COLUMNS - 1)), np.ones(n)].astype(np.float32)
    return X, (X @ rng.normal(size=(COLUMNS, CLASSES))).argmax(1)


def weights(learner):
    return np.vstack(learner.weights())


@pytest.mark.parametrize("learner", [WoodburyLearner, GramLearner])
@pytest.mark.parametrize("vanishing", [0, 4])
@pytest.mark.parametrize(("before", "since"), [(0, 0), (2, 0), (300, 0), (300, 100)])
def test_what_is_taken_back_leaves_nothing_behind(learner, vanishing, before, since):
    """Against a float64 learner that never saw it; and it goes on as that one does."""
    X, y = stream(before + since + 30)
    made = {"vanishing": vanishing, "surviving": COLUMNS - vanishing, "classes": CLASSES}
    mine, oracle = learner(**made), learner(**made, dtype="float64")
    wrong = np.full(COLUMNS, 1.5, np.float32)
    for place in range(before + since):
        if place == before:
            mine.learn_one(wrong, 2)
        mine.learn_one(X[place], y[place])
        oracle.learn_one(X[place], y[place])
    if not since:
        mine.learn_one(wrong, 2)
    mine.unlearn_one(wrong, 2)
    assert (mine.readings, mine.evidence) == (oracle.readings, oracle.evidence)
    for place in range(before + since, len(X)):
        mine.learn_one(X[place], y[place])
        oracle.learn_one(X[place], y[place])
    # float32 throughout, and one subtraction of what was half of all that was known
    assert np.abs(weights(mine) - weights(oracle)).max() < 1e-5


@pytest.mark.parametrize("learner", [WoodburyLearner, GramLearner])
def test_under_forgetting_a_reading_takes_back_what_it_still_counts_for(learner):
    """The ones before it have faded by one step more: that is all that is left of it."""
    X, y = stream(300)
    mine, never = (learner(0, COLUMNS, CLASSES, forgetting=0.99) for _ in range(2))
    for place in range(300):
        mine.learn_one(X[place], (y[place] + 1) % CLASSES if place == 250 else y[place])
        if place != 250:
            never.learn_one(X[place], y[place])
    wrong = np.abs(weights(mine) - weights(never)).max()
    mine.unlearn_one(X[250], (y[250] + 1) % CLASSES, 0.99**49)
    assert np.abs(weights(mine) - weights(never)).max() < 0.1 * wrong


@pytest.mark.parametrize("learner", [WoodburyLearner, GramLearner])
def test_what_cannot_have_been_learned_is_refused(learner):
    mine = learner(0, 3, 2)
    mine.learn_one([1.0, 2.0, 3.0], 1)
    before = mine.state()
    for x, label in (([1.0, 2.0], 1), ([1.0, 2.0, 3.0], 2)):
        with pytest.raises(ReadingError):
            mine.unlearn_one(x, label)
    after = mine.state()
    assert all(np.array_equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("learner", [WoodburyLearner, GramLearner])
@pytest.mark.parametrize("vanishing", [0, 4])
def test_an_hour_of_labels_is_taken_back_in_a_few_decompositions(learner, vanishing, monkeypatch):
    """One for each label kept a node from its watchdog for seconds; what is left is the same."""
    X, y = stream(400)
    made = {"vanishing": vanishing, "surviving": COLUMNS - vanishing, "classes": CLASSES}
    mine, oracle = learner(**made), learner(**made, dtype="float64")
    mine.learn_many(X, y)
    oracle.learn_many(X[:200], y[:200])
    taken = []
    subtract = learner._subtract
    monkeypatch.setattr(
        learner, "_subtract", lambda self, *some: taken.append(1) or subtract(self, *some)
    )
    mine.unlearn_many(X[200:], y[200:], np.ones(200))
    assert len(taken) == 4
    assert (mine.readings, mine.evidence) == (oracle.readings, oracle.evidence)
    # float32 throughout, and half of all that was known was taken away
    assert np.abs(weights(mine) - weights(oracle)).max() < 1e-5
