"""Nodes and operators that say what cannot be, told to a gateway in memory.

A wrong node may harm itself. It must not stop the gateway, nor what the others are to hear.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.fleet_rig import CLASSES, SITE, FleetRig, node_config
from support.inline_fitter import InlineFitter
from support.rig import KEY, Rig

from edge_opid.link.contract import Connected, Disconnected
from edge_opid.node.node import Node
from edge_opid.service.systemd import Systemd
from edge_opid.wire import (
    LIMITS,
    Channel,
    Example,
    InstanceId,
    Introduction,
    NodeTopics,
    SensorDeployed,
    SensorDescription,
    SensorRetired,
    SensorSilent,
    Status,
    SummaryMessage,
    decode,
    encode,
    open_desired,
    to_bytes,
)
from gateway.clock import GatewayClock
from gateway.decisions.gateway import Gateway
from gateway.fitting.worker import FitFailed, attempt
from gateway.loop import GatewayLoop
from gateway.policy import Group, Policy
from gateway.recall import recalled
from gateway.registry import SensorState
from gateway.registry.capacity import COLUMNS_MAX, SENSORS_MAX
from gateway.store import FleetStore

QUICK = Policy(settle_s=1, silence_s=30, summary_wait_s=3, first_batch=20, batch_max=20)
NAMES = ("n1", "n2")
FAR = LIMITS.integer_max


def small(**options) -> FleetRig:
    """Two nodes that have been adopted."""
    fleet = FleetRig(names=NAMES, policy=options.pop("policy", QUICK), **options)
    fleet.pass_s(2)
    return fleet


def learned(**options) -> FleetRig:
    """Two nodes whose summaries are in the book."""
    fleet = small(**options)
    fleet.read_all(40)
    fleet.pass_s(31)
    return fleet


def say(fleet, name, channel, message):
    fleet.publish(str(NodeTopics(SITE, name).to(channel)), encode(message))
    fleet.deliver()


def deploy(fleet, sensor, role, name="n1", **known):
    fleet.event(name, SensorDeployed(sensor, role=role, at_ms=fleet.now_ms, **known))


def ready(fleet, sensor, role, name="n1", **known):
    deploy(fleet, sensor, role, name, reference=0.0, scale=1.0, **known)


def retire(fleet, sensor, name="n1"):
    fleet.event(name, SensorRetired(sensor, fleet.now_ms, "gone"))


def summed_up(fleet, name) -> SummaryMessage:
    """The newest summary of a node that the book has."""
    return decode(fleet.store.summaries([(SITE, name)])[-1].payload, SummaryMessage)


def state(fleet, sensor, name="n1") -> SensorState:
    return fleet.gateway.fleet.sensors[SITE, name][sensor].state


def told(fleet, name="n1"):
    """Role and sensor of every column the node was last told of."""
    return {s.role: s.id for s in fleet.gateway.fleet.layouts[SITE, name].sensors}


def others_are_served(fleet) -> bool:
    """Whether a change of n2 still arrives there."""
    retire(fleet, "pm-n2", "n2")
    fleet.pass_s(5)
    return "pm" not in told(fleet, "n2") and fleet.status("n2").layout_version == 2


# -- versions --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "layout"), [(FAR, 1), (9, FAR), (FAR, FAR), (2**21, 2)])
def test_a_status_with_absurd_versions_does_not_stop_the_gateway(version, layout):
    fleet = small()
    before = fleet.gateway.fleet.nodes[SITE, "n1"], fleet.gateway.fleet.orders[SITE, "n1"]
    say(
        fleet,
        "n1",
        Channel.STATUS,
        Status(
            online=True,
            layout_version=layout,
            model_version=0,
            time_ms=fleet.now_ms,
            version=version,
        ),
    )
    fleet.pass_s(3)
    assert fleet.gateway.counts["refused-far-version"] == 1
    assert str(max(version, layout)) in fleet.gateway.complaints[0]
    assert (fleet.gateway.fleet.nodes[SITE, "n1"], fleet.gateway.fleet.orders[SITE, "n1"]) == before
    assert others_are_served(fleet)


def test_an_introduction_after_which_no_order_could_come_is_refused():
    fleet = small(asleep=("n1",))
    sensor = SensorDescription(id="a", role="a", reference=0.0, scale=1.0, timeout_s=10.0)
    say(
        fleet,
        "n1",
        Channel.EVENT,
        Introduction(
            version=FAR,
            layout_version=FAR,
            sensors=(sensor,),
            vanishing=(),
            gate=8.0,
            classes=CLASSES,
            window_ms=0,
        ),
    )
    fleet.pass_s(3)
    assert fleet.gateway.counts["refused-far-version"] == 1
    assert (SITE, "n1") not in fleet.gateway.fleet.nodes
    assert others_are_served(fleet)


@pytest.mark.parametrize(
    ("role", "gate", "reason"), [("bias", 8.0, "role"), ("a", 3e38, "gate")], ids=["bias", "gate"]
)
def test_an_introduction_that_no_layout_could_hold_is_refused(role, gate, reason):
    fleet = small(asleep=("n1",))
    sensors = (
        SensorDescription(id="a", role=role, reference=0.0, scale=1.0, timeout_s=10.0),
        SensorDescription(id="b", role="b", reference=0, scale=1, timeout_s=10),
    )
    say(
        fleet,
        "n1",
        Channel.EVENT,
        Introduction(
            version=0,
            layout_version=0,
            sensors=sensors,
            vanishing=(),
            gate=gate,
            classes=CLASSES,
            window_ms=0,
        ),
    )
    fleet.pass_s(3)
    assert fleet.gateway.counts[f"refused-{reason}"] == 1
    assert (SITE, "n1") not in fleet.gateway.fleet.nodes
    assert others_are_served(fleet)


def test_an_order_that_cannot_be_written_is_said_and_the_others_go_out():
    """Whatever should slip through one day: the gateway lives on."""
    fleet = small()
    layout = fleet.gateway.fleet.layouts[SITE, "n1"]
    fleet.gateway.fleet.put(replace(layout, version=FAR + 1))
    for name in NAMES:
        fleet.gateway.orders.want((SITE, name))
    before = fleet.gateway.fleet.orders[SITE, "n1"]
    fleet.pass_s(1)
    assert fleet.gateway.counts["refused-range"] == 1
    assert fleet.status("n2").version == 2
    assert fleet.gateway.fleet.orders[SITE, "n1"] == before


def test_a_number_given_out_twice_after_a_restored_backup_is_noticed():
    """The node was away when the backup was restored, and both went on to layout 3."""
    fleet = small()
    stored, pushed = recalled(fleet.store)
    for number in range(2):
        ready(fleet, f"x{number}", f"x{number}")
        fleet.pass_s(4)
    before = fleet.status("n1")
    fleet.sleep("n1")
    fleet.store = FleetStore.open("sqlite://")
    fleet.store.claim()
    fleet.store.save([*stored.nodes, *stored.sensors, *stored.layouts, *stored.orders])
    fleet.gateway = Gateway(QUICK, [fleet.group], KEY, stored, pushed)
    for number in range(2):
        ready(fleet, f"y{number}", f"y{number}")
        fleet.pass_s(4)
    order = fleet.gateway.fleet.orders[SITE, "n1"]
    assert (order.version, order.layout_version) == (before.version, before.layout_version)
    fleet.wake("n1")
    fleet.pass_s(5)
    assert fleet.agreed()
    assert sorted(fleet.nodes["n1"].node.state.local_models.sensors) == sorted(told(fleet).values())
    assert {"y0", "y1"} < set(told(fleet).values())


# -- roles -----------------------------------------------------------------------------------------


def test_a_sensor_replaced_while_it_is_measured_does_not_come_back():
    fleet = small()
    deploy(fleet, "voc-1", "voc")
    fleet.pass_s(2)
    ready(fleet, "voc-2", "voc", replaces="voc-1")
    fleet.pass_s(2)
    for _ in range(QUICK.measure_readings):
        fleet.read("n1", extra={"voc-1": "voc"})
    fleet.pass_s(2)
    assert state(fleet, "voc-1") == SensorState.RETIRED
    assert told(fleet)["voc"] == "voc-2"
    assert fleet.agreed()


def test_an_id_used_again_in_another_role_does_not_give_way():
    """`pm-2` was to replace `pm-n1`, which was then retired and became something else."""
    fleet = small()
    deploy(fleet, "pm-2", "pm", replaces="pm-n1")
    fleet.pass_s(2)
    retire(fleet, "pm-n1")
    fleet.pass_s(2)
    ready(fleet, "pm-n1", "dust")
    fleet.pass_s(2)
    for _ in range(QUICK.measure_readings):
        fleet.read("n1", extra={"pm-2": "pm"})
    fleet.pass_s(2)
    assert (told(fleet)["pm"], told(fleet)["dust"]) == ("pm-2", "pm-n1")
    assert state(fleet, "pm-n1") == SensorState.ACTIVE


def test_what_was_heard_of_a_retired_sensor_does_not_measure_its_successor():
    fleet = small()
    deploy(fleet, "voc-1", "voc")
    fleet.pass_s(1)
    for _ in range(QUICK.measure_readings - 1):
        fleet.read("n1", extra={"voc-1": "voc"})
    retire(fleet, "voc-1")
    fleet.now_ms += 1
    deploy(fleet, "voc-1", "heat")
    fleet.pass_s(1)
    fleet.read("n1", extra={"voc-1": "heat"})
    assert state(fleet, "voc-1") == SensorState.MEASURING
    assert "heat" not in told(fleet)


def test_a_layout_with_its_bias_is_never_wider_than_a_summary_may_be():
    fleet = small()
    knots = tuple(np.linspace(-8, 8, 32).tolist())
    for place in range(7):
        ready(fleet, f"w{place}", f"w{place}", knots=knots)
    ready(fleet, "w7", "w7", knots=knots[:8])  # with four linear ones and the bias: 237
    assert fleet.gateway.counts["refused-columns"] == 1
    ready(fleet, "w7", "w7", knots=knots[:7])
    fleet.pass_s(3)
    fleet.read("n1")
    fleet.pass_s(31)
    assert fleet.nodes["n1"].node.state.local_models.full.width == COLUMNS_MAX
    retire(fleet, "w7")
    fleet.pass_s(3)
    assert fleet.nodes["n1"].node.counted()["summary-too-wide"] == 0
    assert summed_up(fleet, "n1").width == COLUMNS_MAX


def test_the_largest_order_there_is_fits_into_a_message():
    """160 columns, 16 classes, the longest names, everything planned to vanish, with weights."""
    letters, classes = "abcdefghijklmnop", tuple(f"{i:x}" * 64 for i in range(16))
    long = [f"{place:03}".ljust(LIMITS.id_chars_max, "x") for place in range(159)]
    made = [
        SensorDescription(
            id=n, role=n, reference=0.1, scale=1.1, timeout_s=9.9, knots=(), unit="u" * 64
        )
        for n in long
    ]
    gateway = Gateway(QUICK, [Group("air", letters, classes, ("n1",))], KEY)
    hello = Introduction(
        version=0,
        layout_version=0,
        sensors=tuple(made),
        vanishing=tuple(long),
        gate=8.0,
        classes=classes,
        window_ms=0,
    )
    topic = NodeTopics(letters, "n1").to(Channel.EVENT)
    gateway.handle(str(topic), encode(hello), 0)
    (order,) = gateway.tick(0)
    weights = 4 * LIMITS.columns_max * LIMITS.classes_max + 100
    assert len(order.payload) + weights < LIMITS.payload_bytes_max
    assert gateway.counts["adopted"] == 1


def test_a_book_does_not_grow_for_ever():
    """A script that names a new sensor each time is stopped, and an old id may be used again."""
    fleet = small()
    book, record = fleet.gateway.fleet, fleet.gateway.fleet.sensors[SITE, "n1"]["pm-n1"]
    for place in range(SENSORS_MAX - len(book.sensors[SITE, "n1"])):
        book.put(replace(record, id=f"old-{place}", role="old", state=SensorState.RETIRED))
    ready(fleet, "one-more", "more")
    assert fleet.gateway.counts["refused-sensors"] == 1
    assert len(fleet.gateway.complaints[0]) < 300
    ready(fleet, "old-7", "more")
    fleet.pass_s(3)
    assert told(fleet)["more"] == "old-7"
    assert len(book.sensors[SITE, "n1"]) == SENSORS_MAX


# -- statistics and batches ------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["moment", "gram", "evidence"])
def test_a_summary_larger_than_its_readings_allow_is_named_and_the_rest_go_on(part):
    fleet = learned()
    good = summed_up(fleet, "n2")
    absurd = {
        "moment": to_bytes(np.full((good.width, good.classes), 3e38)),
        "gram": to_bytes(np.full(good.width * (good.width + 1) // 2, 1e37)),
        "evidence": 1e30,
    }
    say(fleet, "n2", Channel.SUMMARY, replace(good, **{part: absurd[part]}))
    retire(fleet, "pm-n1")
    fleet.pass_s(10)
    assert "40 readings within 8 give no" in fleet.fits[-1].refused[f"{SITE}/n2"]
    assert fleet.fits[-1].pooled == (f"{SITE}/n1",)
    assert fleet.agreed()


def test_weights_that_no_node_would_take_fail_the_fit_and_not_the_layout():
    """An order with them is refused as a whole: the node would not even get its layout."""
    fleet = learned(policy=replace(QUICK, rho=1e-37))
    for name in NAMES:
        good = summed_up(fleet, name)
        faint = to_bytes(0.05 * good.moment_array())  # as much as rounding might leave
        nothing = replace(good, gram=to_bytes(0 * good.gram_array()), moment=faint)
        say(fleet, name, Channel.SUMMARY, nothing)
    outcomes = []
    fleet._fit = lambda wanted: outcomes.append(attempt(fleet.job(wanted), 0))
    fleet.publish = without_summaries(fleet)
    ready(fleet, "voc-1", "voc")
    fleet.pass_s(5)
    (outcome,) = outcomes
    assert isinstance(outcome, FitFailed)
    assert "weights must be up to 1e+30" in outcome.why
    assert f"{SITE}/n1" in outcome.why
    assert fleet.agreed()
    assert told(fleet)["voc"] == "voc-1"


def test_weights_beyond_float16_travel_in_float32_and_fail_nobody():
    """Columns of a millionth each: the weights are in the hundred thousands."""
    fleet = learned(policy=replace(QUICK, weights="float16", rho=1e-12))
    for name in NAMES:
        good = summed_up(fleet, name)
        tiny = to_bytes(1e-12 * good.gram_array()), to_bytes(1e-6 * good.moment_array())
        say(fleet, name, Channel.SUMMARY, replace(good, gram=tiny[0], moment=tiny[1]))
    fleet.publish = without_summaries(fleet)
    ready(fleet, "voc-1", "voc")
    fleet.pass_s(6)
    order = fleet.gateway.fleet.orders[SITE, "n1"]
    W = open_desired(order.payload, [KEY.verify_key]).weights.matrices["W"]
    assert np.abs(W.array()).max() > np.finfo(np.float16).max
    assert W.dtype == "float32"
    assert fleet.agreed()


def without_summaries(fleet):
    """The node's own, which it sends when it obeys, would mend what the book was told."""
    publish = fleet.publish
    return lambda topic, payload, retain=False: (
        None if topic.endswith("/summary") else publish(topic, payload, retain)
    )


