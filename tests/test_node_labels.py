"""What people say of a node's instances: in their words, about their times, and taken back."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from support.rig import TOPICS, Rig

from edge_opid.config.node import SensorConfig
from edge_opid.wire import Channel, InstanceId, Label, Undo, encode

SENSORS = tuple(SensorConfig(name, reference=0.0, scale=1.0) for name in ("a", "b"))


def rig_of(**changes):
    return Rig.make(**{"sensors": SENSORS, **changes})


def say(rig, now_ms, channel=Channel.LABEL, **said):
    payload = json.dumps(said).encode()
    return rig.handle(TOPICS.to(channel), payload, now_ms, token=now_ms)


def word(rig, text, now_ms, retained=False):
    topic = TOPICS.to(Channel.LABEL_NOW)
    return rig.handle(topic, text.encode(), now_ms, token=now_ms, retained=retained)


def counted(rig, *names):
    return tuple(rig.node.counts[name] for name in names)


def classes(rig):
    return rig.node.state.frequency.counts


def fill(rig, count=10, every_ms=10_000, label=None):
    rng = np.random.default_rng(3)
    for seq in range(1, count + 1):
        values = dict(zip("ab", rng.normal(size=2).tolist(), strict=True))
        rig.read(seq, values, now_ms=every_ms * seq, label=label and label(seq))


def replayed(rig):
    """Whatever happened: the journal tells it again, to the bit."""
    rig.commit(0)
    assert rig.reborn().frozen() == rig.frozen()


def test_a_label_in_json_is_learned_for_the_instance_it_names():
    """As Home Assistant sends the instance of the prediction back."""
    rig = rig_of()
    fill(rig)
    shown = rig.predictions()[3].instance
    say(rig, 101_000, label="stale", instance=shown.plain())
    assert classes(rig) == [0, 1, 0]
    assert rig.node.state.recent.find(shown).lesson.label == 1
    say(rig, 102_000, label="fresh", instance=shown.plain())
    assert counted(rig, "learned", "label-already-labelled") == (1, 1)
    replayed(rig)


def test_what_a_person_says_now_is_about_the_last_instance():
    """Somebody looks, walks to the phone and taps: that takes its time. A machine's does not."""
    rig = rig_of()
    fill(rig)
    say(rig, 125_000, label="fresh")
    assert rig.node.state.recent.find(InstanceId("s", 1, 10)).lesson.label == 0
    say(rig, 126_000, label="fresh", time=126.0)
    assert counted(rig, "learned", "label-unknown-instance") == (1, 1)
    word(rig, "fresh", 127_000)
    assert counted(rig, "learned", "label-already-labelled") == (1, 1)
    assert len(rig.predictions()) == 10
    replayed(rig)


def test_now_is_learned_where_the_sensors_are_slow():
    """A thermometer that speaks every ten minutes still has a value when somebody says so."""
    rig = rig_of()
    fill(rig, count=2)
    word(rig, "damp?", 300_000)
    assert counted(rig, "learned", "unknown-class") == (0, 1)
    word(rig, " stale\n", 300_000)
    word(rig, "stale", 340_000)  # and nobody has spoken since
    assert counted(rig, "learned", "label-already-labelled") == (1, 1)
    assert rig.predictions()[-1].instance.source == "held"
    replayed(rig)


def test_a_stretch_of_time_teaches_every_instance_in_it_once():
    """It was stale from two to four."""
    rig = rig_of()
    fill(rig, count=20)
    say(rig, 200_500, label="fresh", instance="s/1/7")
    say(rig, 201_000, label="stale", **{"from": 50, "until": 90})
    assert classes(rig) == [1, 4, 0]
    lessons = [rig.node.state.recent.find(InstanceId("s", 1, n)).lesson for n in range(1, 21)]
    assert [each and each.label for each in lessons[4:9]] == [1, 1, 0, 1, 1]
    say(rig, 202_000, label="stale", **{"from": 50, "until": 90})
    assert counted(rig, "learned", "label-unknown-instance") == (5, 1)
    say(rig, 203_000, label="bad", **{"from": 150})
    assert classes(rig) == [1, 4, 6]
    replayed(rig)


