"""Anything may be done to a classifier, in any order."""

from __future__ import annotations

import random

import pytest

from edge_opid import Classifier, OpidError, Sensor
from edge_opid.node.journal_records import pack_state, unpack_state

NAMES = "abcdefgh"
ODD = (None, float("nan"), float("inf"), 0, True, 1e30, -1e37, "on")


def bits(classifier):
    return pack_state(classifier.state())


def made(chance):
    return Classifier(
        [Sensor("a", 0, 1)] if chance.random() < 0.3 else None,
        knots=chance.choice([1, 1, 4, 8]),
        warmup=chance.choice([2, 5, 30, 200]),
        columns_max=chance.choice([30, 80]),
        forgetting=chance.choice([1, 0.9]),
    )


def reading(chance):
    names = chance.sample(NAMES, chance.randint(0, 5))
    return {n: chance.choice(ODD) if chance.random() < 0.05 else chance.gauss(0, 1) for n in names}


def look(classifier, x):
    """What it says makes sense, and asking changes nothing."""
    before = bits(classifier)
    found, best = classifier.predict_proba_one(x), classifier.predict_one(x)
    assert bits(classifier) == before
    assert set(found) == set(classifier.classes)
    assert not found or sum(found.values()) == pytest.approx(1)
    assert not found or found[best] == pytest.approx(max(found.values()))


def sensor(chance):
    return Sensor(chance.choice(NAMES), chance.random(), knots=chance.choice([(), (), (-8, 0, 8)]))


@pytest.mark.parametrize("seed", range(8))
def test_it_answers_or_refuses_whatever_is_done(seed):
    """Odd values, missing sensors, late classes, changes and merges; saved in between."""
    chance = random.Random(seed)
    classifier, other = made(chance), made(chance)
    deeds = {
        lambda: classifier.learn_one(reading(chance), chance.choice([0, 1, 1, "rare"])): 60,
        lambda: other.learn_one(reading(chance), chance.choice([0, 1])): 10,
        lambda: look(classifier, reading(chance)): 20,
        lambda: classifier.retire(chance.choice(NAMES)): 1,
        lambda: classifier.deploy(chance.choice([sensor(chance), chance.choice(NAMES)])): 2,
        lambda: classifier.replace(chance.choice(NAMES), chance.choice(NAMES)): 1,
        lambda: classifier.merge(other): 0.5,
    }
    refused = 0
    for _ in range(200):
        deed = chance.choices(list(deeds), list(deeds.values()))[0]
        try:
            deed()
        except OpidError:
            refused += 1
        saved = bits(classifier)
        assert bits(Classifier.from_state(unpack_state(saved))) == saved
    assert 0 < refused < 190
    assert classifier.readings > 0