def test_a_summary_of_a_layout_nobody_was_told_does_not_push_real_ones_out():
    fleet = learned()
    good, before = summed_up(fleet, "n2"), fleet.store.summaries([(SITE, "n2")])
    for version in range(FAR - 5, FAR):
        say(fleet, "n2", Channel.SUMMARY, replace(good, layout_version=version))
    assert fleet.gateway.counts["refused-layout"] == 5
    assert fleet.store.summaries([(SITE, "n2")]) == before


def test_absurd_values_and_unknown_sensors_in_examples_spoil_no_fit():
    fleet = learned()
    retire(fleet, "pm-n1")
    fleet.pass_s(3)
    for seq in range(1, QUICK.batch_max + 1):
        values = {"no-n1": 3e38 * (-1) ** seq, "nobody": 1.0, "co-n1": float(seq % 3)}
        label, layout = CLASSES[seq % 3], fleet.gateway.fleet.layouts[SITE, "n1"].version
        example = Example(InstanceId("odd", 1, seq), layout, fleet.now_ms, values, label)
        say(fleet, "n1", Channel.EVENT, example)
    fleet.pass_s(3)
    assert [fit.size for fit in fleet.fits] == [0, 20]
    assert fleet.agreed()


def test_a_group_renamed_during_a_change_does_not_stop_the_gateway():
    fleet = small()
    retire(fleet, "pm-n1")
    fleet.pass_s(3)
    stored, pushed = recalled(fleet.store)
    renamed = Group("air-2", SITE, CLASSES, NAMES)
    fleet.gateway = Gateway(QUICK, [renamed], KEY, stored, pushed)
    fleet.read("n1")
    assert fleet.gateway.counts["example-not-needed"] == 1
    assert fleet.store.examples(1) == []
    assert others_are_served(fleet)


