"""What a process takes of the machine, as Linux counts it."""

from __future__ import annotations

import time
from pathlib import Path


def memory_mb(pid: int) -> tuple[float, float]:
    """Resident megabytes now, and at the most so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = dict(line.split(":", 1) for line in status.splitlines())
    now, most = (float(found[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))
    return now, most


def cpu_s(pid: int) -> float:
    """Processor seconds, user and system, that all threads of a process have used so far.

    By the kernel's own clock of the process, to the nanosecond: /proc counts in hundredths.
    """
    return time.clock_gettime((~pid << 3) | 2)


def written_bytes(pid: int) -> int:
    """Bytes that a process has had written to disks so far, as pages of files."""
    found = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(found["write_bytes"])
