"""A warm-up at the wrong hour blinds no sensor: who rests waits, and a wrong scale is moved."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fleet_rig import FleetRig
from support.rig import CLASSES, Rig, description, desired, folded

from edge_opid import Classifier, Sensor, WoodburyLearner
from edge_opid.cli import main
from edge_opid.config.node import SensorConfig
from edge_opid.config.service import load_config
from edge_opid.layout import FirstValues, ScaleWatch
from edge_opid.layout.first_values import has_moved
from edge_opid.layout.warmup import floor_of
from edge_opid.node.actions import Append
from edge_opid.node.inputs import apply
from edge_opid.node.journal_records import Accepted, Remeasured, pack_record
from edge_opid.reasons import NodeReason
from edge_opid.service.wiring import open_node
from edge_opid.wire import (
    Channel,
    Introduction,
    ScaleMeasured,
    SensorDeployed,
    SensorRemeasured,
    SummaryMessage,
    encode,
    to_bytes,
)
from gateway.fitting.job import FitJob, group_knowledge
from gateway.registry import ChangeRecord, LayoutRecord, SensorState, SummaryRecord
from gateway.registry.columns import layout_in

UNKNOWN = tuple(SensorConfig(name, timeout_s=1e6) for name in ("a", "light"))


def room(n, dawn, seed=0):
    """Two classes that the light tells apart; it is 0 until dawn, when one is all there is."""
    rng = np.random.default_rng(seed)
    truth = np.where(np.arange(n) < dawn, 0, rng.integers(0, 2, n))
    light = np.where(np.arange(n) < dawn, 0.0, 150 + 200 * truth + rng.normal(0, 30, n))
    a = rng.normal(20, 1, n)
    rows = [{"a": float(x), "light": float(v)} for x, v in zip(a, light, strict=True)]
    return rows, [CLASSES[k] for k in truth]


def live(rig, rows, labels, first=1):
    for seq, (row, label) in enumerate(zip(rows, labels, strict=True), first):
        rig.read(seq, row, label)
    return rig


def right(rig, labels):
    got = [prediction.label for prediction in rig.predictions()][-len(labels) :]
    return np.mean([one == other for one, other in zip(got, labels, strict=True)])


def counted(rig, reason):
    return rig.node.counts[reason]


# -- who has moved ---------------------------------------------------------------------------------

REST = {
    "constant": [7.0] * 50,
    "constant with codes": [21.0] * 40 + [85.0] * 10,
    "constant with three codes": [21.0] * 44 + [65535.0] * 6,
    "one step": [0.0] * 60 + [0.5],
    "nothing": [],
}
MOVED = {
    "contact": [0.0] * 199 + [1.0],
    "contact that rests at 1": [1.0] * 199 + [0.0],
    "thermometer": list(np.random.default_rng(1).normal(21, 1, 50)),
    "two states": [20.0] * 30 + [60.0] * 20,
    "sunrise": [0.0] * 192 + [1.0, 3, 8, 15, 25, 40, 60, 90],
}


@pytest.mark.parametrize("values", REST.values(), ids=REST)
def test_a_sensor_at_rest_has_not_moved(values):
    assert not has_moved(np.array(values))


@pytest.mark.parametrize("values", MOVED.values(), ids=MOVED)
def test_a_sensor_that_moves_has(values):
    assert has_moved(np.array(values))


def test_the_first_step_after_a_rest_is_never_at_the_gate():
    """A contact that is 1 once in a thousand, a thermometer that flickers by its last digit."""
    for values in ([0.0] * 999 + [1.0], [21.0] * 194 + [21.1] * 6):
        seen = np.array(values)
        assert np.ptp(seen) / floor_of(seen) <= 4.001  # 0.1 is no binary fraction
        assert np.ptp(seen) / measured(values).scale < 8


def measured(values):
    first = FirstValues("s", readings=20)
    for value in values:
        first.add(value)
    assert first.ready
    return first.sensor()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from([0.0, 1.0, 2.5, 65535.0]), max_size=120))
def test_first_values_are_bounded_and_saved_as_they_are(values):
    """However long a sensor rests."""
    first = FirstValues("s", readings=20)
    for value in values:
        first.add(value)
    assert len(first.values) <= 20
    assert first.heard == len(values)
    again = FirstValues("s", readings=20).restore(first.state())
    assert (again.ready, again.values, str(again)) == (first.ready, first.values, str(first))


# -- a node ----------------------------------------------------------------------------------------


def test_a_light_that_was_dark_in_the_warm_up_is_named_and_joins_at_dawn():
    """The accident of a node that is started at night: the other sensor is not held up by it."""
    rows, labels = room(900, dawn=300)
    rig = live(Rig.make(sensors=UNKNOWN), rows[:250], labels[:250])
    assert list(rig.node.state.local_models.sensors) == ["a"]
    assert rig.node.status(0).degraded == ("measuring: light, always 0 in 250 values",)
    assert counted(rig, NodeReason.SENSOR_WAITS) == 1
    assert counted(rig, NodeReason.UNKNOWN_SENSOR) == 0
    live(rig, rows[250:], labels[250:], 251)
    light = rig.node.state.local_models.sensors["light"]
    assert light.reference == 0.0
    assert counted(rig, NodeReason.SENSOR_MEASURED) == 1
    assert rig.node.status(0).degraded == ()
    assert right(rig, labels[-400:]) > 0.97
    rig.commit(0)
    assert rig.reborn().frozen() == rig.frozen()


def test_a_sensor_that_said_little_or_nothing_in_the_warm_up_is_named_too():
    """A home's warm-up is made by its quick sensors: a slow one has said the same twice by then,
    another one nothing, and neither has a column.
    """
    slow, mute = SensorConfig("slow"), SensorConfig("mute")
    rig = Rig.make(sensors=(SensorConfig("a"), slow, mute), warmup_readings=40)
    for seq in range(1, 41):
        rig.read(seq, {"a": float(seq % 7), **({"slow": 230.0} if seq in (30, 40) else {})})
    assert list(rig.node.state.local_models.sensors) == ["a"]
    waiting = {"measuring: slow, always 230 in 2 values", "measuring: mute, no value yet"}
    assert set(rig.node.status(0).degraded) == waiting
    assert counted(rig, NodeReason.SENSOR_WAITS) == 2
    rig.commit(0)
    assert rig.reborn().frozen() == rig.frozen()


def test_the_readings_before_a_sensor_joins_are_learned_as_what_they_were():
    """Its reference is where it rested: a learner that had its scale from the start is the same."""
    rows, labels = room(700, dawn=400)
    rig = live(Rig.make(sensors=UNKNOWN), rows[:399], labels[:399])
    live(rig, rows[399:450], labels[399:450], 400)
    known = rig.node.state.local_models
    given = tuple(
        SensorConfig(s.id, reference=s.reference, scale=s.scale, timeout_s=1e6)
        for s in known.sensors.values()
    )
    late = [seq for seq in range(400, 450) if rows[seq]["light"] > 0][:9]
    other = Rig.make(sensors=given)
    for seq, (row, label) in enumerate(zip(rows[:450], labels[:450], strict=True), 1):
        # those by which it was measured were learned without it
        other.read(seq, {"a": row["a"]} if seq - 1 in late[:8] else row, label)
    ours, theirs = (each.node.state.local_models.learner for each in (rig, other))
    assert ours.readings == theirs.readings == 450
    # float32, and the warm-up's layouts, which learned the same rows in another order of steps
    assert np.allclose(ours.weights()[0], theirs.weights()[0], atol=2e-3)


def test_a_scale_that_proves_wrong_is_moved_and_said():
    """A warm-up in the dark saw 0 to 2 lux; then the sun."""
    rng = np.random.default_rng(3)
    rows, labels = room(900, dawn=250)
    for row in rows[:250]:
        row["light"] = float(rng.integers(0, 3))
    rig = live(Rig.make(sensors=UNKNOWN), rows, labels)
    light = rig.node.state.local_models.sensors["light"]
    assert light.scale > 30
    assert 1 <= counted(rig, NodeReason.SCALE_MOVED) <= 3
    assert right(rig, labels[-400:]) > 0.97
    gated = rig.node.status(0).counts["gated-light"]
    assert 8 <= gated <= 40
    assert rig.node.state.scales.counts == {"light": gated}
    rig.commit(0)
    again = rig.reborn()
    assert again.frozen() == rig.frozen()
    assert again.node.status(0).counts["gated-light"] == gated  # part of the state


def test_a_probe_without_power_does_not_move_its_scale():
    """It says 85 in half of the readings for ever: a code, which is reported and nothing else."""
    rows, labels = room(700, dawn=0)
    rig = live(Rig.make(sensors=UNKNOWN), rows[:250], labels[:250])
    before = rig.node.state.local_models.sensors["a"]
    for place, row in enumerate(rows[250:]):
        row["a"] = 85.0 if place % 2 else row["a"]
    live(rig, rows[250:], labels[250:], 251)
    assert rig.node.state.local_models.sensors["a"] == before
    assert any(
        line.startswith("a: ") and line.endswith("at the gate: 85")
        for line in rig.node.status(0).degraded
    )


def test_a_scale_that_was_given_is_reported_and_stays():
    """What the configuration says is the operator's word."""
    given = (UNKNOWN[0], SensorConfig("light", reference=0.0, scale=0.5, timeout_s=1e6))
    rows, labels = room(500, dawn=0)
    rig = live(Rig.make(sensors=given), rows, labels)
    assert rig.node.state.local_models.sensors["light"].scale == 0.5
    assert counted(rig, NodeReason.SCALE_MOVED) == 0
    assert any(line.startswith("light: ") for line in rig.node.status(0).degraded)


