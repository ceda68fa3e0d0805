"""Fits in worker processes: the same bits as in the gateway, and nothing is lost with a worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from support.mortal_fits import deadly_if_odd, hangs_twice
from support.mortal_fits import job as mortal_job
from support.node_process import WAIT_S

from edge_opid.wire import SensorDescription
from gateway.fitting import elsewhere
from gateway.fitting.elsewhere import DEATHS_MAX, DaskPlace, ProcessPlace, fitter_for
from gateway.fitting.job import FitJob
from gateway.fitting.settings import FitSettings, Where
from gateway.fitting.shared import SharedFitter
from gateway.fitting.worker import FitFailed, ThreadFitter
from gateway.registry import ChangeRecord, ExampleRecord, FitRecord, LayoutRecord
from gateway.workers import kill_workers

ROLES = ("co", "no", "pm")


def job_of(change: int, size: int = 60, classes: tuple[str, ...] = ("calm", "busy")) -> FitJob:
    """A change with a batch of its own, drawn from its number."""
    rng = np.random.default_rng(change)
    sensors = tuple(
        SensorDescription(id=role, role=role, reference=0.0, scale=1.0) for role in ROLES
    )
    layout = LayoutRecord(
        site="s", node="n", version=1, sensors=sensors, vanishing=(), gate=8.0, change=0, at_ms=0
    )
    truths = rng.integers(2, size=size)
    examples = [
        ExampleRecord(
            change=change,
            site="s",
            node="n",
            source="box",
            boot=1,
            seq=place + 1,
            layout_version=1,
            label=("calm", "busy")[truth],
            values={role: float(truth + rng.normal()) for role in ROLES},
            place=place,
        )
        for place, truth in enumerate(truths)
    ]
    return FitJob(
        change=ChangeRecord(
            id=change,
            group="air",
            retired=(),
            arrived=("pm",),
            columns=("bias", *ROLES),
            opened_ms=0,
        ),
        size=size,
        classes=classes,
        layouts={layout.key: layout},
        summaries=(),
        examples=examples,
        previous=None,
        lam=1.0,
        rho=1.0,
    )


def outcomes_of(fitter, count):
    """So many outcomes, or a failure when they take too long."""
    found, end = [], time.monotonic() + WAIT_S
    while len(found) < count and time.monotonic() < end:
        found += fitter.take_finished()
        time.sleep(0.01)
    assert len(found) == count
    return found


def test_worker_processes_say_what_the_gateway_would_say_in_the_order_of_the_jobs():
    """Four jobs on two workers, one of which cannot be fitted: bits and order are those of one."""
    jobs = [job_of(1), job_of(2), replace(job_of(3), classes=("calm",)), job_of(4)]
    fitters = ThreadFitter(), fitter_for(FitSettings(where=Where.PROCESSES))
    try:
        for fitter in fitters:
            for job in jobs:
                fitter.submit(job, 7)
        here, there = (outcomes_of(fitter, len(jobs)) for fitter in fitters)
    finally:
        for fitter in fitters:
            fitter.stop()
    assert there == here
    assert [each.change for each in here] == [1, 2, 3, 4]
    assert isinstance(here[2], FitFailed)
    assert isinstance(here[3], FitRecord)


def pid_in(mark: Path) -> int:
    """The process that has left this mark, once it is there."""
    end = time.monotonic() + WAIT_S
    while not mark.exists():
        assert time.monotonic() < end, f"no {mark.name}"
        time.sleep(0.005)
    return int(mark.read_text())


def test_a_fit_whose_worker_is_killed_is_made_again(tmp_path):
    """The kernel's memory killer takes the worker twice, in the middle of a fit."""
    place = ProcessPlace(1, hangs_twice)
    fitter = ThreadFitter(place, 1, place.stop)
    try:
        fitter.submit(mortal_job(1, tmp_path), 7)
        for nth in range(2):
            os.kill(pid_in(tmp_path / f"{nth}.pid"), signal.SIGKILL)
        assert outcomes_of(fitter, 1) == [(1, 7)]
    finally:
        fitter.stop()


