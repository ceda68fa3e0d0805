"""A node's life without a gateway: it predicts, learns, loses sensors, and never forgets twice."""

from __future__ import annotations

import numpy as np
import pytest
from support.rig import CLASSES, TOPICS, Rig, desired, folded

from edge_opid import Layout, LayoutError, Sensor, WoodburyLearner
from edge_opid.config.node import ForeignConfig, SensorConfig
from edge_opid.node.local_models import LocalModels
from edge_opid.wire import (
    Channel,
    InstanceId,
    Label,
    SensorReturned,
    SensorSilent,
    SummaryMessage,
    encode,
)


def world(n, seed=0):
    """Some readings of three sensors; c repeats a with noise, the class is up to a and b."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=n), rng.normal(size=n)
    c = a + 0.4 * rng.normal(size=n)
    labels = np.argmax([a, b, -a - b], axis=0)
    rows = [dict(zip("abc", map(float, row), strict=True)) for row in zip(a, b, c, strict=True)]
    return rows, [CLASSES[label] for label in labels]


def accuracy(rig, labels, last):
    got = [prediction.label for prediction in rig.predictions()][-last:]
    return np.mean([one == other for one, other in zip(got, labels[-last:], strict=True)])


def live(rig, rows, labels, first_seq=1, gap_ms=100):
    for seq, (row, label) in enumerate(zip(rows, labels, strict=True), first_seq):
        rig.read(seq, row, label, now_ms=seq * gap_ms)
        rig.tick(seq * gap_ms)


def test_it_learns_what_a_learner_alone_would_to_the_bit():
    rows, labels = world(300)
    rig = Rig.make()
    live(rig, rows, labels)
    layout = Layout(["a", "b", "c"])
    learner = WoodburyLearner(0, 4, 3)
    for row, label in zip(rows, labels, strict=True):
        learner.learn_one(layout.encode(row), CLASSES.index(label))
    for name, value in learner.state().items():
        assert np.array_equal(value, rig.node.state.local_models.learner.state()[name])
    assert accuracy(rig, labels, 100) > 0.7


def test_a_restart_at_any_moment_gives_the_same_bits():
    """The journal alone, or any snapshot and the journal after it."""
    rows, labels = world(120)
    rig, marks = Rig.make(), []
    for seq, (row, label) in enumerate(zip(rows, labels, strict=True), 1):
        rig.read(seq, row, label)
        if not rig.pending and seq % 20 == 0:
            marks.append((len(rig.durable), rig.frozen()))
    rig.commit(0)
    for since, snapshot in marks:
        assert rig.reborn(snapshot, since).frozen() == rig.frozen()
    assert rig.reborn().frozen() == rig.frozen()
    assert len(marks) == 6


def test_a_duplicate_is_never_applied_and_is_acknowledged_again():
    rows, labels = world(10)
    rig = Rig.make()
    live(rig, rows, labels)
    rig.commit(0)
    before, acks = rig.frozen(), len(rig.acks())
    rig.read(4, rows[3], labels[3])
    assert rig.frozen() == before
    assert rig.acks()[acks:] == [rig.acks()[acks - 1]]
    assert rig.node.counted()["duplicate"] == 1


def test_nothing_is_acknowledged_before_it_is_durable():
    """Neither to the sender by number nor to the broker by packet."""
    rig = Rig.make(commit_records=50)
    for seq in range(1, 50):
        rig.read(seq, {"a": 0.1})
    assert (rig.acks(), rig.released, rig.durable) == ([], [], [])
    rig.read(50, {"a": 0.1})
    assert rig.acks()[-1].seq == 50
    assert len(rig.released) == 50


def test_a_gap_is_not_acknowledged_over_and_heals_when_the_number_comes():
    rig = Rig.make()
    for seq in (1, 2, 4, 5):
        rig.read(seq, {"a": 0.1, "b": 0.0, "c": 0.0}, "fresh", now_ms=0)
    rig.commit(0)
    assert rig.acks()[-1].seq == 2
    rig.tick(2_500)
    assert rig.acks()[-1].seq == 2
    assert rig.node.counted()["resend-asked"] == 1
    rig.read(3, {"a": 0.1, "b": 0.0, "c": 0.0}, "fresh", now_ms=2_600)
    rig.commit(2_700)
    assert rig.acks()[-1].seq == 5
    assert rig.node.state.local_models.learner.readings == 5


def test_a_silent_sensor_is_noticed_bridged_reported_and_taken_back():
    """Without any gateway: accuracy holds on the sensor that repeats it."""
    rows, labels = world(400)
    rig = Rig.make()
    live(rig, rows[:200], labels[:200])
    parked = rig.node.state.local_models.learner
    mute = [{name: row[name] for name in "bc"} for row in rows[200:]]
    live(rig, mute[:150], labels[200:350], first_seq=201)
    local_models = rig.node.state.local_models
    assert local_models.silent == ("a",)
    assert local_models.layout.columns == ("b", "c", "bias")
    assert rig.messages(Channel.EVENT, SensorSilent)[0].sensor == "a"
    assert accuracy(rig, labels[:350], 40) > 0.6
    assert "silent: a" in rig.node.status(0).degraded
    live(rig, rows[350:], labels[350:], first_seq=351)
    assert local_models.silent == ()
    events = rig.messages(Channel.EVENT, SensorSilent | SensorReturned)
    assert len(events) == 2
    assert events[1] == SensorReturned("a", 35_100)
    assert local_models.learner is parked
    assert rig.node.status(0).healthy
    assert rig.reborn().frozen() == (rig.commit(0), rig.frozen())[1]


def test_when_everybody_is_silent_it_is_the_network():
    rows, labels = world(50)
    rig = Rig.make()
    live(rig, rows, labels)
    before = rig.frozen()
    for now in range(5_000, 200_000, 5_000):
        rig.tick(now)
    assert rig.node.state.local_models.silent == ()
    assert rig.frozen() == before


def test_an_outage_silences_nobody_whatever_the_timeouts():
    """Neither a short timeout beside a long one, nor a sensor deployed meanwhile, is news."""
    sensors = tuple(
        SensorConfig(name, reference=0.0, scale=1.0, timeout_s=timeout)
        for name, timeout in (("a", 10.0), ("b", 600.0), ("c", 10.0))
    )
    rows, labels = world(50)
    rig = Rig.make(sensors=sensors)
    live(rig, rows, labels)
    rig.tick(35_000)
    rig.order(desired(1, sensors=("a", "b", "c", "d")), now_ms=65_000)
    rig.tick(66_000)
    assert rig.node.state.local_models.silent == ()
    rig.read(51, rows[0], labels[0], now_ms=70_000)
    rig.tick(70_100)
    assert rig.node.state.local_models.silent == ()
    for second in range(71, 90):
        rig.read(second - 19, rows[0], labels[0], now_ms=1000 * second)
        rig.tick(1000 * second)
    assert rig.node.state.local_models.silent == ("d",)  # deployed, and never heard


def test_labels_that_come_late_are_learned_once():
    """By number or by time; a second label, or one for nobody, is counted and changes nothing."""
    rig = Rig.make()
    rows, labels = world(20)
    for seq, row in enumerate(rows, 1):
        rig.read(seq, row, now_ms=seq * 1000)
    label = TOPICS.to(Channel.LABEL)
    rig.handle(label, encode(Label(labels[4], InstanceId("s", 1, 5))))
    rig.handle(label, encode(Label(labels[9], time_ms=10_100)))
    assert rig.node.counts["learned"] == 2
    before = rig.node.state.local_models.learner.state()
    for late in (
        Label(labels[4], InstanceId("s", 1, 5)),
        Label(labels[4], InstanceId("s", 9, 5)),
        Label("fresh", time_ms=90_000),
        Label("purple", time_ms=11_000),
    ):
        rig.handle(label, encode(late))
    after = rig.node.state.local_models.learner.state()
    assert all(np.array_equal(after[name], value) for name, value in before.items())
    assert rig.node.counts["unknown-class"] == 1
    assert rig.node.counts["learned"] == 2


def test_the_old_model_comes_back_after_a_bad_one_was_pushed():
    """Signed and valid, but it never says "stale": its first labelled readings tell."""
    rows, labels = world(400)
    layout = Layout([Sensor(name) for name in "abc"])
    X = np.array([layout.encode(row) for row in rows])
    Y = np.eye(3)[[CLASSES.index(label) for label in labels]]
    good = np.linalg.lstsq(X, Y, rcond=None)[0]
    rig = Rig.make()
    rig.order(desired(1, weights=folded(good)))
    live(rig, rows[:100], labels[:100])
    rig.order(desired(2, weights=folded(good - 5 * np.outer(layout.encode({}), [0, 1, 0]))))
    assert rig.node.state.pushed_models.version() == 2
    live(rig, rows[100:160], labels[100:160], first_seq=101)
    assert rig.node.counts["model-fallback"] == 1
    assert rig.node.state.pushed_models.version() == 1
    assert rig.node.state.version == 2  # the floor does not drop with it


def test_the_gateway_retires_and_deploys_and_the_survivors_are_inherited():
    rows, labels = world(300)
    rig = Rig.make()
    live(rig, rows[:200], labels[:200])
    known = rig.node.state.local_models.learner.summary()
    rig.order(desired(1, sensors=("b", "c", "d")), now_ms=20_000)
    local_models = rig.node.state.local_models
    assert local_models.layout.columns == ("b", "c", "d", "bias")
    assert local_models.learner.readings == 200
    (summary,) = rig.messages(Channel.SUMMARY, SummaryMessage)
    assert (summary.layout_version, summary.width, summary.readings) == (0, 4, 200)
    assert summary.sensors == ("a", "b", "c")
    assert np.array_equal(summary.gram_array(), known.gram)
    assert np.array_equal(summary.moment_array(), known.moments)
    moved = [{"b": r["b"], "c": r["c"], "d": r["a"]} for r in rows[200:]]
    live(rig, moved, labels[200:], first_seq=201)
    assert accuracy(rig, labels, 50) > 0.7
    assert rig.statuses()[-1].layout_version == 1


def test_a_full_disk_stops_learning_and_acknowledging_but_not_predicting():
    """And when it has room again the node goes on without a restart, to the same bits."""
    rows, labels = world(1200)
    rig = Rig.make(commit_records=20)
    live(rig, rows[:40], labels[:40])
    rig.disk_full = True
    acked = rig.acks()[-1].seq
    live(rig, rows[40:], labels[40:], first_seq=41)
    assert rig.acks()[-1].seq == acked
    assert len(rig.predictions()) == 1200
    assert rig.node.counts["not-kept"] > 100
    assert "disk full" in rig.statuses()[-1].degraded
    rig.disk_full = False
    rig.commit(200_000)
    kept = rig.acks()[-1].seq
    assert 40 < kept < 1200
    live(rig, rows[kept:], labels[kept:], first_seq=kept + 1)
    rig.commit(400_000)
    assert rig.acks()[-1].seq == 1200
    assert rig.node.state.local_models.learner.readings == 1200
    assert rig.reborn().frozen() == rig.frozen()


def test_a_source_that_talks_too_much_is_limited_and_counted():
    rig = Rig.make(rate_per_second=1.0, rate_burst=5)
    for seq in range(1, 20):
        rig.read(seq, {"a": 0.1}, now_ms=0)
    assert rig.node.counts["rate-limited"] == 14
    assert rig.node.counts["readings"] == 5
    rig.read(1, {"a": 0.1}, now_ms=0, source="quiet")
    assert rig.node.counts["readings"] == 6


def test_labels_that_come_too_fast_are_limited_counted_and_keep_nobody_else_from_speaking():
    """A flood of labels, of sources that nobody knows and of one that is known."""
    rig, topic = Rig.make(rate_per_second=1.0, rate_burst=5, recent=5), TOPICS.to(Channel.LABEL)
    for source in ("s", "t"):
        rig.read(1, {"a": 0.1}, now_ms=0, source=source)
    before = rig.node.state.local_models.learner.readings
    for seq in range(20):
        invented = InstanceId(f"x{seq}", 1, 1)
        rig.handle(topic, encode(Label(CLASSES[0], invented)), 0, token=f"x{seq}")
        rig.handle(topic, encode(Label(CLASSES[0], InstanceId("s", 1, 9))), 0, token=f"s{seq}")
    assert rig.node.counts["label-rate-limited"] == 30
    assert rig.node.counts["label-unknown-instance"] == 10
    assert len(rig.released) >= 40  # the broker may forget them
    assert rig.node.state.local_models.learner.readings == before
    rig.handle(topic, encode(Label(CLASSES[0], InstanceId("t", 1, 1))), 0)
    assert rig.node.state.local_models.learner.readings == before + 1
    rig.handle(topic, encode(Label(CLASSES[0], InstanceId("s", 1, 1))), 1_000)
    assert rig.node.state.local_models.learner.readings == before + 2


def test_every_instance_that_waits_may_get_its_label_at_once():
    """After an outage the broker hands over hundreds of labels in a second."""
    rig, topic = Rig.make(rate_per_second=1.0, rate_burst=5, recent=64), TOPICS.to(Channel.LABEL)
    for seq in range(1, 65):
        rig.read(seq, {"a": 0.1}, now_ms=1_000 * seq)
    for seq in range(1, 65):
        rig.handle(topic, encode(Label(CLASSES[0], time_ms=1_000 * seq)), 100_000)
    assert rig.node.state.local_models.learner.readings == 64
    assert rig.node.counts["label-rate-limited"] == 0


def test_foreign_topics_are_readings_too():
    foreign = (
        ForeignConfig("zigbee2mqtt/attic", "attic", {"temperature": "a", "AM.Humidity": "b"}),
        ForeignConfig("tele/pm/value", "pm", "c"),
    )
    rig = Rig.make(foreign=foreign, window_ms=1000)
    asked = rig.node.subscriptions()
    assert {name: asked[name] for name in ("zigbee2mqtt/attic", "tele/pm/value")} == dict.fromkeys(
        ("zigbee2mqtt/attic", "tele/pm/value"), 0
    )  # at most once: nothing tells a second delivery from a new reading
    assert asked["opid/1/farm/n1/reading/+"] == 1
    rig.handle("zigbee2mqtt/attic", b'{"temperature": 1.5, "AM": {"Humidity": "0.5"}}', 10)
    rig.handle("tele/pm/value", b"-0.25", 20)
    (prediction,) = rig.predictions()
    assert prediction.instance.source == "pm"
    rig.handle("tele/pm/value", b"\xff\xfe", 30)
    assert len(rig.predictions()) == 1
    assert sum(count for name, count in rig.node.counts.items() if name.startswith("refused")) == 1


def test_sensors_without_reference_or_scale_are_warmed_up_and_the_warm_up_is_durable():
    rows, labels = world(300)
    raw = [{name: 20 + 100 * value for name, value in row.items()} for row in rows]
    sensors = tuple(SensorConfig(name, knots=5) for name in "abc")
    rig = Rig.make(sensors=sensors, warmup_readings=100)
    live(rig, raw[:60], labels[:60])
    rig.commit(0)
    middle = rig.reborn(rig.frozen(), len(rig.durable))
    for each in (rig, middle):
        live(each, raw[60:], labels[60:], first_seq=61)
        each.commit(0)
    assert rig.frozen() == middle.frozen()
    assert rig.node.state.warmup is None
    assert rig.node.state.local_models.learner.readings == 300
    scales = [sensor.scale for sensor in rig.node.state.local_models.sensors.values()]
    assert all(50 < scale < 200 for scale in scales)
    assert accuracy(rig, labels, 100) > 0.7


@pytest.mark.parametrize("payload", [b"", b"\x00", b"\xc1", bytes(9000), b"{}"])
@pytest.mark.parametrize(
    "topic", ["opid/1/farm/n1/reading/s", "opid/1/farm/n2/label", "x", "opid/1"]
)
def test_whatever_arrives_is_counted_and_released(topic, payload):
    rig = Rig.make()
    before = rig.frozen()
    rig.handle(topic, payload, token="bad")
    assert rig.released == ["bad"]
    assert sum(rig.node.counts.values()) == 1
    assert rig.frozen() == before


def test_an_input_that_fails_half_way_is_journalled_and_replays_to_the_same_bits(monkeypatch):
    """It should not happen; if it does, the journal must still explain the state."""
    rows, labels = world(20)
    rig = Rig.make()
    real = LocalModels.learn

    def failing(local_models, x, label):
        real(local_models, x, label)
        if local_models.learner.readings == 7:
            raise LayoutError("planted")

    monkeypatch.setattr(LocalModels, "learn", failing)
    live(rig, rows, labels)
    rig.commit(0)
    assert rig.node.counts["input-failed"] == 1
    assert "planted" in rig.node.status(0).degraded
    assert len(rig.durable) == 21  # the settings, and 20 readings
    assert rig.acks()[-1].seq == 20
    assert rig.reborn().frozen() == rig.frozen()


def test_a_node_says_how_far_its_warm_up_is_and_no_more_when_it_is_over():
    """A newcomer waits before a node that predicts "unknown": for how long?"""
    sensors = (SensorConfig("a"), SensorConfig("b"))
    rig = Rig.make(sensors=sensors, warmup_readings=10)
    said = [rig.node.warming_up]
    for seq in range(1, 12):
        rig.read(seq, {"a": float(seq % 3), "b": float(-seq)}, CLASSES[seq % 3])
        said.append(rig.node.warming_up)
    assert said == [f"{n} of 10 readings" for n in range(10)] + ["", ""]
    assert rig.node.status(12_000).degraded == ()
