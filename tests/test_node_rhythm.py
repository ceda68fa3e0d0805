"""A sensor's own rhythm decides when its silence means something."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from support.rig import Rig, description, desired

from benchmarks.silence import DAY_S, door, heartbeat, merged, timer
from edge_opid.config.node import SensorConfig
from edge_opid.node.rhythm import WEIGHT, Rhythms, longest_of, patience_of, size_of
from edge_opid.wire import Channel, SensorSilent


def test_sizes_cover_every_gap_once_in_order():
    """A hole between two sizes, or two sizes for one gap, would split a rhythm in two."""
    for size in range(8, 160):
        assert size_of(longest_of(size)) == size
        assert size_of(longest_of(size) + 1) == size + 1
    assert size_of(0) == size_of(-5) == size_of(8)


def heard(times_s, sensor="s", other_s=1.0, until_s=None):
    """The rhythms of a node that hears this sensor, and another one all the time."""
    rhythms, until_s = Rhythms(), until_s or times_s[-1]
    others = [other_s * step for step in range(int(until_s / other_s) + 1)]
    for at, name in merged({sensor: list(times_s), "other": others}):
        rhythms.hear({name}, int(1000 * at))
    return rhythms


@pytest.mark.parametrize(("period_s", "at_most_s"), [(1.0, 60.0), (60.0, 600.0), (1200.0, 9000.0)])
def test_a_timer_is_waited_for_some_periods_and_not_for_ever(period_s, at_most_s):
    """Every second, every minute, a battery's twenty minutes: each has its own patience."""
    times = timer(period_s, 0.05, 0.02)(Random(1), 100 * period_s)
    patience_s = heard(times, other_s=period_s / 3).patience_ms("s") / 1000
    assert 2 * period_s < patience_s <= at_most_s


def test_a_door_has_no_rhythm():
    times = door()(Random(2), 6 * DAY_S)
    rhythms = heard(times, other_s=60.0, until_s=20 * DAY_S)
    assert rhythms.patience_ms("s") == 0
    assert rhythms.silence_ms("s") > 1000 * 10 * DAY_S


def test_changes_between_two_heartbeats_do_not_shorten_the_patience():
    """On change, or after an hour: the hour is the rhythm, whatever happens in between."""
    times = heartbeat(3600.0, 1500.0)(Random(3), 4 * DAY_S)
    patience_s = heard(times, other_s=60.0).patience_ms("s") / 1000
    assert 2 * 3600 < patience_s < 6 * 3600


def test_reports_that_are_missed_make_it_wait_longer():
    counts = {size_of(60_000): 100 * WEIGHT}
    missing = {**counts, size_of(120_000): 20 * WEIGHT}
    assert patience_of(missing) > patience_of(counts) > 0


def test_an_outage_of_the_network_is_nobodys_gap():
    """Everybody is away for three hours: the clock that gaps are measured by waits."""
    rhythms = Rhythms()
    for second in range(600):
        rhythms.hear({"a"}, 1000 * second)
        rhythms.hear({"b"}, 1000 * second + 400)
    before = rhythms.patience_ms("a")
    rhythms.hear({"b"}, 1000 * (600 + 3 * 3600))
    assert 0 < rhythms.silence_ms("a") < before
    for second in range(64):
        rhythms.hear({"a"}, 1000 * (600 + 3 * 3600 + second))
    assert rhythms.patience_ms("a") == before


def test_sensors_that_speak_together_share_a_record_until_one_is_missing():
    """Shared or apart, each has the rhythm that it would have alone."""
    together, alone = Rhythms(), {name: Rhythms() for name in "abc"}
    for minute in range(120):
        speaking = set("abc") if minute % 7 else set("ab")
        together.hear(speaking, 60_000 * minute)
        for name, rhythms in alone.items():
            rhythms.hear(speaking & {name} or {"other"}, 60_000 * minute)
    assert len(together.state()["rhythms"]) == 2
    for name, rhythms in alone.items():
        assert together.patience_ms(name) == rhythms.patience_ms(name) > 0
        assert together.silence_ms(name) == rhythms.silence_ms(name)


def test_rhythms_are_the_same_bits_whoever_remembers_them():
    """Saved and read back at any moment; names of sets must not decide the order."""
    rng, first, second = Random(5), Rhythms(), Rhythms()
    for step in range(2_000):
        names = {name for name in "abcdefgh" if rng.random() < 0.6}
        first.hear(names, 500 * step)
        second.hear(dict.fromkeys(sorted(names, reverse=True)), 500 * step)
        if step % 97 == 0:
            second = Rhythms.restored(second.state())
    assert first.state() == second.state()
    assert len(str(first.state())) < 8 * 400  # bounded, however long it lasts


def life(rig, until_ms, gaps_ms):
    """Sensors that speak at their own pace, and a tick every second."""
    seq = dict.fromkeys(gaps_ms, 0)
    for now_ms in range(0, until_ms, 1_000):
        for name, gap_ms in gaps_ms.items():
            if now_ms % gap_ms == 0:
                seq[name] += 1
                rig.read(seq[name], {name: 1.0}, now_ms=now_ms, source=name)
        rig.tick(now_ms)
    return seq


def test_without_a_timeout_a_slow_sensor_lives_and_a_fast_one_is_missed_within_a_minute():
    """Sixty seconds for all would have buried the battery sensor seventy times a day."""
    sensors = tuple(SensorConfig(name, reference=0.0, scale=1.0) for name in ("fast", "slow", "x"))
    rig = Rig.make(sensors=sensors)
    seq = life(rig, 3 * 3_600_000, {"fast": 1_000, "slow": 1_200_000, "x": 5_000})
    assert rig.messages(Channel.EVENT, SensorSilent) == []
    for now_ms in range(3 * 3_600_000, 3 * 3_600_000 + 60_000, 5_000):
        seq["x"] += 1
        rig.read(seq["x"], {"x": 1.0}, now_ms=now_ms, source="x")
        rig.tick(now_ms)
    assert [each.sensor for each in rig.messages(Channel.EVENT, SensorSilent)] == ["fast"]
    rig.commit(0)
    assert rig.reborn().frozen() == rig.frozen()


def test_a_timeout_that_is_given_counts_and_one_that_is_left_out_travels():
    """A gateway's layout may leave it out, too: then the rhythm decides."""
    rig = Rig.make()  # ten seconds each
    rig.read(1, {"a": 1.0, "b": 1.0, "c": 1.0}, now_ms=0)
    rig.read(2, {"a": 1.0, "b": 1.0}, now_ms=10_001)
    rig.tick(10_001)
    assert rig.node.state.local_models.silent == ("c",)
    free = tuple(description(name, timeout_s=None) for name in "abc")
    rig.order(replace(desired(1), sensors=free), now_ms=11_000)
    assert rig.node.state.local_models.sensors["a"].timeout_s is None
    rig.read(3, {"a": 1.0, "b": 1.0, "c": 1.0}, now_ms=12_000)
    rig.read(4, {"a": 1.0}, now_ms=500_000)
    rig.tick(500_000)
    assert rig.node.state.local_models.silent == ()
