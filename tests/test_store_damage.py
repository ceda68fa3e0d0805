"""Media that forget: every damage is noticed, set aside and told; wrong bytes never come back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest
from support.store_life import SMALL, Life

from edge_opid.store import Store, StoreError
from edge_opid.store.frames import SegmentHeader, encode_frame
from edge_opid.store.segment import Segment
from firmware_sim.simulated.disk import PowerCut, TornDisk

ROOMY = replace(SMALL, segments_max=16)  # so that no snapshot is due besides those asked for


def lived(seed: int, records: int = 300) -> Life:
    """A life with two kept snapshots, several segments and a spare one; the last group has five."""
    life = Life(TornDisk(seed), Random(seed), ROOMY)
    life.begin()
    life.live(records - 5, (100, 200))
    for _ in range(5):
        life.record()
    life.commit()
    return life


def begin_damaged(life: Life) -> tuple[list[str], int]:
    """Open without holding the store to its promise; the kinds of notes, and how many are lost."""
    committed, life.committed = life.committed, 0
    kinds = [note.kind for note in life.begin()]
    return kinds, committed - life.committed


def goes_on(life: Life) -> None:
    """After a damage was told once, life goes on as if it had not been."""
    life.live(30)
    kinds = [note.kind for note in life.begin()]
    assert set(kinds) <= {"damaged"}, kinds
    after = life.after_power_cut(life.rng)
    after.begin()
    assert after.committed == len(life.history)


def newest(life: Life, kind: str) -> str:
    return max(name for name in life.disk.files if name.startswith(kind) and "q" not in name)


def flip_in_record(life: Life, index: int) -> str:
    """Spoil one record of the journal; the file it is in."""
    start = life.history[index][:10]
    for name, file in life.disk.files.items():
        if name.startswith("journal") and start in file.cache:
            life.disk.flip(name, 8 * file.cache.index(start))
            return name
    raise LookupError(start)


def test_any_single_bit_flip_is_harmless_or_told():
    """One bit anywhere: all is there, or the last group is torn, or the file is quarantined."""
    seen, whole = set(), [lived(seed) for seed in range(5)]
    for seed in range(500):
        rng = Random(seed)
        life = whole[seed % 5].after_power_cut(rng)  # everything is synced: simply a copy
        name = rng.choice(sorted(life.disk.files))
        life.disk.flip(name, rng.randrange(8 * len(life.disk.files[name].cache)))
        kinds, lost = begin_damaged(life)
        seen.update(kinds)
        if kinds in ([], ["damaged"]) or name.startswith("snapshot"):
            assert lost == 0
        elif kinds == ["torn"]:
            assert lost == 5
        else:
            assert f"{name}.quarantined" in life.disk.files
        goes_on(life)
    assert seen == {"torn", "quarantined", "damaged"}


def test_every_bit_of_the_last_commits_header_is_told():
    """A flip in the header of the last group hides the group, and never the fact."""
    whole = lived(0)
    name = newest(whole, "journal")
    start = whole.disk.files[name].cache.index(whole.history[295]) - 4 - 32
    assert start % SMALL.page_bytes == 0
    for bit in range(8 * start, 8 * (start + 32)):
        life = whole.after_power_cut(Random(0))
        life.disk.flip(name, bit)
        assert begin_damaged(life) == (["torn"], 5)
        goes_on(life)


def test_damage_in_the_middle_of_the_journal_is_not_taken_for_a_torn_tail():
    """Valid groups behind a spoilt one prove that it was committed: told, set aside, cut there."""
    life = lived(1)
    spoilt = flip_in_record(life, 250)
    kinds, _ = begin_damaged(life)
    assert set(kinds) == {"quarantined"}
    assert f"{spoilt}.quarantined" in life.disk.files
    assert spoilt not in life.disk.files
    assert 250 - 12 < life.committed <= 250
    assert life.begin() == ()
    goes_on(life)


def test_damage_at_the_end_of_a_segment_is_proved_by_the_next_one():
    """The first index of a segment says that everything before it was committed."""
    life = lived(1)
    last = newest(life, "journal")
    first = SegmentHeader.decode(bytes(life.disk.files[last].cache)).first
    assert 205 < first < 300
    spoilt = flip_in_record(life, first - 1)
    kinds, lost = begin_damaged(life)
    assert kinds == ["quarantined", "quarantined"]
    assert {f"{spoilt}.quarantined", f"{last}.quarantined"} <= set(life.disk.files)
    assert lost >= 300 - first
    goes_on(life)


def test_spoilt_header_takes_its_segment_and_says_so():
    """Headers are durable before the name is, so this is never a torn start."""
    life = lived(2)
    name = newest(life, "journal")
    life.disk.flip(name, 8 * 20)
    kinds, lost = begin_damaged(life)
    assert kinds == ["quarantined"]
    assert lost > 0
    goes_on(life)


def test_damage_that_the_snapshot_covers_costs_nothing():
    """Told as damaged; the segment is quarantined when it would have been recycled."""
    life = lived(3)
    oldest = life.store._snapshots.kept[0].index
    spoilt = flip_in_record(life, oldest + 10)
    kinds, lost = begin_damaged(life)
    assert (set(kinds), lost) == ({"damaged"}, 0)
    assert spoilt in life.disk.files
    life.live(300)
    assert f"{spoilt}.quarantined" in life.disk.files
    assert life.begin() == ()


def test_spoilt_newest_snapshot_costs_nothing():
    """The older one is used, with the longer journal."""
    life = lived(4)
    name = newest(life, "snapshot")
    life.disk.flip(name, 3000)
    assert begin_damaged(life) == (["quarantined"], 0)
    assert f"{name}.quarantined" in life.disk.files
    goes_on(life)


def test_spoilt_older_snapshot_costs_nothing_either():
    """Told at once, not when it is needed; no journal is given up until there are two again."""
    life = lived(4)
    name = life.store._snapshots.kept[0].name
    life.disk.flip(name, 3000)
    assert begin_damaged(life) == (["quarantined"], 0)
    life.snapshot()
    goes_on(life)
    life.disk.flip(newest(life, "snapshot"), 3000)
    assert begin_damaged(life) == (["quarantined"], 0)


def test_spoilt_only_snapshot_means_a_start_from_the_first_record():
    """While there is one snapshot only, the journal reaches back to the beginning."""
    life = Life(TornDisk(), Random(5))
    life.begin()
    life.live(60, (40,))
    life.disk.flip(newest(life, "snapshot"), 3000)
    store, found = Store.open(life.disk, SMALL)
    assert (found.snapshot, found.index, found.end) == (None, 0, store.committed) == (None, 0, 60)
    assert list(found.records) == life.history


def test_spoilt_snapshots_both_mean_an_empty_start_that_is_told():
    """Nothing can be applied any more: everything is set aside for a look, and life begins anew."""
    life = lived(6)
    for snapshot in life.store._snapshots.kept:
        life.disk.flip(snapshot.name, 3000)
    kinds, lost = begin_damaged(life)
    assert set(kinds) == {"quarantined"}
    assert lost == 300
    goes_on(life)


def old_bytes_in_a_new_life(nonce: Callable[[], bytes]) -> None:
    """A spare full of old groups; everything else is gone, so indices begin at 0 again."""
    disk = TornDisk()
    store, _ = Store.open(disk, SMALL, nonce)
    for i in range(40):
        store.append(b"old reading %d" % i)
        store.commit()
    store.snapshot(b"state")
    store.snapshot(b"state")
    for name in [name for name in disk.files if name != "spare-0000000001"]:
        disk.remove(name)
    store, found = Store.open(disk, SMALL, nonce)
    assert (found.end, found.notes) == (0, ())
    for i in range(30):
        store.append(b"new reading %d" % i)
        store.commit()
        store, found = Store.open(disk, SMALL, nonce)
        assert list(found.records) == [b"new reading %d" % j for j in range(i + 1)]


def test_former_life_of_a_recycled_segment_never_comes_back(monkeypatch):
    """New groups meet old ones of the same size, place and index; only the nonce tells them."""
    nonces = Random(8)
    old_bytes_in_a_new_life(lambda: nonces.randbytes(8))
    monkeypatch.setattr(SegmentHeader, "identity", 0)
    with pytest.raises(AssertionError, match=r"old reading"):
        old_bytes_in_a_new_life(lambda: b"constant")


def test_later_segment_overrules_what_an_earlier_one_still_holds():
    """A commit that failed may lie at the end of one segment, and another life's in the next."""
    disk = TornDisk()
    made = {
        SegmentHeader(number=1, first=0, nonce=b"nonce  1", page=512, size=8192): {
            0: [b"a", b"b"],
            2: [b"failed", b"failed"],
        },
        SegmentHeader(number=2, first=2, nonce=b"nonce  2", page=512, size=8192): {
            2: [b"c", b"d"],
            4: [b"e"],
        },
    }
    for header, groups in made.items():
        segment, tail = Segment(header), header.page
        disk.create(segment.name, header.size)
        disk.write(segment.name, 0, header.encode())
        for first, group in groups.items():
            tail = segment.write(disk, tail, first, group)
    store, found = Store.open(disk, SMALL)
    assert (list(found.records), found.notes) == ([b"a", b"b", b"c", b"d", b"e"], ())
    assert store.append(b"f") == 5


