"""Bad readings: a sentence with both values, and not a byte of state changed."""

from __future__ import annotations

import numpy as np
import pytest
from support.oracle import Stream

from edge_opid import GramLearner, LayoutError, MismatchError, ReadingError, WoodburyLearner
from edge_opid.errors import SettingError

X, Y = Stream(width=5, condition=1e2).take(50)
GOOD = X[0]


def frozen(learner):
    return {
        name: value.tobytes() if isinstance(value, np.ndarray) else value
        for name, value in learner.state().items()
    }


@pytest.fixture
def learner(make):
    learner = make(vanishing=2, surviving=3, classes=3)
    learner.learn_many(X, Y)
    return learner


def with_value(value):
    x = GOOD.copy()
    x[3] = value
    return x


BAD = {
    "too short": (GOOD[:4], 1, "width", "expected 5 values, got 4"),
    "too long": (np.ones(6), 1, "width", "expected 5 values, got 6"),
    "a table": (np.ones((5, 1)), 1, "width", "expected an array of shape (5,), got (5, 1)"),
    "nan": (with_value(np.nan), 1, "non-finite", "column 3 is nan: expected a finite number"),
    "minus infinity": (with_value(-np.inf), 1, "non-finite", "column 3 is -inf"),
    "absurd": (with_value(1e12), 1, "limit", "column 3 is 1e+12: expected at most 1e+06"),
    "beyond float32": (GOOD.astype(float) * 1e300, 1, "limit", "expected at most 1e+06"),
    "beyond every float": ([10**400] * 5, 1, "type", "expected 5 numbers"),
    "words": (["a", "b", "c", "d", "e"], 1, "type", "expected 5 numbers"),
    "nothing": ([None] * 5, 1, "non-finite", "column 0 is nan"),
    "class too high": (GOOD, 3, "label", "label must be 0..2, got 3"),
    "class below zero": (GOOD, -1, "label", "label must be 0..2, got -1"),
    "class by name": (GOOD, "on", "label", "label must be a class index, got 'on'"),
    "class in halves": (GOOD, 1.5, "label", "label must be a class index, got 1.5"),
}


@pytest.mark.parametrize(("x", "y", "reason", "sentence"), BAD.values(), ids=BAD)
def test_a_bad_reading_is_refused_and_nothing_changes(learner, x, y, reason, sentence):
    before = frozen(learner)
    with pytest.raises(ReadingError) as error:
        learner.learn_one(x, y)
    assert sentence in str(error.value)
    refusal = learner.learn_one(x, y, refuse=True)
    assert (refusal.reason, str(refusal)) == (reason, str(error.value))
    with pytest.raises(ReadingError):
        learner.score_then_learn(x, y)
    assert frozen(learner) == before


@pytest.mark.parametrize("batch", [1, 8])
def test_of_a_batch_with_one_bad_reading_none_is_learned(learner, batch):
    before = frozen(learner)
    spoiled = X.copy()
    spoiled[37, 2] = np.nan
    with pytest.raises(ReadingError, match="reading 37: column 2 is nan"):
        learner.learn_many(spoiled, Y, batch=batch)
    with pytest.raises(ReadingError, match="expected 49 readings, one per label, got 50"):
        learner.learn_many(X, Y[:49], batch=batch)
    assert frozen(learner) == before


def test_a_bad_reading_cannot_be_predicted(learner):
    before = frozen(learner)
    with pytest.raises(ReadingError, match="expected 3 values, got 5"):
        learner.predict_survivors(GOOD)
    with pytest.raises(ReadingError, match="column 3 is nan"):
        learner.predict_one(with_value(np.nan))
    assert frozen(learner) == before


def test_a_good_reading_is_taken_in_any_form(learner):
    """A list, integers, float64, or every second value of a longer array."""
    strided = np.repeat(GOOD, 2)[::2]
    for form in (GOOD.tolist(), GOOD.astype(np.float64), strided, tuple(GOOD)):
        assert learner.learn_one(form, np.int64(1)) is None
    assert learner.learn_one([1, 0, 1, 0, 1], True, refuse=True) is None
    assert learner.readings == 55


def test_merging_what_does_not_belong_together_is_refused(learner):
    before = frozen(learner)
    others = {
        "lam is 1.0 here and 2.0 there": type(learner)(2, 3, 3, lam=2.0),
        "rho is 1.0 here and 0.5 there": type(learner)(2, 3, 3, rho=0.5),
        "classes is 3 here and 4 there": type(learner)(2, 3, 4),
        "columns is 5 here and 6 there": type(learner)(2, 4, 3),
        "vanishing is 2 here and 1 there": type(learner)(1, 4, 3),
    }
    for sentence, other in others.items():
        with pytest.raises(MismatchError, match=sentence):
            learner.merge(other)
    assert frozen(learner) == before


def test_impossible_changes_of_layout_are_refused(learner):
    before = frozen(learner)
    impossible = {
        "column 5 must be 0..4": lambda: learner.resplit(vanishing=[5]),
        "named twice": lambda: learner.resplit(vanishing=[1, 1]),
        "one has to survive": lambda: learner.resplit(vanishing=[0, 1, 2, 3, 4]),
        "carry must be 0..1, got 1.5": lambda: learner.inherit(kept=[0], carry=1.5),
        "new must be at least 0": lambda: learner.inherit(kept=[0], new=-1),
        "vanishing: column 2 must be 0..1": lambda: learner.inherit([0], new=1, vanishing=[2]),
    }
    for sentence, change in impossible.items():
        with pytest.raises(LayoutError, match=sentence):
            change()
    assert frozen(learner) == before


@pytest.mark.parametrize("kind", [WoodburyLearner, GramLearner])
def test_impossible_learners_are_not_made(kind):
    for options, sentence in (
        ({"surviving": 0}, "surviving must be at least 1, got 0"),
        ({"vanishing": -1}, "vanishing must be at least 0, got -1"),
        ({"rho": 0.0}, "rho must be above 0, got 0.0"),
        ({"lam": float("nan")}, "lam must be at least 0, got nan"),
        ({"forgetting": 1.1}, "forgetting must be above 0 and at most 1, got 1.1"),
        ({"dtype": "float16"}, "dtype must be float32 or float64, got float16"),
    ):
        with pytest.raises(SettingError, match=sentence):
            kind(**{"vanishing": 2, "surviving": 3, "classes": 3, **options})