def test_a_stretch_longer_than_the_memory_says_what_it_could_not_reach():
    rig = rig_of(recent=8)
    fill(rig, count=20)
    say(rig, 201_000, label="stale", **{"from": 10})
    assert counted(rig, "learned", "label-stretch-cut") == (8, 1)
    replayed(rig)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b'{"label": "fresh", "instence": "s/1/7"}', "refused-content"),
        (b'{"label": ', "refused-format"),
        (b"fresh", "refused-type"),
        (b'{"undo": 1}', "refused-type"),
    ],
)
def test_what_is_no_label_changes_nothing(payload, reason):
    """It is counted, logged and released."""
    rig = rig_of()
    fill(rig)
    before = rig.frozen()
    rig.handle(TOPICS.to(Channel.LABEL), payload, 101_000, token="t")
    assert counted(rig, reason) == (1,)
    assert rig.frozen() == before


def test_retained_words_are_refused():
    """The broker says them again at every subscription: it would be damp for ever."""
    rig = rig_of()
    fill(rig)
    before = rig.frozen()
    word(rig, "stale", 101_000, retained=True)
    undo = json.dumps({"undo": True, "instance": "s/1/3"}).encode()
    rig.handle(TOPICS.to(Channel.LABEL), undo, 101_000, token="t", retained=True)
    assert counted(rig, "retained-label", "learned") == (2, 0)
    assert rig.frozen() == before


# -- taking back -------------------------------------------------------------------------------


def weights(rig):
    models = rig.node.state.local_models
    return [np.vstack(each.weights()) for each in (models.learner, models.lately)]


def truth(seq):
    return ("fresh", "stale", "bad")[seq % 3]


@pytest.mark.parametrize("since", [0, 30])
def test_a_label_that_is_taken_back_was_never_learned(since):
    """Exactly so for the long memory; the short one has faded by a step more, and no more."""
    wrong, never = rig_of(), rig_of()
    for rig in (wrong, never):
        fill(rig, count=60, label=lambda seq: truth(seq) if seq != 60 - since else None)
    number = InstanceId("s", 1, 60 - since).plain()
    say(wrong, 601_000, label="bad", instance=number)
    assert not np.allclose(weights(wrong)[0], weights(never)[0], atol=1e-3)
    say(wrong, 602_000, undo=True, instance=number)
    (long, lately), (expected, lately_expected) = weights(wrong), weights(never)
    assert np.allclose(long, expected, atol=2e-6)  # float32, and one step in float64
    assert np.allclose(lately, lately_expected, atol=2e-3)
    assert classes(wrong) == classes(never)
    assert wrong.node.state.trial.state() == never.node.state.trial.state()
    assert wrong.node.state.local_models.learner.readings == 59
    assert counted(wrong, "unlearned") == (1,)
    say(wrong, 603_000, label="fresh", instance=number)  # and can be labelled anew
    assert classes(wrong)[0] == classes(never)[0] + 1
    replayed(wrong)


def test_undo_without_a_name_takes_back_the_label_that_came_last():
    """The last to come, whichever instance it was for; then the one before."""
    rig = rig_of()
    fill(rig)
    for at, seq in ((101_000, 8), (102_000, 3), (103_000, 5)):
        say(rig, at, label="stale", instance=f"s/1/{seq}")
    find = rig.node.state.recent.find
    for left in ({8, 3}, {8}, set(), set()):
        say(rig, 104_000, undo=True)
        taught = {n for n in range(1, 11) if find(InstanceId("s", 1, n)).lesson}
        assert taught == left
    assert counted(rig, "unlearned", "undo-without-label") == (3, 1)
    assert classes(rig) == [0, 0, 0]
    replayed(rig)


def test_a_stretch_is_taken_back_as_it_was_given():
    rig = rig_of()
    fill(rig, count=20, label=lambda seq: truth(seq) if seq < 5 else None)
    before, known = weights(rig)[0], list(classes(rig))
    say(rig, 201_000, label="stale", **{"from": 60, "until": 200})
    say(rig, 202_000, undo=True, **{"from": 60, "until": 200})
    assert counted(rig, "unlearned") == (15,)
    assert np.allclose(weights(rig)[0], before, atol=2e-6)
    assert classes(rig) == known
    replayed(rig)


