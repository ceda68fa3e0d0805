"""What a node owes its gateway: who it is, what it knows, and the examples it was asked for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.mosquitto import Mosquitto
from support.node_process import NodeProcess, listening, wait_until
from support.rig import CLASSES, KEY, OTHER_KEY, TOPICS, Rig, desired
from test_node_life import live, world

from edge_opid import GramLearner, WoodburyLearner
from edge_opid.config.node import SensorConfig
from edge_opid.node.actions import Publish
from edge_opid.node.effects import summary_message
from edge_opid.node.node import STATUS_MS
from edge_opid.node.orders import layout_of
from edge_opid.node.publications import Unconfirmed
from edge_opid.wire import (
    LIMITS,
    Channel,
    Confirmed,
    Example,
    InstanceId,
    Introduction,
    Label,
    Status,
    SummaryMessage,
    digest,
    encode,
    seal_desired,
)

LABEL = TOPICS.to(Channel.LABEL)
ROWS, LABELS = world(600)
UNKNOWN = tuple(SensorConfig(name) for name in "abc")  # neither reference nor scale


def examples(rig):
    return rig.messages(Channel.EVENT, Example)


def introductions(rig):
    return rig.messages(Channel.EVENT, Introduction)


def summaries(rig):
    return rig.messages(Channel.SUMMARY, SummaryMessage)


def late(rig, seq, label="fresh"):
    rig.handle(LABEL, encode(Label(label, InstanceId("s", 1, seq))))


def fill(rig, first, last):
    """Labelled readings with these numbers, in no time at all."""
    for seq in range(first, last + 1):
        rig.read(seq, ROWS[seq], LABELS[seq], now_ms=0)


# -- examples ------------------------------------------------------------------------------------


def test_examples_are_the_labelled_instances_as_many_as_were_ordered():
    """As many as ordered, raw, with the number of the prediction; and then no more."""
    rig = Rig.make()
    live(rig, ROWS[:5], LABELS[:5])
    rig.order(desired(1, gather=3))
    live(rig, ROWS[5:10], LABELS[5:10], first_seq=6)
    assert examples(rig) == [
        Example(InstanceId("s", 1, place + 1), 1, 100 * (place + 1), ROWS[place], LABELS[place])
        for place in (5, 6, 7)
    ]
    assert rig.node.counts["example"] == 3
    assert rig.node.state.local_models.learner.readings == 10


@pytest.mark.parametrize("order", [None, desired(1)], ids=["no order", "no wish"])
def test_examples_that_nobody_asked_for_are_not_reported(order):
    """Labelled readings alone, or an order without a wish, report nothing."""
    rig = Rig.make()
    if order is not None:
        rig.order(order)
    live(rig, ROWS[:20], LABELS[:20])
    assert examples(rig) == []
    assert rig.node.counts["learned"] == 20


def test_a_warm_up_is_not_reported_as_examples():
    """What is learned before any order is nobody's business, during the warm-up and after."""
    rig = Rig.make(sensors=UNKNOWN, warmup_readings=20)
    live(rig, ROWS[:40], LABELS[:40])
    assert examples(rig) == []
    rig.order(desired(1, gather=1))
    live(rig, ROWS[40:45], LABELS[40:45], first_seq=41)
    assert [example.instance.seq for example in examples(rig)] == [41]
    assert rig.node.counts["learned"] == 45


def test_a_late_label_is_reported_once_however_often_it_comes():
    """It is reported once; copies, strangers and unknown classes take nothing off what is owed."""
    rig = Rig.make()
    rig.order(desired(1, gather=3))
    for seq in range(1, 6):
        rig.read(seq, ROWS[seq], now_ms=seq * 1000)
    late(rig, 2, LABELS[2])
    for _ in range(3):
        late(rig, 2, LABELS[2])
        late(rig, 99)
        late(rig, 3, "purple")
        rig.read(4, ROWS[4], LABELS[4], now_ms=4_000)  # a copy that has a label all of a sudden
    assert examples(rig) == [Example(InstanceId("s", 1, 2), 1, 2_000, ROWS[2], LABELS[2])]
    assert rig.node.state.examples.owed == 2


