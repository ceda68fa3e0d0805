"""What goes wrong between a sender's numbers and a node, and what the intake makes of it."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rig import Rig

from edge_opid.errors import Refusal
from edge_opid.node.journal_records import pack_state, unpack_state
from edge_opid.node.rate_limit import RateLimit
from edge_opid.node.sequencing import Duplicate, Held, Sequencer, Take
from edge_opid.node.sources import SourceRegister
from edge_opid.source import ReadingNumber, ResendWindow
from edge_opid.wire import Ack, Reading


def reading(seq: int, boot: int = 1, width: int = 1) -> Reading:
    return Reading(boot, seq, time_ms=0, values={f"s{each}": float(seq) for each in range(width)})


class Node:
    """An intake with the part of the state it looks at."""

    def __init__(self, **expected: tuple[int, int]) -> None:
        self.register = SourceRegister()
        self.expected = self.register.expected
        self.expected.update(expected)
        self.intake = Sequencer(self.register)
        self.taken: dict[str, list[ReadingNumber]] = {}

    def offer(self, source: str, reading: Reading, now_ms: int) -> object:
        verdict = self.intake.offer(source, reading, now_ms)
        if isinstance(verdict, Take):
            for each in verdict.readings:
                self.register.record(source, each.boot, each.seq)
                self.taken.setdefault(source, []).append(ReadingNumber(each.boot, each.seq))
        return verdict

    def seqs(self, source: str) -> list[int]:
        return [number.seq for number in self.taken.get(source, [])]


def test_copy_is_acknowledged_again_and_not_applied() -> None:
    """A sender that missed the acknowledgement would send the same reading for ever."""
    node = Node(attic=(3, 8))
    assert node.offer("attic", reading(7, boot=3), 0) == Duplicate(3, 7)
    assert node.offer("attic", reading(1, boot=3), 0) == Duplicate(3, 7)
    assert node.intake.counts == Counter(duplicate=2)
    assert node.taken == {}


def test_copy_of_what_is_not_yet_durable_is_not_acknowledged() -> None:
    """Applied is not committed: a power cut now would lose what the sender has forgotten."""
    intake = Sequencer(Node(attic=(1, 8)).register, committed={"attic": (1, 5)})
    assert intake.offer("attic", reading(7), 0) == Duplicate(1, 4)
    intake.offer("attic", reading(9), 0)
    assert intake.take_requests(2_000) == [("attic", 1, 4)]


def test_gap_is_never_acknowledged_over() -> None:
    """What waits behind a lost reading is asked for, not passed."""
    node = Node(attic=(1, 5))
    assert node.offer("attic", reading(7), 0) == Held()
    assert node.offer("attic", reading(6), 10) == Held()
    assert node.intake.take_requests(1_999) == []
    assert node.intake.take_requests(2_000) == [("attic", 1, 4)]
    assert node.taken == {}
    node.offer("attic", reading(5), 2_100)
    assert node.seqs("attic") == [5, 6, 7]
    assert node.intake.take_requests(100_000) == []


def test_absent_sender_is_asked_ever_more_seldom_and_never_given_up() -> None:
    """Its spool may still have the number after a day: skipping it would lose it."""
    node = Node(attic=(1, 5))
    node.offer("attic", reading(7), 0)
    asked = [now for now in range(0, 300_000, 500) if node.intake.take_requests(now)]
    assert asked == [2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 124_000, 184_000, 244_000]
    node.intake.take_requests(86_400_000)
    assert node.offer("attic", reading(8), 86_400_100) == Held()
    node.offer("attic", reading(5), 86_400_200)
    node.offer("attic", reading(6), 86_400_300)
    assert node.seqs("attic") == [5, 6, 7, 8]
    assert node.intake.counts["numbers-skipped"] == 0


def until_taken(node: Node, readings: list[Reading], every_ms: int) -> int:
    """Offer these in turn until the node takes one; returns when."""
    for turn in range(10_000):
        now_ms = turn * every_ms
        if isinstance(node.offer("attic", readings[turn % len(readings)], now_ms), Take):
            return now_ms
        node.intake.take_requests(now_ms)
    raise AssertionError("stuck for ever")


@pytest.mark.parametrize("every_ms", [500, 30_000, 3_600_000])
def test_node_whose_state_was_set_back_is_not_stuck(every_ms: int) -> None:
    """The sender has forgotten what the node lost: in the end the rest is taken, and counted."""
    node = Node(attic=(1, 5))
    now_ms = until_taken(node, [reading(31), reading(32)], every_ms)
    assert now_ms >= 62_000
    assert node.seqs("attic") == [31, 32]
    assert node.intake.counts["gap-adopted"] == 1
    assert node.intake.counts["numbers-skipped"] == 26


def test_unknown_source_in_the_middle_of_its_life_is_not_stuck() -> None:
    """A node replaced under a running sensor starts where the sensor is."""
    node = Node()
    until_taken(node, [reading(12, boot=7)], 10_000)
    assert node.expected == {"attic": (7, 13)}
    assert node.intake.counts["numbers-skipped"] == 11


def test_new_boot_starts_at_one_and_ends_the_wait_for_the_old() -> None:
    """A sender restarts; copies of its old life keep arriving and change nothing."""
    node = Node(attic=(1, 5))
    node.offer("attic", reading(9), 0)
    assert node.offer("attic", reading(2, boot=2), 0) == Held()
    assert node.intake.take_requests(2_000) == [("attic", 2, 0)]
    node.offer("attic", reading(1, boot=2), 2_100)
    assert node.offer("attic", reading(9), 2_200) == Duplicate(1, 4, newest=2)
    assert node.expected == {"attic": (2, 3)}


def test_flood_behind_a_gap_keeps_the_lowest_numbers() -> None:
    """A full window behind one lost reading stays within the limit; the rest comes again."""
    node = Node(attic=(1, 1))
    verdicts = [node.offer("attic", reading(seq), 0) for seq in range(257, 1, -1)]
    assert node.offer("attic", reading(66), 0) == Refusal(
        "hold-full", "64 readings wait for a number before 66 already"
    )
    assert set(map(type, verdicts)) == {Held}
    node.offer("attic", reading(1), 1)
    assert node.seqs("attic") == list(range(1, 66))


def test_many_sources_with_gaps_stay_within_the_room() -> None:
    """Wide readings of sources that fell silent give way to one that speaks now."""
    node = Node()
    for source in range(100):
        for seq in range(2, 40):
            node.offer(f"s{source}", reading(seq, width=20), source)
    assert len(node.intake.take_requests(10_000)) < 10
    node.offer("s99", reading(1), 10_001)
    assert node.seqs("s99") == list(range(1, 40))
    assert node.intake.counts["hold-dropped"] > 3_000


def test_thousand_gaps_that_were_filled_leave_no_trace() -> None:
    """Room that is not given back would be gone after an hour of a bad network."""
    node = Node()
    for seq in range(1, 4_001, 2):
        assert node.offer("attic", reading(seq + 1), seq) == Held()
        node.offer("attic", reading(seq), seq)
    assert node.seqs("attic") == list(range(1, 4_001))
    assert node.intake.counts == Counter(held=2_000)


def test_numbers_that_moved_under_a_wait_are_not_applied_again() -> None:
    """Whatever moved the state on, what waits below it is a copy."""
    node = Node(attic=(1, 5))
    node.offer("attic", reading(7), 0)
    node.expected["attic"] = (1, 20)
    assert node.offer("attic", reading(22), 1) == Held()
    assert node.intake.take_requests(10_000) == [("attic", 1, 19)]
    now_ms = until_taken(node, [reading(22)], 10_000)
    assert now_ms >= 60_000
    assert node.seqs("attic") == [22]


def test_reading_of_a_boot_that_is_over_is_told_which_is_the_newest() -> None:
    """A new card in 1970, or one put back: applied or not, its sender must know how to go on."""
    node = Node(attic=(5, 8))
    node.offer("attic", reading(1, boot=9), 0)
    assert node.offer("attic", reading(3, boot=5), 0) == Duplicate(5, 7, newest=9)
    assert node.offer("attic", reading(8, boot=5), 0) == Duplicate(5, 7, newest=9)
    assert node.offer("attic", reading(1, boot=6), 0) == Duplicate(6, 0, newest=9)
    assert node.intake.counts == Counter({"duplicate": 1, "boot-over": 2})
    assert node.expected == {"attic": (9, 2)}


def test_boot_is_not_over_before_the_newer_one_is_durable() -> None:
    """A power cut would open it again, and what got another number meanwhile would come twice."""
    node = Node(attic=(5, 8))
    committed = dict(node.expected)
    node.intake = Sequencer(node.register, committed)
    node.offer("attic", reading(1, boot=9), 0)
    early = node.offer("attic", reading(8, boot=5), 0)
    assert isinstance(early, Refusal)
    assert early.reason == "boot-unsettled"
    committed.update(node.expected)
    assert node.offer("attic", reading(8, boot=5), 0) == Duplicate(5, 7, newest=9)
    assert node.seqs("attic") == [1]


def test_former_boots_are_remembered_across_restarts_and_bounded() -> None:
    """The last eight boots of a source cost a few bytes each; a crash loop costs no more."""
    register = SourceRegister()
    for boot in range(1, 101):
        register.record("attic", boot, seq=boot)
    again = SourceRegister.restored(unpack_state(pack_state(register.state())))
    assert [again.last_of("attic", boot) for boot in (91, 92, 99, 100)] == [0, 92, 99, 100]
    assert again.state() == register.state()


def test_forged_boot_too_far_ahead_is_refused() -> None:
    """The highest boot of all would leave its source none to go on with, for ever."""
    node = Node(attic=(5, 8))
    for boot in (2**53 - 1, 2**52 + 2**26 + 1):
        refused = node.offer("attic", reading(1, boot=boot), 0)
        assert isinstance(refused, Refusal)
        assert refused.reason == "boot-too-far"
    assert node.expected == {"attic": (5, 8)}
    node.offer("attic", reading(1, boot=2**52 + 2**26), 0)
    node.offer("attic", reading(1, boot=2**52 + 2 * 2**26), 0)
    assert node.expected == {"attic": (2**52 + 2 * 2**26, 2)}


DAY_MS = 86_400_000


def fill(rig: Rig, names: list[str], values: dict[str, float], now_ms: int) -> None:
    for name in names:
        rig.read(1, values, source=name, now_ms=now_ms)
    rig.commit(now_ms)


def test_invented_sources_that_bring_nothing_lock_nobody_out() -> None:
    """256 names cost an attacker nothing: they make room; every real source keeps its number."""
    rig = Rig.make()
    fill(rig, ["attic"], {"a": 1.0}, 0)
    fill(rig, [f"x{each}" for each in range(1_000)], {"nonsense": 1.0}, 1_000)
    fill(rig, ["cellar"], {"b": 1.0}, 2_000)
    fill(rig, [f"y{each}" for each in range(1_000)], {}, 3_000)
    known = rig.node.state.expected
    assert known["attic"] == known["cellar"] == (1, 2)
    assert len(known) == 256
    assert rig.node.status(3_000).counts["source-forgotten"] == 2_002 - 256
    told = [each for each in rig.warned if each.event == "source forgotten"]
    assert told[0].fields["source"] == "x0"
    assert [each.times for each in told] == [*range(1, 17), 32, 64, 128, 256, 512, 1_024], (
        "invented names do not flood"
    )
    before = len(rig.acks())
    rig.read(1, {"a": 1.0}, source="attic", now_ms=4_000)  # an acknowledgement was lost
    assert rig.acks()[before:] == [Ack(1, 1)]
    assert rig.node.counted()["duplicate"] == 1


def test_hundred_copies_cost_the_node_one_answer_a_second() -> None:
    """A slow node that answers every copy has the less time for what is new."""
    rig = Rig.make()
    for seq in (1, 2):
        rig.read(seq, {"a": 1.0}, now_ms=0)  # two records: committed, and acknowledged
    assert rig.acks() == [Ack(1, 2)]
    for copy in range(100):
        rig.read(1 + copy % 2, {"a": 1.0}, now_ms=100 + copy)
    assert rig.acks()[1:] == [Ack(1, 2)]
    rig.read(1, {"a": 1.0}, now_ms=1_100)  # that answer was lost, or it would not ask
    assert rig.acks()[2:] == [Ack(1, 2)]
    for seq in (3, 4, 3):
        rig.read(seq, {"a": 1.0}, now_ms=1_200)
    assert rig.acks()[3:] == [Ack(1, 4), Ack(1, 4)]  # the commit's word, and news for the copy
    assert rig.node.counted()["duplicate"] == 102
    assert rig.node.state.expected == {"s": (1, 5)}


def test_copies_use_up_nobodys_rate() -> None:
    """Copies took the turns of new readings, which were refused, missed, asked for, sent again."""
    rig = Rig.make(rate_per_second=1.0, rate_burst=4)
    for seq in (1, 2, *[1, 2] * 50, 3, 4):
        rig.read(seq, {"a": 1.0}, now_ms=0)
    assert rig.node.state.expected == {"s": (1, 5)}
    assert rig.node.counted()["rate-limited"] == 0
    rig.read(5, {"a": 1.0}, now_ms=0)  # a fifth new one is too many
    assert rig.node.counted()["rate-limited"] == 1
    assert rig.node.state.expected == {"s": (1, 5)}


def test_missing_number_is_asked_for_in_so_many_words() -> None:
    """A repeated acknowledgement may be the answer to a copy; a request names its own boot."""
    rig = Rig.make()
    for seq in (1, 2, 4):
        rig.read(seq, {"a": 1.0}, now_ms=0)
    rig.tick(2_000)
    assert rig.acks() == [Ack(1, 2), Ack(1, 2, newest=1)]
    assert rig.node.state.expected == {"s": (1, 3)}


def test_full_register_of_sources_in_use_refuses_and_says_so() -> None:
    """None of them may be forgotten within a day, or what it sends again would be learned twice."""
    rig = Rig.make()
    fill(rig, [f"s{each}" for each in range(256)], {"a": 1.0}, 0)
    fill(rig, ["new"], {"a": 1.0}, DAY_MS - 1)
    assert "new" not in rig.node.state.expected
    assert rig.statuses()[-1].degraded[0] == "256 sources: new ones are refused"
    assert rig.statuses()[-1].counts["too-many-sources"] == 1
    told = [each for each in rig.warned if each.reason == "too-many-sources"]
    assert [(each.event, each.fields["source"]) for each in told] == [("source refused", "new")]
    fill(rig, ["s0"], {}, DAY_MS)  # a copy: it is heard, and nothing else
    rig.read(2, {"a": 1.0}, source="s0", now_ms=DAY_MS)
    fill(rig, ["new"], {"a": 1.0}, DAY_MS)
    assert rig.node.state.expected["new"] == (1, 2)
    assert rig.node.state.expected["s0"] == (1, 3)
    assert "s1" not in rig.node.state.expected  # the one heard longest ago
    late = rig.node.status(DAY_MS + 600_000)
    assert not [each for each in late.degraded if "refused" in each]
    assert late.counts["source-forgotten"] == 1


def test_replay_forgets_the_same_sources() -> None:
    """Who makes room is part of the state: the journal gives the same bits."""
    rig = Rig.make()
    fill(rig, ["attic"], {"a": 1.0}, 0)
    fill(rig, [f"x{each}" for each in range(300)], {"nonsense": 1.0}, 1_000)
    half, snapshot = len(rig.durable), rig.frozen()
    fill(rig, [f"y{each}" for each in range(300)], {"nonsense": 1.0}, 2_000)
    assert rig.reborn().frozen() == rig.frozen()
    assert rig.reborn(snapshot, half).frozen() == rig.frozen()
    assert len(rig.node._committed) == 256


def test_clock_set_back_delays_no_request() -> None:
    """A Pi that corrects its clock by a year must not wait a year to ask."""
    node = Node(attic=(1, 5))
    year_ms = 365 * 86_400_000
    node.offer("attic", reading(6), year_ms)
    assert node.intake.take_requests(0) == []
    assert node.intake.take_requests(2_000) == [("attic", 1, 4)]
    assert node.expected == {"attic": (1, 5)}


def test_noisy_source_does_not_slow_the_others() -> None:
    """The rate is per source, and remembering sources is bounded."""
    limit = RateLimit(per_second=10.0, burst=5, sources_max=3)
    assert sum(limit.take("noisy", now) for now in range(1_000)) == 14
    assert limit.take("calm", 1_000)
    for source in "abcdef":
        assert limit.take(source, 1_000)
    assert len(limit) == 3


def test_clock_set_back_earns_no_tokens_and_locks_nobody_out() -> None:
    """After a step back the bucket fills again from there."""
    limit = RateLimit(per_second=1.0, burst=1)
    assert limit.take("a", 10**9)
    assert not limit.take("a", 0)
    assert limit.take("a", 1_000)


class Sender:
    """The real window of a source, over as many boots as it is told to live."""

    def __init__(self, lives: list[int]) -> None:
        self.all = [
            ReadingNumber(boot, seq) for boot, n in enumerate(lives, 1) for seq in range(1, n + 1)
        ]
        self._waiting = self.all[::-1]
        self._window = ResendWindow(size=8, resend_s=10.0)

    def due(self, now_ms: int) -> list[ReadingNumber]:
        while self._waiting and self._window.takes(self._waiting[-1]):
            self._window.add(self._waiting.pop(), b"")
        return [pending.number for pending in self._window.take_due(now_ms / 1000)]

    def hear(self, boot: int, seq: int, now_ms: int) -> None:
        self._window.acknowledge(ReadingNumber(boot, seq), now_ms / 1000)


def run_fleet(lives: dict[str, list[int]], data: st.DataObject) -> tuple[Node, dict[str, Sender]]:
    """Half a minute in which anything is lost, copied, late or out of order; then peace."""
    node, now_ms = Node(), 0
    senders = {source: Sender(boots) for source, boots in lives.items()}
    on_their_way: list[tuple[str, ReadingNumber]] = []
    fate = st.tuples(st.integers(0, 4), st.integers(0, 99))
    troubled = data.draw(st.lists(fate, max_size=60))
    for copies, place in [*troubled, *[(1, 0)] * 400]:
        now_ms += 500
        for source, sender in senders.items():
            on_their_way += [(source, number) for number in sender.due(now_ms)] * (copies + 1 >> 1)
        for _ in range(min(len(on_their_way), 1 if copies != 1 else 99)):
            source, number = on_their_way.pop(place % len(on_their_way))
            if copies in (0, 3):
                continue  # lost on the way
            deliver(node, senders[source], source, number, now_ms, heard=copies != 2)
        for source, boot, seq in node.intake.take_requests(now_ms):
            senders[source].hear(boot, seq, now_ms)
    return node, senders


def deliver(
    node: Node, sender: Sender, source: str, number: ReadingNumber, now_ms: int, heard: bool
) -> None:
    verdict = node.offer(source, reading(number.seq, number.boot), now_ms)
    if not isinstance(verdict, (Take, Duplicate)) or not heard:
        return
    boot, next_seq = node.expected[source]
    sender.hear(boot, next_seq - 1, now_ms)


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["a", "b", "c"]), st.lists(st.integers(1, 12), min_size=1, max_size=3)
    ),
    st.data(),
)
def test_any_disorder_ends_with_each_number_taken_once_in_order(
    lives: dict[str, list[int]], data: st.DataObject
) -> None:
    """Loss, copies, delay and reordering of readings and acknowledgements, over several boots."""
    node, senders = run_fleet(lives, data)
    for source, sender in senders.items():
        assert node.taken.get(source, []) == sender.all
    assert node.intake.counts["gap-adopted"] == 0