def test_values_no_scale_can_be_told_for_are_reported_and_every_reading_is_answered():
    """The largest numbers there are, behind a narrow gate: their scale would be beyond float32."""
    rng = np.random.default_rng(2)
    rig = Rig.make(sensors=UNKNOWN, gate=1.0, warmup_readings=8)
    for seq in range(1, 41):
        a, light = (1.0 if seq <= 8 else 3e38) * rng.uniform(0.6, 1.0, size=2)
        rig.read(seq, {"a": float(a), "light": float(light)}, now_ms=seq)
    assert counted(rig, NodeReason.INPUT_FAILED) == 0
    assert len(rig.predictions()) == 40
    assert any("at the gate" in line for line in rig.node.status(0).degraded)


def test_a_drift_to_where_no_scale_can_be_told_moves_nothing():
    watch, sensor = ScaleWatch(), Sensor("s", 0.0, 1.0)
    for _ in range(3 * 1024):
        if watch.note({"s": 3e38}):
            assert watch.take_drifted([sensor], gate=1.0) == []


def test_a_warm_up_in_which_nothing_moves_begins_anew():
    """Every sensor on the bench; the node says so, and learns when they are mounted."""
    rows, labels = room(700, dawn=250)
    for row in rows[:220]:
        row["a"] = 20.0
    rig = live(Rig.make(sensors=UNKNOWN), rows, labels)
    assert counted(rig, NodeReason.NOTHING_MOVED) == 1
    assert right(rig, labels[-200:]) > 0.95
    rig.commit(0)
    assert rig.reborn().frozen() == rig.frozen()


