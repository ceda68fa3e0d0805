"""What goes wrong between a sender and a receiver, and what the window does about it."""

from __future__ import annotations

import random

import pytest

from edge_opid.source import ReadingNumber, ResendWindow


def filled(count: int, **options: float) -> ResendWindow:
    window = ResendWindow(**options)  # type: ignore[arg-type]
    for seq in range(1, count + 1):
        window.add(ReadingNumber(1, seq), bytes([seq]))
    return window


def due(window: ResendWindow, now: float) -> list[int]:
    return [pending.number.seq for pending in window.take_due(now)]


def test_silent_node_is_asked_ever_more_seldom_and_with_one_reading() -> None:
    """An absent node costs one small message a minute, not the whole window again and again."""
    window = filled(100, resend_s=10.0, resend_most_s=60.0)
    assert len(due(window, 0.0)) == 100
    asked = [now for now in range(1, 300) if due(window, float(now))]
    assert asked == [10, 30, 70, 130, 190, 250]
    assert len(window) == 100


def test_slow_node_that_answers_gets_no_copies() -> None:
    """Patience counts from the last acknowledgement, not from the sending."""
    window = filled(100, resend_s=10.0)
    due(window, 0.0)
    for second in range(1, 100):
        assert window.acknowledge(ReadingNumber(1, second), float(second * 5))
        assert due(window, second * 5 + 4.9) == []
    assert window.resent == 0


def test_repeated_acknowledgement_brings_everything_after_it_once() -> None:
    """The node asks for a gap by repeating itself; asking ten times brings one copy."""
    window = filled(5)
    due(window, 0.0)
    window.acknowledge(ReadingNumber(1, 2), 0.5)
    assert not window.acknowledge(ReadingNumber(1, 2), 0.6)  # too soon: it may still be on its way
    assert due(window, 0.6) == []
    for _ in range(10):
        window.acknowledge(ReadingNumber(1, 2), 2.0)
    assert due(window, 2.0) == [3, 4, 5]
    assert due(window, 2.1) == []
    assert len(window) == 3


def test_old_acknowledgement_frees_nothing() -> None:
    """A late or reordered acknowledgement is not a step back."""
    window = filled(5)
    due(window, 0.0)
    window.acknowledge(ReadingNumber(1, 4), 1.0)
    assert not window.acknowledge(ReadingNumber(1, 2), 9.0)
    assert due(window, 9.0) == []
    assert len(window) == 1


def test_next_boot_waits_until_the_last_one_is_acknowledged() -> None:
    """Two lives of a script are never on their way together."""
    window = filled(2)
    assert not window.takes(ReadingNumber(2, 1))
    window.acknowledge(ReadingNumber(1, 1), 0.0)
    assert not window.takes(ReadingNumber(2, 1))
    window.acknowledge(ReadingNumber(1, 2), 0.0)
    assert window.takes(ReadingNumber(2, 1))
    assert len(window) == 0


def test_window_has_an_end() -> None:
    """Never more than `size` on the way."""
    window = filled(3, size=3)
    assert not window.takes(ReadingNumber(1, 4))
    window.acknowledge(ReadingNumber(1, 1), 0.0)
    assert window.takes(ReadingNumber(1, 4))
    assert len(window) == 2


def test_reading_refused_by_the_link_is_due_again() -> None:
    """A full link is no loss: the reading is offered again at the next turn."""
    window = filled(3)
    for pending in window.take_due(0.0)[1:]:
        window.return_unsent(pending)
    assert due(window, 0.1) == [2, 3]
    assert window.resent == 0


@pytest.mark.parametrize("seed", range(40))
def test_network_that_loses_doubles_and_reorders_is_survived(seed: int) -> None:
    """Whatever half the messages meet, the receiver applies 1 to 300 once each, in order."""
    dice = random.Random(seed)
    window = ResendWindow(size=32, resend_s=2.0, resend_most_s=8.0)
    flying: list[tuple[float, int]] = []  # readings on their way: (arrival, seq)
    acks: list[tuple[float, int]] = []
    applied: list[int] = []
    offered = 0
    now = 0.0
    while len(window) or offered < 300:
        now += 0.1
        assert now < 3_000, "it never ends"
        while offered < 300 and window.takes(ReadingNumber(1, offered + 1)):
            offered += 1
            window.add(ReadingNumber(1, offered), b"")
        for pending in window.take_due(now):
            for _ in range(dice.choice([0, 1, 1, 2])):
                flying.append((now + dice.random(), pending.number.seq))
        for arrival in sorted(f for f in flying if f[0] <= now):
            flying.remove(arrival)
            if arrival[1] == len(applied) + 1:
                applied.append(arrival[1])
            if dice.random() < 0.6:
                acks.append((now + dice.random(), len(applied)))
        for ack in sorted(a for a in acks if a[0] <= now):
            acks.remove(ack)
            window.acknowledge(ReadingNumber(1, ack[1]), now)
    assert applied == list(range(1, 301))
