"""A new sensor beside the one it replaces: how long both are heard, and what ends it early."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.fleet_rig import POLICY, SITE, FleetRig

from edge_opid.wire import Channel, NodeTopics, Reading, SensorDeployed, SensorRetired, encode
from gateway.registry import SensorState
from gateway.registry.overlap import ALONE_MAX, SAVED_EVERY, takeover_sentence

TOGETHER = 60
OVERLAP = replace(POLICY, overlap_readings=TOGETHER)
NEW = {"pm-2": "pm"}


def overlapping(*, known: bool = True, names=("n1",), **options) -> FleetRig:
    """A fleet in which `pm-2` was announced in the place of `pm-n1`, which speaks."""
    fleet = FleetRig(names=names, policy=options.pop("policy", OVERLAP), **options)
    fleet.pass_s(2)
    deploy(fleet, known=known)
    fleet.pass_s(2)
    return fleet


def deploy(fleet: FleetRig, *, known: bool = True, **options) -> None:
    scale = {"reference": 0.0, "scale": 1.0} if known else {}
    options = {"role": "pm", "replaces": "pm-n1", "at_ms": fleet.now_ms, **scale, **options}
    fleet.event("n1", SensorDeployed(options.pop("sensor", "pm-2"), **options))


def hear(fleet: FleetRig, count: int, only=None) -> None:
    for _ in range(count):
        fleet.read("n1", only=only, extra=NEW)


def states(fleet: FleetRig) -> tuple[str, str]:
    """Of the old and the new sensor."""
    sensors = fleet.gateway.fleet.sensors[SITE, "n1"]
    return str(sensors["pm-n1"].state), str(sensors["pm-2"].state)


def told(fleet: FleetRig) -> list[str]:
    return sorted(sensor.id for sensor in fleet.gateway.fleet.layouts[SITE, "n1"].sensors)


def sentence(fleet: FleetRig) -> str:
    record = fleet.gateway.fleet.sensors[SITE, "n1"]["pm-2"]
    return takeover_sentence(fleet.gateway.fleet, record, TOGETHER)


OLD = ["co-n1", "db-n1", "no-n1", "pm-n1"]
NOW = ["co-n1", "db-n1", "no-n1", "pm-2"]


@pytest.mark.parametrize("known", [True, False])
def test_a_replacement_takes_over_after_enough_readings_together(known):
    """Measured or known from a data sheet: 50 values are enough for a scale, not for an overlap."""
    fleet = overlapping(known=known)
    for _ in range(TOGETHER // 10):
        assert (states(fleet), told(fleet)) == (("active", "measuring"), OLD)
        hear(fleet, 10)
        fleet.pass_s(1)
    fleet.pass_s(3)
    assert (states(fleet), told(fleet)) == (("retired", "active"), NOW)
    assert fleet.gateway.counts["took-over"] == 1
    (change,) = fleet.gateway.fleet.changes.values()
    assert (change.retired, change.arrived) == ((), ())  # one change, and the column goes on
    assert fleet.agreed()
    assert fleet.listening == frozenset()


def test_the_node_has_heard_both_when_the_order_comes():
    """Its ring of recent instances holds the whole overlap: that is what the wait is for."""
    fleet = overlapping()
    hear(fleet, TOGETHER)
    recent = fleet.nodes["n1"].node.state.recent
    assert len(recent.with_all([*OLD, "pm-2"])) == TOGETHER


def test_how_far_an_overlap_is_can_be_said_in_a_sentence():
    fleet = overlapping()
    assert sentence(fleet) == f"pm-2 takes over from pm-n1 after {TOGETHER} more readings together"
    hear(fleet, 29)  # written every ten
    assert sentence(fleet) == "pm-2 takes over from pm-n1 after 40 more readings together"
    hear(fleet, 31)
    fleet.pass_s(1)
    assert sentence(fleet) == ""


def test_sensors_of_different_rates_count_by_the_slower_one():
    """A hundred values of the old one beside ten of the new are ten readings together."""
    fleet = overlapping()
    for _ in range(10):
        hear(fleet, 9, only=["pm-n1"])
        hear(fleet, 1, only=["pm-2"])
    assert fleet.gateway.fleet.sensors[SITE, "n1"]["pm-2"].together == 10
    assert states(fleet) == ("active", "measuring")


@pytest.mark.parametrize("known", [True, False])
def test_nobody_waits_for_a_sensor_that_was_taken_away(known):
    """A swap in the same screw holes: its node would notice only after the timeout."""
    fleet = overlapping(known=known)
    others = ["co-n1", "db-n1", "no-n1", "pm-2"]
    hear(fleet, ALONE_MAX - 1, only=others)
    fleet.pass_s(1)
    assert states(fleet) == ("active", "measuring")
    hear(fleet, 1 if known else POLICY.measure_readings - ALONE_MAX + 1, only=others)
    fleet.pass_s(3)
    assert (states(fleet), told(fleet)) == (("retired", "active"), NOW)


def test_a_pause_of_the_old_sensor_does_not_end_an_overlap():
    fleet = overlapping()
    for _ in range(4):
        hear(fleet, ALONE_MAX - 1, only=["pm-2"])
        hear(fleet, 1)
        fleet.pass_s(1)
    assert (states(fleet), told(fleet)) == (("active", "measuring"), OLD)


def test_an_old_sensor_that_its_node_calls_silent_is_not_waited_for():
    fleet = overlapping()
    for _ in range(12):  # its timeout is 10 s
        fleet.read("n1", only=["co-n1", "db-n1", "no-n1"])
        fleet.pass_s(1)
    fleet.pass_s(3)
    assert (states(fleet), told(fleet)) == (("retired", "active"), NOW)


def test_an_old_sensor_retired_during_the_overlap_makes_one_change():
    """Not one without the column and another one with it."""
    fleet = overlapping()
    hear(fleet, 20)
    fleet.event("n1", SensorRetired("pm-n1", fleet.now_ms, "worn out"))
    fleet.pass_s(4)
    assert (states(fleet), told(fleet)) == (("retired", "active"), NOW)
    (change,) = fleet.gateway.fleet.changes.values()
    assert (change.retired, change.arrived) == ((), ())
    assert fleet.gateway.fleet.sensors[SITE, "n1"]["pm-n1"].reason == "worn out"


def test_the_last_sensor_of_a_node_may_go_when_its_successor_is_known():
    """A layout needs a sensor, and has the successor's in the same tick."""
    fleet = overlapping(sensors=("pm",))
    fleet.event("n1", SensorRetired("pm-n1", fleet.now_ms, "worn out"))
    fleet.revive()  # killed before the next tick
    fleet.pass_s(4)
    assert fleet.gateway.counts["refused-empty-layout"] == 0
    assert told(fleet) == ["pm-2"]
    assert fleet.agreed()


