"""Fits that die or hang, for worker processes: cheap to import there."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace

HANG_S = 300.0


def job(change: int, marks: Path) -> SimpleNamespace:
    """As much of a job as these fits look at; they leave marks in a folder."""
    return SimpleNamespace(change=SimpleNamespace(id=change), size=0, marks=marks)


def deadly_if_odd(job: SimpleNamespace, now_ms: int) -> tuple[int, int]:
    """A fit that ends its process, for every change with an odd number."""
    if job.change.id % 2:
        os._exit(9)
    return job.change.id, now_ms


def hangs_twice(job: SimpleNamespace, now_ms: int) -> tuple[int, int]:
    """A fit that is in the middle of its work for ever, the first two times."""
    for nth in range(2):
        mark = job.marks / f"{nth}.pid"
        if not mark.exists():
            mark.with_suffix(".new").write_text(str(os.getpid()))
            mark.with_suffix(".new").rename(mark)
            time.sleep(HANG_S)
    return job.change.id, now_ms
