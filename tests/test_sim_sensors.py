"""Simulated sensors: each fault does what it says, when it says, and the same every time."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_opid.wire import decode, encode
from firmware_sim.world import Truth, Truths, WorldError
from firmware_sim.world.catalogue import Catalogued
from firmware_sim.world.sensor import BLOCK, SimulatedSensor
from firmware_sim.world.sensor_model import SensorModel, replacement, rescaled

DAY_S = 86_400.0
PLAIN = SensorModel(quantity="temp")


def moments(count, start=0.0, step=1.0, temp=20.0):
    times = start + step * np.arange(count)
    return Truths(times, {"temp": np.full(count, temp), "wet": np.linspace(0.0, 1.0, count)})


def read_all(sensor, truths, order=None):
    """`read`, one by one, NaN for None."""
    found = np.full(len(truths.times_s), np.nan)
    for i in range(len(found)) if order is None else order:
        values = {name: float(column[i]) for name, column in truths.values.items()}
        time_s = float(truths.times_s[i])
        value = sensor.read(Truth(time_s, values), time_s)
        found[i] = np.nan if value is None else value
    return found


chances = st.sampled_from([0.0, 0.02, 0.5])
models = st.builds(
    SensorModel,
    quantity=st.just("temp"),
    gain=st.sampled_from([-2.5, 0.3, 1.0]),
    offset=st.floats(-10, 10),
    cross=st.sampled_from([{}, {"wet": 3.3}]),
    noise=st.sampled_from([0.0, 0.7]),
    drift_per_day=st.floats(-5, 5),
    quantum=st.sampled_from([0.0, 0.1, 0.25]),
    low=st.sampled_from([-math.inf, 4.0]),
    high=st.sampled_from([math.inf, 21.0]),
    dropout=chances,
    stuck=chances,
    stuck_s=st.sampled_from([1.0, 20.0]),
    stuck_at=st.sampled_from([None, 85.0]),
    spike=chances,
    spike_size=st.just(5.0),
    warm_up_s=st.sampled_from([0.0, 60.0]),
    cold_offset=st.just(9.0),
    life_s=st.sampled_from([math.inf, 150.0]),
    fading_s=st.sampled_from([0.0, 50.0]),
    period_s=st.sampled_from([0.1, 1.0, 10.0]),
)


@settings(max_examples=60, deadline=None)
@given(model=models, seed=st.integers(0, 2**40), start=st.floats(0, 1e6))
def test_readings_one_by_one_are_those_of_a_block(model, seed, start):
    """To the bit, whatever the model, and across blocks of chance."""
    truths = moments(120, start, 2.0 * model.period_s)
    one, many = (SimulatedSensor(model, seed, "s", start - 20.0) for _ in range(2))
    assert np.array_equal(read_all(one, truths), many.read_block(truths), equal_nan=True)


@settings(max_examples=30, deadline=None)
@given(model=models, order=st.permutations(range(40)))
def test_asking_in_another_order_gives_the_same_readings(model, order):
    """All but a value that froze where nobody said it would: that one depends on who asks first."""
    model = replace(model, stuck_at=85.0)
    truths = moments(40, BLOCK - 20.0, model.period_s)
    forwards = read_all(SimulatedSensor(model, 1), truths)
    assert np.array_equal(
        forwards, read_all(SimulatedSensor(model, 1), truths, order), equal_nan=True
    )


def test_no_two_sensors_share_their_noise():
    """Two nodes, two seeds, and a successor in the same place."""
    noisy = replace(PLAIN, noise=1.0)
    truths = moments(500)
    entry = Catalogued("temp-1", "temp", "°C", noisy)
    errors = [
        sensor.read_block(truths)
        for sensor in (
            *(entry.simulated(seed, node) for seed in (1, 2) for node in ("n1", "n2")),
            entry.successor().simulated(1, "n1"),
        )
    ]
    correlation = np.abs(np.corrcoef(errors) - np.eye(5))
    assert correlation.max() < 4.5 / 500**0.5
    assert np.array_equal(entry.simulated(1, "n1").read_block(truths), errors[0])


# -- one fault at a time -------------------------------------------------------------------------


def test_a_perfect_sensor_reads_gain_offset_and_cross_sensitivity_exactly():
    """Everything that is set to zero must do nothing."""
    model = SensorModel(quantity="temp", gain=2.0, offset=-3.0, cross={"wet": 10.0})
    truths = moments(11)
    assert read_all(SimulatedSensor(model, 1), truths).tolist() == pytest.approx(
        (37.0 + 10.0 * truths.values["wet"]).tolist()
    )
    assert model.clean().of({"temp": 20.0}) == 37.0


def test_noise_is_as_strong_as_the_data_sheet_says():
    """20,000 readings: the deviation within 4 standard errors, and no memory."""
    found = SimulatedSensor(replace(PLAIN, noise=0.5), 3).read_block(moments(20_000)) - 20.0
    assert found.std() == pytest.approx(0.5, abs=4 * 0.5 / 40_000**0.5)
    assert abs(np.corrcoef(found[1:], found[:-1])[0, 1]) < 4 / 20_000**0.5


def test_drift_counts_from_the_installation():
    """A sensor installed on the third day would otherwise be born old."""
    sensor = SimulatedSensor(replace(PLAIN, drift_per_day=0.5), 1, "s", installed_s=3 * DAY_S)
    assert sensor.read_block(moments(3, 3 * DAY_S, 5 * DAY_S)).tolist() == [20.0, 22.5, 25.0]


def test_steps_and_range_are_kept():
    """Noise far wider than the range."""
    model = replace(PLAIN, noise=3.0, quantum=0.25, low=18.0, high=22.0)
    found = SimulatedSensor(model, 1).read_block(moments(1000))
    assert (found.min(), found.max()) == (18.0, 22.0)
    assert np.array_equal(found * 4, np.rint(found * 4))


def test_readings_drop_out_as_often_as_they_should():
    """10,000 readings, within 4 standard errors."""
    found = SimulatedSensor(replace(PLAIN, dropout=0.1), 1).read_block(moments(10_000))
    assert np.isnan(found).mean() == pytest.approx(0.1, abs=4 * (0.09 / 10_000) ** 0.5)
    assert (found[~np.isnan(found)] == 20.0).all()


def test_spikes_go_both_ways_and_have_their_size():
    """10,000 readings, of which one in twenty is a spike."""
    model = replace(PLAIN, spike=0.05, spike_size=7.0)
    values, counts = np.unique(
        SimulatedSensor(model, 1).read_block(moments(10_000)), return_counts=True
    )
    assert values.tolist() == [13.0, 20.0, 27.0]
    assert (counts[[0, 2]] / 10_000).tolist() == pytest.approx([0.025, 0.025], abs=0.0063)


def test_a_frozen_sensor_does_not_move():
    """Each frozen stretch is one value, as long as it says, and the truth comes back after it."""
    model = replace(PLAIN, cross={"wet": 1.0}, stuck=0.003, stuck_s=50.0)
    truths = moments(BLOCK)
    error = SimulatedSensor(model, 1).read_block(truths) - 20.0 - truths.values["wet"]
    frozen = np.abs(error) > 1e-9
    begins = np.flatnonzero(np.diff(frozen.astype(int)) == 1)
    assert len(begins) >= 1
    for begin in begins[:-1]:  # the last may be cut by the end of its block
        stretch = slice(begin, begin + 50)
        assert np.ptp((error + truths.values["wet"])[stretch]) < 1e-9
    stuck = SimulatedSensor(replace(model, stuck_at=85.0), 1).read_block(truths)
    assert set(np.unique(stuck[frozen])) == {85.0}
    assert (stuck != 85.0).any()


def test_only_the_last_frozen_values_are_remembered():
    """A sensor that freezes at every fifth reading, for hours."""
    sensor = SimulatedSensor(replace(PLAIN, noise=1.0, stuck=0.2, stuck_s=1.0), 1)
    sensor.read_block(moments(20_000))
    assert 0 < len(sensor._held) <= 64


def test_a_cold_sensor_is_right_once_it_is_warm():
    """Its error fades in a straight line from the installation on."""
    model = replace(PLAIN, warm_up_s=100.0, cold_offset=8.0)
    sensor = SimulatedSensor(model, 1, "s", installed_s=1000.0)
    assert sensor.read_block(moments(4, 1000.0, 50.0)).tolist() == [28.0, 24.0, 20.0, 20.0]


def test_a_sensor_speaks_only_between_its_birth_and_its_death():
    """To the moment, also between two conversions."""
    sensor = SimulatedSensor(replace(PLAIN, life_s=10.0), 1, "s", installed_s=5.5)
    found = [sensor.read(Truth(t, {"temp": 20.0}), t) for t in (5.4, 5.5, 5.6, 15.4, 15.5, 1e9)]
    assert found == [None, 20.0, 20.0, 20.0, None, None]
    assert sensor.dies_s == 15.5


def test_a_fading_battery_loses_more_and_more_readings():
    """Nothing is lost before it fades, a quarter in the first half of it, and most of the rest."""
    model = replace(PLAIN, life_s=10_000.0, fading_s=4_000.0)
    lost = np.isnan(SimulatedSensor(model, 1).read_block(moments(10_000)))
    assert not lost[:6_000].any()
    assert lost[6_000:8_000].mean() == pytest.approx(0.25, abs=0.05)
    assert lost[8_000:].mean() == pytest.approx(0.75, abs=0.05)


def test_readings_within_one_conversion_are_the_same():
    """A sensor that converts every 10 s has one error for them; the next has another."""
    sensor = SimulatedSensor(replace(PLAIN, noise=1.0, period_s=10.0), 1)
    found = sensor.read_block(moments(30))
    assert [len(set(part)) for part in np.split(found, 3)] == [1, 1, 1]
    assert len(set(found)) == 3


# -- another make --------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(model=models, seed=st.integers(0, 2**40))
def test_another_make_differs_and_is_about_as_good(model, seed):
    """Other gain, offset, noise and quantum; signal to noise within a factor of two."""
    new = replacement(model, seed)
    assert new.quantity == model.quantity
    ratio = new.gain / model.gain
    assert 0.5 <= ratio <= 2.0
    assert abs(ratio - 1.0) > 0.2
    assert new.offset != model.offset * ratio
    for size in ("noise", "quantum"):
        old, now = getattr(model, size) * ratio, getattr(new, size)
        assert now != old or old == 0.0
    assert 0.5 <= (new.noise + 1e-12) / (model.noise * ratio + 1e-12) <= 2.0
    assert new == replacement(model, seed)


def test_a_successor_comes_with_a_data_sheet_of_its_own():
    """The same truth lies as many scales from the reference as before."""
    model = SensorModel(quantity="temp", gain=-2.0, offset=100.0, noise=0.5)
    old = Catalogued("temp-1", "temp", "mV", model, reference=60.0, scale=10.0)
    new, newer = old.successor(), old.successor().successor()
    assert [new.id, newer.id] == ["temp-2", "temp-3"]
    for entry in (old, new, newer):
        z = (entry.model.of({"temp": 27.0}) - entry.reference) / entry.scale
        assert z == pytest.approx(-1.4)
    assert len({entry.model.gain for entry in (old, new, newer, old.successor(seed=1))}) == 4
    event = new.deployed(at_ms=1_000, replaces=old.id)
    assert decode(encode(event), type(event)) == event
    assert old.reference == 60.0


# -- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ({"gain": 0.0}, "gain must be other than 0"),
        ({"noise": -1.0}, "noise must be 0 or more, got -1.0"),
        ({"noise": math.nan}, "noise must be finite, got nan"),
        ({"offset": math.inf}, "offset must be finite, got inf"),
        ({"life_s": math.nan}, "life_s must be finite, got nan"),
        ({"cross": {"wet": math.nan}}, "cross 'wet' must be finite, got nan"),
        ({"dropout": 1.1}, "dropout must be from 0 to 1, got 1.1"),
        ({"stuck": -0.1}, "stuck must be from 0 to 1, got -0.1"),
        ({"period_s": 0.0}, "period_s must be above 0, got 0.0"),
        ({"low": 5.0, "high": 5.0}, "low must be below high = 5, got 5.0"),
    ],
)
def test_an_impossible_model_is_refused(fault, sentence):
    """Numbers that are not finite, out of range, or contradict each other."""
    with pytest.raises(WorldError, match=f"sensor model for 'temp': {sentence}"):
        SensorModel(**{"quantity": "temp", **fault})


def test_a_sensor_in_the_wrong_world_says_what_it_misses():
    """A bare KeyError would name neither the sensor nor the world."""
    sensor = SimulatedSensor(SensorModel(quantity="ph"), 1, "pond-1")
    with pytest.raises(WorldError, match=r"sensor 'pond-1' sees 'ph', .* has only \['temp'\]"):
        sensor.read(Truth(0.0, {"temp": 20.0}), 0.0)


def test_a_catalogue_entry_that_is_half_known_or_not_numbered_is_refused():
    """A reference without a scale; a name that no successor can follow."""
    with pytest.raises(WorldError, match="'t-1' must have reference and scale or neither"):
        Catalogued("t-1", "temp", "°C", PLAIN, reference=20.0)
    with pytest.raises(WorldError, match="sensor 'attic' must end in a number"):
        Catalogued("attic", "temp", "°C", PLAIN).successor()
    with pytest.raises(WorldError, match=r"ratio must be above 0 and finite, got -1\.0"):
        rescaled(PLAIN, -1.0, 0.0)
