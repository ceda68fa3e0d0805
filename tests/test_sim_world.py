"""Simulated worlds: the same whoever asks when, with classes that come, and can be learned."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_opid import Layout, Sensor, WoodburyLearner
from edge_opid.config.node import NodeConfig
from firmware_sim.world import BLOCK_S, WORLDS, WorldError, open_world
from firmware_sim.world.chance import Wander, stream
from firmware_sim.world.regimes import Deck, Rounds
from firmware_sim.world.sensor import SimulatedSensor

DAY_S = 86_400
TIMES = st.floats(-1e4, 1e7, allow_nan=False)

worlds = pytest.mark.parametrize("name", sorted(WORLDS))


@worlds
@settings(max_examples=6, deadline=None)
@given(times=st.lists(TIMES, min_size=2, max_size=6), seed=st.integers(0, 2**64))
def test_asking_in_another_order_gives_the_same_truth(name, times, seed):
    """More blocks than are kept, so some are computed again; `over` must agree to the bit."""
    forwards, backwards = open_world(name, seed), open_world(name, seed)
    found = [forwards.at(time) for time in times]
    assert found == [backwards.at(time) for time in reversed(times)][::-1]
    together = forwards.over(np.array(times))
    for quantity in forwards.quantities:
        assert together.values[quantity].tolist() == [truth.values[quantity] for truth in found]
    assert forwards.labels(together) == [forwards.label(truth) for truth in found]


@worlds
def test_the_truth_does_not_jump_where_two_blocks_meet(name):
    """The step over the seam is one like any other."""
    times = np.arange(5 * BLOCK_S - 200.0, 5 * BLOCK_S + 200.0)
    for quantity, values in open_world(name, 3).over(times).values.items():
        steps = np.abs(np.diff(values))
        assert steps[199] <= np.delete(steps, 199).max(), quantity


@worlds
def test_between_two_seconds_the_truth_lies_on_the_line(name):
    """Sensors read at any moment, also at the seam of two blocks."""
    world = open_world(name, 3)
    for second in (17.0, BLOCK_S - 1.0):
        before, between, after = (world.at(second + share).values for share in (0.0, 0.25, 1.0))
        for quantity in world.quantities:
            expected = 0.75 * before[quantity] + 0.25 * after[quantity]
            assert between[quantity] == pytest.approx(expected, rel=1e-9, abs=1e-9)


@worlds
def test_nodes_of_one_world_are_neighbours_and_neither_copies_nor_strangers(name):
    """They feel the same events, and no two of them the same truth; another seed is unrelated."""
    times = np.arange(0.0, DAY_S, 30.0)
    first, second = (open_world(name, 3, node).over(times).values for node in (0, 5))
    other = open_world(name, 4).over(times).values
    for cause in WORLDS[name].causes:
        assert 0.6 < np.corrcoef(first[cause], second[cause])[0, 1] < 0.9999
        assert np.corrcoef(first[cause], other[cause])[0, 1] < 0.9
    for quantity in first:
        assert not np.array_equal(first[quantity], second[quantity])


@worlds
@pytest.mark.parametrize("seed", range(2))
def test_every_class_comes_every_day_and_soon(name, seed):
    """At least 5 % of each day on each node, and within the first two hours."""
    for node, day in [(0, 0), (1, 1), (19, 6)]:
        world = open_world(name, seed, node)
        labels = world.labels(world.over(day * DAY_S + np.arange(0.0, DAY_S, 60.0)))
        shares = {label: labels.count(label) / len(labels) for label in world.classes}
        assert min(shares.values()) >= 0.05, shares
        assert set(labels[:130]) == set(world.classes)  # 130 minutes: the last node is late


@worlds
def test_every_quantity_is_finite_and_moves(name):
    """Two days of every world."""
    truths = open_world(name, 5).over(np.arange(0.0, 2 * DAY_S, 61.0))
    for quantity, values in truths.values.items():
        assert np.isfinite(values).all(), quantity
        assert values.std() > 0, quantity


# -- can it be learned? --------------------------------------------------------------------------


def seen(world, entries, times, clean):
    truths = world.over(times)
    models = [entry.model.clean() if clean else entry.model for entry in entries]
    X = np.column_stack(
        [model.gain * truths.values[model.quantity] + model.offset for model in models]
        if clean
        else [entry.simulated(world.seed).read_block(truths) for entry in entries]
    )
    return X, np.array([world.classes.index(label) for label in world.labels(truths)])


def ridge_accuracy(train, test, classes, columns):
    """Least squares on standardised columns, one target a class: what a linear learner can do."""
    (X, y), (X_test, y_test) = ((X[:, columns], y) for X, y in (train, test))
    mean, scale = X.mean(axis=0), X.std(axis=0)
    X, X_test = (np.c_[(x - mean) / scale, np.ones(len(x))] for x in (X, X_test))
    W = np.linalg.solve(X.T @ X + np.eye(X.shape[1]), X.T @ np.eye(classes)[y])
    return np.mean((X_test @ W).argmax(axis=1) == y_test)


@worlds
def test_a_world_is_neither_trivial_nor_hopeless_and_needs_its_sensors(name):
    """All sensors, clean: 85 to 96 %. Half of them, on average over 12 choices: 6 points less."""
    world = open_world(name, 1)
    times = np.arange(0.0, 2 * DAY_S, 30.0)
    train, test = (seen(world, world.catalogue, times + start, True) for start in (0, 2 * DAY_S))
    count = len(world.catalogue)
    everything = ridge_accuracy(train, test, 4, range(count))
    every = np.tile(np.arange(count), (12, 1))
    choices = stream(1, "halves").permuted(every, axis=1)[:, : count // 2]
    halves = np.mean([ridge_accuracy(train, test, 4, half) for half in choices])
    assert 0.85 <= everything <= 0.96
    assert halves <= everything - 0.06
    commonest = np.bincount(test[1]).max() / len(test[1])
    assert halves > commonest + 0.05


@worlds
def test_the_real_learner_learns_from_imperfect_sensors(name):
    """Half an hour per class and more, with noise, dropouts and data-sheet scales only."""
    world = open_world(name, 2)
    known = [entry for entry in world.catalogue if entry.scale is not None]
    X, y = seen(world, known, np.arange(0.0, DAY_S, 30.0), clean=False)
    layout = Layout([Sensor(entry.role, entry.reference, entry.scale) for entry in known])
    learner = WoodburyLearner(0, layout.surviving_columns, classes=4)
    hits = []
    for row, label in zip(X, y, strict=True):
        values = {e.role: float(v) for e, v in zip(known, row, strict=True) if np.isfinite(v)}
        x = layout.encode(values)
        hits.append(int(learner.predict_one(x).argmax()) == label)
        learner.learn_one(x, label)
    assert np.mean(hits[1000:]) > np.bincount(y).max() / len(y) + 0.1


# -- the catalogue -------------------------------------------------------------------------------


@worlds
def test_a_catalogue_can_be_configured_and_sees_what_its_world_has(name):
    """A sensor for a quantity that is not there would be silent for ever."""
    world = open_world(name, 1)
    sensors = tuple(entry.config() for entry in world.catalogue)
    config = NodeConfig(site="town", node="n1", classes=world.classes, sensors=sensors)
    assert config.columns == len(world.catalogue) + 1  # and the bias
    for entry in world.catalogue:
        assert {entry.model.quantity, *entry.model.cross} <= set(world.quantities)
        assert entry.model.quantity not in world.causes
        assert entry.deployed(at_ms=0).unit == entry.unit


@worlds
def test_a_data_sheet_lets_every_good_reading_through_the_gate(name):
    """What is no fault lies within the default gate of 8 scales, and its middle within one."""
    world = open_world(name, 1)
    truths = world.over(np.arange(3600.0, DAY_S, 30.0))
    known = [entry for entry in world.catalogue if entry.reference is not None]
    assert len(known) >= 9
    for entry in known:
        sensor = SimulatedSensor(replace(entry.model, spike=0.0, stuck=0.0), 1)
        z = (sensor.read_block(truths) - entry.reference) / entry.scale
        assert np.nanmax(np.abs(z)) <= 8, entry.id
        assert abs(np.nanmedian(z)) < 1, entry.id
        assert 0.3 < np.nanstd(z) < 3, entry.id


def test_a_name_that_does_not_exist_is_refused():
    """A world, a sensor and a node that are not there."""
    with pytest.raises(WorldError, match=r"must be one of .*'street'.*got 'ocean'"):
        open_world("ocean", 1)
    with pytest.raises(WorldError, match=r"no sensor for 'ph'; it has \['pm1'"):
        open_world("street", 1).sensor("ph")
    with pytest.raises(WorldError, match="node of world 'street' must be 0 or more, got -1"):
        open_world("street", 1, -1)


# -- chance --------------------------------------------------------------------------------------


def test_addresses_that_look_alike_have_chances_of_their_own():
    """`a` and 11, `a1` and 1: glued together they would be one."""
    alike = [("a", 11), ("a1", 1), ("a", 1, 1), ("a", "11"), ("a11",), ("a", -11)]
    draws = [stream(seed, *address).random() for seed in (1, 2) for address in alike]
    assert len(set(draws)) == len(draws)
    assert stream(1, "a", np.int64(11)).random() == stream(np.uint8(1), "a", 11).random()


def test_fluctuations_are_as_strong_between_their_knots():
    """4,000 signals at knots, near them and between: variance 1 within 4 standard errors."""
    wander = Wander(1, "w", signals=4_000, layers=((10.0, 1.0),))
    variances = wander.at(np.array([20.0, 21.0, 22.5, 25.0, 29.0])).var(axis=1)
    assert np.abs(variances - 1.0).max() < 4 * (2 / 4_000) ** 0.5


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999), number=st.integers(-50, 10_000))
def test_an_event_comes_in_every_round_and_ends_within_it(seed, number):
    """Any seed, any round."""
    deck = Deck(seed, "d", ("fault", "", ""), slot_s=100.0, ramp_s=10.0)
    strength = deck.at(300.0 * number + np.arange(300.0), "fault")
    assert 0.7 < strength.max() <= 1.2
    assert 50 <= np.count_nonzero(strength > 0.4) <= 100
    assert strength[0] == 0.0


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999), start=st.floats(-1e5, 1e7))
def test_watering_is_never_skipped_and_lies_always_in_the_past(seed, start):
    """Any seed, any moment."""
    times = start + np.arange(0.0, 1000.0, 7.0)
    since = Rounds(seed, "water", period_s=100.0).since(times)
    assert since.min() >= 0
    assert since.max() < 130.0
