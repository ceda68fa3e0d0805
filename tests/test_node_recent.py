"""What goes wrong with labels that come late."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import msgpack  # type: ignore[import-untyped]  # ships no types
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_opid.errors import Refusal
from edge_opid.node.recent import Entry, Recent
from edge_opid.wire import InstanceId


def number(seq: int, source: str = "attic") -> InstanceId:
    return InstanceId(source, 1, seq)


def filled(*times_ms: int, size: int = 256) -> Recent:
    recent = Recent(size)
    for seq, time_ms in enumerate(times_ms, 1):
        numbers = (number(seq, "cellar"), number(seq))
        recent.remember(Entry.of(time_ms, numbers, {"t": float(seq)}, {"own": seq % 2}))
    return recent


def learn(recent: Recent, which: InstanceId) -> None:
    found = recent.check(which)
    assert isinstance(found, Entry)
    recent.teach(found, 0)


def reason(found: Entry | Refusal) -> str:
    assert isinstance(found, Refusal)
    return found.reason


def test_second_label_for_an_instance_is_refused() -> None:
    """Learning it twice would count one instance as two."""
    recent = filled(10, 20)
    learn(recent, number(1))
    before = recent.state()
    assert reason(recent.check(number(1, "cellar"))) == "label-already-labelled"
    assert reason(recent.check(time_ms=10)) == "label-already-labelled"
    assert recent.state() == before
    assert isinstance(recent.check(number(2)), Entry)


def test_label_that_came_with_the_reading_is_the_first() -> None:
    """An instance learned at once is remembered as learned."""
    recent = Recent()
    entry = Entry.of(1, (number(1),), {"t": 1.0}, {})
    recent.remember(entry)
    recent.teach(entry, 0)
    assert reason(recent.check(number(1))) == "label-already-labelled"
    assert len(recent) == 1


def test_label_for_an_instance_long_gone_is_refused() -> None:
    """The ring is bounded: what has left it is as unknown as what never was."""
    recent = filled(*range(10), size=4)
    before = recent.state()
    assert reason(recent.check(number(6))) == "label-unknown-instance"
    assert reason(recent.check(number(11))) == "label-unknown-instance"
    assert reason(recent.check(time_ms=5, tolerance_ms=0)) == "label-unknown-instance"
    assert recent.state() == before
    assert len(recent) == 4


def test_number_that_comes_twice_means_the_later_instance() -> None:
    """A source whose numbers were set back uses one again."""
    recent = filled(10, 20)
    recent.remember(Entry.of(30, (number(1),), {"t": 3.0}, {}))
    found = recent.check(number(1))
    assert isinstance(found, Entry)
    assert found.time_ms == 30
    assert isinstance(recent.check(number(1, "cellar")), Entry)


def test_checking_a_label_does_not_use_it_up() -> None:
    """The node looks before it writes the label to the journal, and again when it applies it."""
    recent = filled(10)
    before = recent.state()
    assert isinstance(recent.check(number(1)), Entry)
    assert recent.state() == before


@pytest.mark.parametrize(
    ("times_ms", "asked_ms", "tolerance_ms", "seq"),
    [
        ((10, 20, 30), 21, 5, 2),
        ((10, 20, 30), 15, 5, 2),
        ((20, 10, 30), 15, 5, 1),
        ((10, 20, 20), 20, 0, 3),
        ((10, 20, 30), 36, 5, None),
        ((10, 20, 30), 4, 5, None),
        ((), 4, 5, None),
    ],
)
def test_time_between_two_instances_means_the_nearest(
    times_ms: tuple[int, ...], asked_ms: int, tolerance_ms: int, seq: int | None
) -> None:
    """Of two as near the later one; none beyond the tolerance."""
    recent = filled(*times_ms)
    found = recent.find_time(asked_ms, tolerance_ms)
    assert (None if found is None else found.numbers[-1].seq) == seq
    assert len(recent) == len(times_ms)


def test_label_for_nothing_in_particular_is_a_mistake_of_the_caller() -> None:
    """The wire does not let such a label in."""
    with pytest.raises(ValueError, match="neither"):
        Recent().check()


def steps_of(call: Callable[[], object]) -> int:
    """How many instructions of Python it takes: a cost that no busy machine changes."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize(
    "ask",
    [
        lambda recent: recent.find(number(1)),
        lambda recent: recent.find(number(10**6)),
        lambda recent: recent.find_time(5, 0),
        lambda recent: recent.find_time(10**6, 10**6),
        lambda recent: recent.remember(Entry.of(7, (number(10**6),), {"t": 1.0}, {})),
    ],
    ids=["by number", "unknown number", "by time", "time afar", "the oldest gives way"],
)
def test_a_label_costs_no_more_where_4096_instances_wait_than_where_16_do(
    ask: Callable[[Recent], object],
) -> None:
    """A flood of labels that fit nothing: each looked at every instance, twice."""
    few, many = (filled(*range(0, 10 * size, 10), size=size) for size in (16, 4_096))
    assert steps_of(lambda: ask(many)) <= 2 * steps_of(lambda: ask(few))


NUMBERS = st.lists(st.integers(1, 6).map(number), min_size=1, max_size=2).map(tuple)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 12), NUMBERS), max_size=12),
    st.integers(1, 6),
    st.integers(0, 12),
    st.integers(0, 6),
)
def test_what_is_found_is_what_a_look_at_every_instance_finds(
    given_: list[tuple[int, tuple[InstanceId, ...]]], size: int, asked_ms: int, tolerance_ms: int
) -> None:
    """Clocks that jump back, numbers that come again, instances that have left."""
    entries = [Entry.of(time_ms, numbers, {"t": 1.0}, {}) for time_ms, numbers in given_]
    recent = Recent(size)
    for entry in entries:
        recent.remember(entry)
    here = entries[-size:]
    for seq in range(1, 7):
        later = [each for each in here if number(seq) in each.numbers]
        assert recent.find(number(seq)) is (later[-1] if later else None)
    near = [each for each in here if abs(each.time_ms - asked_ms) <= tolerance_ms]
    ranked = sorted(near, key=lambda each: (-abs(each.time_ms - asked_ms), each.time_ms))
    assert recent.find_time(asked_ms, tolerance_ms) is (ranked[-1] if ranked else None)


ENTRIES = st.lists(
    st.builds(
        Entry.of,
        st.integers(0, 2**53 - 1),
        st.lists(st.integers(1, 20).map(number), min_size=1, max_size=3).map(tuple),
        st.dictionaries(st.sampled_from(["a", "b", "c"]), st.floats(width=64, allow_nan=False)),
        st.dictionaries(st.sampled_from(["own", "bridge"]), st.integers(0, 15)),
        st.booleans(),
    ),
    max_size=20,
)


@settings(max_examples=100, deadline=None)
@given(ENTRIES, st.integers(1, 10), st.lists(st.integers(1, 20), max_size=10))
def test_restart_finds_the_same_instances(
    entries: list[Entry], size: int, labels: list[int]
) -> None:
    """Through a snapshot and msgpack, to the same bits, and the same answers to every label."""
    recent = Recent(size)
    for entry in entries:
        recent.remember(entry)
    again = Recent.from_state(msgpack.unpackb(msgpack.packb(recent.state())), size)
    for seq in labels:
        ours, theirs = recent.check(number(seq)), again.check(number(seq))
        if isinstance(ours, Entry) and isinstance(theirs, Entry):
            assert (ours.values, ours.guesses) == (theirs.values, theirs.guesses)
        else:
            assert ours == theirs
    assert again.state() == recent.state()
