"""A disk that fails for a moment under a source: the thread goes on, and `send` tells the truth."""

from __future__ import annotations

import errno
import logging
import os
import random
import shutil
import stat
import subprocess
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.source_station import Station

from edge_opid.source import Source, SourceError, SpoolError, folder_lock
from firmware_sim.live.processes import WAIT_S


class Failing:
    """A call of the system that fails as often as it is told to, with this error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, number: int) -> None:
        self.left, self.failed = 0, 0
        self._real, self._number = getattr(os, name), number
        monkeypatch.setattr(os, name, self)

    def __call__(self, *args: Any, **options: Any) -> Any:
        if self.left > 0:
            self.left, self.failed = self.left - 1, self.failed + 1
            raise OSError(self._number, os.strerror(self._number))
        return self._real(*args, **options)


@pytest.fixture
def station(tmp_path: Path) -> Station:
    """Real time, a thread that hears, and segments of a few readings."""
    station = Station(tmp_path / "spool")
    station.clock = time.monotonic  # type: ignore[assignment]
    station.receiver._clock = time.monotonic
    options = {"background": True, "resend_s": 0.1, "spool_bytes_max": 16 * 1024, "window": 8}
    station.options = dict(options)
    return station


def until(station: Station, source: Source, happened: Callable[[], bool]) -> None:
    """Play the node until this has happened."""
    deadline = time.monotonic() + WAIT_S
    while not happened():
        assert time.monotonic() < deadline, (source.counters, source.trouble)
        station.receiver.pump()
        time.sleep(0.01)


def send_all(station: Station, source: Source, temps: range) -> None:
    for temp in temps:
        source.send({"temp": float(temp)})
        station.receiver.pump()


@pytest.mark.parametrize(("call", "number"), [("unlink", errno.EROFS), ("pread", errno.EIO)])
def test_disk_that_fails_for_a_moment_costs_no_reading_and_no_thread(
    station: Station,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    call: str,
    number: int,
) -> None:
    """One failed deletion or read ended the thread, and `send` went on succeeding for ever."""
    caplog.set_level(logging.ERROR, "edge_opid")
    disk = Failing(monkeypatch, call, number)
    with station.source() as source:
        send_all(station, source, range(60))
        disk.left = 3
        send_all(station, source, range(60, 120))
        until(station, source, lambda: disk.failed == 3)
        until(station, source, source.drained)
        assert station.receiver.temps() == [float(temp) for temp in range(120)]
        assert source.counters.faults >= 3
        assert source.counters.sent == 120
        assert source.counters.refused == source.counters.lost == 0
        until(station, source, lambda: source.trouble == "")
    assert any(each.message == "source in trouble" for each in caplog.records)
    assert source._thread is not None
    assert not source._thread.is_alive()  # it ended with the source, not before


def test_folder_that_nobody_may_change_for_a_while_is_emptied_later(station: Station) -> None:
    """A real EPERM from a real file system: acknowledged segments stay, and go when they can."""
    chattr = shutil.which("chattr")
    station.folder.mkdir()
    if chattr is None or subprocess.run([chattr, "+i", station.folder], check=False).returncode:
        pytest.skip("this file system, or this user, knows no immutable folders")
    subprocess.run([chattr, "-i", station.folder], check=True)
    with station.source() as source:
        for temp in range(120):
            source.send({"temp": float(temp)})
        subprocess.run([chattr, "+i", station.folder], check=True)
        try:
            until(station, source, source.drained)
            assert source.counters.faults > 0
            assert len(list(station.folder.glob("*.spool"))) > 2
        finally:
            subprocess.run([chattr, "-i", station.folder], check=True)
        source.send({"temp": 120.0})
        until(station, source, source.drained)
        assert len(list(station.folder.glob("*.spool"))) == 1
    assert station.receiver.temps() == [float(temp) for temp in range(121)]


@pytest.mark.parametrize("call", ["fdatasync", "pread", "write", "fsync"])
def test_script_that_sends_again_what_was_refused_doubles_nothing(
    station: Station, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """`send` raised for a reading that it had taken: the script's retry made a second one."""
    station.options |= {"background": False, "sync_every": 1}
    disk = Failing(monkeypatch, call, errno.EIO)
    source = station.source()
    for temp in range(60):
        disk.left = int(temp % 3 == 1)
        try:
            source.send({"temp": float(temp)})
        except SpoolError:
            source.send({"temp": float(temp)})
    assert disk.failed > 0
    deadline = time.monotonic() + WAIT_S
    while not source.drained():
        assert time.monotonic() < deadline
        station.receiver.pump()
    assert station.receiver.temps() == [float(temp) for temp in range(60)]
    assert source.counters.sent == 60
    source.close()