def test_torn_tail_never_comes_back_behind_a_shorter_commit():
    """A long group is cut short; a short one overwrites its head; its rest stays dead for ever."""
    for seed in range(100):
        rng = Random(seed)
        life = Life(TornDisk(seed), rng)
        life.begin()
        life.live(20)
        while life.store.pending_bytes + 200 < SMALL.pending_bytes_max:
            life.record()
        life.disk.cut_at = life.disk.step + 2  # in the sync, so any part may be there
        with pytest.raises(PowerCut):
            life.store.commit()
        for _ in range(4):
            life = life.after_power_cut(rng)
            assert {note.kind for note in life.begin()} <= {"torn"}
            life.record()
            life.commit()
        assert life.committed == len(life.history)


def test_group_sent_inside_a_record_is_not_taken_for_a_group():
    """Whoever forges the bytes of a frame does not know the nonce of the segment."""
    disk = TornDisk()
    store, _ = Store.open(disk, SMALL)
    header = SegmentHeader(
        number=1, first=0, nonce=b"guessed!", page=SMALL.page_bytes, size=SMALL.segment_bytes
    )
    forged = encode_frame(header, 2, [b"forged"])
    store.append(b"honest")
    store.commit()
    store.append(bytes(SMALL.page_bytes - 32 - 4) + forged)  # begins exactly on the next page
    store.commit()
    name = "journal-0000000001"
    assert disk.files[name].cache.index(forged) % SMALL.page_bytes == 0
    disk.flip(name, 8 * (2 * SMALL.page_bytes + 100))  # the group around it is spoilt
    _, found = Store.open(disk, SMALL)
    assert list(found.records) == [b"honest"]
    assert [note.kind for note in found.notes] == ["torn"]


