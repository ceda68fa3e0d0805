"""What goes wrong when sensors that belong together speak apart."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_opid.node.joining import Instance, InstanceJoiner
from edge_opid.wire import LIMITS, InstanceId

ALIVE = ("co2", "humidity", "temp")


def number(seq: int) -> InstanceId:
    return InstanceId("attic", 1, seq)


def take(
    assembler: InstanceJoiner,
    now_ms: int,
    time_ms: int,
    which: InstanceId,
    values: dict[str, float],
    label: str | None = None,
) -> list[Instance]:
    """A reading comes, as a node takes it: the open instance makes way first."""
    finished = assembler.make_way(now_ms, time_ms, values)
    return finished + assembler.add(now_ms, time_ms, which, values, label, ALIVE)


def add(
    assembler: InstanceJoiner, seq: int, now_ms: int, time_ms: int | None = None, **values: float
) -> list[Instance]:
    at_ms = now_ms if time_ms is None else time_ms
    return take(assembler, now_ms, at_ms, number(seq), values)


def test_missing_sensor_does_not_keep_the_others_waiting() -> None:
    """One of three stays silent: the instance closes when its window is over, with two values."""
    assembler = InstanceJoiner(window_ms=500)
    assert add(assembler, 1, 100, temp=1.0) == []
    assert add(assembler, 2, 400, co2=2.0) == []
    assert assembler.closes_at_ms() == 600
    assert assembler.close(599) == []
    [instance] = assembler.close(600)
    assert instance == Instance(100, (number(1), number(2)), {"temp": 1.0, "co2": 2.0})
    assert assembler.closes_at_ms() is None
    assert assembler.close(10_000) == []


def test_fast_sensor_does_not_overwrite_its_value() -> None:
    """A second value of a sensor is the next instance, not a correction of this one."""
    assembler = InstanceJoiner(window_ms=500)
    add(assembler, 1, 0, temp=1.0)
    [instance] = add(assembler, 2, 10, temp=2.0)
    assert instance.values == {"temp": 1.0}
    [rest] = assembler.close(510)
    assert (rest.values, rest.numbers[-1]) == ({"temp": 2.0}, number(2))


@pytest.mark.parametrize("time_ms", [501, -501])
def test_value_of_another_time_does_not_join(time_ms: int) -> None:
    """A spool that empties after an outage brings values of the past within milliseconds."""
    assembler = InstanceJoiner(window_ms=500)
    add(assembler, 1, 10_000, time_ms=10_000, temp=1.0)
    [instance] = add(assembler, 2, 10_001, time_ms=10_000 + time_ms, co2=2.0)
    assert instance.values == {"temp": 1.0}
    assert assembler.closes_at_ms() == 10_501


def test_late_tick_does_not_stretch_the_window() -> None:
    """A value that comes after the end opens the next instance, whenever the clock is looked at."""
    assembler = InstanceJoiner(window_ms=500)
    add(assembler, 1, 0, temp=1.0)
    [instance] = add(assembler, 2, 500, time_ms=400, co2=2.0)
    assert instance.values == {"temp": 1.0}
    assert assembler.closes_at_ms() == 1_000


def test_clock_set_back_does_not_keep_an_instance_open() -> None:
    """A corrected clock may be hours before the end of the window."""
    assembler = InstanceJoiner(window_ms=500)
    add(assembler, 1, 10**9, temp=1.0)
    assert assembler.is_due(0)
    assert len(assembler.close(0)) == 1


def test_contradicting_labels_leave_the_last_one() -> None:
    """Two sources know the truth, differently."""
    assembler = InstanceJoiner(window_ms=500)
    take(assembler, 0, 0, number(1), {"temp": 1.0}, "dry")
    take(assembler, 1, 1, number(2), {"co2": 1.0}, "wet")
    [instance] = take(assembler, 2, 2, number(3), {"humidity": 1.0})
    assert instance.label == "wet"
    assert instance.numbers == (number(1), number(2), number(3))


def test_reading_without_values_changes_nothing() -> None:
    """It stands for a reading that its sender has lost."""
    assembler = InstanceJoiner(window_ms=500)
    add(assembler, 1, 0, temp=1.0)
    before = assembler.state()
    assert take(assembler, 1, 1, number(2), {}) == []
    assert assembler.state() == before


def test_invented_sensors_do_not_grow_an_instance_for_ever() -> None:
    """A sender with ever new names stays within what one reading may hold."""
    assembler = InstanceJoiner(window_ms=10**9)
    finished = [
        instance
        for seq in range(1, 1_000)
        for instance in take(assembler, seq, seq, number(seq), {f"s{seq}": 1.0})
    ]
    assert [len(each.values) for each in finished] == [LIMITS.sensors_max] * 6
    assert max(len(each.numbers) for each in finished) <= 256


def test_window_of_zero_waits_for_nobody() -> None:
    """Every reading is an instance by itself, however many sensors are alive."""
    assembler = InstanceJoiner(window_ms=0)
    [instance] = add(assembler, 1, 0, temp=1.0)
    assert instance.values == {"temp": 1.0}
    assert assembler.state() == {"open": None}


def test_unknown_sensor_counts_but_completes_nothing() -> None:
    """Extra values travel along; the instance still waits for those that are expected."""
    assembler = InstanceJoiner(window_ms=500)
    assert add(assembler, 1, 0, temp=1.0, co2=1.0, wind=1.0) == []
    [instance] = add(assembler, 2, 1, humidity=1.0)
    assert set(instance.values) == {"temp", "co2", "humidity", "wind"}


CALLS = st.lists(
    st.tuples(
        st.integers(0, 400),
        st.integers(-700, 700),
        st.dictionaries(st.sampled_from(["co2", "humidity", "temp", "wind"]), st.floats(-9, 9)),
        st.sampled_from([None, "dry", "wet"]),
        st.booleans(),
    ),
    max_size=40,
)


def replay(calls: list[Any], window_ms: int, restart_at: int | None) -> list[Instance]:
    """All the instances of these calls, with a restart from a snapshot on the way."""
    assembler, now_ms, finished = InstanceJoiner(window_ms), 0, []
    for place, (wait_ms, skew_ms, values, label, tick) in enumerate(calls):
        now_ms += wait_ms
        if place == restart_at:
            assembler = InstanceJoiner.from_state(
                json.loads(json.dumps(assembler.state())), window_ms
            )
        finished += assembler.close(now_ms) if tick else []
        time_ms = 10_000 + now_ms + skew_ms
        finished += take(assembler, now_ms, time_ms, number(place + 1), values, label)
    return finished + assembler.close(now_ms + window_ms)


@settings(max_examples=200, deadline=None)
@given(CALLS, st.sampled_from([0, 1, 300, 5_000]), st.integers(0, 40))
def test_no_value_is_lost_and_a_restart_changes_nothing(
    calls: list[Any], window_ms: int, restart_at: int
) -> None:
    """The same calls give the same instances, each value is in one, and in the order they came."""
    finished = replay(calls, window_ms, restart_at)
    assert finished == replay(calls, window_ms, None)
    sent = Counter(pair for call in calls for pair in call[2].items())
    assert Counter(pair for each in finished for pair in each.values.items()) == sent
    numbers = [each.seq for instance in finished for each in instance.numbers]
    assert numbers == [place for place, call in enumerate(calls, 1) if call[2]]