@pytest.mark.parametrize("rests", [16, 32, 100])
def test_sensors_that_moved_and_then_rest_do_not_end_a_warm_up(rests):
    """Two of eight first values are away from the others (a hand, while it is mounted); then a
    still night. At the next look nobody has moved: the node used to be left without a sensor.
    """
    rows, labels = room(rests + 400, dawn=0)
    for number, row in enumerate(rows[:rests]):
        row |= {"a": 20.0 + (number in (2, 5)) * number, "light": 0.0}
    rig = live(Rig.make(sensors=UNKNOWN), rows[:rests], labels[:rests])
    rig.commit(0)
    assert rig.reborn().frozen() == rig.frozen()
    live(rig, rows[rests:], labels[rests:], first=rests + 1)
    assert counted(rig, NodeReason.INPUT_FAILED) == 0
    assert len(rig.predictions()) == len(rows)
    assert right(rig, labels[-100:]) > 0.95
    rig.commit(0)
    assert rig.reborn().frozen() == rig.frozen()


def test_two_regimes_are_moved_between_a_few_times_at_most():
    """Summer and winter, a thousand readings each, for ever: hysteresis, and no pendulum."""
    watch, sensor, moves = ScaleWatch(), Sensor("s", 20.0, 1.0), 0
    rng = np.random.default_rng(5)
    for place in range(40_000):
        value = (20.0 if place // 3000 % 2 else 27.0) + float(rng.normal())
        away = abs(value - sensor.reference) / sensor.scale
        watch.note({"s": value}, ["s"] if away >= 8 else [])
        for found in [*watch.take_drifted([sensor], 8.0), watch.better(sensor, 8.0)]:
            if found is not None:
                sensor, moves = found, moves + 1
    assert moves <= 3


# -- measured again --------------------------------------------------------------------------------


def test_a_remeasured_sensor_predicts_as_if_it_had_had_the_scale_from_the_start():
    """Nothing was clipped, so nothing is lost: the sums are the same, up to float32."""
    rows, labels = room(600, dawn=0)
    rig = live(Rig.make(sensors=UNKNOWN), rows[:300], labels[:300])
    before = rig.node.state.local_models.sensors["light"].scale
    change = Remeasured(0, "light")
    apply(rig.node.state, change)
    rig.durable.append(pack_record(change)) if not rig.pending else rig.pending.append(
        pack_record(change)
    )
    for row in rows[300:]:
        row["light"] = 200 + (row["light"] - 200) * 0.5
    live(rig, rows[300:510], labels[300:510], 301)
    sensors = rig.node.state.local_models.sensors
    assert sensors["light"].scale < 0.8 * before  # narrower: never by itself
    given = tuple(
        SensorConfig(s.id, reference=s.reference, scale=s.scale, timeout_s=1e6)
        for s in sensors.values()
    )
    other = live(Rig.make(sensors=given, gate=50.0), rows[:510], labels[:510])
    ours, theirs = (each.node.state.local_models.learner for each in (rig, other))
    # float32 over 510 readings, and what the first layouts of the warm-up had clipped
    assert np.allclose(ours.weights()[0], theirs.weights()[0], atol=5e-3)
    rig.commit(0)
    assert rig.reborn().frozen() == rig.frozen()


def configured(tmp_path):
    file = tmp_path / "node.toml"
    lines = ["[node]", 'site = "farm"', 'node = "n1"', 'classes = ["dry", "wet"]']
    lines += ["warmup_readings = 20", "[[sensors]]", 'id = "soil"', "[broker]"]
    lines += ['host = "127.0.0.1"', "[state]", f'folder = "{tmp_path / "state"}"']
    file.write_text("\n".join(lines))
    return file


def test_a_stopped_node_measures_anew_from_its_next_start_on(tmp_path, capsys):
    """It is a record in the journal: the next life replays it, and goes on as it was meanwhile."""
    file = configured(tmp_path)
    config = load_config(file, {})
    with open_node(config) as (node, store, _):
        for action in node.start(0):
            if isinstance(action, Append):
                store.append(action.record)
        for seq in range(1, 31):
            change = Accepted(seq, "box", 1, seq, seq, {"soil": 20.0 + seq % 7}, None)
            apply(node.state, change)
            store.append(pack_record(change))
        store.commit()
        before = node.state.local_models.sensors
    assert main(["remeasure", "soil", str(file)]) == 0
    assert "soil is measured by its next 20 values" in capsys.readouterr().out
    with open_node(config) as (node, _, _):
        assert list(node.state.scales.again) == ["soil"]
        assert node.state.local_models.sensors == before
    assert main(["remeasure", "nobody", str(file)]) == 2


# -- with a gateway --------------------------------------------------------------------------------


def test_a_node_with_a_gateway_asks_for_a_scale_and_obeys():
    """The layout is the gateway's: the node reports, is ordered, and moves what it learned."""
    rows, labels = room(900, dawn=250)
    rng = np.random.default_rng(3)
    for row in rows[:250]:
        row["light"] = float(rng.integers(0, 3))
    rig = live(Rig.make(sensors=UNKNOWN), rows[:240], labels[:240])
    mine = tuple(rig.node.state.local_models.sensors.values())
    rig.order(order(mine, 1))
    live(rig, rows[240:290], labels[240:290], 241)
    asked = rig.messages(Channel.EVENT, ScaleMeasured)
    assert [each.sensor for each in asked] == ["light"]
    assert rig.node.state.local_models.sensors["light"].scale < 2  # it changes nothing itself
    W = np.ones((3, 3), np.float32)
    rig.order(order(mine, 2, weights=folded(W)))
    said = rig.node.state.pushed_models.matrices()["model"].copy()
    readings = rig.node.state.local_models.learner.readings
    wider = tuple(
        description(
            s.id, s.role, reference=s.reference, timeout_s=s.timeout_s, scale=asked[0].scale
        )
        if s.id == "light"
        else s
        for s in mine
    )
    rig.order(order(wider, 3, layout_version=2))
    assert rig.node.state.local_models.sensors["light"].scale == asked[0].scale
    assert rig.node.state.local_models.learner.readings == readings
    moved = rig.node.state.pushed_models.matrices()["model"]
    old, new = np.array([0.5, 3.0, 1.0]), np.array([0.5, 3.0 * mine[1].scale / asked[0].scale, 1.0])
    assert np.allclose(new @ moved, old @ said, rtol=1e-5)  # the same reading, the same scores
    rig.commit(0)
    assert rig.reborn().frozen() == rig.frozen()


def order(sensors, version, layout_version=1, weights=None):
    return replace(desired(version, layout_version, weights=weights), sensors=tuple(sensors))


def test_a_sensor_that_moves_at_last_is_announced_to_the_gateway():
    """It was not in the introduction, so the gateway does not know it yet."""
    rows, labels = room(500, dawn=300)
    rig = live(Rig.make(sensors=UNKNOWN), rows[:240], labels[:240])
    rig.run(rig.node.on_connected(0), 0)
    (introduction,) = rig.messages(Channel.EVENT, Introduction)[-1:]
    assert [each.id for each in introduction.sensors] == ["a"]
    rig.order(order(introduction.sensors, 1))
    live(rig, rows[240:340], labels[240:340], 241)
    (asked,) = rig.messages(Channel.EVENT, SensorDeployed)
    assert (asked.sensor, asked.role, asked.reference) == ("light", "light", 0.0)
    light = description("light", reference=asked.reference, scale=asked.scale)
    rig.order(order((*introduction.sensors, light), 2, layout_version=2))
    live(rig, rows[340:], labels[340:], 341)
    assert not rig.node.state.measuring
    assert len(rig.messages(Channel.EVENT, SensorDeployed)) == 1


def fleet_with(event_of, readings=60):
    fleet = FleetRig(names=("n1",))
    fleet.pass_s(2)
    for _ in range(30):
        fleet.read("n1")
    fleet.event("n1", event_of(fleet))
    fleet.pass_s(2)
    for _ in range(readings):
        fleet.read("n1")
    fleet.pass_s(5)
    return fleet, fleet.gateway.fleet.sensors["street", "n1"]["pm-n1"]


def test_the_gateway_orders_the_scale_that_a_node_measured():
    """Its node gets it, keeps its readings, and nobody is retired by it."""
    fleet, record = fleet_with(
        lambda fleet: ScaleMeasured("pm-n1", at_ms=fleet.now_ms, reference=0.5, scale=3.0)
    )
    assert (record.reference, record.scale, record.state) == (0.5, 3.0, SensorState.ACTIVE)
    node = fleet.nodes["n1"].node.state
    assert node.local_models.sensors["pm-n1"].scale == 3.0
    assert node.local_models.learner.readings == 90
    assert fleet.gateway.counts["scale-measured"] == 1


def test_an_operator_has_a_sensor_measured_anew_through_the_gateway():
    """It keeps its columns meanwhile, and what was learned is converted."""
    fleet, record = fleet_with(lambda fleet: SensorRemeasured("pm-n1", fleet.now_ms))
    assert record.state == SensorState.ACTIVE
    assert record.reason == "measured anew"
    assert (record.reference, record.scale) != (0.0, 1.0)
    node = fleet.nodes["n1"].node.state
    assert node.local_models.sensors["pm-n1"].scale == record.scale
    assert node.local_models.learner.readings == 90


# -- the library -----------------------------------------------------------------------------------


def test_the_classifier_waits_for_a_sensor_to_move_and_moves_scales():
    """The same rules without a node; what is saved goes on to the bit."""
    rows, labels = room(900, dawn=300)
    classifier, hits = Classifier(), []
    for place, (row, label) in enumerate(zip(rows, labels, strict=True)):
        hits.append(classifier.predict_one(row) == label)
        classifier.learn_one(row, label)
        if place == 290:
            assert classifier.layout.names == ("a",)
            classifier = Classifier.from_state(classifier.state())
    assert classifier.layout.names == ("a", "light")
    assert np.mean(hits[-400:]) > 0.97


def test_a_summary_of_before_is_pooled_on_the_scale_of_today():
    """Sums on an old scale would weigh the same column otherwise than those on the new one."""
    rows, labels = room(300, dawn=0)
    old = (description("a", reference=20.0), description("light", reference=200.0, scale=50.0))
    new = (old[0], replace(old[1], reference=100.0, scale=200.0))

    def layout(version, sensors):
        options = {"vanishing": (), "gate": 100.0, "change": 0, "at_ms": 0}
        return LayoutRecord(site="s", node="n", version=version, sensors=sensors, **options)

    def taught(record):
        columns, learner = layout_in(record), WoodburyLearner(0, 3, 3, dtype="float64")
        for row, label in zip(rows, labels, strict=True):
            learner.learn_one(columns.encode(row), CLASSES.index(label))
        return learner.summary()

    known = taught(layout(1, old))
    message = SummaryMessage(
        layout_version=1,
        width=3,
        classes=3,
        sensors=("a", "light"),
        vanishing=(),
        lam=1.0,
        rho=1.0,
        readings=known.readings,
        evidence=known.evidence,
        gram=to_bytes(known.gram.astype("f4")),
        moment=to_bytes(known.moments.astype("f4")),
    )
    change = ChangeRecord(
        id=1, group="g", retired=(), arrived=(), columns=("a", "bias", "light"), opened_ms=0
    )
    summary = SummaryRecord(site="s", node="n", layout_version=1, payload=encode(message), at_ms=0)
    job = FitJob(
        change=change,
        size=0,
        classes=CLASSES,
        layouts={("s", "n", 1): layout(1, old)},
        summaries=[summary],
        examples=[],
        previous=None,
        lam=1.0,
        rho=1.0,
        newest={("s", "n"): layout(2, new)},
    )
    (member,) = group_knowledge(job).members
    wanted = taught(layout(2, new)).statistics()
    # float32 sums of 300 readings, some of which cancel when the reference moves
    assert np.allclose(member.summary.statistics().gram, wanted.gram, rtol=1e-4, atol=1e-2)
    assert np.allclose(member.summary.statistics().moments, wanted.moments, rtol=1e-4, atol=1e-2)


def test_a_sensor_with_the_longest_name_there_may_be_is_counted_too():
    """`gated-` and 32 characters are no id: the node ended with the first status after a gate."""
    name = "tele-desk-sen-bh1750-illuminance"
    rig = Rig.make(sensors=(SensorConfig(name, reference=0.0, scale=1.0), SensorConfig("b")))
    for seq in range(1, 230):
        rig.read(seq, {name: 1e3 if seq > 215 else 0.5, "b": float(seq % 7)})
    assert rig.node.state.scales.counts[name] > 0
    assert rig.node.status(0).counts[f"gated-{name[-26:]}"] > 0
