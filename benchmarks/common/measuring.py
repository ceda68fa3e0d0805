"""What a process takes of the machine, as Linux counts it."""

from __future__ import annotations

import os
from pathlib import Path


def memory_mb(pid: int) -> tuple[float, float]:
    """Resident megabytes now, and at the most so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = dict(line.split(":", 1) for line in status.splitlines())
    now, most = (float(found[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))
    return now, most


def cpu_s(pid: int) -> float:
    """Processor seconds a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
