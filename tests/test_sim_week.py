"""A few minutes of the fleet that lives for a week: nothing lost, nothing twice, nothing grows."""

from __future__ import annotations

from collections import Counter

import pytest

from edge_opid.node.journal_records import Accepted, pack_record
from edge_opid.source.number import ReadingNumber
from edge_opid.wire import InstanceId
from firmware_sim.chaos.node_checks import Chronicle
from firmware_sim.chaos.promises import BrokenPromise, Digest, Runs, SentBy, Ticks
from firmware_sim.simulated.gateway_device import cheap_attempt
from firmware_sim.simulated.scripted_fleet import SOURCE
from firmware_sim.simulated.source_device import TIDY_AT, Medium, MemorySpool
from firmware_sim.simulated.week import WeekFleet, WeekPlan

MINUTES = 12
PLAN = WeekPlan(
    MINUTES * 60,
    nodes=4,
    labels=0.3,
    change_every_s=120,
    trouble_every_s=60,
    silence_s=20.0,
)
KEPT_MOST = {
    "records the witness keeps of a node": 700,  # two snapshots' worth of a small card
    "readings it waits for": 64,  # a power cut and a commit interval
    "readings on a script's card": TIDY_AT + 64,
    "events to come": 200,
    "messages queued for a client": 64,
    "messages in flight to a client": 64,
    "instances a node remembers": 256,
}


@pytest.fixture(autouse=True)
def quiet(caplog):
    """A run logs what goes wrong in it."""
    caplog.set_level("CRITICAL", logger="edge_opid")


@pytest.fixture(scope="module")
def lived() -> tuple[WeekFleet, list[dict[str, int]]]:
    """The fleet after its time, and what was kept at every minute of it."""
    fleet, kept = WeekFleet(PLAN, fit=cheap_attempt), []
    fleet.start()
    for minute in range(1, MINUTES + 1):
        fleet.clock.run_until(minute * 60_000)
        kept.append(fleet.entries())
    fleet.clock.run_until(fleet.story.until_ms)
    fleet.finish()
    return fleet, kept


@pytest.mark.timeout(300)
def test_every_reading_of_the_week_is_acknowledged_once(lived) -> None:
    """Also those around a power cut: only what a dead script never synced may be missing."""
    fleet, _ = lived
    for name, node in fleet.nodes.items():
        sent = fleet.witness.sources[name][SOURCE]
        assert fleet.sources[f"street-{name}-{SOURCE}"].drained
        missing = set(sent.taken.beyond(sent.arrived))
        assert missing <= sent.lost
        assert len(sent.taken) > 0.9 * PLAN.seconds
        applied = node.node.state.expected[SOURCE]
        assert applied == (sent.arrived.last.boot, sent.arrived.last.seq + 1)
        assert sent.acknowledged == sent.arrived.last


def test_week_has_deaths_births_power_cuts_and_late_labels(lived) -> None:
    """Deaths, births, power cuts, snapshots, late labels: a calm run would show nothing."""
    fleet, _ = lived
    seen: Counter[str] = Counter()
    for node in fleet.nodes.values():
        seen["cuts"] += node.cuts
        seen["lives"] += node.life - 1
        seen["layouts"] += node.node.state.layout_version - 1
        seen["models"] += node.node.state.pushed_models.version() > 0
        seen["snapshots"] += any(name.startswith("snapshot") for name in node.disk.files)
        seen["learned"] += node.node.state.local_models.learner.readings
        seen["forgotten"] += node.chronicle.since
    seen["lost"] = sum(
        len(s.lost) for some in fleet.witness.sources.values() for s in some.values()
    )
    wanted = "cuts", "lives", "layouts", "models", "snapshots", "learned", "forgotten", "lost"
    assert [name for name in wanted if not seen[name]] == []
    assert seen["layouts"] >= 4


def test_bookkeeping_does_not_grow_with_the_readings(lived) -> None:
    """A week has two hundred thousand times as many readings as a minute of one node."""
    fleet, kept = lived
    assert fleet.clock.events > 20_000
    for counts in kept:
        assert {name: n for name, n in counts.items() if n > KEPT_MOST[name]} == {}


def test_same_seed_lives_the_same_week() -> None:
    """A week that breaks a promise must be able to be lived again."""
    short = WeekPlan(60, nodes=2, change_every_s=20, trouble_every_s=25, silence_s=5.0)
    first, second = (WeekFleet(short, fit=cheap_attempt).run() for _ in range(2))
    assert first == second
    assert first.broken is None
    with pytest.raises(ValueError, match="silence_s must be below half of change_every_s = 20"):
        WeekPlan(60, change_every_s=20, silence_s=10.0)


# --- a witness that forgets must still notice -----------------------------------------------------


