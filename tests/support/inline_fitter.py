"""A fitter without a thread, for simulated time."""

from __future__ import annotations

from gateway.fitting.job import FitJob
from gateway.fitting.worker import Outcome, attempt


class InlineFitter:
    """Fits at once, in the caller's thread: for simulated time."""

    def __init__(self) -> None:
        self._outcomes: list[Outcome] = []

    def submit(self, job: FitJob, now_ms: int) -> None:
        """Fit now."""
        self._outcomes.append(attempt(job, now_ms))

    def take_finished(self) -> list[Outcome]:
        """The outcomes since the last time."""
        found, self._outcomes = self._outcomes, []
        return found

    def stop(self) -> None:
        """Nothing is under way."""
