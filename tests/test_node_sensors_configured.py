"""Sensors that come, go and change in the file of a node without a gateway, between two lives.

The oracle is a bare layout and learner that live through the same change.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.rig import CLASSES, KEY, Rig, config, desired

from edge_opid import Layout, Sensor, WoodburyLearner
from edge_opid.config.node import SensorConfig
from edge_opid.errors import SettingError
from edge_opid.node.inputs import apply
from edge_opid.node.journal_records import Remeasured, pack_record
from edge_opid.node.node import Node
from edge_opid.reasons import NodeReason

A, B, C, D = (
    SensorConfig(name, reference=10.0 * k, scale=1.0 + k) for k, name in enumerate("abcd")
)
READINGS = 120


def instances(first: int, count: int) -> list[tuple[int, dict[str, float], str]]:
    """The same world for everybody: four sensors, three classes, a label each."""
    random = np.random.default_rng(3)
    found = []
    for seq in range(1, first + count):
        truth = int(random.integers(3))
        z = random.normal([truth, -truth, truth == 1, 2 * truth])
        said = zip((A, B, C, D), z, strict=True)
        values = {s.id: float(s.reference + s.scale * v) for s, v in said}
        found.append((seq, values, CLASSES[truth]))
    return found[first - 1 :]


def teach(rig: Rig, first: int, count: int, rename: dict[str, str] | None = None) -> None:
    known = {*rig.node.state.local_models.sensors, *rig.node.state.measuring.until}
    for seq, values, label in instances(first, count):
        said = {(rename or {}).get(name, name): value for name, value in values.items()}
        rig.read(seq, {name: v for name, v in said.items() if name in known}, label)
    rig.commit(0)


def lived(sensors=(A, B, C), readings: int = READINGS, **changes) -> Rig:
    rig = Rig(Node(config(sensors=sensors, **changes)))
    rig.run(rig.node.start(0), 0)
    teach(rig, 1, readings)
    return rig


def restarted(rig: Rig, sensors, keys=(), **changes) -> tuple[Rig, tuple[str, ...]]:
    """The next life, and what is told at its start."""
    node = Node(config(sensors=sensors, **changes), keys)
    again = Rig(node, durable=list(rig.durable))
    node.restore(None, rig.durable)
    plan = node.planned()
    told = (*plan.sentences, *plan.ignored)
    again.run(node.start(10_000_000), 10_000_000)
    again.commit(0)
    check_replay(again, keys)
    return again, told


def check_replay(rig: Rig, keys=()) -> None:
    """The journal alone gives the state, and so does a snapshot."""
    for snapshot in (None, rig.frozen()):
        other = Node(rig.node.config, keys)
        other.restore(snapshot, rig.durable if snapshot is None else [])
        assert other.snapshot() == rig.frozen()
        assert other.planned().sentences == rig.node.planned().sentences


def sensor(given: SensorConfig) -> Sensor:
    return Sensor(given.role, given.reference, given.scale)


def taught(layout: Layout, learner: WoodburyLearner, first: int, count: int, roles=None) -> None:
    for _, values, label in instances(first, count):
        by_role = {(roles or {}).get(name, name): value for name, value in values.items()}
        known = {name: value for name, value in by_role.items() if name in layout.names}
        learner.learn_one(layout.encode(known), CLASSES.index(label))


def alone(sensors=(A, B, C)) -> tuple[Layout, WoodburyLearner]:
    """What a node with these sensors learns, without a node."""
    layout = Layout([sensor(each) for each in sensors])
    learner = WoodburyLearner(0, layout.width, 3)
    taught(layout, learner, 1, READINGS)
    return layout, learner


def same_bits(rig: Rig, learner: WoodburyLearner) -> bool:
    mine = rig.node.state.local_models.learner.state()
    theirs = learner.state()
    return all(np.array_equal(mine[name], theirs[name]) for name in ("columns", "variances", "B"))


def test_a_sensor_that_is_added_joins_and_nothing_is_forgotten() -> None:
    """It is a change of layout as a gateway orders it: the sums of the others are inherited."""
    rig = lived()
    again, told = restarted(rig, (A, B, C, D))
    assert told == ("d joins: reference 30, scale 4",)
    layout, learner = alone()
    wider = Layout([*layout.sensors, sensor(D)])
    learner = layout.change_to(wider).follow(learner, rig.node.state.scoreboard.carry())
    assert same_bits(again, learner)
    teach(again, READINGS + 1, 40)
    taught(wider, learner, READINGS + 1, 40)
    assert same_bits(again, learner)
    assert again.node.state.local_models.learner.readings == READINGS + 40
    assert again.node.tally.counts[NodeReason.UNKNOWN_SENSOR] == 0


def test_a_sensor_that_is_removed_goes_and_the_others_keep_what_they_know() -> None:
    """Its node bridges with the survivors' weights, as for any sensor that is retired."""
    rig = lived()
    again, told = restarted(rig, (A, B))
    assert told == ("c is removed: what was learned with the others is kept",)
    layout, learner = alone()
    narrower = layout.retire("c")
    learner = layout.change_to(narrower).follow(learner, rig.node.state.scoreboard.carry())
    assert same_bits(again, learner)
    assert again.node.state.local_models.bridge is not None