def test_an_order_replaces_what_an_earlier_one_still_wished_for():
    """It says anew how many are wanted; one that was obeyed already says nothing."""
    rig = Rig.make()
    rig.order(desired(1, gather=5))
    fill(rig, 1, 3)
    rig.order(desired(1, gather=5))
    assert rig.node.state.examples.owed == 2
    rig.order(desired(2, gather=4))
    assert rig.node.state.examples.owed == 4
    rig.order(desired(3))
    fill(rig, 4, 9)
    assert len(examples(rig)) == 3
    assert rig.node.state.version == 3


def test_a_late_label_of_a_former_layout_is_learned_and_not_reported():
    """Its instance has no value of the sensor just deployed: learned, but not reported."""
    rig = Rig.make()
    for seq in range(1, 11):
        rig.read(seq, ROWS[seq], now_ms=seq * 1000)
    rig.order(desired(1, sensors=("b", "c", "d"), gather=2))
    for seq in range(1, 11):
        late(rig, seq, LABELS[seq])
    assert examples(rig) == []
    assert rig.node.counts["learned"] == 10
    rig.read(11, {"a": 5.0, "b": 1.0, "d": 2.0}, now_ms=11_000)
    late(rig, 11)
    held = ROWS[10]["c"]
    assert [example.values for example in examples(rig)] == [{"b": 1.0, "c": held, "d": 2.0}]
    assert rig.node.state.examples.owed == 1


def test_values_of_a_retired_sensor_stay_out_of_an_open_instance():
    """The sensor is retired while the window is open; and an example of nothing is none."""
    rig = Rig.make(window_ms=1000)
    rig.read(1, {"a": 1.0, "b": 2.0}, "fresh", now_ms=0)
    rig.order(desired(1, sensors=("b", "c"), gather=2), now_ms=100)
    rig.tick(1_100)
    assert [example.values for example in examples(rig)] == [{"b": 2.0}]
    rig.read(2, {"b": 3.0}, "fresh", now_ms=2_000)
    rig.order(desired(2, layout_version=2, sensors=("c",), gather=2), now_ms=2_100)
    rig.tick(3_100)
    assert len(examples(rig)) == 1
    assert rig.node.state.examples.owed == 2
    assert rig.node.counts["learned"] == 2


def test_a_value_of_a_sensor_that_is_silent_by_now_is_still_reported():
    """The sensor is still in the layout, and its value was measured: it goes with the others."""
    rig = Rig.make()
    rig.order(desired(1, gather=500))
    rig.read(1, ROWS[1], now_ms=0)
    live(rig, [{"b": 0.1, "c": 0.2}] * 150, [None] * 150, first_seq=2)
    assert rig.node.state.local_models.silent == ("a",)
    late(rig, 1, LABELS[1])
    assert [example.values for example in examples(rig)] == [ROWS[1]]
    assert rig.node.state.local_models.silent == ("a",)


MOMENTS = st.one_of(
    st.tuples(st.just("read"), st.sampled_from([None, *CLASSES, "purple"])),
    st.tuples(st.just("copy"), st.integers(1, 40)),
    st.tuples(st.just("late"), st.integers(1, 40)),
    st.tuples(st.just("order"), st.integers(0, 6)),
    st.tuples(st.just("kill"), st.booleans()),
)


@settings(max_examples=60, deadline=None, database=None)
@given(st.lists(MOMENTS, max_size=60), st.sampled_from([0, 250]))
def test_no_example_is_lost_or_doubled_whatever_happens_in_a_life(moments, window_ms):
    """Whatever happens: what was reported and what is owed make up the last order; none twice."""
    rig, wish, seen, seq = Rig.make(window_ms=window_ms, commit_records=1), 0, set(), 0
    version = 0
    for what, detail in moments:
        before = len(examples(rig))
        match what:
            case "read":
                seq += 1
                rig.read(seq, ROWS[seq], detail)
            case "copy":
                rig.read(min(detail, seq) or 1, ROWS[detail], "fresh", now_ms=100 * seq)
                seq = max(seq, 1)
            case "late":
                late(rig, detail)
            case "order":
                version, wish = version + 1, detail
                rig.order(desired(version, gather=detail))
            case "kill":
                rig.commit(0)
                rig = rig.reborn(rig.frozen() if detail else None, len(rig.durable) * detail)
                continue
        new = [example.instance for example in examples(rig)[before:]]
        assert seen.isdisjoint(new)
        seen.update(new)
        wish -= len(new)
        assert rig.node.state.examples.owed == wish >= 0
    rig.commit(0)
    assert rig.reborn().frozen() == rig.frozen()


