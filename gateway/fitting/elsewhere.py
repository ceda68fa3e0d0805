"""Fits made outside the gateway's process: in workers of this machine, or on a Dask cluster.

A job is a value and a fit a function of it, so nothing is lost with a worker: the job is still
here, and is given to another one. Only a job whose workers die again and again is given up; the
gateway says so, and tries it again when its batch has grown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from typing import Any

from edge_opid import log
from edge_opid.errors import ConfigError, missing_extra
from gateway.fitting.job import FitJob
from gateway.fitting.settings import FitSettings, Where
from gateway.fitting.worker import FitFailed, Fitter, Outcome, Place, ThreadFitter, attempt
from gateway.workers import kill_workers, worker_processes

DEATHS_MAX = 4
"""Workers that a job may outlive; a neighbour's death counts, too, since it takes the pool."""
RETRY_S = 5.0
"""Before a cluster that cannot be reached is asked again."""
CONNECT_S = 10.0
CLOSE_S = 2.0


def fitter_for(settings: FitSettings) -> Fitter:
    """The fitter that a configuration asks for."""
    if settings.where is Where.THREAD:
        return ThreadFitter()
    place: Place
    if settings.where is Where.PROCESSES:
        place = ProcessPlace(settings.workers)
    else:
        place = DaskPlace(settings.address)
    return ThreadFitter(place, settings.workers, place.stop)


class ProcessPlace:
    """Worker processes; when one dies, all of them are made anew."""

    def __init__(self, workers: int, fit: Callable[[FitJob, int], Outcome] = attempt) -> None:
        self._workers, self._fit, self._lock = workers, fit, threading.Lock()
        self._pool: ProcessPoolExecutor | None = None
        self._stopped = False

    def __call__(self, job: FitJob, now_ms: int) -> Outcome:
        """Have the fit made, again if need be."""
        for death in range(1, DEATHS_MAX + 1):
            pool = self._current()
            if pool is None:
                break
            try:
                return pool.submit(self._fit, job, now_ms).result()
            except (BrokenProcessPool, CancelledError, RuntimeError) as error:
                # RuntimeError: a neighbour has just found the pool broken
                self._drop(pool)
                if not self._stopped:
                    _say_again(job, death, error)
        return _given_up(job)

    def _current(self) -> ProcessPoolExecutor | None:
        with self._lock:
            if self._stopped:
                return None
            if self._pool is None:
                self._pool = worker_processes(self._workers)
            return self._pool

    def _drop(self, pool: ProcessPoolExecutor) -> None:
        # Several threads may find the same pool broken, and `stop` breaks it: whoever takes it out
        # ends it, since a pool that is shut down twice at once closes its pipes twice.
        with self._lock:
            if self._pool is not pool:
                return
            self._pool = None
        kill_workers(pool)

    def stop(self) -> None:
        """End the workers, and whoever waits for them."""
        with self._lock:
            self._stopped, pool = True, self._pool
        if pool is not None:
            self._drop(pool)


class DaskPlace:
    """A Dask cluster by its scheduler's address, with edge-opid installed on its workers.

    The scheduler gives the job of a dead worker to another one. While nobody answers at the
    address, the job waits here, and the log says so.
    """

    def __init__(self, address: str) -> None:
        check_dask_extra()
        self._address, self._lock = address, threading.Lock()
        self._client: Any = None
        self._stopping = threading.Event()

    def __call__(self, job: FitJob, now_ms: int) -> Outcome:
        """Have the fit made, again if need be."""
        deaths = 0
        while deaths < DEATHS_MAX and not self._stopping.is_set():
            try:
                client = self._connected()
                outcome: Outcome = client.submit(attempt, job, now_ms, pure=False).result()
                return outcome
            except Exception as error:  # noqa: BLE001 - a thread must end with an outcome
                if not _is_loss(error):
                    return FitFailed(job.change.id, f"{type(error).__name__}: {error}")
                if type(error).__name__ == "KilledWorker":
                    deaths += 1
                if not self._stopping.is_set():
                    _say_again(job, deaths, error)
                    self._stopping.wait(RETRY_S)
        return _given_up(job)

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None or self._client.status != "running":
                self._client = dask_client(self._address)
                if self._stopping.is_set():  # meanwhile, when there was nothing to close yet
                    self._close()
                    raise CancelledError
            return self._client

    def stop(self) -> None:
        """Let go of the cluster; what it still computes nobody waits for."""
        self._stopping.set()
        self._close()

    def _close(self) -> None:
        if self._client is not None:
            with suppress(TimeoutError):  # a scheduler that does not answer is let go of, too
                self._client.close(timeout=CLOSE_S)


def dask_client(address: str) -> Any:
    """A connection to a scheduler, nobody's default."""
    return check_dask_extra().Client(address, timeout=CONNECT_S, set_as_default=False)


def check_dask_extra() -> Any:
    """Dask's module, or a sentence for whoever installed the gateway without it."""
    try:
        import distributed  # noqa: PLC0415 - of the extra `dask`, and half a second to load
    except ModuleNotFoundError as error:
        raise ConfigError(missing_extra(error, "dask"), "fits.where") from error
    return distributed


LOST = ("KilledWorker", "CommClosedError", "FutureCancelledError", "CancelledError")


def _is_loss(error: Exception) -> bool:
    """Whether the worker or the cluster is at fault, and not the job.

    By name: Dask's classes would have to be imported to be named.
    """
    return isinstance(error, OSError | TimeoutError | CancelledError) or (
        type(error).__name__ in LOST
    )


def _say_again(job: FitJob, deaths: int, error: Exception) -> None:
    log.warning(
        "a fit is made again",
        change=job.change.id,
        size=job.size,
        deaths=deaths,
        why=f"{type(error).__name__}: {error}",
    )


def _given_up(job: FitJob) -> FitFailed:
    return FitFailed(job.change.id, f"its worker died {DEATHS_MAX} times, or the gateway stopped")