@pytest.mark.parametrize("role", ["c", "d"])
def test_a_replacement_takes_over_the_column_with_its_own_scale(role: str) -> None:
    """A probe of another make: the same column, in units of the new one's scale."""
    rig = lived()
    heir = replace(D, role=role, replaces="c")
    again, told = restarted(rig, (A, B, heir))
    assert told == ("d takes over from c, with what it has learned: reference 30, scale 4",)
    before, after = (each.node.state.local_models.learner for each in (rig, again))
    for z in (-1.0, 0.5, 2.0):
        old = rig.node.state.local_models.encode({"a": 0.5, "b": 11.0, "c": 20.0 + 3 * z})
        new = again.node.state.local_models.encode({"a": 0.5, "b": 11.0, "d": 30.0 + 4 * z})
        # Rebuilt from the sums: the float32 of U and B is rounded once more, some 1e-7 each.
        assert np.abs(before.predict_one(old) - after.predict_one(new)).max() < 1e-5
    assert after.readings == READINGS
    third, told = restarted(again, (A, B, heir))  # the key may stay in the file
    assert told == ()
    assert third.frozen() == again.frozen()


def test_a_sensor_that_is_rescaled_answers_as_if_it_had_always_had_that_scale() -> None:
    """[x, 1] moves by a linear map, and so do the sums: exactly, but for float32."""
    other = replace(C, reference=25.0, scale=6.0)
    again, told = restarted(lived(), (A, B, other))
    assert told == (
        "c is rescaled: reference 25, scale 6; they were 20 and 3, and what was learned is "
        "converted",
    )
    always = lived((A, B, other))
    mine, theirs = (each.node.state.local_models.learner for each in (again, always))
    assert np.abs(mine.weights()[0] - theirs.weights()[0]).max() < 1e-5  # float32 sums of 120
    assert mine.readings == READINGS
    assert again.node.state.local_models.bridge is None


