"""Worker processes of this machine, for fits and for archives: born clean, and never orphans."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context, parent_process

from threadpoolctl import threadpool_limits


def worker_processes(count: int) -> ProcessPoolExecutor:
    """A pool of fresh interpreters: a fork would inherit locks that our other threads hold."""
    return ProcessPoolExecutor(count, get_context("spawn"), initializer=_begin)


def kill_workers(pool: ProcessPoolExecutor) -> None:
    """End a pool at once, whatever its workers do; whoever waits for them is told."""
    for process in list((pool._processes or {}).values()):
        process.kill()
    pool.shutdown(wait=True, cancel_futures=True)  # which is soon, as they are dead


def _begin() -> None:
    """Ctrl-C is for the parent, which ends us; and without a parent there is nothing to do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: object) -> None:
    parent.join()  # type: ignore[attr-defined]  # its class has no public name
    os._exit(1)


@cache
def use_one_blas_thread() -> None:
    """From here on in this process: how many threads share a product may change its last bits.

    A fit, and the sums of an archive, must be the same wherever they were made. Their matrices are
    too small for threads to pay, and Dask's own workers are started so.
    """
    threadpool_limits(1, "blas")
