"""Somebody else's topic says what is so: what one truth teaches, and what it must not."""

from __future__ import annotations

import json

import pytest
from support.rig import Rig

from edge_opid.config.node import ForeignConfig, SensorConfig, TruthConfig
from edge_opid.errors import WireError
from edge_opid.wire.foreign import TruthTopic

VALUES = {"true": "fresh", "false": "stale"}
SENSORS = tuple(SensorConfig(name, reference=0.0, scale=1.0) for name in ("a", "b"))


def truth(**changes):
    options = {"filter": "z/hall", "field": "occupancy", "values": VALUES, "valid_s": 600.0}
    return TruthConfig(**{**options, **changes})


def rig_of(*truths, **changes):
    return Rig.make(sensors=SENSORS, truth=truths or (truth(),), **changes)


def say(rig, present, now_ms, topic="z/hall", retained=False, **more):
    payload = json.dumps({"occupancy": present, **more}).encode()
    rig.handle(topic, payload, now_ms, token=now_ms, retained=retained)


def learned(rig):
    return rig.node.counts["learned"]


def test_a_standing_truth_teaches_every_instance_of_its_time_once():
    """The one that waits, those that come, none after it: each predicted before it is learned."""
    rig = rig_of()
    rig.read(1, {"a": 1.0}, now_ms=1_000)  # before it became so
    rig.read(2, {"b": 2.0}, now_ms=5_000)
    say(rig, True, 5_000)
    assert learned(rig) == 1  # the one of this very moment
    for seq in range(3, 10):
        rig.read(seq, {"a": float(seq)}, now_ms=10_000 * seq)
    assert learned(rig) == 8
    rig.read(10, {"a": 1.0}, now_ms=605_001)  # over
    assert learned(rig) == 8
    assert rig.node.state.frequency.counts == [8, 0, 0]
    assert len(rig.predictions()) == 10
    rig.commit(0)
    assert rig.reborn().frozen() == rig.frozen()


def test_an_instance_is_scored_by_what_was_said_before_its_truth_was_known():
    """Otherwise accuracy would be that of looking up the answer."""
    rig = rig_of()
    say(rig, True, 500)
    for seq in range(1, 30):
        rig.read(seq, {"a": 1.0, "b": 1.0}, now_ms=1_000 * seq)
    say(rig, False, 29_500)
    rig.read(30, {"a": 1.0, "b": 1.0}, now_ms=30_000)
    entry = rig.node.state.recent._entries[-1]
    assert entry.lesson.label == 1
    assert set(entry.guesses.values()) == {0}  # all of them said "fresh", and were wrong
    assert rig.predictions()[-1].label == "fresh"


def test_a_truth_that_repeats_itself_teaches_nothing_twice():
    """A presence sensor says so every second, the others every minute: 60 times would be a lie."""
    rig = rig_of(truth(valid_s=0.0), truth(filter="z/stands"), label_tolerance_ms=500)
    rig.read(1, {"a": 1.0, "b": 2.0}, now_ms=10_000)
    for topic in ("z/hall", "z/stands"):
        for second in range(1, 60):
            say(rig, True, 10_000 + 1_000 * second, topic=topic)
    assert learned(rig) == 1  # one made of what is held, at the first word
    assert rig.node.counts["truth-without-news"] == 59
    assert rig.node.counts["truth-repeated"] == 58
    rig.read(2, {"a": 1.5}, now_ms=71_000)
    assert learned(rig) == 2


def test_a_beat_under_a_standing_truth_learns_only_what_is_new():
    """Ten beats a second of the same values would drown every other label."""
    rig = rig_of(instances="beat", every_s=1.0)
    rig.read(1, {"a": 1.0, "b": 2.0}, now_ms=100)
    say(rig, True, 200)
    assert learned(rig) == 1
    for second in range(1, 40):
        rig.tick(1_000 * second + 100)
    assert learned(rig) == 1
    assert len(rig.predictions()) == 40
    rig.read(2, {"a": 3.0}, now_ms=40_050)
    rig.tick(40_100)
    rig.tick(41_100)
    assert learned(rig) == 2


def test_where_labels_make_the_instances_every_truth_does_that_has_news():
    rig = rig_of(instances="labels")
    rig.read(1, {"a": 1.0, "b": 2.0}, now_ms=100)
    for second in range(1, 30):
        say(rig, True, 1_000 * second)
    assert learned(rig) == 1
    rig.read(2, {"a": 2.0}, now_ms=30_000)
    assert len(rig.predictions()) == 1
    say(rig, True, 31_000)
    say(rig, True, 32_000)
    assert learned(rig) == len(rig.predictions()) == 2


