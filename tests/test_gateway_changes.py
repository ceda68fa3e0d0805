"""Stories of sensors that come and go, told to a gateway and four nodes in memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.fleet_rig import CLASSES, POLICY, SITE, FleetRig
from support.rig import KEY

from edge_opid.learner.handover import careful_ridge
from edge_opid.learner.statistics import solve
from edge_opid.node.predicting import predicted
from edge_opid.wire import (
    Channel,
    NodeTopics,
    SensorDeployed,
    SensorRetired,
    SummaryMessage,
    decode,
    encode,
    open_desired,
    to_bytes,
)
from gateway.registry import ChangeState, SensorState


@pytest.fixture
def fleet():
    """Four nodes that have learned for a while."""
    rig = FleetRig()
    rig.learn_for_a_while(60)
    return rig


def retire(fleet, name, role, reason="broken"):
    fleet.event(name, SensorRetired(f"{role}-{name}", fleet.now_ms, reason))


def deploy(fleet, name, role, sensor=None, **known):
    given = {"reference": 0.0, "scale": 1.0, **known}
    sensor = sensor or f"{role}-{name}"
    fleet.event(name, SensorDeployed(sensor, role=role, at_ms=fleet.now_ms, **given))


def live(fleet, readings=40):
    """Labelled readings of everybody awake, a second apart."""
    for _ in range(readings):
        for name in sorted(fleet.awake):
            fleet.read(name)
        fleet.pass_s(1)


def roles(fleet, name):
    return sorted(s.role for s in fleet.nodes[name].node.state.local_models.sensors.values())


def weights(fleet, name):
    """The matrix a node serves from the gateway, by column of its layout; None without one."""
    node = fleet.nodes[name].node
    model = node.state.pushed_models.matrices().get("model")
    columns = node.state.local_models.full.columns
    return None if model is None else dict(zip(columns, model.tolist(), strict=True))


def served_accuracy(fleet, readings=100):
    """How often the nodes are right on new, unlabelled readings."""
    right = 0
    for _ in range(readings):
        name = fleet.names[0]
        node = fleet.nodes[name].node
        held = {s.id: s.role for s in node.state.local_models.sensors.values()}
        values, truth = fleet.world.instance(held)
        made, *_ = predicted(node.state, values, None, 0, node.state.local_models.encode(values))
        right += CLASSES[made.winner] == truth
    return right / readings


def test_a_node_that_introduces_itself_is_adopted_and_loses_nothing():
    fleet = FleetRig()
    before = fleet.nodes["n1"].node.state.local_models.learner.readings
    fleet.pass_s(2)
    layout = fleet.gateway.fleet.layouts[SITE, "n1"]
    assert fleet.agreed()
    assert [s.id for s in layout.sensors] == [f"{r}-n1" for r in fleet.sensors]
    assert fleet.status("n1").layout_version == layout.version == 1
    assert fleet.nodes["n1"].node.state.local_models.learner.readings == before
    assert fleet.gateway.counts["refused-not-introduced"] == 0


def test_what_is_pushed_after_a_loss_was_taught_by_the_readings_without_labels_too():
    """One reading in ten has a label: W^(s) is the full model over all readings (four nodes')."""
    fleet = FleetRig()
    fleet.pass_s(2)
    for number in range(200):
        for name in fleet.names:
            fleet.read(name, labelled=number % 10 == 0)
    known = [fleet.nodes[name].node.state.local_models for name in fleet.names]
    labelled, every = (
        [getattr(each, what).summary("float64").statistics() for each in known]
        for what in ("learner", "everything")
    )
    for name in fleet.names:
        retire(fleet, name, "co")
    fleet.pass_s(10)
    (fit,) = fleet.fits
    pushed = np.frombuffer(fit.parts["W"], "<f4").reshape(4, 3)
    names, kept = ("db", "no", "pm", "bias"), [1, 2, 3, 4]  # co is column 0
    total, gram = sum(labelled[1:], labelled[0]), sum(each.gram for each in every)
    ridge = careful_ridge(total, kept, fleet.policy.rho)
    teacher = np.linalg.solve(total.gram + ridge * np.eye(5), total.moments)
    taught = np.linalg.solve(
        gram[np.ix_(kept, kept)] + np.eye(4), gram[np.ix_(kept, range(5))] @ teacher
    )
    order = [fleet.gateway.fleet.changes[fit.change].columns.index(c) for c in names]
    np.testing.assert_allclose(pushed[order], taught, atol=1e-5)  # sums travel in float32
    alone = solve(total.ordered([0, *kept]), 1, fleet.policy.lam, fleet.policy.rho)[1]
    assert np.abs(taught - alone).max() > 1e-2  # what labels alone would have taught is another W


def test_adoption_does_not_make_a_node_forget_what_it_learned():
    fleet = FleetRig(names=("n1",), asleep=("n1",))
    for _ in range(50):
        fleet.awake.add("n1")
        fleet.read("n1")
    local_models = fleet.nodes["n1"].node.state.local_models
    layout, evidence, bits = (
        local_models.layout,
        local_models.learner.evidence,
        local_models.learner.state(),
    )
    fleet.wake("n1")
    fleet.pass_s(1)
    assert fleet.status("n1").layout_version == 1
    assert evidence == local_models.learner.evidence == 50
    assert local_models.layout == layout
    assert str(local_models.learner.state()) == str(bits)


def test_a_dead_and_a_new_sensor_announced_together_are_one_change(fleet):
    for name in fleet.names:
        retire(fleet, name, "pm")
        deploy(fleet, name, "voc")
    fleet.pass_s(3)
    (change,) = fleet.gateway.fleet.changes.values()
    assert (change.retired, change.arrived) == (("pm",), ("voc",))
    assert fleet.gateway.fleet.members(change.id) == [(SITE, n) for n in fleet.names]
    assert fleet.agreed()
    live(fleet)
    (change,) = fleet.gateway.fleet.changes.values()
    assert change.state == ChangeState.CLOSED
    assert [fit.size for fit in fleet.fits] == [0, 30, 60, 120]
    pushed = [weights(fleet, name) for name in fleet.names]
    assert pushed[0] is not None
    assert all(each == pushed[0] for each in pushed)
    assert fleet.store.examples(change.id) == []  # raw readings are not kept


def test_accuracy_recovers_with_the_new_sensor(fleet):
    before = served_accuracy(fleet)
    for name in fleet.names:
        retire(fleet, name, "no")
        retire(fleet, name, "pm")
    fleet.pass_s(3)
    bridged = served_accuracy(fleet)
    for name in fleet.names:
        deploy(fleet, name, "voc")
        deploy(fleet, name, "o3")
    fleet.pass_s(3)
    live(fleet)
    assert bridged < before
    assert served_accuracy(fleet) >= before - 0.05


def test_a_change_during_a_change_ends_in_one_layout_and_one_model(fleet):
    for name in fleet.names:
        retire(fleet, name, "pm")
        deploy(fleet, name, "voc")
    fleet.pass_s(3)
    live(fleet, 3)  # twelve labels: too few for a fit with the newcomer
    for name in fleet.names:
        retire(fleet, name, "no")
    fleet.pass_s(3)
    second = max(fleet.gateway.fleet.changes)
    assert fleet.gateway.fleet.changes[second].arrived == ("voc",)  # still a newcomer
    live(fleet)
    assert fleet.agreed()
    assert all(roles(fleet, name) == ["co", "db", "voc"] for name in fleet.names)
    assert all(weights(fleet, name) == weights(fleet, "n1") for name in fleet.names)


def test_a_node_that_slept_through_three_changes_wakes_up_like_the_others(fleet):
    fleet.sleep("n4")
    for number, role in enumerate(("voc", "o3", "uv")):
        for name in fleet.names:
            retire(fleet, name, fleet.sensors[number])
            deploy(fleet, name, role)
        fleet.pass_s(3)
        live(fleet)
    assert fleet.status("n4").layout_version == 1
    fleet.wake("n4")
    fleet.pass_s(3)
    assert fleet.agreed()
    assert roles(fleet, "n4") == roles(fleet, "n1") == ["db", "o3", "uv", "voc"]
    assert weights(fleet, "n4") == weights(fleet, "n1")


def test_silence_shorter_than_the_policy_retires_nobody(fleet):
    heard = [f"{role}-n1" for role in ("no", "co", "db")]
    for _ in range(20):
        fleet.read("n1", only=heard)
        fleet.pass_s(1)
    record = fleet.gateway.fleet.sensors[SITE, "n1"]["pm-n1"]
    assert record.state == SensorState.SILENT
    fleet.read("n1")
    fleet.pass_s(60)
    assert fleet.gateway.fleet.sensors[SITE, "n1"]["pm-n1"].state in ("active", "silent")
    assert fleet.gateway.fleet.layouts[SITE, "n1"].version == 1


def test_a_return_that_nobody_heard_of_is_noticed_all_the_same(fleet):
    """The broker forgot the event; the next status says it again."""
    heard = [f"{role}-n1" for role in ("no", "co", "db")]
    for _ in range(20):
        fleet.read("n1", only=heard)
        fleet.pass_s(1)
    assert fleet.gateway.fleet.sensors[SITE, "n1"]["pm-n1"].state == SensorState.SILENT
    publish = fleet.publish
    fleet.publish = lambda topic, payload, retain=False: (
        None if topic.endswith("n1/event") else publish(topic, payload, retain)
    )
    for _ in range(80):
        fleet.read("n1")
        fleet.pass_s(1)
    assert fleet.gateway.fleet.sensors[SITE, "n1"]["pm-n1"].state == SensorState.ACTIVE
    assert fleet.gateway.fleet.layouts[SITE, "n1"].version == 1


def test_silence_longer_than_the_policy_retires_the_sensor(fleet):
    heard = [f"{role}-n1" for role in ("no", "co", "db")]
    for _ in range(80):
        fleet.read("n1", only=heard)
        fleet.pass_s(1)
    record = fleet.gateway.fleet.sensors[SITE, "n1"]["pm-n1"]
    assert (record.state, record.reason) == ("retired", "silent for more than 60 s")
    assert roles(fleet, "n1") == ["co", "db", "no"]
    assert roles(fleet, "n2") == ["co", "db", "no", "pm"]  # the others keep theirs


def test_the_last_sensor_of_a_node_is_not_retired_by_anybody(fleet):
    for role in ("pm", "no", "co"):
        retire(fleet, "n1", role)
    fleet.pass_s(3)
    retire(fleet, "n1", "db")
    fleet.pass_s(3)
    assert fleet.gateway.counts["refused-empty-layout"] == 1
    assert roles(fleet, "n1") == ["db"]


def test_a_sensor_at_its_end_of_life_is_retired_without_a_word(fleet):
    deploy(fleet, "n1", "voc", end_of_life_ms=fleet.now_ms + 20_000)
    fleet.pass_s(5)
    assert fleet.gateway.fleet.layouts[SITE, "n1"].vanishing == ("voc-n1",)  # planned
    assert "voc" in roles(fleet, "n1")
    fleet.pass_s(20)
    assert fleet.gateway.fleet.sensors[SITE, "n1"]["voc-n1"].reason == "end of life"
    assert "voc" not in roles(fleet, "n1")


def test_a_replacement_takes_over_the_column_with_its_own_scale(fleet):
    readings = fleet.nodes["n1"].node.state.local_models.learner.readings
    deploy(fleet, "n1", "pm", "pm-new", reference=3.0, scale=2.0, replaces="pm-n1")
    fleet.pass_s(3)
    local_models = fleet.nodes["n1"].node.state.local_models
    assert local_models.sensors["pm-new"].scale == 2.0
    assert "pm-n1" not in local_models.sensors
    assert local_models.learner.readings == readings  # the history goes on
    (change,) = fleet.gateway.fleet.changes.values()
    assert (change.retired, change.arrived) == ((), ())


def test_a_sensor_nobody_gave_a_timeout_is_left_to_its_own_rhythm(fleet):
    """The gateway used to say 60 s; a replacement keeps what was said of the one before."""
    free = SensorDeployed("voc-n1", role="voc", at_ms=fleet.now_ms, reference=0.0, scale=1.0)
    fleet.event("n1", free)
    deploy(fleet, "n1", "pm", "pm-new", reference=3.0, scale=2.0, replaces="pm-n1")
    fleet.pass_s(3)
    sensors = fleet.nodes["n1"].node.state.local_models.sensors
    assert sensors["voc-n1"].timeout_s is None
    assert sensors["pm-new"].timeout_s == 10.0


def test_a_sensor_without_scale_is_measured_before_it_is_used(fleet):
    fleet.event("n1", SensorDeployed("voc-n1", role="voc", at_ms=fleet.now_ms))
    fleet.pass_s(3)
    assert roles(fleet, "n1") == ["co", "db", "no", "pm"]
    for _ in range(POLICY.measure_readings):
        fleet.read("n1", extra={"voc-n1": "voc"})
    fleet.pass_s(3)
    record = fleet.gateway.fleet.sensors[SITE, "n1"]["voc-n1"]
    assert record.state == SensorState.ACTIVE
    assert 0.2 < record.scale < 5  # the world's quantities spread over about one
    assert "voc" in roles(fleet, "n1")
    assert fleet.listening == frozenset()  # nobody's readings are wanted any more


def test_what_the_others_know_serves_a_node_that_gets_their_sensor():
    """`n4` has no pm sensor; when it gets one, the group has known pm for long."""
    fleet = FleetRig(lacking={"n4": ("pm",)})
    fleet.learn_for_a_while(200)
    deploy(fleet, "n4", "pm")
    fleet.pass_s(10)
    (first, *_) = fleet.fits
    assert first.size == 0
    assert set(first.pooled) == {f"{SITE}/{name}" for name in ("n1", "n2", "n3")}
    assert np.abs(weights(fleet, "n4")["pm"]).max() > 0.01  # without one labelled reading


def test_a_summary_that_cannot_be_right_is_named_and_the_rest_go_on(fleet):
    (good, *_) = fleet.store.summaries([(SITE, "n2")])
    found = decode(good.payload, SummaryMessage)
    negative = replace(found, gram=to_bytes(-found.gram_array()))
    fleet.publish(str(NodeTopics(SITE, "n2").to(Channel.SUMMARY)), encode(negative))
    fleet.deliver()
    retire(fleet, "n1", "pm")
    fleet.pass_s(10)
    fit = fleet.fits[-1]
    assert "not a sum of squares" in fit.refused[f"{SITE}/n2"]
    assert f"{SITE}/n1" in fit.pooled


def test_a_refit_that_is_not_better_is_not_pushed(fleet):
    for name in fleet.names:
        deploy(fleet, name, "voc")
    fleet.pass_s(3)
    live(fleet)
    pushed = [fit.size for fit in fleet.fits if fit.pushed]
    order = fleet.gateway.fleet.orders[SITE, "n1"]
    desired = open_desired(order.payload, [KEY.verify_key])
    assert order.version == 1 + 1 + len(pushed)  # adoption, the layout, and each better fit
    assert desired.layout_version == 2


def test_a_node_gets_weights_in_half_the_bytes_when_asked_to():
    fleet = FleetRig(names=("n1",), policy=replace(POLICY, weights="float16"))
    fleet.pass_s(2)
    for _ in range(60):
        fleet.read("n1")
    retire(fleet, "n1", "pm")
    fleet.pass_s(10)
    live(fleet, 40)
    order = fleet.gateway.fleet.orders[SITE, "n1"]
    matrix = open_desired(order.payload, [KEY.verify_key]).weights.matrices["W"]
    assert matrix.dtype == "float16"
    assert fleet.agreed()
    assert all(-0.1 <= fit.rounding_loss <= 0.1 for fit in fleet.fits)


def test_a_survivor_that_was_silent_counts_as_new_where_nobody_knows_it():
    """`pm` of the only node was silent when it summed up; then it is replaced, and `no` dies."""
    fleet = FleetRig(names=("n1",))
    fleet.pass_s(2)
    heard = [f"{role}-n1" for role in ("no", "co", "db")]
    for _ in range(40):
        fleet.read("n1", only=heard)
        fleet.pass_s(1)
    deploy(fleet, "n1", "pm", "pm-new", replaces="pm-n1")
    retire(fleet, "n1", "no")
    fleet.pass_s(10)
    fit = fleet.fits[-1]
    assert fit.pooled == (f"{SITE}/n1",)
    assert (fit.survivors, fit.new) == (("bias", "co", "db"), ("pm",))
    assert fleet.agreed()