def test_the_last_sensor_stays_as_long_as_its_successor_is_not_measured():
    fleet = overlapping(sensors=("pm",), known=False)
    fleet.event("n1", SensorRetired("pm-n1", fleet.now_ms, "worn out"))
    fleet.pass_s(4)
    assert fleet.gateway.counts["refused-empty-layout"] == 1
    assert (states(fleet), told(fleet)) == (("active", "measuring"), ["pm-n1"])


def test_a_gateway_that_was_killed_counts_on_where_it_had_written():
    fleet = overlapping()
    hear(fleet, TOGETHER - 1)
    fleet.revive()
    fleet.pass_s(2)
    assert (states(fleet), told(fleet)) == (("active", "measuring"), OLD)
    hear(fleet, SAVED_EVERY)
    fleet.pass_s(3)
    assert (states(fleet), told(fleet)) == (("retired", "active"), NOW)


def test_an_id_announced_again_starts_its_overlap_from_the_beginning():
    fleet = overlapping()
    hear(fleet, TOGETHER - 5)
    fleet.event("n1", SensorRetired("pm-2", fleet.now_ms, "another make"))
    fleet.pass_s(1)
    deploy(fleet)
    fleet.pass_s(1)
    hear(fleet, TOGETHER - 5)
    fleet.pass_s(3)
    assert (states(fleet), told(fleet)) == (("active", "measuring"), OLD)


def test_a_gateway_without_overlaps_replaces_at_once():
    fleet = overlapping(policy=replace(OVERLAP, overlap_readings=0))
    fleet.pass_s(2)
    assert (states(fleet), told(fleet)) == (("retired", "active"), NOW)


def test_a_sensor_that_replaces_nobody_does_not_wait():
    """Waiting would cost what it has to say meanwhile."""
    fleet = FleetRig(names=("n1",), policy=OVERLAP)
    fleet.pass_s(2)
    deploy(fleet, sensor="voc-1", role="voc", replaces=None)
    assert fleet.gateway.fleet.sensors[SITE, "n1"]["voc-1"].state == SensorState.ACTIVE


def test_a_replacement_that_never_speaks_does_not_take_the_column():
    """It used to: the node then had neither the old sensor nor the new one."""
    fleet = overlapping()
    for _ in range(TOGETHER):
        fleet.read("n1")
        fleet.pass_s(1)
    assert (states(fleet), told(fleet)) == (("active", "measuring"), OLD)


def test_readings_of_another_node_do_not_count():
    fleet = overlapping(names=("n1", "n2"))
    for seq in range(TOGETHER):
        reading = Reading(1, seq + 1, fleet.now_ms, {"pm-n1": 1.0, "pm-2": 1.0}, None)
        fleet.publish(str(NodeTopics(SITE, "n2").to(Channel.READING, "box")), encode(reading))
        fleet.deliver()
    fleet.pass_s(3)
    assert fleet.gateway.fleet.sensors[SITE, "n1"]["pm-2"].together == 0
    assert (states(fleet), told(fleet)) == (("active", "measuring"), OLD)