# -- nodes that are not what they were -------------------------------------------------------------


def start_over(fleet, name, sensors, **changes):
    """Its card is replaced: a new node under an old name."""
    fleet.sleep(name)
    config = node_config(name, sensors, **changes)
    fleet.nodes[name] = Rig(Node(config, [KEY.verify_key]))
    fleet.seq[name] = 0


def test_a_node_that_starts_over_gets_its_layout_back_and_new_sensors_are_named():
    fleet = learned()
    before = fleet.gateway.fleet.layouts[SITE, "n1"]
    start_over(fleet, "n1", ("pm", "no", "uv"))
    fleet.wake("n1")
    fleet.pass_s(3)
    assert fleet.gateway.counts["unannounced"] == 1
    assert "nobody announced: uv-n1;" in fleet.gateway.complaints[-1]
    assert fleet.agreed()
    assert tuple(fleet.nodes["n1"].node.state.local_models.sensors.values()) == before.sensors
    assert fleet.gateway.fleet.layouts[SITE, "n1"] == before


def test_statistics_of_a_node_that_starts_over_are_read_in_its_new_columns():
    """It learned for a while before it heard the gateway, with one sensor fewer than before."""
    fleet = learned()
    start_over(fleet, "n1", ("db", "no"), gate=7.0)
    fleet.awake.add("n1")
    for _ in range(40):
        fleet.read("n1")
    fleet.wake("n1")
    fleet.pass_s(3)
    (own,) = fleet.store.layouts([(SITE, "n1", 0)])
    assert [sensor.id for sensor in own.sensors] == ["db-n1", "no-n1"]
    assert summed_up(fleet, "n1").layout_version == 1
    retire(fleet, "pm-n2", "n2")
    fleet.pass_s(10)
    assert fleet.fits[-1].refused == {}