def test_a_truth_without_an_instance_makes_one_of_what_is_held():
    rig = rig_of()
    say(rig, True, 500)  # nobody has said anything yet
    assert rig.node.counts["nothing-held"] == 1
    rig.read(1, {"a": 1.0}, now_ms=1_000)
    rig.read(2, {"b": 2.0}, now_ms=2_000)
    say(rig, False, 60_000)
    made = rig.predictions()[-1]
    assert (made.instance.source, made.time_ms) == ("held", 60_000)
    assert rig.node.state.recent._entries[-1].values == {"a": 1.0, "b": 2.0}
    assert rig.node.state.frequency.counts == [2, 1, 0]


def test_a_truth_about_the_past_labels_what_was_then_and_makes_nothing_up():
    """A motion sensor says "off" a minute and a half after the last motion."""
    rig = rig_of(truth(valid_s=60.0, delay_s=90.0))
    for second in range(0, 200, 10):
        rig.read(second // 10 + 1, {"a": float(second)}, now_ms=1_000 * second)
    say(rig, False, 190_000)
    taught = [entry.time_ms for entry in rig.node.state.recent._entries if entry.lesson]
    assert taught == [1_000 * second for second in range(100, 170, 10)]
    assert len(rig.predictions()) == 20
    say(rig, True, 500_000)
    assert rig.node.counts["truth-without-instance"] == 1
    assert learned(rig) == 7


def test_the_next_truth_ends_the_one_before():
    rig = rig_of()
    say(rig, True, 0)
    rig.read(1, {"a": 1.0}, now_ms=10_000)
    say(rig, False, 20_000)
    rig.read(2, {"a": 2.0}, now_ms=30_000)
    assert rig.node.state.frequency.counts == [1, 2, 0]  # the change itself taught what was held


def test_a_message_with_values_and_a_truth_gives_both_the_values_first():
    """One device measures and knows: its own instance is predicted, then labelled."""
    foreign = ForeignConfig("z/+", "{1}", {"temperature": "a"})
    rig = rig_of(truth(valid_s=0.0), foreign=(foreign,))
    assert rig.node.subscriptions()["z/+"] == 0
    assert "z/hall" not in rig.node.subscriptions()  # a broker might deliver it twice
    say(rig, True, 1_000, temperature=1.5)
    assert [each.instance.source for each in rig.predictions()] == ["hall"]
    assert learned(rig) == 1
    say(rig, False, 2_000)  # nothing but the truth: no complaint
    assert rig.warned == []
    rig.commit(3_000)
    assert rig.released == [1_000, 2_000]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b'{"occupancy": "maybe"}', "refused-truth-value"),
        (b'{"occupancy": [1]}', "refused-type"),
        (b"{", "refused-format"),
        (b'{"occupancy": "' + 900 * b"x" + b'"}', "refused-truth-value"),
        (70_000 * b" ", "refused-size"),
    ],
)
def test_a_truth_that_cannot_be_used_is_counted_and_logged_and_changes_nothing(payload, reason):
    rig = rig_of()
    rig.read(1, {"a": 1.0}, now_ms=1_000)
    before = rig.frozen()
    rig.handle("z/hall", payload, 2_000, token="t")
    assert rig.node.counts[reason] == 1
    assert [each.reason for each in rig.warned] == [reason]
    assert rig.frozen() == before
    assert rig.released == ["t"]


def test_a_class_nobody_knows_a_retained_truth_and_a_missing_field_change_nothing():
    rig = rig_of(truth(values={}))
    rig.read(1, {"a": 1.0}, now_ms=1_000)
    before = rig.frozen()
    say(rig, "sleepy", 2_000)
    say(rig, "fresh", 2_000, retained=True)
    rig.handle("z/hall", b'{"battery": 97}', 2_000, token=None)
    counts = rig.node.counts
    found = counts["unknown-class"], counts["retained-foreign"], counts["truth-field-missing"]
    assert found == (1, 1, 1)
    assert len(rig.warned) == 3
    assert rig.frozen() == before
    say(rig, "fresh", 2_000)
    assert learned(rig) == 1


def test_truths_have_the_rate_limit_of_labels():
    rig = rig_of(rate_per_second=1.0, rate_burst=1, recent=1)
    for second in range(5):
        say(rig, bool(second % 2), 100 * second)
    assert rig.node.counts["label-rate-limited"] == 4


@pytest.mark.parametrize(
    ("payload", "field", "label"),
    [
        (b"ON", "", "fresh"),
        (b" off\n", "", "stale"),
        (b'{"state": {"motion": true}}', "state.motion", "fresh"),
        (b'{"contact": 1}', "contact", "fresh"),
        (b'{"contact": 0}', "contact", "stale"),
    ],
)
def test_devices_spell_yes_and_no_in_their_own_way(payload, field, label):
    values = {"on": "fresh", "off": "stale", "true": "fresh", "1": "fresh", "0": "stale"}
    assert TruthTopic("z/hall", field, values).label_in(payload) == label


def test_a_long_value_does_not_fill_the_error():
    """A payload of kilobytes must not fill the log."""
    with pytest.raises(WireError) as caught:
        TruthTopic("z/hall", "", {"on": "fresh"}).label_in(2_000 * b"x")
    assert len(str(caught.value)) < 300
