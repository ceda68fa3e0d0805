"""The classifier wherever river has one: river's own checks, pipelines, evaluation."""

from __future__ import annotations

import doctest
import random

import numpy as np
import pytest

pytest.importorskip("river", reason="river is not installed: pip install 'edge-opid[river]'")

from river import checks, compose, datasets, evaluate, metrics, preprocessing

import edge_opid.river
from edge_opid import Classifier
from edge_opid.river import OPIDClassifier

CHECKS = list(checks.yield_checks(OPIDClassifier()))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_river_finds_nothing_wrong(check):
    """Every check that river has for such a class, none left out."""
    random.seed(1)
    check(OPIDClassifier())


def test_no_check_of_river_is_left_out():
    """A check skipped by declaration, or a list that is nearly empty, would prove nothing."""
    assert OPIDClassifier()._unit_test_skips() == set()
    assert len(CHECKS) >= 50


def test_it_is_the_same_classifier_in_a_pipeline():
    """Behind a selection of features, evaluated by river."""
    rows = list(datasets.ImageSegments().take(300))
    kept = list(rows[0][0])[:6]
    model = compose.Select(*kept) | OPIDClassifier()
    found = evaluate.progressive_val_score(rows, model, metrics.Accuracy())
    plain, hits = Classifier(), []
    for x, y in rows:
        values = {name: x[name] for name in kept}
        hits.append(plain.predict_one(values) == y)
        plain.learn_one(values, y)
    assert found.get() == pytest.approx(np.mean(hits[1:]))  # river does not count the first: None


def test_it_needs_no_scaler():
    """It measures its sensors itself: a scaler before it changes next to nothing."""
    rows = list(datasets.Phishing())
    alone = evaluate.progressive_val_score(rows, OPIDClassifier(), metrics.Accuracy())
    model = preprocessing.StandardScaler() | OPIDClassifier()
    scaled = evaluate.progressive_val_score(rows, model, metrics.Accuracy())
    assert alone.get() == pytest.approx(scaled.get(), abs=0.02)


def test_its_examples_run():
    assert doctest.testmod(edge_opid.river).failed == 0