# -- silence ---------------------------------------------------------------------------------------


def fall_silent(fleet, sensor="pm-n1"):
    for _ in range(15):
        heard = [each for each in told(fleet).values() if each != sensor]
        fleet.read("n1", only=heard)
        fleet.pass_s(1)
    assert state(fleet, sensor) == SensorState.SILENT


def test_a_sensor_that_returned_while_the_gateway_was_away_is_not_given_up():
    """What its node says of it waits at the broker, and the first tick comes before it."""
    fleet = small()
    fall_silent(fleet)
    fleet.now_ms += 3_600_000
    fleet.decide, decide = lambda _: None, fleet.decide  # it is dead
    fleet.read("n1")
    fleet.decide = decide
    fleet.revive()
    fleet.decide(lambda: fleet.gateway.tick(fleet.now_ms))
    assert state(fleet, "pm-n1") == SensorState.SILENT
    fleet.pass_s(5)
    assert state(fleet, "pm-n1") == SensorState.ACTIVE
    assert fleet.gateway.fleet.layouts[SITE, "n1"].version == 1


class Cut:
    """A link on which nothing arrives but news of the connection."""

    def __init__(self):
        self.events = []
        self.subscribe = self.start = self.check = self.serve = lambda *_: None
        self.publish = lambda *_, **__: True

    def poll(self, _timeout_s):
        return None

    def poll_event(self):
        return self.events.pop(0) if self.events else None


