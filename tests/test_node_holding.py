"""Sensors that report when they like: an instance is made of what each of them said last."""

from __future__ import annotations

import numpy as np
import pytest
from support.rig import CLASSES, TOPICS, Rig, config, desired

from edge_opid import Layout, WoodburyLearner
from edge_opid.config.node import SensorConfig
from edge_opid.node.node import Node
from edge_opid.wire import Channel, Example, InstanceId, Label, encode


def given(name, **changes):
    return SensorConfig(name, **{"reference": 0.0, "scale": 1.0, **changes})


def rig_of(*sensors, **changes):
    return Rig.make(sensors=sensors, **changes)


def newest(rig):
    """The latest instance that waits for its label."""
    return rig.node.state.recent._entries[-1]


def test_a_sensor_that_is_missing_from_a_reading_counts_with_its_last_value():
    """It used to count as its reference: a home's labels taught instances of one value."""
    rig = rig_of(given("co2"), given("temp"), given("door"))
    rig.read(1, {"temp": 21.5}, now_ms=1_000, source="attic")
    rig.read(1, {"co2": 600.0}, now_ms=61_000, source="hall")
    entry = newest(rig)
    assert entry.values == {"co2": 600.0, "temp": 21.5}  # nobody knows anything of the door
    assert list(entry.ages_ms) == [0, 60_000]
    rig.read(2, {"co2": 610.0, "temp": 21.0, "door": 0.0}, now_ms=62_000, source="hall")
    assert newest(rig).ages_ms is None  # nothing was held


def test_complete_readings_are_learned_to_the_bit_as_if_nothing_were_held():
    """A source whose readings have all sensors must see no change at all."""
    rng = np.random.default_rng(3)
    rows = [dict(zip("abc", map(float, each), strict=True)) for each in rng.normal(size=(80, 3))]
    learner, layout = WoodburyLearner(0, 4, 3), Layout(["a", "b", "c"])
    rig = Rig.make()
    for seq, row in enumerate(rows, 1):
        rig.read(seq, row, CLASSES[seq % 3])
        learner.learn_one(layout.encode(row), seq % 3)
    for name, value in learner.state().items():
        assert np.array_equal(value, rig.node.state.local_models.learner.state()[name])
    assert all(entry.ages_ms is None for entry in rig.node.state.recent._entries)


@pytest.mark.parametrize(
    ("sensor", "age_ms", "held"),
    [
        (given("b", hold_s=30.0), 30_000, True),
        (given("b", hold_s=30.0), 30_001, False),
        (given("b", hold_s=0.0), 1, False),
        (given("b", timeout_s=10.0), 10_000, True),
        (given("b", timeout_s=10.0), 10_001, False),
        (given("b", timeout_s=10.0, hold_s=60.0), 10_001, True),
        (given("b"), 30 * 86_400_000, True),  # a door that nobody opens stays closed
    ],
)
def test_a_value_is_held_for_as_long_as_was_said_and_no_longer(sensor, age_ms, held):
    rig = rig_of(given("a"), sensor)
    rig.read(1, {"b": 2.0}, now_ms=5_000)
    rig.read(2, {"a": 1.0}, now_ms=5_000 + age_ms)
    assert ("b" in newest(rig).values) is held


def test_a_sensor_with_a_rhythm_is_held_while_its_rhythm_allows_it():
    """It speaks every ten seconds; a week later, after a restart, that value means nothing."""
    rig = rig_of(given("a"), given("b"))
    for seq in range(1, 41):
        rig.read(seq, {"b": float(seq)}, now_ms=10_000 * seq, source="b")
    patience_ms = rig.node.state.silence.rhythms.patience_ms("b")
    assert 20_000 <= patience_ms <= 120_000
    for late_ms, held in ((patience_ms, True), (patience_ms + 1, False)):
        other = Rig(Node(rig.node.config))
        rig.commit(0)
        other.node.restore(None, rig.durable)
        other.read(1, {"a": 1.0}, now_ms=400_000 + late_ms, source="a")
        assert ("b" in newest(other).values) is held


def test_what_was_held_before_a_restart_keeps_its_age():
    rig = rig_of(given("a"), given("b", hold_s=60.0))
    rig.read(1, {"b": 2.0}, now_ms=1_000)
    rig.commit(1_000)
    for now_ms, held in ((61_000, True), (61_001, False)):
        other = rig.reborn()
        other.read(2, {"a": 1.0}, now_ms=now_ms)
        assert ("b" in newest(other).values) is held