def chronicle() -> tuple[Chronicle, SentBy, list[bytes]]:
    """A node that has committed twenty readings, of which two snapshots cover ten."""
    fleet = WeekFleet(WeekPlan(60, nodes=1))
    sent, config = SentBy(SOURCE), fleet.nodes["n1"].config
    made = Chronicle(config, {SOURCE: sent}, {}, Digest())
    records = []
    for seq in range(1, 21):
        sent.numbered(ReadingNumber(7, seq), ({"vib-x": float(seq)}, None))
        records.append(pack_record(Accepted(seq, SOURCE, 7, seq, seq, {"vib-x": float(seq)}, None)))
        made.appended(seq - 1, records[-1])
    made.committed(20)
    made.covered(10)
    return made, sent, records


@pytest.mark.parametrize(
    ("index", "end", "promise"),
    [(9, 20, "committed record lost"), (10, 19, "committed record lost"), (12, 20, None)],
)
def test_record_is_missed_only_where_no_snapshot_covers_it(index: int, end: int, promise) -> None:
    """A node that begins before what two snapshots cover has lost them both."""
    made, _, records = chronicle()
    if promise is None:
        made.recovered(index, end, records[index:end])
        with pytest.raises(BrokenPromise, match="history altered"):
            made.recovered(index, end, [*records[index : end - 1], b"other"])
        return
    with pytest.raises(BrokenPromise, match=promise):
        made.recovered(index, end, records[index:end])
    assert len(made.history) == 10


def test_number_of_a_reading_that_has_arrived_cannot_be_used_again() -> None:
    """What it said is forgotten; that it was said is not."""
    made, sent, _ = chronicle()
    assert sent.said == {}
    with pytest.raises(BrokenPromise, match="number used twice"):
        sent.numbered(ReadingNumber(7, 3), ({"vib-x": 3.0}, None))
    sent.numbered(ReadingNumber(7, 21), ({"vib-x": 21.0}, None))
    again = pack_record(Accepted(9, SOURCE, 7, 3, 9, {"vib-x": 3.0}, None))
    made.appended(20, again)
    with pytest.raises(BrokenPromise, match="reading twice"):
        made.committed(21)


def test_lost_reading_may_be_told_again() -> None:
    """A script that never heard the answer says once more that it has lost this number."""
    sent = SentBy(SOURCE)
    sent.numbered(ReadingNumber(7, 1), ({}, None))
    sent.committed(ReadingNumber(7, 1))
    sent.numbered(ReadingNumber(7, 1), ({}, None))
    with pytest.raises(BrokenPromise, match="number used twice"):
        sent.numbered(ReadingNumber(7, 1), ({"vib-x": 1.0}, None))


def test_runs_and_ticks_answer_as_sets_do() -> None:
    """The same answers as sets of numbers, from one entry a boot and one bit a reading."""
    taken, arrived, plain = Runs(), Runs(), set()
    for boot, count in ((7, 5), (9, 3)):
        for seq in range(1, count + 1):
            taken.add(ReadingNumber(boot, seq))
            plain.add(ReadingNumber(boot, seq))
    for seq in range(1, 4):
        arrived.add(ReadingNumber(7, seq))
    numbers = [ReadingNumber(boot, seq) for boot in (6, 7, 9) for seq in range(7)]
    assert [number in taken for number in numbers] == [number in plain for number in numbers]
    assert set(taken.beyond(arrived)) == {n for n in plain if n not in arrived}
    assert len(taken) == len(plain)
    ticks = Ticks()
    ids = [InstanceId(source, 7, seq) for source in ("a", "b") for seq in (1, 8, 7, 4_000)]
    assert all(ticks.add(each) for each in ids)
    assert not any(ticks.add(each) for each in ids)


def test_card_is_tidied_only_of_what_is_acknowledged_for_good() -> None:
    """A mark that a power cut may take back frees nothing; numbers and places go on as before."""
    medium = Medium()
    spool = MemorySpool(medium)
    for seq in range(1, TIDY_AT + 11):
        spool.append(ReadingNumber(7, seq), b"x")
    spool.acknowledge(ReadingNumber(7, 500))
    assert len(medium.records) == TIDY_AT + 10, "nothing is durable yet"
    spool.sync()
    assert [number.seq for number, _ in medium.records] == list(range(501, TIDY_AT + 11))
    assert spool.read_next() == (ReadingNumber(7, 501), b"x")
    spool.append(ReadingNumber(7, TIDY_AT + 11), b"y")
    reopened = MemorySpool(medium)
    assert reopened.last == ReadingNumber(7, TIDY_AT + 11)
    assert reopened.unsynced == 1
    left = []
    while (found := reopened.read_next()) is not None:
        left.append(found[0].seq)
    assert left == list(range(501, TIDY_AT + 12))
