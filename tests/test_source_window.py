"""What goes wrong between a sender and a receiver, and what the window does about it."""

from __future__ import annotations

import random

import pytest

from edge_opid.source import ReadingNumber, ResendWindow


def filled(count: int, **options: float) -> ResendWindow:
    window = ResendWindow(**options)  # type: ignore[arg-type]
    for seq in range(1, count + 1):
        window.add(ReadingNumber(1, seq), b"")
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


def test_node_that_asks_gets_everything_after_it_ever_more_seldom() -> None:
    """A gap that copies do not close must not be answered with a window of copies a second."""
    window = filled(5)
    due(window, 0.0)
    window.acknowledge(ReadingNumber(1, 2), 0.5)
    window.grant_request(ReadingNumber(1, 2), 0.6)
    assert due(window, 0.6) == []  # too soon: they may still be on their way
    granted = []
    for tenth in range(10, 200):
        window.grant_request(ReadingNumber(1, 2), tenth / 10)
        if window.resent > len(granted) * 3:
            granted.append(tenth / 10)
            assert due(window, tenth / 10) == [3, 4, 5]
    assert granted == [1.5, 3.5, 7.5, 15.5]
    window.acknowledge(ReadingNumber(1, 3), 20.0)  # progress, and patience begins anew
    window.grant_request(ReadingNumber(1, 3), 21.0)
    assert due(window, 21.0) == [4, 5]
    assert len(window) == 2


def test_node_that_asks_is_sent_half_as_much_until_it_gets_on() -> None:
    """A backlog beyond the node's rate limit was sent, refused and sent again, window by window."""
    window = filled(200, size=64)
    assert due(window, 0.0) == list(range(1, 65))
    window.grant_request(ReadingNumber(1, 0), 5.0)
    assert due(window, 5.0) == list(range(1, 33))
    window.grant_request(ReadingNumber(1, 0), 10.0)
    assert due(window, 10.0) == list(range(1, 17))
    window.acknowledge(ReadingNumber(1, 16), 15.0)
    assert due(window, 15.0) == list(range(17, 37))
    for news in range(20, 100):
        window.acknowledge(ReadingNumber(1, news), float(news))
        due(window, float(news))
    assert sum(pending.sent for pending in window._pending) == 64
    assert window.resent == 64 + 32


def test_repeated_acknowledgement_breeds_no_copies() -> None:
    """Each copy is answered with an acknowledgement; were each of those answered with copies …"""
    window = filled(256)
    due(window, 0.0)
    window.acknowledge(ReadingNumber(1, 2), 0.5)
    for second in range(1, 10):
        assert not window.acknowledge(ReadingNumber(1, 2), float(second))
        assert due(window, float(second)) == []
    assert window.resent == 0


def test_slow_node_that_answers_beyond_the_question_gets_no_more_copies() -> None:
    """It had the rest all the time, in the broker's queue: one question a stall, and no storm."""
    window = filled(200)
    due(window, 0.0)
    for stall in range(10):
        now = 20.0 * stall
        assert len(due(window, now + 10.0)) == 1
        assert window.acknowledge(ReadingNumber(1, 20 * stall + 19), now + 20.0)
        assert due(window, now + 20.0) == []
    assert window.resent == 10


def test_lost_window_is_sent_again_in_growing_steps() -> None:
    """An answer that ends where the question ended says that nothing else has arrived."""
    window = filled(200)
    due(window, 0.0)
    asked = [due(window, 10.0)]
    window.add(ReadingNumber(1, 201), b"")  # sent later, and not in doubt
    assert due(window, 11.0) == [201]
    while asked[-1]:
        window.acknowledge(ReadingNumber(1, asked[-1][-1]), 15.0)
        asked.append(due(window, 15.0))
    assert [len(each) for each in asked] == [1, 4, 16, 64, 115, 0]
    assert [seq for each in asked for seq in each] == list(range(1, 201))
    assert len(window) == 1


def test_broker_that_forgot_is_sent_everything_at_once() -> None:
    """Its session is gone, and with it what waited there for the node."""
    window = filled(5)
    due(window, 0.0)
    window.resend_all(1.0)
    assert due(window, 1.0) == [1, 2, 3, 4, 5]
    assert due(window, 10.9) == []
    assert len(window) == 5


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
