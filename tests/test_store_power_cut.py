"""A power cut at every operation: what was committed is there, and nothing else ever is."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from support.store_life import SMALL, Life

from edge_opid.store import snapshots
from firmware_sim.simulated.disk import PowerCut, TornDisk

RECORDS = 300
SNAPSHOTS_AT = (100, 200)
SPOILING = ("quarantined", "damaged")


def first_life(cut_at: int | None, limits=SMALL, lies=None) -> Life:
    """From an empty disk through 300 records and two snapshots, or to the cut."""
    disk = TornDisk()
    disk.cut_at = cut_at
    if lies is not None:
        disk.lies = lies
    life = Life(disk, Random(1), limits)
    try:
        life.begin()
        life.live(RECORDS, SNAPSHOTS_AT)
    except PowerCut:
        pass
    return life


def begin_unspoilt(life: Life) -> None:
    spoilt = [str(note) for note in life.begin() if note.kind in SPOILING]
    assert spoilt == [], "a power cut alone spoils no file"


def later_lives(life: Life, rng: Random, *, spoil: bool = False) -> None:
    """Recover, go on, lose the power again at any moment, recover, go on."""
    second = life.after_power_cut(rng, spoil=spoil)
    second.disk.cut_at = rng.randint(1, 40)
    try:
        begin_unspoilt(second)
        second.live(40, (len(second.history) + 20,))
    except PowerCut:
        pass
    third = second.after_power_cut(rng, spoil=spoil)
    begin_unspoilt(third)
    third.live(10)
    begin_unspoilt(third)
    assert third.committed == len(third.history)


def cut_everywhere(seeds: int, *, spoil: bool = False, **options) -> int:
    steps = first_life(None, **options).disk.step
    for cut_at in range(1, steps + 1):
        life = first_life(cut_at, **options)
        for seed in range(seeds):
            later_lives(life, Random(cut_at * 1000 + seed), spoil=spoil)
    return steps


def test_power_cut_at_every_operation_loses_nothing_committed():
    """300 records, two snapshots, a cut at each operation, a second one later, eight seeds each."""
    steps = cut_everywhere(8)
    whole = first_life(None)
    assert steps > 130
    assert {"create", "write", "sync", "replace", "sync_names"} <= set(whole.disk.counts)
    assert whole.committed == len(whole.history) == RECORDS


def test_power_cut_that_spoils_what_it_was_writing_spoils_nothing_else():
    """Sectors in flight become garbage; a commit never shares a page, so older ones are safe."""
    assert cut_everywhere(4, spoil=True) > 130


@pytest.mark.parametrize(
    "lies",
    [
        lambda operation, _name: operation == "sync",
        lambda _operation, name: name.startswith("journal"),
        lambda _operation, name: name.startswith("spare"),
        lambda _operation, name: name.startswith("snapshot"),
        lambda operation, _name: operation == "sync_names",
    ],
    ids=["no sync", "journal unsynced", "header unsynced", "snapshot unsynced", "names unsynced"],
)
def test_a_store_that_forgot_one_kind_of_sync_would_be_caught(lies):
    """Each sync matters: without it, the same test fails."""
    with pytest.raises(AssertionError, match=r"promise is broken|spoils no file"):
        cut_everywhere(8, lies=lies)


def test_commits_that_shared_a_page_would_be_caught():
    """With pages smaller than a sector, a spoilt sector takes an older commit with it."""
    with pytest.raises(AssertionError, match=r"promise is broken|spoils no file"):
        cut_everywhere(4, spoil=True, limits=replace(SMALL, page_bytes=64))


def test_a_journal_given_up_one_snapshot_too_early_would_be_caught(monkeypatch):
    """Falling back to the older snapshot needs the journal since that one."""

    def lose_the_newest_snapshot() -> Life:
        life = first_life(None)
        life.live(200, (400,))
        newest = max(name for name in life.disk.files if name.startswith("snapshot"))
        life.disk.flip(newest, 4000)
        assert [note.kind for note in life.begin()] == ["quarantined"]
        return life

    life = lose_the_newest_snapshot()
    assert life.committed == len(life.history) == 500
    monkeypatch.setattr(snapshots, "KEPT", 1)
    with pytest.raises(AssertionError, match=r"promise is broken"):
        lose_the_newest_snapshot()


def test_twenty_power_cuts_in_a_row_lose_nothing_and_take_no_more_space():
    """One disk, cut at random moments, life after life."""
    for seed in range(30):
        rng = Random(seed)
        life = Life(TornDisk(seed), rng)
        for _ in range(20):
            life.disk.cut_at = rng.randint(1, 120)
            try:
                begin_unspoilt(life)
                life.live(rng.randint(1, 150), (len(life.history) + rng.randint(1, 100),))
            except PowerCut:
                pass
            life = life.after_power_cut(rng, spoil=seed % 2 == 1)
        begin_unspoilt(life)
        assert life.disk.used() <= SMALL.segments_max * SMALL.segment_bytes + 3 * 1000


def killed_everywhere(lies=lambda _operation, _name: False) -> None:
    """Killed at every operation; the next open believes what the page cache kept."""
    for killed_at in range(1, first_life(None).disk.step + 1):
        life = first_life(killed_at)
        life.disk.dead, life.disk.cut_at, life.disk.lies = False, None, lies
        begin_unspoilt(life)
        assert life.store.settled
        for seed in range(4):
            begin_unspoilt(life.after_power_cut(Random(killed_at * 10 + seed)))
        life.disk.lies = lambda _operation, _name: False
        life.live(5)
        for seed in range(4):
            begin_unspoilt(life.after_power_cut(Random(killed_at * 10 + seed)))


def test_killed_process_shows_nothing_that_a_power_cut_could_still_take():
    """What only the page cache kept is made durable before it is shown."""
    killed_everywhere()


@pytest.mark.parametrize("forgotten", ["sync", "sync_names"])
def test_an_open_that_believed_the_page_cache_would_be_caught(forgotten):
    """Both syncs at the end of `open` matter."""
    with pytest.raises(AssertionError, match=r"promise is broken|spoils no file"):
        killed_everywhere(lambda operation, _name: operation == forgotten)
