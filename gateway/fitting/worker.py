"""Where fits happen: in threads beside the loop, so that messages are answered meanwhile.

A thread makes a fit itself, or has it made elsewhere and waits (`gateway.fitting.elsewhere`).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol

from edge_opid.native.rescue import watch
from gateway.fitting.fit import fit_change
from gateway.fitting.job import FitJob
from gateway.registry import FitRecord
from gateway.workers import use_one_blas_thread


@dataclass(frozen=True, slots=True)
class FitFailed:
    """A fit that raised: which change, and what it said."""

    change: int
    why: str


Outcome = FitRecord | FitFailed


class Fitter(Protocol):
    """Takes jobs, and has their outcomes later."""

    def submit(self, job: FitJob, now_ms: int) -> None:
        """Begin this job as soon as those before it are done."""

    def take_finished(self) -> list[Outcome]:
        """The outcomes since the last time, in order. Never waits."""

    def stop(self) -> None:
        """Begin nothing more; what is not finished is asked for again after the next start."""


def attempt(job: FitJob, now_ms: int) -> Outcome:
    """Fit; whatever the batch does to the solvers, the gateway lives on and says it."""
    use_one_blas_thread()
    try:
        with watch() as rescued:
            fit = fit_change(job, now_ms)
        return replace(fit, why=" ".join([fit.why, *rescued]))
    except Exception as error:  # noqa: BLE001 - counted and logged; another batch may succeed
        return FitFailed(job.change.id, f"{type(error).__name__}: {error}")


class Place(Protocol):
    """Somewhere a fit is made, while the thread that asks for it waits."""

    def __call__(self, job: FitJob, now_ms: int) -> Outcome:
        """The outcome; whatever happens there, one comes."""

    def stop(self) -> None:
        """Whoever waits need not wait any more."""


class ThreadFitter:
    """So many fits at a time, each in a thread, and outcomes in the order of the jobs."""

    def __init__(
        self,
        fit: Callable[[FitJob, int], Outcome] = attempt,
        at_once: int = 1,
        stop: Callable[[], None] | None = None,
    ) -> None:
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix="fit")
        self._fit, self._stop = fit, stop
        self._pending: list[Future[Outcome]] = []

    def submit(self, job: FitJob, now_ms: int) -> None:
        """Queue the job."""
        self._pending.append(self._pool.submit(self._outcome, job, now_ms))

    def _outcome(self, job: FitJob, now_ms: int) -> Outcome:
        """The fit; a place that cannot even begin (no memory for a process) has failed, too."""
        try:
            return self._fit(job, now_ms)
        except Exception as error:  # noqa: BLE001 - it would come out of the loop that asks
            return FitFailed(job.change.id, f"{type(error).__name__}: {error}")

    def take_finished(self) -> list[Outcome]:
        """The outcomes that are ready, in the order of submission."""
        found = []
        while self._pending and self._pending[0].done():
            found.append(self._pending.pop(0).result())
        return found

    def stop(self) -> None:
        """Begin nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._stop is not None:
            self._stop()
