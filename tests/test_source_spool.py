"""What a disk can do to a spool: tear it, rot it, fill it up, refuse to write."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from edge_opid.source import ReadingNumber, Spool, SpoolError, SpoolFullError
from edge_opid.source.number import new_boot

BYTES_MAX = 64 * 1024


def filled(folder: Path, count: int, boot: int = 1, size: int = 20) -> Spool:
    spool = Spool(folder, BYTES_MAX)
    for seq in range(1, count + 1):
        spool.append(ReadingNumber(boot, seq), seq.to_bytes(size, "big"))
    return spool


def everything(spool: Spool) -> list[ReadingNumber]:
    numbers = []
    while (found := spool.read_next()) is not None:
        numbers.append(found[0])
        assert int.from_bytes(found[1], "big") == found[0].seq
    return numbers


def reopened(folder: Path) -> list[ReadingNumber]:
    spool = Spool(folder, BYTES_MAX)
    try:
        return everything(spool)
    finally:
        spool.close()


def test_killed_script_loses_nothing_it_sent(tmp_path: Path) -> None:
    """Without a sync, and without a goodbye, all is there: `kill -9` spares the page cache."""
    spool = filled(tmp_path, 500)
    assert reopened(tmp_path) == [ReadingNumber(1, seq) for seq in range(1, 501)]
    spool.close()
    assert reopened(tmp_path) == [ReadingNumber(1, seq) for seq in range(1, 501)]


def test_power_cut_at_every_byte_leaves_a_prefix(tmp_path: Path) -> None:
    """Cut the file anywhere: what is read is whole, from the first on, without a hole."""
    filled(tmp_path, 6).close()
    (path,) = tmp_path.glob("*.spool")
    whole = path.read_bytes()
    counts = []
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        numbers = reopened(tmp_path)
        assert numbers == [ReadingNumber(1, seq) for seq in range(1, len(numbers) + 1)]
        counts.append(len(numbers))
    assert counts == sorted(counts)
    assert counts[-1] == 6


def test_single_flipped_bit_never_changes_a_reading(tmp_path: Path) -> None:
    """A rotten record ends its segment; nothing wrong is ever returned."""
    filled(tmp_path, 4).close()
    (path,) = tmp_path.glob("*.spool")
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        numbers = reopened(tmp_path)
        assert numbers == [ReadingNumber(1, seq) for seq in range(1, len(numbers) + 1)]
    path.write_bytes(whole)
    assert len(reopened(tmp_path)) == 4


def test_rotten_segment_does_not_take_the_others_with_it(tmp_path: Path) -> None:
    """One bad sector costs the rest of its segment, and the missing numbers show it."""
    filled(tmp_path, 400).close()
    paths = sorted(tmp_path.glob("*.spool"))
    assert len(paths) > 3
    data = bytearray(paths[1].read_bytes())
    data[len(data) // 2] ^= 0xFF
    paths[1].write_bytes(data)
    numbers = reopened(tmp_path)
    assert numbers[0] == ReadingNumber(1, 1)
    assert numbers[-1] == ReadingNumber(1, 400)
    assert 300 < len(numbers) < 400


def live(folder: Path, boot: int, count: int = 1) -> None:
    """A life of the script that sends so many readings, and hears nobody."""
    filled(folder, count, boot=boot).close()


def test_lives_that_nobody_acknowledged_leave_few_files_and_every_reading(tmp_path: Path) -> None:
    """Cron starts a script every minute, the node is away for a day: with the 1,024th file open it
    could not start any more, and never again.
    """
    for boot in range(1, 1_201):
        live(tmp_path, boot)
        assert len(list(tmp_path.iterdir())) <= 80
    assert reopened(tmp_path) == [ReadingNumber(boot, 1) for boot in range(1, 1_201)]
    spool = Spool(tmp_path, BYTES_MAX)
    spool.acknowledge(ReadingNumber(1_190, 1))
    spool.close()
    assert reopened(tmp_path) == [ReadingNumber(boot, 1) for boot in range(1_191, 1_201)]


@pytest.mark.parametrize("call", ["fsync", "write", "unlink"])
@pytest.mark.parametrize("fails_at", [0, 1, 20])
def test_disk_that_fails_while_lives_are_joined_costs_no_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, fails_at: int
) -> None:
    """No room, a bad sector, a folder that nobody may change: it opens, and is tried again."""
    for boot in range(1, 41):
        live(tmp_path, boot)
    spent = list(range(fails_at))
    place = Path if call == "unlink" else os
    plain = getattr(place, call)

    def failing(*arguments: object, **options: object) -> object:
        if spent:
            spent.pop()
            return plain(*arguments, **options)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    everyone = [ReadingNumber(boot, 1) for boot in range(1, 41)]
    with monkeypatch.context() as patch:
        patch.setattr(place, call, failing)
        spool = Spool(tmp_path, BYTES_MAX)
        assert everything(spool) == everyone
    spool.append(ReadingNumber(41, 1), (1).to_bytes(20, "big"))
    spool.close()
    assert reopened(tmp_path) == [*everyone, ReadingNumber(41, 1)]
    assert len(list(tmp_path.iterdir())) <= 32


def test_power_cut_while_lives_are_joined_changes_nothing(tmp_path: Path) -> None:
    """The copy is cut at any byte, and the segments it was made of are all there, or some."""
    for boot in range(1, 33):
        live(tmp_path, boot)
    before = {path: path.read_bytes() for path in tmp_path.glob("*.spool")}
    Spool(tmp_path, BYTES_MAX).close()
    (copy,) = set(tmp_path.glob("*.spool")) - set(before)
    whole = copy.read_bytes()
    for length in range(0, len(whole), 7):
        for path, content in before.items():
            path.write_bytes(content)
        copy.write_bytes(whole[:length])
        assert reopened(tmp_path) == [ReadingNumber(boot, 1) for boot in range(1, 33)]
        for path in tmp_path.glob("*.spool"):
            path.unlink()
    copy.write_bytes(whole)  # synced: then any of the others may be gone
    assert reopened(tmp_path) == [ReadingNumber(boot, 1) for boot in range(1, 33)]


def test_acknowledged_readings_are_not_read_again(tmp_path: Path) -> None:
    """The mark survives the restart, and acknowledged segments leave the disk."""
    spool = filled(tmp_path, 400)
    before = spool.bytes_used
    spool.acknowledge(ReadingNumber(1, 399))
    assert spool.bytes_used < before / 3
    spool.close()
    assert reopened(tmp_path) == [ReadingNumber(1, 400)]


def test_everything_acknowledged_is_remembered(tmp_path: Path) -> None:
    """An empty spool still knows how far it was, or the next start would see a hole."""
    spool = filled(tmp_path, 400)
    spool.acknowledge(ReadingNumber(1, 400))
    spool.close()
    again = Spool(tmp_path, BYTES_MAX)
    assert again.mark == ReadingNumber(1, 400)
    assert again.read_next() is None
    again.close()


def test_segment_is_deleted_only_after_the_mark_that_allows_it(tmp_path: Path) -> None:
    """Killed right after the deletion, the spool must not take the deleted for lost."""
    spool = filled(tmp_path, 400)
    spool.acknowledge(ReadingNumber(1, 399))
    killed = Spool(tmp_path, BYTES_MAX)
    assert killed.mark == ReadingNumber(1, 399)
    assert everything(killed) == [ReadingNumber(1, 400)]
    killed.close()
    spool.close()


def test_full_spool_refuses_and_keeps_what_it_has(tmp_path: Path) -> None:
    """The error says how full and since when; every earlier reading is still there."""
    spool = Spool(tmp_path, BYTES_MAX)

    def fill() -> None:
        while True:
            seq = spool.last.seq + 1
            spool.append(ReadingNumber(1, seq), seq.to_bytes(100, "big"))

    with pytest.raises(SpoolFullError, match=f"of {BYTES_MAX} bytes"):
        fill()
    taken = spool.last.seq
    assert taken > 400
    assert spool.bytes_used <= BYTES_MAX
    spool.acknowledge(ReadingNumber(1, taken // 2))
    spool.append(ReadingNumber(1, taken + 1), (taken + 1).to_bytes(100, "big"))
    assert everything(spool)[-1] == ReadingNumber(1, taken + 1)
    spool.close()


def test_oldest_make_room_when_told_so(tmp_path: Path) -> None:
    """With `drop_oldest` the newest are kept and the bound holds."""
    spool = Spool(tmp_path, BYTES_MAX, drop_oldest=True)
    for seq in range(1, 3_001):
        spool.append(ReadingNumber(1, seq), seq.to_bytes(100, "big"))
        assert spool.bytes_used <= BYTES_MAX
    numbers = everything(spool)
    assert numbers[-1] == ReadingNumber(1, 3_000)
    assert numbers == [ReadingNumber(1, seq) for seq in range(numbers[0].seq, 3_001)]
    spool.close()


def test_spool_full_of_acknowledged_readings_takes_more(tmp_path: Path) -> None:
    """What is acknowledged never counts against a new reading."""
    spool = Spool(tmp_path, BYTES_MAX)
    for seq in range(1, 5_001):
        spool.append(ReadingNumber(1, seq), seq.to_bytes(100, "big"))
        spool.acknowledge(ReadingNumber(1, seq))
    assert spool.read_next() is None
    assert spool.bytes_used <= BYTES_MAX
    spool.close()


def test_full_disk_is_an_error_and_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A half-written record is cut off, and the next reading finds a clean place."""
    spool = filled(tmp_path, 3)
    real = os.write

    def full(handle: int, data: bytes) -> int:
        return real(handle, data[:10])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(SpoolError, match="make room") as caught:
        spool.append(ReadingNumber(1, 4), b"")
    assert caught.value.errno == errno.ENOSPC
    monkeypatch.undo()
    spool.append(ReadingNumber(1, 4), (4).to_bytes(4, "big"))
    assert everything(spool) == [ReadingNumber(1, seq) for seq in range(1, 5)]
    spool.close()
    assert reopened(tmp_path) == [ReadingNumber(1, seq) for seq in range(1, 5)]


