"""Disks that are full, read-only or broken, and limits that are reached: nothing half-done."""

from __future__ import annotations

import errno
from dataclasses import replace
from random import Random

import pytest
from support.store_life import SMALL, Life

from edge_opid.store import Store, StoreError, StoreLimits
from edge_opid.store.frames import encode_frame
from edge_opid.store.segment import Segment
from firmware_sim.simulated.disk import PowerCut, TornDisk

CODES = (errno.ENOSPC, errno.EROFS, errno.EIO)
CHANGES = ("create", "write", "sync", "replace", "remove", "sync_names")


def failing_life(fail, records: int = 300) -> Life:
    disk = TornDisk()
    disk.fail = lambda operation, _name, step: fail(step) if operation in CHANGES else None
    life = Life(disk, Random(1))
    life.begin()
    life.live(records, (100, 200))
    disk.fail = lambda *_: None
    return life


def commit_one_by_one(store: Store) -> None:
    for i in range(1000):
        store.append(b"reading %d" % i)
        store.commit()


def test_whichever_operation_fails_once_the_next_commit_succeeds():
    """Full, read-only or broken at each operation of 300 records: no restart, nothing lost."""
    steps = failing_life(lambda _step: None).disk.step
    for at in range(1, steps + 1):
        code = CODES[at % len(CODES)]
        life = failing_life(lambda step, at=at, code=code: code if step == at else None)
        assert life.committed == len(life.history) == 300
        for seed in range(2):
            after = life.after_power_cut(Random(at * 10 + seed))
            assert [str(note) for note in after.begin()] == []
            after.live(10)
            assert after.begin() == ()


def test_power_cut_of_a_disk_broken_for_a_while_loses_nothing_committed():
    """Readings keep coming while it fails, then the power goes: what was committed is there."""
    for seed in range(300):
        rng = Random(seed)
        broken = {rng.randint(1, 180) + i for _ in range(3) for i in range(rng.randint(1, 12))}
        life = Life(TornDisk(seed), rng, goes_on_meanwhile=True)
        life.disk.fail = lambda operation, _name, step, broken=broken: (
            errno.EIO if operation in CHANGES and step in broken else None
        )
        life.disk.cut_at = rng.randint(20, 250)
        try:
            life.begin()
            life.live(300, (100, 200))
        except PowerCut:
            pass
        after = life.after_power_cut(rng, spoil=True)
        assert {note.kind for note in after.begin()} <= {"torn"}
        after.live(10)
        assert after.committed == len(after.history)


def test_a_sync_tried_again_without_writing_again_would_be_caught(monkeypatch):
    """The kernel forgets pages whose write-back failed: only writing again makes them dirty."""
    written = set()

    def write_once(self, disk, offset, first, records):
        frame = encode_frame(self.header, first, records)
        if frame not in written:
            disk.write(self.name, offset, frame)
            written.add(frame)
        disk.sync(self.name)
        return offset + len(frame)

    def twenty_lives():
        for seed in range(20):
            rng = Random(seed)
            life = failing_life(lambda _, rng=rng: errno.EIO if rng.random() < 0.2 else None)
            assert {note.kind for note in life.after_power_cut(rng).begin()} <= {"torn"}

    twenty_lives()
    monkeypatch.setattr(Segment, "write", write_once)
    with pytest.raises(AssertionError, match="promise is broken"):
        twenty_lives()


def opened_while_broken(seed: int) -> None:
    """Killed in the sync of a commit; the next start's sync fails once; then the power goes."""
    life = Life(TornDisk(seed), Random(seed))
    life.begin()
    life.live(20)
    life.record()
    life.disk.cut_at = life.disk.step + 2
    with pytest.raises(PowerCut):
        life.store.commit()
    life.disk.dead = False
    life.disk.fail = lambda operation, _name, _step: errno.EIO if operation == "sync" else None
    assert [note.kind for note in life.begin()] == ["postponed"]
    life.disk.fail = lambda *_: None
    life.store.commit()
    assert life.store.settled
    assert life.after_power_cut(Random(seed)).begin() == ()


def test_sync_that_fails_while_opening_is_not_believed_the_second_time(monkeypatch):
    """What a killed process left in the page cache is written again before it counts."""
    for seed in range(30):
        opened_while_broken(seed)
    monkeypatch.setattr(Segment, "write_last_again", lambda _segment, _disk: None)
    with pytest.raises(AssertionError, match="promise is broken"):
        [opened_while_broken(seed) for seed in range(30)]