def test_nobody_is_given_up_while_the_broker_is_out_of_reach():
    fleet = small()
    fall_silent(fleet)
    link, clock = Cut(), GatewayClock(*[lambda: fleet.now_ms / 1000] * 2)
    runner = GatewayLoop(fleet.gateway, link, fleet.store, clock, InlineFitter(), Systemd({}))
    runner.start()  # and no broker answers

    def given_up(after_s, *events):
        fleet.now_ms += 1000 * after_s
        link.events += events
        runner.round()
        return state(fleet, "pm-n1") == SensorState.RETIRED

    assert not given_up(40)
    assert not given_up(40, Connected(True, "MQTT 5"))
    assert not given_up(40, Disconnected("gone", refused=False))
    assert not given_up(40, Connected(True, "MQTT 5"))
    assert given_up(2)


def test_ten_thousand_reports_of_silence_leave_one_record_and_few_words():
    fleet = small()
    gateway, topic = fleet.gateway, str(NodeTopics(SITE, "n1").to(Channel.EVENT))
    for number in range(10_000):
        sensor = "pm-n1" if number % 2 else f"nobody-{number}"
        gateway.handle(topic, encode(SensorSilent(sensor, number, 0)), fleet.now_ms)
    assert gateway.counts["refused-unknown-sensor"] == 5_000
    kinds = sorted(type(each).__name__ for each in gateway.fleet.take_unsaved())
    assert kinds == ["LifeRecord", "SensorRecord"], "it fell silent once"
    assert len(gateway.complaints) <= 16
    assert len(gateway.fleet.sensors[SITE, "n1"]) == 4


