"""Power-on nonsense in the first readings: codes have no say in a sensor's scale, and are named."""

from __future__ import annotations

import numpy as np
import pytest
from support.fleet_rig import FleetRig
from support.rig import Rig
from test_node_life import accuracy, live, world

from edge_opid import WarmUp
from edge_opid.config.node import SensorConfig
from edge_opid.layout.nonsense import sensible
from edge_opid.wire import Channel, NodeTopics, Reading, SensorDeployed, encode
from gateway.registry import SensorState

CODES = [(65535.0,), (85.0,), (-127.0,), (65535.0, 85.0, -127.0), (0.0, -127.0)]
SENSORS = {
    "temperature": lambda rng, n: rng.normal(21, 1.5, n),
    "pressure": lambda rng, n: rng.normal(1013, 4, n),
    "quantised": lambda rng, n: np.round(2 * rng.normal(21, 1.5, n)) / 2,
}
OWN = {
    "contact": lambda rng, n: (rng.random(n) < 0.1).astype(float),
    "rare contact": lambda rng, n: (rng.permutation(n) < 2).astype(float),
    "rain": lambda rng, n: np.where(rng.random(n) < 0.2, rng.exponential(3, n), 0.0),
    "light": lambda rng, n: np.where(rng.random(n) < 0.2, rng.uniform(50, 60_000, n), 0.0),
    "dim light": lambda rng, n: np.where(
        rng.random(n) < 0.2, rng.uniform(5_000, 60_000, n), rng.integers(0, 4, n)
    ),
    "two states": lambda rng, n: np.where(rng.random(n) < 0.2, 60.0, 20.0) + rng.normal(size=n),
    "stages": lambda rng, n: rng.choice([0.0, 1.0, 2.0, 3.0], n, p=[0.6, 0.2, 0.1, 0.1]),
    "dust": lambda rng, n: rng.lognormal(2, 1, n),
    "uniform": lambda rng, n: rng.uniform(0, 360, n),
    "constant": lambda rng, n: np.full(n, 7.0),  # noqa: ARG005
}


def warmed(values, knots=1):
    warmup = WarmUp(["s"], readings=len(values), knots=knots)
    for value in values:
        warmup.add({"s": float(value)})
    return warmup


@pytest.mark.parametrize("codes", CODES, ids=str)
@pytest.mark.parametrize("name", SENSORS)
@pytest.mark.parametrize(("n", "bad"), [(200, 11), (200, 50), (50, 3), (50, 12), (32, 8)])
def test_nonsense_in_the_first_readings_has_no_say_in_the_scale(name, codes, n, bad):
    """Up to a quarter of the values, of one code or of several."""
    rng = np.random.default_rng(4)
    clean = SENSORS[name](rng, n)
    dirty = clean.copy()
    places = rng.permutation(n)[:bad]
    dirty[places] = np.resize(codes, bad)
    (want,) = warmed(np.delete(clean, places)).layout().sensors
    warmup = warmed(dirty)
    (got,) = warmup.layout().sensors
    assert got.scale == pytest.approx(want.scale, rel=0.01)
    assert abs(got.reference - want.reference) < 0.1 * want.scale
    assert warmup.aside["s"].startswith(f"s: {bad} of its first {n} values set aside: ")


def test_a_contact_with_nonsense_keeps_its_ones():
    """One in ten, and 65535 in 11 of the first 200: its 1 must be as far from 0 as ever."""
    rng = np.random.default_rng(4)
    clean = OWN["contact"](rng, 200)
    dirty = np.concatenate([np.full(11, 65535.0), clean])
    (want,), (got,) = warmed(clean).layout().sensors, warmed(dirty).layout().sensors
    assert (got.reference, got.scale) == (want.reference, want.scale)


@pytest.mark.parametrize("n", [8, 16, 50, 200])
@pytest.mark.parametrize("name", OWN)
def test_what_a_sensor_means_is_not_set_aside(name, n):
    """Rests most of the time, has two states, is skewed: of a hundred such sensors, hardly one."""
    found = [
        sensible(np.asarray(OWN[name](np.random.default_rng(seed), n), float))
        for seed in range(100)
    ]
    assert all(np.sum(~kept) <= 2 for kept in found)  # a lone extreme, which a scale ignores
    assert np.mean([kept.all() for kept in found]) >= 0.9


def test_a_value_in_more_than_a_quarter_of_the_readings_is_meant():
    """A probe that says 85 in a third of the readings means it."""
    values = np.where(np.arange(90) % 3, np.random.default_rng(1).normal(21, 1, 90), 85.0)
    assert warmed(values).aside == {}


# -- the node and the gateway ----------------------------------------------------------------------


def test_a_node_sees_as_well_as_ever_after_eleven_codes():
    """In 11 of the first 200 readings one sensor says 65535, and one −127."""
    rows, labels = world(900)
    for place in range(3, 200, 18):
        rows[place] = {**rows[place], "a": 65535.0, "b": -127.0}
    sensors = tuple(SensorConfig(name, timeout_s=10.0) for name in "abc")
    rig = Rig.make(sensors=sensors)
    live(rig, rows, labels)
    assert accuracy(rig, labels, 500) > 0.92
    scales = {s.id: s.scale for s in rig.node.state.local_models.sensors.values()}
    assert all(0.7 < scale < 1.4 for scale in scales.values())
    assert rig.node.counts["values-set-aside"] == 2
    assert rig.node.status(0).degraded == (
        "a: 11 of its first 200 values set aside: 65535",
        "b: 11 of its first 200 values set aside: -127",
    )
    assert [each.event for each in rig.warned] == ["values set aside"] * 2
    rig.commit(0)
    assert rig.reborn().frozen() == rig.frozen()


def test_a_new_sensor_is_measured_without_its_codes():
    """3 of the 50 values that the gateway measures a new sensor by are 65535."""
    fleet = FleetRig(names=("n1",))
    fleet.pass_s(2)
    fleet.event("n1", SensorDeployed("voc-n1", role="voc", at_ms=fleet.now_ms))
    fleet.pass_s(2)
    for place in range(60):
        fleet.read("n1", extra={"voc-n1": "voc"})
        if place in (0, 1, 20):
            fleet.gateway.handle(*code(fleet), fleet.now_ms)
    fleet.pass_s(3)
    record = fleet.gateway.fleet.sensors["street", "n1"]["voc-n1"]
    assert record.state == SensorState.ACTIVE
    assert 0.3 < record.scale < 3
    assert fleet.gateway.counts["values-set-aside"] == 1
    assert fleet.gateway.complaints[-1] == (
        "street/n1: sensor voc-n1: 3 of its first 50 values set aside: 65535"
    )


def code(fleet):
    """A reading of the new sensor alone, as its box would send it at power-on."""
    reading = Reading(9, 1, fleet.now_ms, {"voc-n1": 65535.0})
    return str(NodeTopics("street", "n1").to(Channel.READING, "voc")), encode(reading)