def test_the_time_layer_goes_by_the_label_before():
    """Its last label would colour the predictions of the next minutes."""
    rig = rig_of()
    fill(rig)
    say(rig, 101_000, label="fresh", instance="s/1/6")
    say(rig, 102_000, label="bad", instance="s/1/9")
    layer = rig.node.state.time_layer
    assert layer.state()["label"][:2] == [2, 90_000]
    say(rig, 103_000, undo=True)
    assert layer.state()["label"][:2] == [0, 60_000]
    say(rig, 104_000, undo=True)
    assert layer.state()["label"][0] == -1
    replayed(rig)


def test_what_cannot_be_subtracted_any_more_is_said_and_nothing_changes():
    """A sensor has died since: the sums are those of other columns."""
    rig = rig_of(
        sensors=tuple(SensorConfig(s, reference=0.0, scale=1.0, timeout_s=30) for s in "ab")
    )
    fill(rig)
    say(rig, 101_000, label="stale", instance="s/1/9")
    for seq in range(11, 20):
        rig.read(seq, {"a": 1.0}, now_ms=10_000 * seq)
        rig.tick(10_000 * seq)
    assert rig.node.state.local_models.silent == ("b",)
    known = rig.frozen()
    say(rig, 200_000, undo=True)
    assert counted(rig, "undo-too-late", "unlearned") == (1, 0)
    assert rig.frozen() == known
    replayed(rig)


def test_in_a_warm_up_the_label_is_struck_out_and_all_is_learned_anew():
    """References are still being estimated: nothing is final, so nothing is lost."""
    sensors = tuple(SensorConfig(s) for s in "ab")
    wrong, never = (Rig.make(sensors=sensors, warmup_readings=60) for _ in range(2))
    for rig in (wrong, never):
        fill(rig, count=40, label=lambda seq: truth(seq) if seq != 35 else None)
    say(wrong, 401_000, label="bad", instance="s/1/35")
    say(wrong, 402_000, undo=True)
    assert counted(wrong, "unlearned") == (1,)
    assert classes(wrong) == classes(never)
    assert [label for _, label in wrong.node.state.warmup.rows()].count(2) == classes(never)[2]
    replayed(wrong)


def test_msgpack_says_the_same():
    """What a program sends: the forms differ, the state does not."""
    spoken, packed = rig_of(), rig_of()
    for rig in (spoken, packed):
        fill(rig)
    say(spoken, 101_000, label="stale", instance="s/1/4")
    say(spoken, 102_000, undo=True)
    topic = TOPICS.to(Channel.LABEL)
    packed.handle(topic, encode(Label("stale", InstanceId("s", 1, 4))), 101_000, token=1)
    packed.handle(topic, encode(Undo()), 102_000, token=2)
    assert spoken.frozen() == packed.frozen()


def test_a_label_of_a_class_that_is_gone_stays_and_the_others_are_taken_back():
    """A stretch was labelled, then one of its classes removed: the rest of it must still go."""
    rig = rig_of()
    fill(rig, count=10, label=lambda seq: "bad" if seq == 5 else "stale")
    rig.run(rig.node.remove_class("bad", 101_000), 101_000)
    say(rig, 102_000, undo=True, **{"from": 0, "until": 101})
    assert counted(rig, "unlearned", "undo-too-late", "input-failed") == (9, 1, 0)
    assert classes(rig) == [0, 0]
    replayed(rig)


def test_a_label_learned_under_another_forgetting_is_not_taken_back():
    """What it still counts for is not known any more; to guess would subtract what never was."""
    rig = rig_of(forgetting=0.5)
    fill(rig, count=12, label=truth)
    settings = replace(rig.node.state.settings, forgetting=1.0)
    rig.run(rig.node._configure(settings, {}, None, 121_000), 121_000)
    known = rig.frozen()
    say(rig, 122_000, undo=True, instance="s/1/3")
    assert counted(rig, "undo-too-late", "unlearned") == (1, 0)
    assert rig.frozen() == known
    replayed(rig)