def test_a_killed_node_still_knows_which_examples_it_owes():
    """From the journal, or from any snapshot and the journal after it: the same bits, and rest."""
    rig, marks = Rig.make(), []
    rig.order(desired(1, gather=40))
    for seq in range(1, 41):
        rig.read(seq, ROWS[seq], LABELS[seq] if seq % 3 else None)
        if seq % 9 == 0:
            late(rig, seq - 3, LABELS[seq - 3])
        if not rig.pending:
            marks.append((len(rig.durable), rig.frozen()))
    rig.commit(0)
    others = [rig.reborn(), *(rig.reborn(snapshot, since) for since, snapshot in marks)]
    assert len(others) > 10
    for other in others:
        assert other.frozen() == rig.frozen()
        assert examples(other) == []  # replay is silent
        late(other, 30, LABELS[30])
        fill(other, 41, 60)
        assert [example.instance.seq for example in examples(other)] == [30, *range(41, 49)]
        assert len(examples(rig)) + len(examples(other)) == 40


# -- introductions -------------------------------------------------------------------------------


def test_a_new_node_introduces_itself_in_the_words_of_an_order():
    """The words of the introduction are those of an order: it could be sent back as one."""
    rig = Rig.make(vanishing=("b",), window_ms=250)
    before = rig.frozen()
    rig.run(rig.node.on_connected(0), 0)
    (said,) = introductions(rig)
    assert (said.version, said.layout_version, said.window_ms) == (0, 0, 250)
    assert said.sensors == desired(1).sensors
    assert (said.vanishing, said.gate, said.classes) == (("b",), 8.0, CLASSES)
    assert rig.frozen() == before


def test_a_node_introduces_itself_until_its_gateway_answers():
    """With every periodic status, until an order comes; and at every connection all the same."""
    rig = Rig.make()
    rig.run(rig.node.on_connected(1), 1)
    for turn in range(1, 4):
        rig.tick(1 + turn * STATUS_MS)
        rig.tick(2 + turn * STATUS_MS)
    assert len(introductions(rig)) == 1 + 3
    rig.order(desired(1), now_ms=4 * STATUS_MS)
    for turn in range(5, 9):
        rig.tick(turn * STATUS_MS)
    assert len(introductions(rig)) == 4
    rig.node.on_disconnected()
    rig.run(rig.node.on_connected(9 * STATUS_MS), 9 * STATUS_MS)
    assert [said.version for said in introductions(rig)] == [0, 0, 0, 0, 1]
    rig.tick(10 * STATUS_MS)
    assert len(introductions(rig)) == 5


def test_a_restarted_node_introduces_itself_until_it_hears_its_order_again():
    """In a new life it introduces itself until the retained order, which is no news, has come."""
    rig = Rig.make()
    rig.order(desired(3))
    rig.commit(0)
    again = rig.reborn()
    before = again.frozen()
    again.tick(STATUS_MS)
    assert [said.version for said in introductions(again)] == [3]
    again.order(desired(3), now_ms=STATUS_MS)
    again.tick(2 * STATUS_MS)
    assert len(introductions(again)) == 1
    assert again.frozen() == before


def test_a_forged_order_does_not_silence_the_introductions():
    """What is refused shows nothing about any gateway."""
    rig = Rig.make()
    before = rig.frozen()
    rig.order(desired(1), key=OTHER_KEY)
    rig.order(desired(1, node="n2"))
    rig.order(desired(1, classes=("x", "y", "z")))
    rig.tick(STATUS_MS)
    assert len(introductions(rig)) == 1
    assert rig.frozen() == before