def test_a_sensor_without_a_scale_is_measured_before_it_joins() -> None:
    """Until then the node goes on as if it were not there, to the bit."""
    rig = lived(warmup_readings=20)
    undisturbed, _ = restarted(rig, (A, B, C), warmup_readings=20)
    again, told = restarted(rig, (A, B, C, SensorConfig("d")), warmup_readings=20)
    assert told == ("d joins: after its first 20 values, which give it a reference and a scale",)
    teach(again, READINGS + 1, 19)
    teach(undisturbed, READINGS + 1, 19)
    assert [p.scores for p in again.predictions()] == [p.scores for p in undisturbed.predictions()]
    check_replay(again)
    teach(again, READINGS + 20, 21)
    line = again.node.tally.latest[NodeReason.SENSOR_MEASURED].fields["why"]
    values = [values["d"] for _, values, _ in instances(READINGS + 1, 20)]
    found = again.node.state.local_models.sensors["d"]
    assert line == f"d joins: reference {found.reference:g}, scale {found.scale:g}"
    assert found.reference == pytest.approx(np.mean(np.float32(values)))
    assert again.node.state.local_models.layout.names == ("a", "b", "c", "d")
    assert again.node.state.local_models.learner.readings == READINGS + 40
    assert not again.node.state.measuring
    assert again.node.tally.counts[NodeReason.UNKNOWN_SENSOR] == 0
    check_replay(again)


def test_a_replacement_without_a_scale_inherits_when_it_has_been_measured() -> None:
    """The old one is silent long before: its columns wait for the heir, and are not lost."""
    rig = lived(warmup_readings=20)
    heir = SensorConfig("d", role="c", replaces="c", timeout_s=10.0)
    again, told = restarted(rig, (A, B, heir), warmup_readings=20)
    assert told[0].startswith("d takes over from c, with what it has learned: after its first 20")
    for seq, values, label in instances(READINGS + 1, 30):
        now_ms = 10_000_000 + 10_000 * seq
        again.read(seq, {"a": values["a"], "b": values["b"], "d": values["d"]}, label, now_ms)
        again.tick(now_ms + 1)
        if seq == READINGS + 19:
            assert again.node.state.local_models.silent == ("c",)
    again.commit(0)
    local_models = again.node.state.local_models
    assert (local_models.silent, sorted(local_models.sensors)) == ((), ["a", "b", "d"])
    gram = np.zeros((4, 4))
    gram[np.triu_indices(4)] = local_models.learner.summary("float64").gram
    place = local_models.layout.columns.index("c")
    assert gram[place, place] > 60  # what c said is in its sums: 120 squares of about 1
    check_replay(again)


def test_knots_in_the_file_become_hats_once_their_places_are_known() -> None:
    """And a straight column again when the line goes: what was learned stays in both."""
    rig = lived(warmup_readings=20)
    bent = replace(C, knots=4)
    again, told = restarted(rig, (A, B, bent), warmup_readings=20)
    assert told == ("c gets 4 hats, after its next 20 values, which say where; knots was 1",)
    assert again.node.state.local_models.sensors["c"].knots == ()
    teach(again, READINGS + 1, 30)
    assert len(again.node.state.local_models.sensors["c"].knots) == 4
    assert again.node.state.local_models.learner.readings == READINGS + 30
    check_replay(again)
    third, told = restarted(again, (A, B, C), warmup_readings=20)
    assert told == ("c gets a straight column, from here on; knots was 4",)
    assert third.node.state.local_models.sensors["c"].knots == ()
    assert third.node.state.local_models.learner.readings == READINGS + 30


@pytest.mark.parametrize("change", [{"reference": 5.0, "scale": 3.0}, {"knots": 5}], ids=str)
def test_what_the_file_says_of_a_scale_ends_its_measuring_anew(change) -> None:
    """An operator asks for `remeasure` and then edits the file after all: without this, what was
    asked for first would undo the file's scale or knots, 20 values later.
    """
    loose = replace(A, reference=None, scale=None)
    rig = lived((loose, B, C), warmup_readings=20)
    remeasured = Remeasured(0, "a")
    apply(rig.node.state, remeasured)
    rig.durable.append(pack_record(remeasured))
    again, _ = restarted(rig, (replace(loose, **change), B, C), warmup_readings=20)
    teach(again, READINGS + 1, 60)
    found = again.node.state.local_models.sensors["a"]
    if "knots" in change:
        assert len(found.knots) == 5
    else:
        assert (found.reference, found.scale) == (5.0, 3.0)
    assert again.node.state.scales.again == {}
    check_replay(again)


