"""Statuses are unsigned: whatever is said in a node's name, its gateway can still order it."""

from __future__ import annotations

import json

import pytest
from support.fleet_rig import CLASSES, SITE, FleetRig
from support.gateway_process import Town
from support.node_process import wait_until
from support.rig import KEY

from edge_opid.wire import (
    LIMITS,
    Channel,
    Introduction,
    NodeTopics,
    SensorDescription,
    SensorRetired,
    Status,
    encode,
)
from gateway.__main__ import main
from gateway.decisions.gateway import Gateway
from gateway.policy import Policy
from gateway.recall import recalled

QUICK = Policy(settle_s=1, silence_s=30, summary_wait_s=3, first_batch=20, batch_max=20)
NAMES = ("n1", "n2")
N1 = SITE, "n1"
STEP = LIMITS.version_step_max


def fleet_of_two(**options) -> FleetRig:
    fleet = FleetRig(names=NAMES, policy=QUICK, **options)
    fleet.pass_s(3)
    return fleet


def forge(fleet, version, layout=1):
    """Say in the name of n1 that it has obeyed this order."""
    status = Status(
        online=True, layout_version=layout, model_version=0, time_ms=fleet.now_ms, version=version
    )
    fleet.publish(str(NodeTopics(*N1).to(Channel.STATUS)), encode(status))
    fleet.deliver()


def obeys(fleet, name="n1", role="pm") -> bool:
    """Whether a change ordered now arrives at the real node."""
    before = fleet.status(name).layout_version
    fleet.event(name, SensorRetired(f"{role}-{name}", fleet.now_ms, "broken"))
    fleet.pass_s(200)
    return fleet.agreed() and fleet.status(name).layout_version > before


def test_one_forged_status_does_not_put_a_node_out_of_reach():
    """A version 2^20 ahead was believed; every later order was too far ahead for the node."""
    fleet = fleet_of_two()
    other, order = fleet.gateway.fleet.nodes[SITE, "n2"], fleet.gateway.fleet.orders[N1]
    forge(fleet, order.version + STEP)
    fleet.pass_s(2)
    assert fleet.gateway.counts["refused-far-version"] == 1
    assert fleet.gateway.fleet.orders[N1] == order
    assert obeys(fleet)
    assert fleet.nodes["n1"].node.counted()["refused-far-version"] == 0
    assert fleet.gateway.fleet.nodes[SITE, "n2"].reported_version == other.reported_version


