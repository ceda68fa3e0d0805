"""One fitter for the sites of a process: however many sites there are, no more fits at once."""

from __future__ import annotations

from threading import Lock

from gateway.fitting.job import FitJob
from gateway.fitting.worker import Fitter, Outcome


class SharedFitter:
    """Hands each outcome to the site that asked for it. A change is of one site, so it tells whose.

    `stop` ends the fits of all sites; a site's own part only stops listening.
    """

    def __init__(self, fitter: Fitter) -> None:
        self._fitter, self._lock = fitter, Lock()  # sites are served by threads
        self._asking: dict[int, SiteFitter] = {}  # by change: the last that asked

    def for_site(self) -> SiteFitter:
        """A fitter for the loop of one site."""
        return SiteFitter(self)

    def submit(self, job: FitJob, now_ms: int, asking: SiteFitter) -> None:
        """Begin this job as soon as those before it are done, of whatever site."""
        with self._lock:
            self._asking[job.change.id] = asking
            self._fitter.submit(job, now_ms)

    def take_finished(self, asking: SiteFitter) -> list[Outcome]:
        """What is finished of those that this site asked for; the rest waits for its own site."""
        with self._lock:
            for outcome in self._fitter.take_finished():
                if outcome.change in self._asking:
                    self._asking[outcome.change].finished.append(outcome)
            found, asking.finished = asking.finished, []
            return found

    def forget(self, asking: SiteFitter) -> None:
        """Keep no outcomes for this site: nobody will ask for them."""
        with self._lock:
            self._asking = {name: site for name, site in self._asking.items() if site is not asking}

    def stop(self) -> None:
        """Begin nothing more."""
        self._fitter.stop()


class SiteFitter:
    """What a site's loop sees of it: a `Fitter`."""

    def __init__(self, shared: SharedFitter) -> None:
        self._shared = shared
        self.finished: list[Outcome] = []

    def submit(self, job: FitJob, now_ms: int) -> None:
        """Queue the job behind those of all sites."""
        self._shared.submit(job, now_ms, self)

    def take_finished(self) -> list[Outcome]:
        """The outcomes of this site's jobs."""
        return self._shared.take_finished(self)

    def stop(self) -> None:
        """The site is served no more; what is being fitted for it is of no use to anybody here."""
        self._shared.forget(self)