def test_a_clock_that_was_set_back_holds_nothing_for_years():
    """A board without a clock of its own comes up in 1970: the age begins anew, and ends."""
    rig = rig_of(given("a"), given("b", hold_s=60.0))
    rig.read(1, {"b": 2.0}, now_ms=1_700_000_000_000)
    rig.read(2, {"a": 1.0}, now_ms=5_000)
    assert newest(rig).values == {"a": 1.0, "b": 2.0}
    rig.read(3, {"a": 1.0}, now_ms=65_000)
    assert newest(rig).values == {"a": 1.0, "b": 2.0}
    rig.read(4, {"a": 1.0}, now_ms=65_001)
    assert newest(rig).values == {"a": 1.0}


def test_a_late_label_teaches_the_values_that_were_held_then():
    """By the time it comes, the sensors have said something else."""
    rig = rig_of(given("a"), given("b"))
    rig.read(1, {"a": 1.0}, now_ms=1_000)
    rig.read(2, {"b": 2.0}, now_ms=2_000)
    rig.read(3, {"a": -3.0, "b": -3.0}, now_ms=3_000)
    label = encode(Label("fresh", InstanceId("s", 1, 2)))
    rig.handle(TOPICS.to(Channel.LABEL), label, 4_000)
    learner = WoodburyLearner(0, 3, 3)
    learner.learn_one(Layout(["a", "b"]).encode({"a": 1.0, "b": 2.0}), 0)
    for name, value in learner.state().items():
        assert np.array_equal(value, rig.node.state.local_models.learner.state()[name])


def test_an_instance_that_makes_way_does_not_get_values_of_the_reading_after_it():
    """A window: the next reading closes it, and must not fill what it lacked."""
    rig = rig_of(given("a"), given("b"), given("c"), window_ms=500)
    rig.read(1, {"c": 7.0}, now_ms=1_000)
    rig.tick(1_600)
    rig.read(2, {"a": 1.0}, now_ms=2_000)
    rig.read(3, {"a": 2.0, "c": 9.0}, now_ms=2_100)  # a second value of a: the first one closes
    assert newest(rig).values == {"a": 1.0, "c": 7.0}
    rig.tick(2_700)
    assert newest(rig).values == {"a": 2.0, "c": 9.0}


def test_a_silent_sensor_is_not_held_and_a_retired_one_is_forgotten():
    rig = rig_of(given("a"), given("b", timeout_s=10.0, hold_s=3600.0), given("c"))
    rig.read(1, {"a": 1.0, "b": 2.0, "c": 3.0}, now_ms=0)
    rig.read(2, {"a": 1.0}, now_ms=11_000)
    assert newest(rig).values == {"a": 1.0, "b": 2.0, "c": 3.0}
    rig.tick(11_000)
    assert rig.node.state.local_models.silent == ("b",)
    rig.read(3, {"a": 1.0}, now_ms=12_000)
    assert newest(rig).values == {"a": 1.0, "c": 3.0}
    rig.order(desired(1, sensors=("a", "d")), now_ms=13_000)
    rig.read(4, {"a": 1.0}, now_ms=14_000)
    assert newest(rig).values == {"a": 1.0}
    assert set(rig.node.state.last.heard_ms) == {"a"}


def test_examples_and_predictions_follow_the_instance():
    """A gateway fits on what the node predicts from: with the values that were held."""
    rig = rig_of(given("a"), given("b"), given("c"))
    rig.order(desired(1, gather=1), now_ms=500)
    rig.read(1, {"a": 1.0, "b": 2.0}, now_ms=1_000)
    rig.read(2, {"c": 3.0}, "stale", now_ms=2_000)
    [example] = rig.messages(Channel.EVENT, Example)
    assert example.values == {"a": 1.0, "b": 2.0, "c": 3.0}
    assert example.instance == rig.predictions()[-1].instance == InstanceId("s", 1, 2)