def test_the_last_sensor_is_complained_of_once_and_its_name_is_no_counter():
    fleet = FleetRig(names=NAMES, sensors=("pm",), policy=QUICK)
    fleet.pass_s(2)
    for name in NAMES:
        record = fleet.gateway.fleet.sensors[SITE, name][f"pm-{name}"]
        fleet.gateway.fleet.put(replace(record, end_of_life_ms=fleet.now_ms))
    fleet.pass_s(5)
    assert fleet.gateway.counts["refused-empty-layout"] == len(NAMES)
    assert not [name for name in fleet.gateway.counts if "pm" in name]
    assert state(fleet, "pm-n1") == SensorState.ACTIVE


# -- clocks ----------------------------------------------------------------------------------------


def test_an_announcement_from_the_far_future_does_not_make_all_later_ones_stale():
    fleet = small()
    fleet.event("n1", SensorDeployed("x", role="x", at_ms=FAR, unit=None, reference=0.0, scale=1.0))
    fleet.pass_s(3)
    assert told(fleet)["x"] == "x"
    retire(fleet, "x")
    assert fleet.gateway.counts["refused-stale"] == 1  # an hour is what clocks may differ
    fleet.now_ms += 3_700_000
    retire(fleet, "x")
    fleet.pass_s(3)
    assert state(fleet, "x") == SensorState.RETIRED


def test_a_gateway_whose_clock_was_years_ahead_believes_its_operators_again():
    """In its former life it was 2038; operator and gateway share the clock."""
    fleet = small()
    true_ms = fleet.now_ms
    fleet.now_ms += 10**12
    ready(fleet, "x", "x")
    fleet.pass_s(3)
    fleet.now_ms = true_ms + 10_000
    fleet.revive()
    fleet.decide(lambda: fleet.gateway.tick(fleet.now_ms))
    fleet.now_ms += 3_700_000
    retire(fleet, "x")
    fleet.pass_s(3)
    assert state(fleet, "x") == SensorState.RETIRED
    assert "x" not in told(fleet)


def test_a_node_last_heard_in_the_future_is_heard_again_now():
    fleet = small()
    node = fleet.gateway.fleet.nodes[SITE, "n1"]
    fleet.gateway.fleet.put(replace(node, seen_ms=fleet.now_ms + 10**12))
    say(fleet, "n1", Channel.STATUS, fleet.status("n1"))
    assert fleet.gateway.fleet.nodes[SITE, "n1"].seen_ms == fleet.now_ms
    assert fleet.agreed()


def test_a_replacement_whose_life_is_over_does_not_take_the_column_with_it():
    fleet = small()
    ready(fleet, "pm-2", "pm", replaces="pm-n1", end_of_life_ms=fleet.now_ms)
    fleet.pass_s(3)
    assert fleet.gateway.counts["refused-end-of-life"] == 1
    assert told(fleet)["pm"] == "pm-n1"
    assert "pm-2" not in fleet.gateway.fleet.sensors[SITE, "n1"]