def zero_pages(life: Life, name: str, rng: Random) -> None:
    cache = life.disk.files[name].cache
    start = rng.randrange(len(cache))
    cache[start : start + 700] = bytes(len(cache[start : start + 700]))


def garbage(life: Life, name: str, rng: Random) -> None:
    cache = life.disk.files[name].cache
    start = rng.randrange(len(cache))
    cache[start : start + 700] = rng.randbytes(len(cache[start : start + 700]))


def truncated(life: Life, name: str, rng: Random) -> None:
    cache = life.disk.files[name].cache
    del cache[rng.randrange(len(cache)) :]


def missing(life: Life, name: str, _rng: Random) -> None:
    life.disk.remove(name)


def exchanged(life: Life, name: str, rng: Random) -> None:
    files, other = life.disk.files, rng.choice(sorted(life.disk.files))
    files[name], files[other] = files[other], files[name]


def unreadable(life: Life, name: str, _rng: Random) -> None:
    life.disk.unreadable.add(name)


@pytest.mark.parametrize("damage", [zero_pages, garbage, truncated, missing, exchanged, unreadable])
def test_larger_damage_leaves_a_true_beginning_of_the_history(damage):
    """Whatever is spoilt, twice over: a prefix comes back, never another byte, and life goes on."""
    whole = [lived(seed) for seed in range(5)]
    for seed in range(60):
        rng = Random(seed)
        life = whole[seed % 5].after_power_cut(rng)
        for name in rng.sample(sorted(life.disk.files), 2):
            damage(life, name, rng)
        for file in life.disk.files.values():
            file.medium = bytearray(file.cache)
        life.disk.durable = dict(life.disk.files)
        kinds, lost = begin_damaged(life)
        assert 0 <= lost <= 300
        assert "postponed" not in kinds
        goes_on(life)


@pytest.mark.parametrize("index", [100, 205, 250, 299])
def test_power_cut_while_a_damage_is_repaired_costs_nothing_more(index):
    """Whatever part of the rescue and the quarantine happened, the same records are there."""
    whole = lived(1)
    flip_in_record(whole, index)
    repaired = whole.after_power_cut(Random(0))
    begin_damaged(repaired)
    kept = repaired.committed
    for cut_at in range(1, repaired.disk.step + 8):
        for seed in range(10):
            rng = Random(cut_at * 100 + seed)
            life = whole.after_power_cut(rng)
            life.disk.cut_at, life.committed = cut_at, 0
            with suppress(PowerCut):
                life.begin()
                life.live(10)
            after = life.after_power_cut(rng, spoil=True)
            after.committed = max(kept, life.committed)
            after.begin()
            goes_on(after)


def test_quarantine_does_not_fill_the_disk():
    """Only the last few spoilt files of each kind are kept."""
    life = lived(8)
    for _ in range(12):
        life.live(30)
        life.snapshot()
        flip_in_record(life, len(life.history) - 1)
        life.disk.flip(newest(life, "snapshot"), 3000)
        begin_damaged(life)
    aside = [name for name in life.disk.files if name.endswith("quarantined")]
    assert 0 < len([name for name in aside if "journal" in name]) <= SMALL.quarantined_max
    assert len([name for name in aside if "snapshot" in name]) == SMALL.quarantined_max
    goes_on(life)


def test_other_format_is_refused_and_left_as_it_is(monkeypatch):
    """A newer version's state is not damage: nothing is quarantined, nothing overwritten."""
    for kind in ("frames", "snapshots"):
        monkeypatch.setattr(f"edge_opid.store.{kind}.FORMAT", 2)
        life = lived(9)
        monkeypatch.undo()
        before = {name: bytes(file.cache) for name, file in life.disk.files.items()}
        with pytest.raises(StoreError, match="format 2, this version reads 1") as caught:
            Store.open(life.disk, SMALL)
        assert caught.value.reason == "version"
        assert {name: bytes(file.cache) for name, file in life.disk.files.items()} == before