class UnreliableDisk:
    """Every call that touches the disk fails one time in so many, while `on`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
        self.on, self.failed, self._dice = False, 0, random.Random(seed)
        for name in ("open", "pread", "write", "fsync", "fdatasync", "ftruncate", "unlink"):
            monkeypatch.setattr(os, name, partial(self._call, getattr(os, name)))

    def _call(self, real: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if self.on and self._dice.random() < 0.05:
            self.failed += 1
            raise OSError(errno.EIO, "Input/output error")
        return real(*args, **options)


@pytest.mark.parametrize("seed", range(10))
def test_disk_that_fails_anywhere_loses_nothing_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Any call may fail, the script sends again what was refused, and is killed now and then."""
    station, dice = Station(tmp_path, loss=0.2, seed=seed), random.Random(seed)
    station.options = {"spool_bytes_max": 32 * 1024, "window": 8, "sync_every": 4}
    disk = UnreliableDisk(monkeypatch, seed)
    sent: list[float] = []
    for _ in range(5):
        source = station.source()
        disk.on = True
        for _ in range(40):
            try:
                source.send({"temp": float(len(sent))})
                sent.append(float(len(sent)))
            except SpoolError:
                continue
            station.clock.now += dice.choice([0.0, 0.5, 5.0])
            station.receiver.pump()
            source.pump()
        disk.on = False
        assert source.counters.lost == 0
        station.kill(source)
    last = station.source()
    station.receiver.loss = 0.0
    station.run(last, seconds=20_000.0)
    assert disk.failed > 20
    assert station.receiver.temps() == sent
    assert last.counters.lost == 0
    last.close()


def test_failed_read_does_not_pass_for_an_empty_spool(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`drained` said yes when nothing could be read: a script would have gone to sleep."""
    station.options |= {"background": False}
    station.broker.crash(forget=False)
    first = station.source()
    first.send({"temp": 0.0})
    first.close()
    second = station.source()
    disk = Failing(monkeypatch, "pread", errno.EIO)
    disk.left = 10**6
    assert not second.drained()
    assert "Input/output error" in second.trouble
    disk.left = 0
    station.broker.restart()
    until(station, second, second.drained)
    assert station.receiver.temps() == [0.0]
    second.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_dead_thread_is_said_by_send(station: Station, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ends the thread, the script must not go on filling a spool that nobody empties."""

    def ends(*_: object) -> None:
        raise SystemExit

    source = station.source()
    source.send({"temp": 0.0})
    until(station, source, source.drained)
    monkeypatch.setattr(source._link, "poll", ends)
    assert source._thread is not None
    source._thread.join(WAIT_S)
    with pytest.raises(SourceError, match="not stored: the thread that sends has ended"):
        source.send({"temp": 1.0})
    assert source.counters.sent == 1
    source.close()
    with pytest.raises(SourceError, match="not stored: this source is closed"):
        source.send({"temp": 1.0})
    station.options |= {"background": False}
    again = station.source()
    assert again.drained()
    again.close()
    assert station.receiver.temps() == [0.0]


def test_bug_in_a_turn_does_not_end_the_thread(
    station: Station, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A MemoryError, or any mistake of ours, is logged with its trace; the next turn goes on."""
    caplog.set_level(logging.ERROR, "edge_opid")
    with station.source() as source:
        real, broken = source._window.take_due, threading.Event()

        def take_due(now: float) -> Any:
            if not broken.is_set():
                broken.set()
                raise MemoryError
            return real(now)

        monkeypatch.setattr(source._window, "take_due", take_due)
        number = source.send({"temp": 0.0})
        until(station, source, source.drained)
        assert broken.is_set()
        assert station.receiver.applied == [(number, {"temp": 0.0})]
    assert "MemoryError" in str(caplog.records[0].exc_info)


def test_nobody_else_may_read_a_spool_or_hold_its_lock(station: Station) -> None:
    """Whoever may read the lock file may lock it, shared, and no script would ever start again."""
    station.options |= {"background": False}
    before = os.umask(0)
    try:
        station.folder.mkdir()
        (station.folder / "lock").touch()  # as older versions made it
        source = station.source()
        source.send({"temp": 0.0})
        source.close()
        nested = station.folder / "a" / "b"
        station.folder = nested
        station.source().close()
    finally:
        os.umask(before)
    files = [path for path in nested.parent.parent.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"lock", "boot", "00000001.spool"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE(nested.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        ("open", errno.EACCES, "cannot be locked: Permission denied; the folder and the files"),
        ("open", errno.EROFS, "cannot be locked: Read-only file system"),
        ("fchmod", errno.EPERM, "must belong to the user who runs the script"),
        ("fsync", errno.EIO, "cannot be locked: Input/output error"),
    ],
)
def test_folder_that_cannot_be_locked_is_not_called_in_use(
    station: Station, monkeypatch: pytest.MonkeyPatch, call: str, error: int, said: str
) -> None:
    """A folder made with sudo: the script was told to look for another script, and there is none.
    What was locked meanwhile is let go, so that the same process may try again.
    """

    def refuse(*_: object, **__: object) -> None:
        raise OSError(error, os.strerror(error))

    station.options |= {"background": False}
    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        with pytest.raises(SpoolError, match=said) as caught:
            station.source()
        assert "in use" not in str(caught.value)
    station.source().close()


def test_folder_within_one_that_nobody_may_list_can_be_used(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A careful administrator lets users enter /srv, and not look around: mode 711."""

    def hidden(folder: Path) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))

    station.options |= {"background": False}
    monkeypatch.setattr(folder_lock, "sync_folder", hidden)
    station.source().close()
