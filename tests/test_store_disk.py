"""One contract for the real disk and the simulated one, and what only the real one gets wrong."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support.store_life import SMALL

import edge_opid.store
from edge_opid.store import RealDisk, Store, StoreError, StoreLimits
from firmware_sim.simulated.disk import TornDisk


@pytest.fixture(params=["real", "torn"])
def disk(request, tmp_path):
    if request.param == "torn":
        yield TornDisk()
        return
    with RealDisk(tmp_path / "state") as real:
        yield real


def test_real_and_simulated_disk_keep_the_same_contract(disk):
    """A file is made of zeros, written anywhere, read back short at its end, renamed, removed."""
    disk.create("a", 10)
    assert disk.read("a", 0, 100) == bytes(10)
    disk.write("a", 3, b"opid")
    assert disk.read("a", 2, 4) == b"\0opi"
    assert disk.read("a", 8, 100) == bytes(2)
    assert disk.read("a", 10, 5) == b""
    disk.sync("a")
    disk.create("b", 0)
    disk.replace("a", "b")
    disk.sync_names()
    assert disk.names() == ["b"]
    assert (disk.size("b"), disk.read("b", 3, 4)) == (10, b"opid")
    disk.remove("b")
    assert disk.names() == []


def test_file_that_exists_is_not_made_again(disk):
    """Preallocating over a file would destroy it."""
    disk.create("a", 4)
    disk.write("a", 0, b"opid")
    with pytest.raises(FileExistsError):
        disk.create("a", 8)
    assert disk.read("a", 0, 8) == b"opid"


@pytest.mark.parametrize(
    "operation",
    [
        lambda disk: disk.size("missing"),
        lambda disk: disk.read("missing", 0, 1),
        lambda disk: disk.write("missing", 0, b"x"),
        lambda disk: disk.sync("missing"),
        lambda disk: disk.replace("missing", "other"),
        lambda disk: disk.remove("missing"),
    ],
)
def test_file_that_is_missing_is_said_to_be_missing(disk, operation):
    """And nothing is made by looking for it."""
    with pytest.raises(FileNotFoundError):
        operation(disk)
    assert disk.names() == []


def test_same_story_leaves_the_same_files_on_both_disks(tmp_path):
    """The simulated disk is a stand-in: the store's bytes on it are the real ones."""

    def story(disk) -> dict[str, bytes]:
        store, _ = Store.open(disk, SMALL, lambda: b"12345678")
        for i in range(100):
            store.append(b"reading %d" % i * 9)
            store.commit()
            if store.snapshot_due:
                store.snapshot(b"after %d" % i * 99)
        return {name: disk.read(name, 0, disk.size(name)) for name in disk.names()}

    with RealDisk(tmp_path / "state") as real:
        files = story(real)
    assert story(TornDisk()) == files
    assert len(files) > 3


def test_files_are_the_owners_alone_whatever_the_umask(tmp_path):
    """0700 for the folders that were made, 0600 for the files; the folder above is left alone."""
    before = stat.S_IMODE(tmp_path.stat().st_mode)
    old = os.umask(0o277)
    try:
        with RealDisk(tmp_path / "opid" / "state") as disk:
            disk.create("a", 1)
    finally:
        os.umask(old)
    folder = tmp_path / "opid" / "state"
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder.parent, folder, folder / "a")]
    assert modes == [0o700, 0o700, 0o600]
    assert stat.S_IMODE(tmp_path.stat().st_mode) == before


def test_second_process_in_the_same_folder_is_refused(tmp_path):
    """Two writers would overwrite each other's commits; the first one does not notice."""
    with RealDisk(tmp_path) as first:
        with pytest.raises(StoreError, match="another process has it open") as caught:
            RealDisk(tmp_path)
        assert caught.value.reason == "locked"
        first.create("a", 1)
    with RealDisk(tmp_path) as second:
        assert second.names() == ["a"]


def test_what_is_not_ours_is_left_alone(tmp_path):
    """Folders, links and foreign files in the state folder are neither read nor removed."""
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "journal-0000000009").symlink_to("/dev/null")
    (tmp_path / "notes.txt").write_text("do not delete")
    with RealDisk(tmp_path) as disk:
        store, found = Store.open(disk, SMALL)
        store.append(b"x")
        store.commit()
    assert found.notes == ()
    assert (tmp_path / "notes.txt").read_text() == "do not delete"
    assert (tmp_path / "lost+found").is_dir()


def test_create_that_fails_gives_its_space_back(tmp_path, monkeypatch):
    """A full disk must not be filled further by half a file."""
    with RealDisk(tmp_path) as disk:
        monkeypatch.setattr(os, "posix_fallocate", _no_space)
        with pytest.raises(OSError, match="No space left"):
            disk.create("a", 2**20)
        assert disk.names() == []
        monkeypatch.undo()
        disk.create("a", 2**10)
        assert disk.size("a") == 2**10


def _no_space(*_):
    raise OSError(28, "No space left on device")


def test_disk_without_reservation_still_makes_the_file(tmp_path, monkeypatch):
    """Some network file systems cannot reserve space; the size is right all the same."""

    def unsupported(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "posix_fallocate", unsupported)
    with RealDisk(tmp_path) as disk:
        disk.create("a", 100)
        assert disk.read("a", 0, 200) == bytes(100)


def test_read_only_file_is_read_and_written_again_once_that_is_allowed(tmp_path, monkeypatch):
    """Remounted read-only, a disk can be read; remounted again, it is written without restart."""
    with RealDisk(tmp_path) as disk:
        disk.create("a", 4)
    real_open = os.open

    def read_only(name, flags, *rest, **options):
        if flags & os.O_RDWR:
            raise OSError(30, "Read-only file system")
        return real_open(name, flags, *rest, **options)

    with RealDisk(tmp_path) as disk:
        monkeypatch.setattr(os, "open", read_only)
        assert disk.read("a", 0, 4) == bytes(4)
        disk.sync("a")
        with pytest.raises(OSError, match="Read-only"):
            disk.write("a", 0, b"opid")
        monkeypatch.undo()
        disk.write("a", 0, b"opid")
        assert disk.read("a", 0, 4) == b"opid"


CHILD = """
import sys
from edge_opid.store import StoreLimits, RealDisk, Store
store, found = Store.open(RealDisk(sys.argv[1]), StoreLimits(segment_bytes=2**18))
list(found.records)
while True:
    for _ in range(5):
        store.append(b"%d " % (store.committed + store.pending) * 20)
    print(store.commit(), flush=True)
    if store.snapshot_due:
        store.snapshot(b"%d" % store.committed)
"""


def test_process_killed_again_and_again_loses_nothing_it_reported(tmp_path):
    """`kill -9` in the middle of commits and snapshots, on a real disk, three times."""
    root = Path(edge_opid.store.__file__).parents[2]
    reported = 0
    for _ in range(3):
        command = [sys.executable, "-c", CHILD, str(tmp_path)]
        with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE) as child:
            lines = [int(child.stdout.readline()) for _ in range(200)]
            child.send_signal(signal.SIGKILL)
            lines += [int(line) for line in child.stdout.read().split(b"\n")[:-1]]
        with RealDisk(tmp_path) as disk:
            _, found = Store.open(disk, StoreLimits(segment_bytes=2**18))
            records = list(found.records)
        assert found.end >= lines[-1] > reported
        assert records == [b"%d " % i * 20 for i in range(found.index, found.end)]
        assert found.snapshot in (None, b"%d" % found.index)
        assert found.notes == ()
        reported = lines[-1]