def test_full_disk_does_not_stop_acknowledgements_from_freeing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleting is the way out of a full disk, so it may not depend on writing."""
    spool = filled(tmp_path, 400)
    before = spool.bytes_used

    def full(_handle: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    spool.acknowledge(ReadingNumber(1, 390))
    monkeypatch.undo()
    assert spool.bytes_used < before / 3
    assert [number.seq for number in everything(spool)] == list(range(391, 401))
    spool.close()


def test_failed_sync_is_not_taken_for_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed sync nothing more goes to that file, and the error is told."""
    spool = filled(tmp_path, 3)

    def rotten(_handle: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", rotten)
    with pytest.raises(SpoolError, match="Input/output error"):
        spool.sync()
    assert spool.unsynced == 3
    monkeypatch.undo()
    spool.append(ReadingNumber(1, 4), (4).to_bytes(4, "big"))
    spool.close()
    assert reopened(tmp_path) == [ReadingNumber(1, seq) for seq in range(1, 5)]


@pytest.mark.parametrize("failures", [1, 5])
def test_reading_in_a_file_whose_sync_failed_is_not_called_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    """The kernel reports lost pages once; a later sync of another file says nothing about them."""
    spool = filled(tmp_path, 3)
    spool.sync()
    for seq in (4, 5):
        spool.append(ReadingNumber(1, seq), seq.to_bytes(4, "big"))
    (doubtful,) = tmp_path.glob("*.spool")
    synced = spool._segments[0].synced

    def rotten(_handle: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", rotten)
    for _ in range(failures):
        with pytest.raises(SpoolError, match="Input/output error"):
            spool.sync()
    assert spool.unsynced == 2
    monkeypatch.undo()
    spool.append(ReadingNumber(1, 6), (6).to_bytes(4, "big"))
    spool.sync()
    assert spool.unsynced == 0
    assert everything(spool) == [ReadingNumber(1, seq) for seq in range(1, 7)]
    os.truncate(doubtful, synced)  # a power cut: these pages never reached the disk
    assert reopened(tmp_path) == [ReadingNumber(1, seq) for seq in range(1, 7)]
    assert len(list(tmp_path.glob("*.spool"))) == 2  # failed attempts leave nothing behind
    spool.close()


@pytest.mark.parametrize("content", [None, b"", b"7", b"7 00000000\n", b"\xff\xfe"])
def test_damaged_boot_counter_does_not_repeat_a_boot(tmp_path: Path, content: bytes | None) -> None:
    """Missing or rotten, the clock and the spool keep the numbers unique."""
    if content is not None:
        (tmp_path / "boot").write_bytes(content)
    by_clock = new_boot(tmp_path, epoch_s=1_700_000_000)
    assert by_clock >> 20 == 1_700_000_000
    without_clock = new_boot(tmp_path, epoch_s=0)
    assert by_clock < without_clock
    told = new_boot(tmp_path, epoch_s=0, known=1_800_000_000 << 20)
    assert told >> 20 in (1_800_000_000, 1_800_000_001)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["boot"]