def test_an_outage_costs_one_introduction_and_one_summary():
    """While there is no connection nothing is said, and at the next one it is said once."""
    rig = Rig.make()
    fill(rig, 1, 40)
    rig.node.on_disconnected()
    for turn in range(1, 100):
        rig.tick(turn * STATUS_MS)
    assert (introductions(rig), summaries(rig)) == ([], [])
    rig.run(rig.node.on_connected(100 * STATUS_MS), 100 * STATUS_MS)
    assert len(introductions(rig)) == 1
    rig.tick(101 * STATUS_MS)
    assert len(summaries(rig)) == 1


def test_a_node_introduces_itself_only_once_it_knows_its_scales():
    """Neither at the connection nor with a status, but as soon as the warm-up is over."""
    rig = Rig.make(sensors=UNKNOWN, warmup_readings=20)
    rig.run(rig.node.on_connected(0), 0)
    fill(rig, 1, 19)
    rig.tick(STATUS_MS)
    rig.run(rig.node.on_connected(0), 0)
    assert (introductions(rig), summaries(rig)) == ([], [])
    rig.read(20, ROWS[20], now_ms=STATUS_MS)  # the last one has no label, and ends it all the same
    assert rig.node.state.warmup is None
    (said,) = introductions(rig)
    assert said.sensors == tuple(rig.node.state.local_models.sensors.values())
    assert all(sensor.scale != 1.0 for sensor in said.sensors)
    fill(rig, 21, 30)
    assert len(introductions(rig)) == 1


# -- summaries -----------------------------------------------------------------------------------


def test_a_summary_names_the_sensors_of_its_columns():
    """A silent sensor has none: what is named makes up exactly the width, in a layout's order."""
    knots = {"a": 1, "b": 4, "c": 3}
    sensors = tuple(
        SensorConfig(name, knots=number, timeout_s=60.0) for name, number in knots.items()
    )
    rig = Rig.make(sensors=sensors, vanishing=("a", "c"), warmup_readings=60)
    live(rig, ROWS[:100], LABELS[:100])
    mute = [{name: row[name] for name in "bc"} for row in ROWS[100:]]
    live(rig, mute, LABELS[100:], first_seq=101, gap_ms=200)
    local_models = rig.node.state.local_models
    assert local_models.silent == ("a",)
    rig.tick(1_000_000)
    said = summaries(rig)[-1]
    assert (said.sensors, said.vanishing) == (("b", "c"), ("c",))
    described = [local_models.sensors[sensor] for sensor in said.sensors]
    layout = layout_of(described, said.vanishing, local_models.gate)
    assert layout == local_models.layout
    assert said.width == layout.width < local_models.full.width
    assert np.array_equal(said.gram_array(), local_models.learner.summary("float32").gram)
    everything = local_models.everything.summary("float32")
    assert np.array_equal(said.everything.gram_array(), everything.gram)
    assert said.everything.readings == everything.readings == 600


def test_a_node_that_learns_from_labels_alone_says_nothing_of_the_others():
    """`learn_unlabelled = false`: neither kept nor sent."""
    rig = Rig.make(learn_unlabelled=False)
    live(rig, ROWS[:100], LABELS[:100])
    rig.tick(1_000_000)
    assert summaries(rig)[-1].everything is None


def test_two_matrices_that_do_not_fit_into_a_message_travel_as_one():
    """Many columns and 16 classes, every name as long as it may be: the labelled sums go alone."""
    for width, fits in ((231, True), (320, False)):
        names = tuple(f"{i:03}".rjust(LIMITS.id_chars_max, "s") for i in range(160))
        learner, everything = WoodburyLearner(0, width, 16), GramLearner(0, width, 1)
        said = summary_message(learner, 1, names, names, everything)
        assert (said.everything is not None) == fits
        assert len(encode(said)) <= LIMITS.summary_bytes_max


def test_a_node_uploads_a_summary_whenever_its_readings_have_doubled():
    """It uploads by itself when it has read twice what it had: with the logarithm of readings."""
    rig = Rig.make()
    for seq in range(1, 600):
        rig.read(seq, ROWS[seq], LABELS[seq], now_ms=seq * STATUS_MS)
        rig.tick(seq * STATUS_MS)
    readings = [summary.readings for summary in summaries(rig)]
    assert readings == [32, 64, 128, 256, 512]
    assert rig.node.state.local_models.learner.readings == 599