def test_another_role_timeout_or_gate_forgets_nothing() -> None:
    """None of them changes a number that was learned: the learner keeps its bits."""
    rig = lived()
    before = rig.node.state.local_models.learner
    changed = (replace(A, timeout_s=99.0), B, C)
    again, told = restarted(rig, changed, gate=6.0)
    assert told == (
        "a: timeout_s is 99.0 from now on; it was left out",
        "node.gate is 6 from now on; it was 8",
    )
    assert same_bits(again, before)
    local_models = again.node.state.local_models
    assert (local_models.gate, local_models.layout.gate, local_models.bridge) == (6.0, 6.0, None)
    assert local_models.sensors["a"].timeout_s == 99.0
    renamed = (replace(A, timeout_s=99.0, role="temp"), B, C)
    third, told = restarted(again, renamed, gate=6.0)
    assert told == ("a has the role temp now; it was a",)
    layout = third.node.state.local_models.layout
    assert layout.columns == ("b", "c", "temp", "bias")
    for _, values, _ in instances(READINGS + 1, 5):
        del values["d"]
        was = before.predict_one(local_models.encode(values))
        now = third.node.state.local_models.learner.predict_one(
            third.node.state.local_models.encode(values)
        )
        assert np.abs(was - now).max() < 1e-5  # columns in another order: rebuilt from the sums


def test_a_gate_is_refused_where_hats_end_at_the_old_one() -> None:
    """Their end knots are at the gate: beyond it nothing was learned that could be moved."""
    rig = lived((A, replace(B, knots=4), C), warmup_readings=20)
    node = Node(config(sensors=(A, replace(B, knots=4), C), warmup_readings=20, gate=6.0))
    node.restore(None, rig.durable)
    with pytest.raises(SettingError, match=r"node\.gate is 6 and was 8: 'b' has hats"):
        node.start(0)
    assert node.snapshot() == rig.frozen()


def test_a_file_whose_sensors_all_have_to_be_measured_is_refused() -> None:
    """The node would have nobody to listen to until they are."""
    rig = lived()
    node = Node(config(sensors=(SensorConfig("x"), SensorConfig("y"))))
    node.restore(None, rig.durable)
    with pytest.raises(SettingError, match="sensors would all have to be measured first: give 'x'"):
        node.start(0)
    assert node.snapshot() == rig.frozen()


def test_where_a_gateway_has_ordered_the_sensors_of_the_file_are_told_and_not_applied() -> None:
    """Its book and its pools would not know of them; it says so at every start."""
    keys = [KEY.verify_key]
    rig = Rig(Node(config(), keys))
    rig.run(rig.node.start(0), 0)
    rig.order(desired(1, 1, ("a", "b", "c")))
    rig.commit(0)
    given = rig.node.config.sensors
    changed = (replace(given[0], scale=3.0), given[1], SensorConfig("lux"))
    again, told = restarted(rig, changed, keys)
    decides = "the gateway decides about this node's sensors"
    assert told == (
        f"lux is not used: {decides}: opid-gateway sensor deploy",
        f"c stays, although it is no longer in the file: {decides}: opid-gateway sensor retire",
        f"a: scale of the file are not used: {decides}",
    )
    assert again.frozen() == rig.frozen()
    _, told = restarted(again, changed, keys)
    assert len(told) == 3


@pytest.mark.parametrize("readings", [5, 12])
def test_a_warm_up_goes_on_under_another_file(readings: int) -> None:
    """Its readings are kept: removed and given scales count at once, a new sensor is measured."""
    unscaled = tuple(SensorConfig(name) for name in "abc")
    rig = lived(unscaled, readings, warmup_readings=20)
    again, told = restarted(rig, (unscaled[0], B, SensorConfig("d")), warmup_readings=20)
    assert any(each.startswith("c is removed") for each in told)
    assert again.node.state.warmup is not None
    teach(again, readings + 1, 60)
    assert again.node.state.warmup is None
    local_models = again.node.state.local_models
    assert local_models.layout.names == ("a", "b", "d")
    assert (local_models.sensors["b"].reference, local_models.sensors["b"].scale) == (10.0, 2.0)
    assert local_models.learner.readings == readings + 60
    check_replay(again)