@pytest.mark.parametrize("code", CODES)
def test_disk_that_refuses_for_long_fills_the_memory_only_to_the_limit(code):
    """Records wait, bounded; the first commit after the disk recovers takes them all."""
    life = Life(TornDisk(), Random(2))
    life.begin()
    life.live(50)
    life.disk.fail = lambda operation, _name, _step: code if operation in CHANGES else None
    while life.store.pending_bytes + 1100 < SMALL.pending_bytes_max:
        life.record()
        with pytest.raises(StoreError, match=f"commit of {life.store.pending} records") as caught:
            life.store.commit()
        assert (caught.value.reason, caught.value.errno) == ("disk", code)
        with pytest.raises(StoreError, match="snapshot at record 50"):
            life.store.snapshot(b"x")
    waiting = life.store.pending
    with pytest.raises(StoreError, match="commit first") as caught:
        [life.store.append(bytes(1000)) for _ in range(2)]
    assert caught.value.reason == "pending"
    life.history.extend([bytes(1000)] * (life.store.pending - waiting))
    life.disk.fail = lambda *_: None
    life.commit()
    assert life.begin() == ()
    assert life.committed == len(life.history)


def test_full_disk_takes_a_commit_again_once_there_is_space():
    """Space for two segments only: the third is refused, and nothing of it stays behind."""
    disk = TornDisk()
    disk.capacity = 2 * SMALL.segment_bytes
    store, _ = Store.open(disk, SMALL)
    with pytest.raises(StoreError, match="No space left") as caught:
        commit_one_by_one(store)
    assert caught.value.errno == errno.ENOSPC
    with pytest.raises(StoreError, match="the older ones still count"):
        store.snapshot(bytes(30_000))
    assert disk.used() == disk.capacity
    durable = store.committed
    assert store.pending == 1
    disk.capacity *= 2
    assert store.commit() == durable + 1
    _, found = Store.open(disk, SMALL)
    assert list(found.records) == [b"reading %d" % i for i in range(durable + 1)]


def test_read_only_disk_is_opened_read_and_tidied_later():
    """A node must start to predict, even if its card takes no more writes; later it goes on."""
    life = Life(TornDisk(), Random(3))
    life.begin()
    life.live(50, (10, 20))
    spoilt = max(name for name in life.disk.files if name.startswith("journal"))
    middle = life.disk.files[spoilt].cache.index(b"35 of life")
    life.disk.flip(spoilt, 8 * middle)
    life.disk.fail = lambda operation, _name, _step: errno.EROFS if operation in CHANGES else None
    committed, life.committed = life.committed, 0
    kinds = [note.kind for note in life.begin()]
    assert "quarantined" in kinds
    assert kinds[-1] == "postponed"
    assert not life.store.settled
    assert not [name for name in life.disk.files if name.endswith("quarantined")]
    assert 20 <= life.committed <= 35 < committed
    life.disk.fail = lambda *_: None
    life.live(20)
    assert life.store.settled
    assert f"{spoilt}.quarantined" in life.disk.files
    assert life.begin() == ()


def test_snapshot_waits_until_what_was_spoilt_is_set_aside():
    """A state beside files that are still to be quarantined could be taken for theirs."""
    life = Life(TornDisk(), Random(3))
    life.begin()
    life.live(50, (10, 20))
    spoilt = max(name for name in life.disk.files if name.startswith("snapshot"))
    life.disk.flip(spoilt, 3000)
    life.disk.fail = lambda operation, name, _step: (
        errno.EIO if (operation, name) == ("replace", spoilt) else None
    )
    kinds = [note.kind for note in life.begin()]
    assert kinds == ["quarantined", "postponed"]
    before = set(life.disk.files)
    with pytest.raises(StoreError, match="snapshot at record 50"):
        life.store.snapshot(b"x")
    assert set(life.disk.files) == before
    life.disk.fail = lambda *_: None
    life.snapshot()
    assert life.begin() == ()


def test_snapshot_that_fails_half_way_takes_no_space():
    """The unfinished file is gone at once; the older snapshot still counts."""
    life = Life(TornDisk(), Random(3))
    life.begin()
    life.live(50, (10, 20))
    before = {name: bytes(file.cache) for name, file in life.disk.files.items()}
    for broken in ("write", "sync", "replace"):
        life.disk.fail = lambda operation, _name, _step, broken=broken: (
            errno.EIO if operation == broken else None
        )
        with pytest.raises(StoreError, match="the older ones still count"):
            life.store.snapshot(b"x")
        assert {name: bytes(file.cache) for name, file in life.disk.files.items()} == before


def test_segments_not_given_up_before_a_kill_are_given_up_at_the_next_start():
    """A snapshot counts even if the disk refuses the tidying behind it; the space is not lost."""
    life = Life(TornDisk(), Random(3), replace(SMALL, segments_max=16))
    life.begin()
    life.live(200)
    life.snapshot()
    life.disk.fail = lambda operation, name, _step: (
        errno.EIO if operation == "replace" and name.startswith("journal") else None
    )
    life.snapshot()
    segments = sum(name.startswith("journal") for name in life.disk.files)
    assert not life.store.settled
    life.disk.fail = lambda *_: None
    assert life.begin() == ()
    assert sum(name.startswith("journal") for name in life.disk.files) == 1 < segments


