"""The classifier wherever scikit-learn has one: its own checks, and what NaN means."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import check_estimator

from edge_opid import Classifier
from edge_opid.sklearn import OPIDClassifier

SKIPPED = {
    "check_array_api_input": "runs only where SCIPY_ARRAY_API is set; we take NumPy arrays",
    "check_classifier_data_not_an_array": "its second half needs pandas, which a node has not",
}
"""Checks that scikit-learn itself may skip here, and why; none is expected to fail."""


def test_scikit_learn_finds_nothing_wrong():
    """Every check that scikit-learn has for such a class."""
    results = check_estimator(OPIDClassifier(), on_fail=None, on_skip=None)
    found = {r["check_name"]: repr(r["exception"]) for r in results if r["status"] != "passed"}
    assert {name: why for name, why in found.items() if name not in SKIPPED} == {}
    assert all(r["status"] in ("passed", "skipped") for r in results)
    assert len(results) > 50


def test_it_is_the_same_classifier_and_learns_in_parts():
    chance = np.random.default_rng(1)
    X = chance.normal(size=(400, 5))
    X[chance.random((400, 5)) < 0.1] = np.nan
    y = np.where(np.nan_to_num(X[:, 0] - X[:, 3]) > 0, "on", "off")
    parts = OPIDClassifier()
    for start in range(0, 400, 100):
        parts.partial_fit(X[start : start + 100], y[start : start + 100], classes=["off", "on"])
    plain = Classifier()
    plain.learn_many({f"x{k}": X[:, k] for k in range(5)}, y)
    whole = OPIDClassifier().fit(X, y)
    found = plain.predict_proba_many({f"x{k}": X[:, k] for k in range(5)})
    assert np.array_equal(whole.predict_proba(X), np.column_stack([found["off"], found["on"]]))
    assert np.array_equal(whole.predict_proba(X), parts.predict_proba(X))


def test_a_class_that_was_only_announced_has_probability_zero():
    model = OPIDClassifier().partial_fit([[1.0], [2.0]], ["a", "b"], classes=["a", "b", "c"])
    found = model.predict_proba([[1.5]])
    assert found.shape == (1, 3)
    assert found[0, 2] == 0
    assert found.sum() == pytest.approx(1)


def test_it_is_as_good_as_it_should_be_on_digits():
    """Ten classes, 64 columns: a linear model is right about nine times of ten."""
    datasets = pytest.importorskip("sklearn.datasets")
    X, y = datasets.load_digits(return_X_y=True)
    assert cross_val_score(OPIDClassifier(), X, y, cv=3).mean() > 0.88