def test_a_change_during_the_warm_up_is_told_and_moves_nobody_out_of_it() -> None:
    """Knots and scales were taken over without a word; a sensor at rest "joined" once more, and
    what it had said was forgotten; one that went was not mentioned.
    """
    a, still = replace(A, reference=None, scale=None), SensorConfig("still")
    rig = Rig(Node(config(sensors=(a, still, SensorConfig("mute")), warmup_readings=40)))
    rig.run(rig.node.start(0), 0)
    for seq in range(1, 21):
        rig.read(seq, {"a": float(seq % 7), "still": 3.0})
    rig.commit(0)
    again, told = restarted(rig, (replace(a, knots=5), still, D), warmup_readings=40)
    assert sorted(told) == [
        "a: knots is 5 from now on; it was 1",
        "d joins: reference 30, scale 4",
        "mute is removed: what was learned with the others is kept",
    ]
    for seq in range(21, 41):
        again.read(seq, {"a": float(seq % 7), "still": 3.0})
    assert again.node.status(0).degraded == ("measuring: still, always 3 in 40 values",)
    assert len(again.node.state.local_models.sensors["a"].knots) == 5
    again.commit(0)
    check_replay(again)
    _, told = restarted(again, (replace(a, knots=5), D), warmup_readings=40)
    assert told == ("still is removed: what was learned with the others is kept",)


def test_a_power_cut_between_a_change_and_its_commit_is_harmless() -> None:
    """The record is lost with everything after it: the next start makes the same change."""
    rig = lived()
    node = Node(config(sensors=(A, B, C, D)))
    node.restore(None, rig.durable)
    node.start(10_000_000)  # its record never reached the disk
    again, told = restarted(rig, (A, B, C, D))
    assert told == ("d joins: reference 30, scale 4",)
    assert again.frozen() == node.snapshot()


def test_another_plan_of_who_vanishes_is_another_split_of_the_same_columns() -> None:
    """Where the first sensor by name is planned to go, the columns have the order they had."""
    rig = lived()
    again, told = restarted(rig, (A, B, C), vanishing=("a",))
    assert told == ("planned to vanish: a",)
    learner = again.node.state.local_models.learner
    assert (learner.vanishing, learner.readings) == (1, READINGS)
    layout, alone_ = alone()
    carry = rig.node.state.scoreboard.carry()
    planned = layout.change_to(layout.plan(["a"])).follow(alone_, carry)
    assert same_bits(again, planned)


def test_a_replacement_in_the_file_inherits_what_models_are_tried_on() -> None:
    """When a gateway's weights are judged, the new sensor has said what the old one said."""
    rig = lived()
    heir, _ = restarted(rig, (A, B, replace(D, role="c", replaces="c")))
    before, now = (each.node.state.trial.state()["kept"] for each in (rig, heir))
    assert [sensors for sensors, _, _ in before if sensors] == [["a", "b", "c"]]
    assert [sensors for sensors, _, _ in now if sensors] == [["a", "b", "d"]]
    for (_, said, truth), (_, moved, label) in zip(before, now, strict=True):
        old, new = np.frombuffer(said), np.frombuffer(moved)
        same = (old[2] - C.reference) / C.scale
        assert (new[2] - D.reference) / D.scale == pytest.approx(same)
        assert (list(new[:2]), label) == (list(old[:2]), truth)


def test_a_sensor_of_another_id_in_the_same_role_takes_over_without_being_told() -> None:
    """Columns are roles: whoever swaps the id alone means a replacement."""
    again, told = restarted(lived(), (A, B, replace(D, role="c")))
    assert told == ("d takes over from c, with what it has learned: reference 30, scale 4",)
    heir, _ = restarted(lived(), (A, B, replace(D, role="c", replaces="c")))
    mine, theirs = (each.node.state.local_models.learner for each in (again, heir))
    assert np.array_equal(mine.B, theirs.B)