def test_disk_that_cannot_be_read_says_so():
    """Not an empty start: whoever cannot read the state must not write a new one."""
    life = Life(TornDisk(), Random(4))
    life.begin()
    life.live(20)
    life.disk.fail = lambda operation, _name, _step: errno.EACCES if operation == "read" else None
    with pytest.raises(StoreError, match=r"opening the store: .*Permission denied"):
        Store.open(life.disk, SMALL)
    life.disk.fail = lambda *_: None
    assert life.begin() == ()


def test_journal_without_snapshots_is_full_in_the_end_and_says_what_to_do():
    """The number of segments is bounded; two snapshots make room, the pending record stays."""
    disk = TornDisk()
    store, _ = Store.open(disk, SMALL)
    with pytest.raises(StoreError, match="take a snapshot") as caught:
        commit_one_by_one(store)
    assert caught.value.reason == "journal-full"
    assert disk.used() == SMALL.segment_bytes * SMALL.segments_max
    durable, pending = store.committed, store.pending
    store.snapshot(b"one")
    store.snapshot(b"two")
    assert (store.committed, store.pending) == (durable, pending) == (durable, 1)
    assert store.commit() == durable + 1
    _, found = Store.open(disk, SMALL)
    assert (found.snapshot, list(found.records)) == (b"two", [b"reading %d" % durable])


def test_snapshot_whenever_due_keeps_the_journal_from_filling_and_the_disk_from_growing():
    """Segments are recycled: after the first round no new one is made, however long it runs."""
    life = Life(TornDisk(), Random(5))
    life.begin()
    life.live(1000)
    used, segments = life.disk.used(), life.store._journal._next_number
    snapshots = life.disk.counts["remove"]
    made = life.disk.counts["create"] - snapshots
    life.live(3000)
    assert life.store._journal._next_number > segments + 20
    assert life.disk.counts["create"] - life.disk.counts["remove"] == made
    assert abs(life.disk.used() - used) < 100
    assert life.refusals == 0
    assert life.begin() == ()


def test_commit_is_one_write_and_one_sync():
    """Whatever the group; an SD card wears by the write."""
    life = Life(TornDisk(), Random(6))
    life.begin()
    life.live(1)
    before = life.disk.counts.copy()
    for _ in range(10):
        life.record()
    life.store.commit()
    assert life.disk.counts - before == {"write": 1, "sync": 1}
    before = life.disk.counts.copy()
    life.store.commit()
    assert life.disk.counts == before


def test_record_and_snapshot_beyond_the_limit_are_refused_with_both_values():
    """Nothing of them is kept."""
    store, _ = Store.open(TornDisk(), SMALL)
    with pytest.raises(StoreError, match="record of 1025 bytes: at most 1024"):
        store.append(bytes(1025))
    with pytest.raises(StoreError, match="snapshot of 65537 bytes: at most 65536"):
        store.snapshot(bytes(65_537))
    assert (store.pending, store.pending_bytes, store.committed) == (0, 0, 0)
    assert store.append(bytes(1024)) == 0


def test_largest_group_fits_into_an_empty_segment():
    """The largest pending group and the smallest segment the limits allow."""
    limits = StoreLimits(page_bytes=512, segment_bytes=4096, record_bytes_max=3544,
                    pending_bytes_max=3552)  # fmt: skip
    disk = TornDisk()
    store, _ = Store.open(disk, limits)
    store.append(bytes(3544))
    store.append(b"")
    assert store.pending_bytes == limits.pending_bytes_max
    store.commit()
    _, found = Store.open(disk, limits)
    assert list(found.records) == [bytes(3544), b""]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"page_bytes": 500}, "must be a multiple of page_bytes 500"),
        ({"page_bytes": 32}, "at least 64"),
        ({"segments_max": 3}, "segments_max 3 must be >= 4"),
        ({"pending_bytes_max": 8192}, "pending_bytes_max 8192 must be <= 7648"),
        ({"record_bytes_max": 2048}, "record_bytes_max 2048 must be <= pending_bytes_max 2048"),
    ],
)
def test_limits_that_contradict_each_other_are_refused(change, sentence):
    """Before anything is opened."""
    with pytest.raises(StoreError, match=sentence) as caught:
        replace(SMALL, **change)
    assert caught.value.reason == "limits"


def test_limits_may_change_between_two_starts():
    """Segments know their own geometry: old ones are read, new ones are made as now configured."""
    life = Life(TornDisk(), Random(7))
    for page, segment in ((512, 8192), (1024, 16_384), (256, 4096), (512, 8192)):
        life.limits = replace(SMALL, page_bytes=page, segment_bytes=segment)
        assert life.begin() == ()
        life.live(150)
    assert life.begin() == ()
    assert life.committed == 600