def test_a_job_that_kills_every_worker_is_given_up_and_the_next_one_is_fitted(tmp_path):
    """It must not keep the gateway's workers busy for ever."""
    place = ProcessPlace(1, deadly_if_odd)
    fitter = ThreadFitter(place, 1, place.stop)
    try:
        fitter.submit(mortal_job(1, tmp_path), 7)
        fitter.submit(mortal_job(2, tmp_path), 8)
        first, second = outcomes_of(fitter, 2)
    finally:
        fitter.stop()
    assert first == FitFailed(1, f"its worker died {DEATHS_MAX} times, or the gateway stopped")
    assert second == (2, 8)


def test_a_fitter_that_is_stopped_while_it_fits_ends_at_once(tmp_path):
    """An orderly stop must not wait for a fit that nobody will take."""
    place = ProcessPlace(1, hangs_twice)
    fitter = ThreadFitter(place, 1, place.stop)
    fitter.submit(mortal_job(1, tmp_path), 7)
    worker = pid_in(tmp_path / "0.pid")
    fitter.stop()
    outcomes_of(fitter, 1)
    assert not lives_on(worker)


def test_a_pool_that_several_threads_find_broken_is_ended_by_one_of_them(tmp_path, monkeypatch):
    """A stop breaks the pool under the thread that waits: its pipes must not be closed twice."""
    ended = []
    monkeypatch.setattr(
        elsewhere, "kill_workers", lambda pool: (ended.append(pool), kill_workers(pool))
    )
    place = ProcessPlace(1, hangs_twice)
    fitter = ThreadFitter(place, 1, place.stop)
    fitter.submit(mortal_job(1, tmp_path), 7)
    pid_in(tmp_path / "0.pid")
    fitter.stop()
    outcomes_of(fitter, 1)
    assert len(ended) == 1


def test_workers_do_not_outlive_a_gateway_that_was_killed():
    """A gateway after kill -9 none of its code, and must leave no process behind."""
    code = (
        "import os, sys, time\n"
        "from gateway.workers import worker_processes\n"
        "if __name__ == '__main__':\n"
        "    pool = worker_processes(1)\n"
        "    print(pool.submit(os.getpid).result(), flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as one:
        assert one.stdout is not None
        worker = int(one.stdout.readline())
        one.kill()
    assert not lives_on(worker)


def lives_on(process: int) -> bool:
    """Whether this process is still there when it has had the time to end."""
    status = Path(f"/proc/{process}/stat")
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        try:
            if status.read_text().rpartition(")")[2].split()[0] == "Z":
                return False
        except (FileNotFoundError, ProcessLookupError):
            return False
        time.sleep(0.02)
    return True


def test_a_place_that_cannot_even_begin_is_a_failed_fit_and_not_the_end_of_the_gateway():
    """No memory for another process: `OSError` came out of the loop that asked what is finished."""

    def no_memory(*_):
        raise OSError(12, "Cannot allocate memory")

    fitter = ThreadFitter(no_memory)
    fitter.submit(job_of(7), 0)
    fitter._pool.shutdown(wait=True)
    [outcome] = fitter.take_finished()
    assert outcome == FitFailed(7, "OSError: [Errno 12] Cannot allocate memory")


def test_told_to_stop_while_it_connects_it_submits_nothing_to_the_cluster(monkeypatch):
    """`stop` saw no connection to close; the job then went out, and its thread waited for ever."""
    opened = []

    class Client:
        status = "running"

        def __init__(self, *_, **__):
            opened.append(self)
            place.stop()  # meanwhile, by another thread

        def submit(self, *_, **__):
            raise AssertionError("submitted")

        def close(self, **_):
            self.status = "closed"

    monkeypatch.setattr(elsewhere, "check_dask_extra", lambda: SimpleNamespace(Client=Client))
    place = DaskPlace("tcp://nowhere:8786")
    assert "stopped" in place(job_of(7), 0).why
    assert [each.status for each in opened] == ["closed"]


def test_a_site_that_is_given_away_leaves_nothing_behind():
    """A process that serves sites for years kept the outcomes of those it had given away."""
    shared = SharedFitter(ThreadFitter(lambda job, _: FitFailed(job.change.id, "x")))
    gone, here = shared.for_site(), shared.for_site()
    for number in range(3):
        gone.submit(job_of(number), 0)
    here.submit(job_of(9), 0)
    gone.stop()
    shared._fitter._pool.shutdown(wait=True)
    assert [each.change for each in here.take_finished()] == [9]
    assert (gone.finished, list(shared._asking)) == ([], [9])
