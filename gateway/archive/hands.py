"""Who gathers parts: this process, others of this machine, or a Dask cluster.

Parts are handed out some ahead and taken back in order. A worker that dies takes nothing with it:
its part is gathered again. A part that kills worker after worker is given up with a sentence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol

from edge_opid.errors import RefusedError
from gateway.archive.task import Epoch, Part, Task, gather_part
from gateway.workers import kill_workers, worker_processes

DEATHS_MAX = 3
AHEAD = 2
"""Parts handed out for each worker: one in its hands, one waiting."""


class WorkerError(RefusedError, RuntimeError):
    """Workers died over a part again and again."""

    def __init__(self, part: Part, error: Exception) -> None:
        sentence = f"{part!r} ended {DEATHS_MAX} workers: {error}; is there enough memory?"
        super().__init__("worker", sentence)


class Hands(Protocol):
    """Gathers parts, and gives their sums in the order of the parts."""

    def gather(self, parts: Iterable[Part], task: Task) -> Iterator[list[Epoch]]:
        """The sums of each part."""

    def close(self) -> None:
        """Nothing more is wanted."""


class OwnHands:
    """One part after the other, in this process."""

    def gather(self, parts: Iterable[Part], task: Task) -> Iterator[list[Epoch]]:
        """The sums of each part."""
        return (gather_part(part, task) for part in parts)

    def close(self) -> None:
        """Nothing is open."""


class ProcessHands:
    """So many worker processes of this machine."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool: ProcessPoolExecutor | None = None

    def gather(self, parts: Iterable[Part], task: Task) -> Iterator[list[Epoch]]:
        """The sums of each part."""
        waiting: deque[tuple[Part, Any]] = deque()
        coming = iter(parts)
        deaths = 0
        while True:
            while len(waiting) < AHEAD * self._workers and (part := next(coming, None)) is not None:
                waiting.append((part, None))
            if not waiting:
                return
            try:
                waiting = deque(
                    (part, ticket or self._submit(part, task)) for part, ticket in waiting
                )
                found = waiting[0][1].result()
            except BrokenProcessPool as error:
                deaths += 1
                if deaths == DEATHS_MAX:
                    raise WorkerError(waiting[0][0], error) from error
                self.close()
                waiting = deque((part, None) for part, _ in waiting)
                continue
            deaths = 0
            waiting.popleft()
            yield found

    def _submit(self, part: Part, task: Task) -> Any:
        if self._pool is None:
            self._pool = worker_processes(self._workers)
        return self._pool.submit(gather_part, part, task)

    def close(self) -> None:
        """End the workers."""
        if self._pool is not None:
            kill_workers(self._pool)
            self._pool = None


class DaskHands:
    """A Dask cluster; its workers must reach the archive under the same address.

    The scheduler gives the part of a dead worker to another one, up to its own limit.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def gather(self, parts: Iterable[Part], task: Task) -> Iterator[list[Epoch]]:
        """The sums of each part."""
        ahead = AHEAD * max(1, len(self._client.nthreads()))
        waiting: deque[tuple[Part, Any]] = deque()
        coming = iter(parts)
        while True:
            while len(waiting) < ahead and (part := next(coming, None)) is not None:
                ticket = self._client.submit(
                    gather_part, part, task, pure=False, retries=DEATHS_MAX
                )
                waiting.append((part, ticket))
            if not waiting:
                return
            part, ticket = waiting.popleft()
            try:
                found: list[Epoch] = ticket.result()
            except Exception as error:
                if type(error).__name__ == "KilledWorker":
                    raise WorkerError(part, error) from error
                raise
            yield found

    def close(self) -> None:
        """Let go of the cluster."""
        self._client.close()