def test_a_summary_waits_for_the_time_of_a_status_and_comes_once():
    """However much is learned, it waits for the time of a periodic status, and comes once."""
    rig = Rig.make()
    rig.tick(STATUS_MS)
    fill(rig, 1, 500)
    rig.run(rig.node.on_connected(STATUS_MS + 1), STATUS_MS + 1)
    rig.tick(STATUS_MS + 2)
    assert summaries(rig) == []
    before = rig.node.state.local_models.learner.state()
    for turn in range(2, 9):
        rig.tick(turn * STATUS_MS + 1)
    assert [summary.readings for summary in summaries(rig)] == [500]
    after = rig.node.state.local_models.learner.state()
    assert all(np.array_equal(after[name], value) for name, value in before.items())


def test_an_ordered_summary_is_not_uploaded_a_second_time():
    """What was uploaded with the order counts; and a new life uploads what it has."""
    rig = Rig.make()
    fill(rig, 1, 100)
    rig.order(desired(1, sensors=("b", "c")))
    rig.confirm()
    for turn in range(1, 4):
        rig.tick(turn * STATUS_MS)
    fill(rig, 101, 199)
    rig.tick(4 * STATUS_MS)
    assert [(each.layout_version, each.readings) for each in summaries(rig)] == [(0, 100)]
    fill(rig, 200, 200)
    rig.tick(5 * STATUS_MS)
    assert [(each.layout_version, each.readings) for each in summaries(rig)][1:] == [(1, 200)]
    rig.commit(0)
    again = rig.reborn()
    again.tick(6 * STATUS_MS)
    assert [(each.layout_version, each.readings) for each in summaries(again)] == [(1, 200)]
    assert again.frozen() == rig.frozen()


def test_a_learner_that_begins_anew_uploads_after_its_first_readings(monkeypatch):
    """Where the world drifts a change carries nothing over: the count begins with it."""
    rig = Rig.make()
    fill(rig, 1, 200)
    monkeypatch.setattr(type(rig.node.state.scoreboard), "carry", lambda _: 0.0)
    rig.order(desired(1, sensors=("b", "c")))
    rig.confirm()
    assert rig.node.state.local_models.learner.readings == 0
    fill(rig, 201, 232)
    rig.tick(STATUS_MS)
    assert [each.readings for each in summaries(rig)] == [200, 32]
    assert rig.node.state.layout_version == 1


# -- what the gateway has not confirmed ----------------------------------------------------------


def repeated(rig, now_ms):
    """What a tick says again on the topics that a gateway hears."""
    before = len(rig.published)
    rig.tick(now_ms)
    heard = [each for each in rig.published[before:] if each[0].endswith(("/event", "/summary"))]
    return [payload for _, payload, _ in heard]


def test_what_no_gateway_has_confirmed_is_said_again_in_the_same_bytes():
    """A broker that confirms an example, and dies before it has saved it, has lost it."""
    rig = Rig.make()
    fill(rig, 1, 40)
    rig.order(desired(1, gather=3))
    fill(rig, 41, 50)
    told = [encode(each) for each in (*summaries(rig), *examples(rig))]
    assert len(told) == 4
    before = rig.frozen()
    turns = [repeated(rig, turn * STATUS_MS) for turn in range(1, 40)]
    assert [turn for turn, said in enumerate(turns, 1) if said] == [1, 5, 21]
    assert all(sorted(said) == sorted(told) for said in turns if said)
    assert rig.node.counts["repeated"] == 12
    assert rig.frozen() == before


def test_what_the_gateway_has_is_not_said_again():
    """Each confirmation names the messages it is for; the others are still repeated."""
    rig = Rig.make()
    rig.order(desired(1, gather=3))
    fill(rig, 1, 3)
    first, *others = [encode(each) for each in examples(rig)]
    confirmed = encode(Confirmed((digest(first), digest(b"never said"))))
    rig.handle(TOPICS.to(Channel.CONFIRMED), confirmed, token="t")
    assert repeated(rig, STATUS_MS) == others
    rig.confirm()
    assert repeated(rig, 10**9) == []
    assert "t" in rig.released