def test_a_file_that_changes_while_a_replacement_is_measured_keeps_what_waits_for_it() -> None:
    """The predecessor is in no file any more: it waits for its heir, and goes when that goes."""
    rig = lived(warmup_readings=20)
    heir = SensorConfig("d", role="c", replaces="c")
    measuring, _ = restarted(rig, (A, B, heir), warmup_readings=20)
    teach(measuring, READINGS + 1, 5)
    again, told = restarted(measuring, (A, B, heir), warmup_readings=20, recent=99)
    assert told == ("node.recent is 99 from now on; it was 256",)
    assert again.node.state.measuring.until == {"d": "c"}
    moved, told = restarted(again, (replace(A, scale=2.0), B, heir), warmup_readings=20, recent=99)
    assert [each.split(":")[0] for each in told] == ["a is rescaled"]
    assert moved.node.state.measuring.until == {"d": "c"}
    assert "c" in moved.node.state.local_models.sensors
    gone, told = restarted(moved, (replace(A, scale=2.0), B), warmup_readings=20, recent=99)
    assert told == tuple(
        f"{id_} is removed: what was learned with the others is kept" for id_ in "cd"
    )
    assert sorted(gone.node.state.local_models.sensors) == ["a", "b"]
    assert not gone.node.state.measuring


def test_a_sensor_that_a_former_gateway_ordered_can_be_replaced() -> None:
    """Its key was taken out of the file: from then on the file decides, also over that sensor."""
    rig = Rig(Node(config(), [KEY.verify_key]))
    rig.run(rig.node.start(0), 0)
    rig.order(desired(1, 1, ("a", "b", "c", "x")))
    rig.commit(0)
    given = rig.node.config.sensors
    alone_, told = restarted(rig, given)
    assert told == ()
    assert sorted(alone_.node.state.local_models.sensors) == ["a", "b", "c", "x"]
    heir = SensorConfig("y", reference=0.0, scale=1.0, replaces="x")
    again, told = restarted(alone_, (*given, heir))
    assert told == ("y takes over from x, with what it has learned: reference 0, scale 1",)
    assert sorted(again.node.state.local_models.sensors) == ["a", "b", "c", "y"]


def test_a_scale_too_far_away_to_be_moved_to_begins_anew_though_no_other_sensor_is_left() -> None:
    """The only sensor's scale was a million times too wide: old sums mean nothing in its units."""
    rig = lived((A,))
    far = replace(A, scale=A.scale / 1e6)
    again, _ = restarted(rig, (far,))
    models = again.node.state.local_models
    assert models.sensors["a"].scale == far.scale
    assert (models.learner.evidence, models.lately.evidence) == (0, 0)
    assert not models.learner.B.any()
    assert not models.logistic.weights.any()


@pytest.mark.parametrize("readings", [10, 30])
def test_a_sensor_is_measured_anew_by_as_many_values_as_the_file_says_now(readings: int) -> None:
    """It had said 15 of 20 values. In one life it waited for 20; in the next it never had enough,
    and kept every value there was.
    """
    unknown = (A, B, SensorConfig("c"))
    rig = lived(unknown, warmup_readings=20)
    now = Remeasured(0, "c")
    rig.durable.append(pack_record(now))
    apply(rig.node.state, now)
    teach(rig, READINGS + 1, 15)
    again, _ = restarted(rig, unknown, warmup_readings=readings)
    after = Rig(Node(config(sensors=unknown, warmup_readings=readings)))
    after.node.restore(again.frozen(), [])
    for each in (again, after):
        teach(each, READINGS + 16, 15)
        assert not each.node.state.scales.again
        assert each.node.counts[NodeReason.SCALE_MOVED] == 1
    assert again.frozen() == after.frozen()