def test_a_steady_beat_makes_instances_of_what_is_held():
    """Readings alone make none; after a pause one is made, not all that were missed."""
    rig = rig_of(given("a"), given("b"), instances="beat", every_s=10.0)
    rig.tick(0)
    rig.tick(10_000)
    assert rig.predictions() == []
    assert rig.node.counts["nothing-held"] == 1
    rig.read(1, {"a": 1.0}, now_ms=12_000)
    rig.read(2, {"b": 2.0}, now_ms=13_000)
    assert rig.predictions() == []
    rig.tick(19_999)
    rig.tick(20_000)
    rig.tick(20_001)
    [made] = rig.predictions()
    assert (made.instance, made.time_ms) == (InstanceId("held", 0, 1), 20_000)
    assert newest(rig).values == {"a": 1.0, "b": 2.0}
    rig.tick(65_000)
    rig.tick(70_000)
    assert [each.time_ms for each in rig.predictions()] == [20_000, 65_000, 70_000]
    rig.commit(70_000)
    assert rig.reborn().frozen() == rig.frozen()


def test_with_labels_only_a_label_makes_an_instance():
    rig = rig_of(given("a"), given("b"), instances="labels")
    rig.read(1, {"a": 1.0}, now_ms=1_000)
    rig.read(2, {"b": 2.0}, now_ms=2_000)
    assert rig.predictions() == []
    rig.read(3, {"b": 2.5}, "fresh", now_ms=3_000)
    assert newest(rig).values == {"a": 1.0, "b": 2.5}
    rig.handle(TOPICS.to(Channel.LABEL), encode(Label("stale", time_ms=9_000)), 9_100)
    assert newest(rig).values == {"a": 1.0, "b": 2.5}
    assert [each.instance.source for each in rig.predictions()] == ["s", "held"]
    assert rig.node.counts["learned"] == 2


def test_a_life_with_held_values_replays_to_the_same_bits():
    """Every sensor at its own pace, beats, labels and a death; from any snapshot on."""
    rng = np.random.default_rng(11)
    rig = rig_of(given("a"), given("b"), given("c", hold_s=5.0), given("d", timeout_s=20.0))
    marks, seq = [], dict.fromkeys("abcd", 0)
    for step in range(400):
        now_ms = 700 * step
        for name, every in (("a", 1), ("b", 3), ("c", 11), ("d", 5)):
            if step % every == 0 and not (name == "d" and step > 200):
                seq[name] += 1
                label = CLASSES[step % 3] if step % 4 == 0 else None
                value = float(rng.normal())
                rig.read(seq[name], {name: value}, label, now_ms=now_ms, source=name)
        rig.tick(now_ms)
        if not rig.pending and step % 50 == 0:
            marks.append((len(rig.durable), rig.frozen()))
    rig.commit(0)
    assert rig.node.state.local_models.silent == ("d",)
    assert marks
    for since, snapshot in marks:
        assert rig.reborn(snapshot, since).frozen() == rig.frozen()
    assert rig.reborn().frozen() == rig.frozen()


def test_another_hold_in_the_file_counts_from_the_next_start_on():
    """Not for what was journalled before: a replay knows which hold was in force when."""
    rig = rig_of(given("a"), given("b", hold_s=60.0))
    rig.read(1, {"b": 2.0}, now_ms=1_000)
    rig.read(2, {"a": 1.0}, now_ms=11_000)
    rig.commit(11_000)
    changed = config(sensors=(given("a"), given("b", hold_s=5.0)))
    other = Rig(Node(changed))
    other.node.restore(None, rig.durable)
    other.run(other.node.start(12_000), 12_000)
    assert newest(other).values == {"a": 1.0, "b": 2.0}
    other.read(3, {"a": 1.0}, now_ms=13_000)
    assert newest(other).values == {"a": 1.0}


def test_a_beat_that_has_nothing_new_is_no_row_of_a_warm_up():
    """A clock that beats every second would freeze the scales of sensors that speak by the hour."""
    sensors = (SensorConfig("a"), SensorConfig("b"))
    rig = Rig.make(sensors=sensors, instances="beat", every_s=1.0, warmup_readings=20)
    for hour in range(15):
        rig.read(hour + 1, {"a": float(hour), "b": -float(hour)}, now_ms=3_600_000 * hour)
        for second in range(1, 30):
            rig.tick(3_600_000 * hour + 1_000 * second)
    assert rig.node.state.warmup is not None
    assert len(list(rig.node.state.warmup.rows())) == 15
    assert len(rig.predictions()) > 300
    rig.commit(0)
    assert rig.reborn().frozen() == rig.frozen()