def test_nothing_is_repeated_to_nobody():
    """Without a broker, or before any order, repetitions would only fill a queue."""
    rig = Rig.make()
    rig.tick(STATUS_MS)
    fill(rig, 1, 40)
    assert len(repeated(rig, 2 * STATUS_MS)) == 2  # its introduction, and its summary
    assert len(repeated(rig, 9 * STATUS_MS)) == 1  # its introduction
    rig.order(desired(1, layout_version=1))
    rig.node.on_disconnected()
    assert repeated(rig, 10 * STATUS_MS) == []


def test_what_waits_for_a_confirmation_is_bounded_and_the_newest_stays():
    """A gateway that never answers must not fill a node's memory."""
    waiting = Unconfirmed()
    payloads = [bytes([each]) * 200_000 for each in range(4)]
    for place, payload in enumerate(payloads):
        waiting.expect(place, Publish("opid/1/farm/n1/summary", payload), now_ms=0)
    assert [each.payload for each in waiting.take_due(10**9)] == payloads[2:]
    waiting.expect(3, Publish("opid/1/farm/n1/summary", b"newer"), now_ms=0)
    assert [each.payload for each in waiting.take_due(10**10)] == [payloads[2], b"newer"]


@pytest.mark.parametrize("payload", [b"", b"\xff", encode(Status.last_will(0, 0, 0))])
def test_a_confirmation_that_is_none_confirms_nothing(payload):
    """Whoever may write there at a careless broker sends anything."""
    rig = Rig.make()
    rig.order(desired(1, gather=1))
    fill(rig, 1, 1)
    rig.handle(TOPICS.to(Channel.CONFIRMED), payload, token="t")
    assert repeated(rig, STATUS_MS) == [encode(each) for each in examples(rig)[:1]]
    assert "t" in rig.released


# -- status --------------------------------------------------------------------------------------


def test_a_status_names_the_order_obeyed_even_if_it_had_no_weights():
    """The status names the order, beside the model; both survive a restart."""
    rig = Rig.make()
    assert (rig.node.status(0).version, rig.node.status(0).model_version) == (0, 0)
    rig.order(desired(5, gather=3))
    said = rig.statuses()[-1]
    assert (said.version, said.model_version, said.layout_version) == (5, 0, 1)
    rig.order(desired(4))
    assert rig.node.status(0).version == 5
    rig.commit(0)
    assert rig.reborn().node.status(0).version == 5


SETTINGS = f"""
[node]
site = "farm"
node = "n1"
classes = {list(CLASSES)}
[gateway]
keys = ["{KEY.verify_key.encode().hex()}"]
""" + "".join(f'[[sensors]]\nid = "{name}"\nreference = 0.0\nscale = 1.0\n' for name in "abc")


def test_a_last_will_names_the_order_that_was_obeyed(tmp_path):
    """A real node that obeyed, restarted and was killed: the broker says so, with its versions."""
    with (
        Mosquitto(tmp_path / "broker") as broker,
        listening(broker.port, str(TOPICS.to(Channel.STATUS))) as listener,
        NodeProcess(tmp_path, broker.port, SETTINGS) as node,
    ):

        def said(online):
            status = listener.last(Channel.STATUS, Status)
            return status is not None and (status.online, status.version) == (online, 5)

        order = seal_desired(desired(5, layout_version=2), KEY)
        assert listener.link.publish(str(TOPICS.to(Channel.DESIRED)), order, retain=True)
        wait_until(lambda: said(online=True), "the node obeys")
        assert node.stop() == 0
        wait_until(lambda: said(online=False), "goodbye")
        node.start()
        wait_until(lambda: said(online=True), "its second life")
        node.kill()
        wait_until(lambda: said(online=False), "the will")
        will = listener.last(Channel.STATUS, Status)
    assert will == Status.last_will(layout_version=2, model_version=0, version=5)
