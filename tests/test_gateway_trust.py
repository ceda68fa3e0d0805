"""One node of a group lies, with credentials of its own: what it says must not turn the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.fleet_rig import CLASSES, SITE, FleetRig

from edge_opid.node.effects import summarised
from edge_opid.node.predicting import predicted
from edge_opid.wire import (
    Channel,
    Example,
    InstanceId,
    NodeTopics,
    SensorDeployed,
    SensorRetired,
    encode,
    to_bytes,
)
from gateway.fitting.models import fitted_model
from gateway.policy import Policy

NAMES = ("n1", "n2", "n3", "n4", "n5")
LIAR = "n5"
POLICY = Policy(settle_s=1, silence_s=60, summary_wait_s=5)


@pytest.fixture
def fleet():
    """Five nodes that have learned for a while."""
    rig = FleetRig(NAMES, policy=POLICY)
    rig.learn_for_a_while(150)
    return rig


def say(fleet, channel, message):
    fleet.publish(str(NodeTopics(SITE, LIAR).to(channel)), encode(message))
    fleet.deliver()


def change(fleet, names=NAMES):
    """Everybody gets a sensor for another one."""
    for name in names:
        fleet.event(name, SensorRetired(f"pm-{name}", fleet.now_ms, "worn out"))
        voc = SensorDeployed(
            f"voc-{name}", role="voc", at_ms=fleet.now_ms, reference=0.0, scale=1.0
        )
        fleet.event(name, voc)


def lying_summary(fleet, readings=1_000_000):
    """What the liar knows, turned round, and as if from a million readings."""
    state = fleet.nodes[LIAR].node.state
    (known,) = summarised(state.local_models, state.layout_version)
    times = readings / known.readings
    say(
        fleet,
        Channel.SUMMARY,
        replace(
            known,
            readings=readings,
            evidence=float(readings),
            gram=to_bytes(times * known.gram_array()),
            moment=to_bytes(times * known.moment_array()[:, [1, 2, 0]]),
        ),
    )


def lying_examples(fleet, count=960):
    """Every label is another one than the true one."""
    state = fleet.nodes[LIAR].node.state
    roles = {s.id: s.role for s in state.local_models.sensors.values()}
    for seq in range(1, count + 1):
        values, truth = fleet.world.instance(roles)
        label = CLASSES[(CLASSES.index(truth) + 1) % len(CLASSES)]
        number = InstanceId("box", 7, seq)
        say(
            fleet,
            Channel.EVENT,
            Example(number, state.layout_version, fleet.now_ms, values, label),
        )


def accuracy(fleet, name, readings=300):
    """How often a node is right on new readings that nobody labels."""
    state, right = fleet.nodes[name].node.state, 0
    roles = {s.id: s.role for s in state.local_models.sensors.values()}
    for _ in range(readings):
        values, truth = fleet.world.instance(roles)
        made, *_ = predicted(state, values, None, 0, state.local_models.encode(values))
        right += CLASSES[made.winner] == truth
    return right / readings


def honest(fleet):
    return {name: accuracy(fleet, name) for name in NAMES if name != LIAR}


@pytest.mark.parametrize("labels", [0, 12])
def test_one_lying_node_costs_the_honest_ones_next_to_nothing(fleet, labels):
    """A summary of a million readings with turned moments, and 960 turned examples in a second."""
    change(fleet)
    fleet.pass_s(3)
    bridged = honest(fleet)
    lying_summary(fleet)
    for _ in range(labels):
        for name in NAMES:
            if name != LIAR:
                fleet.read(name)
        fleet.pass_s(1)
    lying_examples(fleet)
    fleet.pass_s(40)
    after = honest(fleet)
    assert min(after[name] - bridged[name] for name in after) > -0.1
    if labels:  # the gateway can tell who lies
        assert "its labels contradict the group" in fleet.fits[-1].refused[f"{SITE}/{LIAR}"]
        assert min(after.values()) > 0.75
        assert all(fleet.status(name).degraded == () for name in after)
    else:  # nobody can but the nodes themselves
        (doubt,) = fleet.status("n1").degraded
        assert doubt.startswith("model ")
        assert " is doubted: right in " in doubt


def brought(fleet, name):
    """How many instances of the batch are this node's."""
    (change,) = fleet.gateway.fleet.changes.values()
    return sum(number[1] == name for number in fleet.gateway.fleet.examples[change.id])


def test_a_node_brings_no_more_examples_than_its_share_of_the_batch(fleet):
    """960 examples in a second; then as many again, for whatever the next orders ask for."""
    change(fleet)
    fleet.pass_s(10)
    share = 384  # of a batch of 960, twice the fifth that is its own
    lying_examples(fleet)
    assert brought(fleet, LIAR) == share
    assert fleet.gateway.counts["examples"] == share
    assert fleet.gateway.counts["refused-quota"] == 960 - share
    assert f"street/n5 sent one more labelled instance than the {share}" in " ".join(
        fleet.gateway.complaints
    )
    fleet.pass_s(10)
    lying_examples(fleet, 1200)
    fleet.revive()
    lying_examples(fleet, 1200)
    assert brought(fleet, LIAR) == share
    for _ in range(10):
        fleet.read("n1")
        fleet.pass_s(1)
    assert brought(fleet, "n1") == 10  # there is room for the others


def test_instances_asked_for_before_a_restart_are_taken_after_it(fleet):
    """What a former life of the gateway has asked for, its successor takes."""
    change(fleet)
    fleet.pass_s(3)
    fleet.revive()
    for _ in range(10):
        fleet.read("n1")
        fleet.pass_s(1)
    assert brought(fleet, "n1") == 10
    assert fleet.gateway.counts["refused-quota"] == 0


def test_a_summary_of_more_readings_than_its_node_can_have_sent_is_refused(fleet):
    """150 readings half a minute ago, and now a million."""
    lying_summary(fleet)
    assert fleet.gateway.counts["refused-claim"] == 1
    assert (
        "street/n5 summarises 1000000 readings, but can have sent" in fleet.gateway.complaints[-1]
    )
    lying_summary(fleet, 5_000)
    assert fleet.gateway.counts["refused-claim"] == 1


def test_no_summary_outweighs_all_the_others_together(fleet):
    """A liar whom this gateway hears of for the first time, so that no clock speaks against it."""
    fleet.revive()
    lying_summary(fleet)
    assert fleet.gateway.counts["refused-claim"] == 0
    fleet.sleep(LIAR)  # it says no more
    change(fleet)
    fleet.pass_s(12)
    (fit,) = fleet.fits
    assert set(fit.pooled) == {f"{SITE}/{name}" for name in NAMES}
    assert "street/n5 would outweigh the others, so 0.0003 of its readings count." in fit.why
    assert fit.readings == 4 * 150 + 2 * 150
    model = fitted_model(fit, fleet.gateway.fleet.changes[fit.change])
    right = 0
    for _ in range(300):
        values, truth = fleet.world.instance({role: role for role in ("co", "db", "no", "voc")})
        x = [values.get(column, 1.0) for column in fleet.gateway.fleet.changes[fit.change].columns]
        right += CLASSES[int(model.scores(np.array([x])).argmax())] == truth
    assert right > 150
