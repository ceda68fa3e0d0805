"""Files of figures: what was measured, with which seed, where, and never half written."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

SEED = 1000
"""Repeat r draws, arranges and fits with SEED + r."""


def replace_file(path: Path, text: str) -> None:
    """Write the file in one step, so that an interruption leaves the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(f"{path.suffix}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


def where() -> dict[str, str]:
    """The versions and the machine that the figures come from."""
    found = {name: version(name) for name in ("numpy", "scikit-learn", "scipy")}
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text(encoding="utf-8").splitlines() if cpu.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "python": platform.python_version(),
        **found,
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": models[0] if models else platform.processor(),
        "cores": str(os.cpu_count()),
        "blas threads": os.environ.get("OPENBLAS_NUM_THREADS", "all"),
    }
