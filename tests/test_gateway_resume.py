"""A gateway that is killed, flooded with copies, lied to, or wakes up with an old memory."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl.signing import SigningKey
from support.fleet_rig import CLASSES, SITE, FleetRig
from support.rig import KEY

from edge_opid.wire import (
    REPEATED,
    Channel,
    Confirmed,
    Desired,
    Example,
    InstanceId,
    NodeTopics,
    SensorDeployed,
    SensorRetired,
    SummaryMessage,
    Topic,
    decode,
    decode_on,
    digest,
    encode,
    open_desired,
)
from gateway.decisions.gateway import Gateway
from gateway.policy import Group, Policy
from gateway.recall import recalled
from gateway.registry.fleet import Fleet

QUICK = Policy(settle_s=1, silence_s=30, summary_wait_s=3, first_batch=20, batch_max=20)
NAMES = ("n1", "n2")
HEARD = (Channel.EVENT, Channel.SUMMARY)


def story(crashes=None, copies=1) -> FleetRig:
    """Two nodes, an announced death and a birth, then a silent death."""
    fleet = FleetRig(names=NAMES, policy=QUICK, crashes=crashes or {}, copies=copies)
    fleet.pass_s(2)
    fleet.read_all(20)
    for name in NAMES:
        fleet.event(name, SensorRetired(f"pm-{name}", fleet.now_ms, "broken"))
        voc = SensorDeployed(
            f"voc-{name}", role="voc", at_ms=fleet.now_ms, reference=0.0, scale=1.0
        )
        fleet.event(name, voc)
    fleet.pass_s(4)
    for _ in range(11):
        for name in NAMES:
            fleet.read(name)
        fleet.pass_s(1)
    for _ in range(45):
        fleet.read("n1", only=["no-n1", "co-n1", "voc-n1"], labelled=False)
        fleet.read("n2", labelled=False)
        fleet.pass_s(1)
    fleet.pass_s(5)
    return fleet


def outcome(fleet: FleetRig):
    """What a story comes to: sensors, layouts, changes, and the model each node holds."""
    records = fleet.gateway.fleet
    sensors = {
        key: sorted((s.id, s.state) for s in records.sensors[key].values()) for key in records.nodes
    }
    layouts = {key: (r.version, r.sensors, r.change) for key, r in records.layouts.items()}
    changes = [(c.id, c.arrived, c.retired, c.columns, c.fitted) for c in fleet.store.changes(99)]
    models = {name: fleet.nodes[name].node.state.pushed_models.matrices() for name in NAMES}
    held = {name: {slot: W.tobytes() for slot, W in m.items()} for name, m in models.items()}
    return sensors, layouts, changes, {name: slots.get("model") for name, slots in held.items()}


@pytest.fixture(scope="module")
def undisturbed():
    fleet = story()
    assert fleet.agreed()
    assert [len(each) for each in outcome(fleet)] == [2, 2, 2, 2]
    return outcome(fleet), fleet.steps


def test_killed_at_any_moment_it_ends_in_the_same_state(undisturbed):
    """Thirty lives, each killed at ten moments, before or after the transaction."""
    expected, steps = undisturbed
    rng = random.Random(4)
    for _ in range(30):
        moments = rng.sample(range(1, steps), 10)
        fleet = story({moment: rng.choice(["unsaved", "saved"]) for moment in moments})
        assert fleet.agreed()
        assert outcome(fleet) == expected, moments


def test_every_message_delivered_three_times_changes_nothing(undisturbed):
    fleet = story(copies=3)
    expected, _ = undisturbed
    assert fleet.agreed()
    assert outcome(fleet) == expected
    assert fleet.gateway.counts["refused-stale"] > 0


def test_versions_never_come_twice_with_other_content():
    seen: dict[tuple[str, int], bytes] = {}
    rng = random.Random(2)
    fleet = FleetRig(names=NAMES, policy=QUICK)
    publish = fleet.publish

    def watching(topic, payload, retain=False):
        if topic.endswith("/desired"):
            desired: Desired = open_desired(payload, [KEY.verify_key])
            key = desired.node, desired.version
            assert seen.setdefault(key, payload) == payload
        publish(topic, payload, retain)

    fleet.publish = watching
    fleet.crashes = {n: rng.choice(["unsaved", "saved"]) for n in range(1, 400, 3)}
    fleet.pass_s(3)
    for number in range(6):
        for name in NAMES:
            at = fleet.now_ms
            fleet.event(
                name,
                SensorDeployed(
                    f"x{number}", role=f"x{number}", at_ms=at, unit=None, reference=0.0, scale=1.0
                ),
            )
        fleet.pass_s(4)
    assert fleet.agreed()
    assert len(seen) == 2 * (1 + 6)  # adopted, and six layouts


def test_a_broker_without_memory_is_told_everything_again():
    fleet = story()
    orders = dict(fleet.retained)
    fleet.retained.clear()
    fleet.perform(fleet.gateway.on_connected(False, fleet.now_ms))
    wanted = {topic: payload for topic, payload in orders.items() if topic.endswith("desired")}
    assert {t: p for t, p in fleet.retained.items() if t.endswith("desired")} == wanted


def test_an_order_nobody_reports_is_published_again_and_again():
    fleet = FleetRig(names=NAMES, policy=QUICK)
    fleet.pass_s(2)
    lost = []
    publish = fleet.publish
    fleet.publish = lambda topic, payload, retain=False: (
        lost.append(topic) if topic.endswith("n1/desired") else publish(topic, payload, retain)
    )
    fleet.event("n1", SensorRetired("pm-n1", fleet.now_ms, "broken"))
    fleet.pass_s(400)
    assert 4 <= len(lost) <= 10  # after 30, 60, 120, 240 seconds; and the weights of the change
    fleet.publish = publish
    fleet.pass_s(500)
    assert fleet.agreed()


def test_a_database_restored_from_a_backup_does_not_repeat_a_version():
    fleet = FleetRig(names=NAMES, policy=QUICK)
    fleet.pass_s(2)
    stored, pushed = recalled(fleet.store)
    for number in range(3):
        fleet.event(
            "n1",
            SensorDeployed(
                f"x{number}",
                role=f"x{number}",
                at_ms=fleet.now_ms,
                unit=None,
                reference=0.0,
                scale=1.0,
            ),
        )
        fleet.pass_s(6)
    before = fleet.status("n1")
    fleet.gateway = Gateway(QUICK, [fleet.group], KEY, stored, pushed)
    fleet.pass_s(40)
    assert fleet.agreed()
    after = fleet.status("n1")
    assert after.version > before.version
    assert after.layout_version > before.layout_version
    assert fleet.nodes["n1"].node.counted()["refused-conflict"] == 0


def test_after_a_key_rotation_every_order_in_force_is_signed_by_the_new_key():
    """A node slept through an order; meanwhile the key was changed, on the gateway and on it."""
    fleet = FleetRig(names=NAMES, policy=QUICK)
    fleet.pass_s(2)
    fleet.sleep("n1")
    fleet.event("n1", SensorRetired("pm-n1", fleet.now_ms, "broken"))
    fleet.pass_s(5)
    orders = dict(fleet.gateway.fleet.orders)
    assert fleet.gateway.publisher.unreported() == [(SITE, "n1")]
    new = SigningKey(bytes(31) + b"\1")
    fleet.nodes["n1"].node._trusted = (new.verify_key,)
    stored, pushed = recalled(fleet.store)
    fleet.gateway = Gateway(QUICK, [fleet.group], new, stored, pushed)
    fleet.decide(lambda: fleet.gateway.on_connected(True, fleet.now_ms))
    fleet.decide(lambda: fleet.gateway.tick(fleet.now_ms))
    for key, order in fleet.gateway.fleet.orders.items():
        topic = str(NodeTopics(*key).to(Channel.DESIRED))
        assert fleet.retained[topic] == order.payload  # also of nodes that had obeyed it
        before = open_desired(orders[key].payload, [KEY.verify_key])
        after = open_desired(order.payload, [new.verify_key])
        assert after == replace(before, version=before.version + 1)
    fleet.awake.discard("n2")  # it still trusts the old key alone
    fleet.wake("n1")
    fleet.pass_s(3)
    assert fleet.agreed()
    assert fleet.status("n1").layout_version == 2
    assert fleet.nodes["n1"].node.counted()["refused-signature"] == 0
    fleet.gateway.fleet.take_unsaved()
    stored, pushed = recalled(fleet.store)
    again = Gateway(QUICK, [fleet.group], new, stored, pushed)
    assert not again.busy  # nothing is left to sign


def test_a_node_in_no_group_is_not_served():
    fleet = FleetRig(names=NAMES, policy=QUICK)
    before = outcome(fleet)
    fleet.publish(f"opid/1/{SITE}/stranger/status", b"")
    fleet.deliver()
    assert fleet.gateway.counts["refused-stranger"] == 1
    assert outcome(fleet) == before


def test_a_node_with_other_classes_is_refused_with_both_lists():
    fleet = FleetRig(names=NAMES, policy=QUICK, asleep=NAMES)
    fleet.gateway.fleet._group_of[SITE, "n1"] = replace(fleet.group, classes=CLASSES[::-1])
    fleet.wake("n1")
    assert fleet.gateway.counts["refused-classes"] >= 1
    assert "alarm" in fleet.gateway.complaints[0]
    assert fleet.gateway.fleet.nodes == {}


@settings(max_examples=300, deadline=None)
@given(
    channel=st.sampled_from([c for c in Channel if not c.per_source]),
    payload=st.binary(max_size=200),
)
def test_whatever_bytes_arrive_the_gateway_lives_on(channel, payload):
    gateway = Gateway(QUICK, [Group("air", SITE, CLASSES, NAMES)], KEY)
    before = gateway.fleet.take_unsaved()
    gateway.handle(str(NodeTopics(SITE, "n1").to(channel)), payload, 0)
    assert gateway.fleet.take_unsaved() == before == []
    assert gateway.counts.total() == 1


def test_a_fleet_remembers_exactly_what_was_saved():
    fleet = story()
    stored, _ = recalled(fleet.store)
    again = Fleet([fleet.group], stored)
    mine = fleet.gateway.fleet
    assert again.nodes == mine.nodes
    assert again.layouts == mine.layouts
    assert again.orders == mine.orders
    assert dict(again.sensors) == {k: v for k, v in mine.sensors.items() if v}
    assert again.next_change == mine.next_change
    assert again.take_unsaved() == []


def test_a_group_taken_out_of_the_configuration_stops_nobody_else():
    fleet = FleetRig(names=NAMES, policy=QUICK)
    fleet.pass_s(2)
    fleet.event("n1", SensorRetired("pm-n1", fleet.now_ms, "broken"))
    stored, pushed = recalled(fleet.store)
    other = Group("water", SITE, CLASSES, ("n2",))
    fleet.gateway = Gateway(QUICK, [other], KEY, stored, pushed)
    before = fleet.gateway.fleet.orders[SITE, "n1"]
    fleet.event("n2", SensorRetired("pm-n2", fleet.now_ms, "broken"))
    fleet.pass_s(10)
    assert fleet.gateway.fleet.nodes[SITE, "n2"].group == "water"
    assert fleet.status("n2").layout_version == 2
    assert fleet.gateway.fleet.orders[SITE, "n1"] == before


def test_a_wave_cut_in_the_middle_goes_on_after_the_restart(monkeypatch):
    """Two nodes a tick at most one order: killed between the two, the second still gets its own."""
    monkeypatch.setattr("gateway.decisions.orders.ORDERS_PER_TICK", 1)
    fleet = FleetRig(names=NAMES, policy=QUICK)
    fleet.pass_s(3)
    for name in NAMES:
        fleet.event(name, SensorRetired(f"pm-{name}", fleet.now_ms, "broken"))
    for _ in range(40):
        fleet.now_ms += 100
        fleet.decide(lambda: fleet.gateway.tick(fleet.now_ms))
        if fleet.gateway.busy:
            break
    assert fleet.gateway.busy
    fleet.revive()
    fleet.pass_s(10)
    assert fleet.agreed()
    assert {fleet.status(name).layout_version for name in NAMES} == {2}


class ForgetfulBroker(FleetRig):
    """A broker that has confirmed, and then lost, the first copy of what a node says once."""

    def __post_init__(self) -> None:
        self.lost: set[tuple[str, bytes]] = set()
        super().__post_init__()

    def _deliver(self, topic: str, payload: bytes) -> None:
        channel = Topic.parse(topic).channel
        once = channel in HEARD and isinstance(decode_on(channel, payload), REPEATED)
        if once and (topic, payload) not in self.lost:
            self.lost.add((topic, payload))
            return
        super()._deliver(topic, payload)


def test_what_a_dying_broker_loses_is_in_the_book_all_the_same():
    """`kill -9` of mosquitto: it has told the nodes that it has their words, and has saved none."""
    fleet = ForgetfulBroker(names=NAMES, policy=replace(QUICK, batch_max=100))
    fleet.pass_s(2)
    fleet.read_all(40)
    fleet.pass_s(31)
    fleet.read_all(1)  # so that the summary of the change is another one
    for name in NAMES:
        fleet.event(name, SensorRetired(f"pm-{name}", fleet.now_ms, "broken"))
    fleet.pass_s(4)
    fleet.read_all(15)
    lost = [decode_on(Topic.parse(topic).channel, payload) for topic, payload in fleet.lost]
    examples = {each.instance for each in lost if isinstance(each, Example)}
    assert len(examples) == 15  # both nodes number theirs alike
    assert len([each for each in lost if isinstance(each, SummaryMessage)]) == 4
    assert fleet.store.examples(1) == []
    fleet.pass_s(65)
    found = [(r.node, r.source, r.boot, r.seq) for r in fleet.store.examples(1)]
    assert sorted(found) == sorted(
        (node, each.source, each.boot, each.seq) for node in NAMES for each in examples
    )
    kept = fleet.store.summaries([(SITE, name) for name in NAMES])
    known = {(r.node, decode(r.payload, SummaryMessage).readings) for r in kept}
    assert known == {(name, 41) for name in NAMES}
    assert fleet.agreed()


def test_what_was_refused_is_confirmed_as_well():
    """Else a node would repeat for ever what its gateway will never take."""
    fleet = FleetRig(names=NAMES, policy=QUICK)
    fleet.pass_s(2)
    nobody_asked = Example(InstanceId("box", 1, 1), 1, fleet.now_ms, {"pm-n1": 1.0}, "no class")
    topic = str(NodeTopics(SITE, "n1").to(Channel.EVENT))
    fleet.gateway.handle(topic, encode(nobody_asked), fleet.now_ms)
    said = [each for each in fleet.gateway.tick(fleet.now_ms) if each.topic.endswith("confirmed")]
    assert [each.topic for each in said] == ["opid/1/street/n1/confirmed"]
    assert decode(said[0].payload, Confirmed).of == (digest(encode(nobody_asked)),)
    assert not said[0].retain
    assert fleet.gateway.tick(fleet.now_ms) == []


def test_a_stranger_gets_no_answer():
    """A confirmation for everybody would be a message for each that a stranger sends."""
    fleet = FleetRig(names=NAMES, policy=QUICK)
    fleet.pass_s(2)
    said = encode(Example(InstanceId("box", 1, 1), 1, fleet.now_ms, {"pm": 1.0}, CLASSES[0]))
    fleet.gateway.handle(str(NodeTopics(SITE, "n9").to(Channel.EVENT)), said, fleet.now_ms)
    assert fleet.gateway.tick(fleet.now_ms) == []
    assert fleet.gateway.counts["refused-stranger"] == 1