def test_a_patient_forger_loses_a_sleeping_node_only_until_it_speaks():
    """Small steps add up while the real node is away; its first own word undoes them all."""
    fleet = fleet_of_two()
    floor = fleet.status("n1").version
    fleet.sleep("n1")
    for _ in range(STEP // 1000 + 100):
        forge(fleet, fleet.gateway.fleet.orders[N1].version + 1000)
        fleet.decide(lambda: fleet.gateway.tick(fleet.now_ms))
    assert fleet.gateway.fleet.orders[N1].version > floor + STEP
    fleet.wake("n1")
    fleet.pass_s(5)
    assert fleet.agreed()
    assert obeys(fleet)


def test_whoever_introduces_a_node_first_does_not_own_it():
    """A forged first introduction half way to the highest number there is."""
    fleet = fleet_of_two(asleep=("n1",))
    sensor = SensorDescription(id="pm-n1", role="pm", reference=0.0, scale=1.0, timeout_s=10.0)
    forged = Introduction(
        version=2**40,
        layout_version=0,
        sensors=(sensor,),
        vanishing=(),
        gate=8.0,
        classes=CLASSES,
        window_ms=0,
    )
    fleet.publish(str(NodeTopics(*N1).to(Channel.EVENT)), encode(forged))
    fleet.pass_s(3)
    assert fleet.gateway.fleet.orders[N1].version > 2**40
    fleet.wake("n1")
    fleet.pass_s(5)
    assert fleet.agreed()
    assert fleet.status("n1").version <= STEP


@pytest.mark.parametrize("ahead", [1, 1000])
def test_a_believed_claim_is_said_and_survives_as_a_doubt(ahead):
    """A restored backup explains a few orders more than the book has; so does a forger."""
    fleet = fleet_of_two()
    forge(fleet, fleet.gateway.fleet.orders[N1].version + ahead)
    fleet.pass_s(5)
    assert fleet.gateway.counts["overtaken"] == 1
    assert "restored" in fleet.gateway.complaints[0]
    stored, pushed = recalled(fleet.store)
    again = Gateway(QUICK, [fleet.group], KEY, stored, pushed)
    [doubt] = again.fleet.doubts.values()
    assert (doubt.site, doubt.node, doubt.count) == (*N1, 1)
    assert obeys(fleet)
    assert obeys(fleet, "n2")


def test_a_node_that_obeyed_queued_orders_after_all_is_followed():
    """It woke, was ordered lower, and only then the broker emptied its queue of forged heights."""
    fleet = fleet_of_two()
    topic = str(NodeTopics(*N1).to(Channel.DESIRED))
    queued = []
    fleet.sleep("n1")
    for _ in range(STEP // 1000 + 100):
        forge(fleet, fleet.gateway.fleet.orders[N1].version + 1000)
        fleet.decide(lambda: fleet.gateway.tick(fleet.now_ms))
        queued.append(fleet.gateway.fleet.orders[N1].payload)
    fleet.retained.pop(topic)
    fleet.wake("n1")
    fleet.decide(lambda: fleet.gateway.tick(fleet.now_ms))
    fleet.revive()  # what was given out is known to the next life as well
    for payload in queued:
        fleet.publish(topic, payload)
    fleet.pass_s(5)
    assert fleet.status("n1").version > STEP + 50_000
    assert fleet.agreed()
    assert obeys(fleet)
    assert fleet.nodes["n1"].node.counted()["refused-conflict"] == 0


def test_a_forgotten_node_leaves_nothing_and_takes_nothing_with_it():
    """Its rows, its retained order, what waits for it: gone; it may come again as a new one."""
    fleet = fleet_of_two()
    for name in NAMES:
        fleet.event(name, SensorRetired(f"pm-{name}", fleet.now_ms, "broken"))
    fleet.pass_s(5)
    for name in NAMES:
        fleet.read(name)
    before = {
        kind: fleet.store.row_counts((SITE, "n2"))[kind] for kind in fleet.store.row_counts(N1)
    }
    assert fleet.store.row_counts(N1)["examples"] == 1
    fleet.decide(lambda: fleet.gateway.forget(N1, fleet.now_ms))
    fleet.deliver()
    assert set(fleet.store.row_counts(N1).values()) == {0}
    assert fleet.store.row_counts((SITE, "n2")) == before
    assert fleet.retained[str(NodeTopics(*N1).to(Channel.DESIRED))] == b""
    fleet.revive()
    assert list(fleet.gateway.fleet.nodes) == [(SITE, "n2")]
    fleet.wake("n1")
    fleet.pass_s(5)
    assert fleet.agreed()
    assert fleet.gateway.fleet.orders[N1].version == fleet.status("n1").version
    assert obeys(fleet, role="no")
    assert fleet.gateway.fleet.changes


def facts(town, capsys, name):
    """`node list --json`, of one node."""
    assert main(["node", "list", str(town.gateway.toml), "--json"]) == 0
    [found] = [each for each in json.loads(capsys.readouterr().out) if each["node"] == name]
    return found


def test_behind_a_real_broker_a_forged_status_is_shown_and_a_node_can_be_forgotten(
    tmp_path, capsys
):
    """Somebody with the password of n1 speaks in its name; an operator looks, and forgets n2."""
    with Town(tmp_path, names=NAMES) as town:
        wait_until(town.agreed, "both obey their first order")
        before = facts(town, capsys, "n1")
        forged = Status(
            online=True,
            layout_version=1,
            model_version=0,
            time_ms=1,
            version=before["order"] + STEP,
        )
        topic = NodeTopics(*N1).to(Channel.STATUS)
        assert town.ear.link.publish(str(topic), encode(forged))
        wait_until(lambda: facts(town, capsys, "n1")["doubts"], "the doubt is shown")
        found = facts(town, capsys, "n1")
        assert str(forged.version) in found["doubts"][0]
        assert (found["order"], found["reported_order"]) == (before["order"],) * 2
        assert "far-version" not in town.nodes["n1"].log()

        words = ["node", "forget", str(town.gateway.toml), "n2"]
        assert main(words) == 2
        told = capsys.readouterr()
        assert "4 sensors" in told.out
        assert "nothing was changed" in told.err
        assert facts(town, capsys, "n2")["introduced"]
        town.nodes["n2"].kill()
        assert main([*words, "--yes"]) == 0
        assert capsys.readouterr().out.endswith("done\n")
        assert not facts(town, capsys, "n2")["introduced"]
        town.nodes["n2"].start()
        wait_until(town.agreed, "n2 is adopted again")
        assert facts(town, capsys, "n1")["reported_order"] == before["order"]
        town.check()
