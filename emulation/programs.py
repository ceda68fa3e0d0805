"""One foreign program at a time: Debian's Python of another architecture."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from emulation.architectures import Architecture


def run_python(
    architecture: Architecture,
    root: Path,
    arguments: Sequence[str],
    *,
    path: Sequence[Path] = (),
    libraries: Sequence[Path] = (),
    check: bool = True,
    seconds: float = 3600.0,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Debian's `python3` in `root` with these arguments, and packages found at `path` first.

    `libraries` are folders in which the loader looks before its own.
    """
    # Debian finds BLAS through alternatives, which an extracted root does not have.
    folder = root / "usr/lib" / architecture.triplet
    searched = os.pathsep.join(map(str, (*libraries, folder / "blas", folder / "lapack")))
    command = [architecture.user_emulator, "-E", f"LD_LIBRARY_PATH={searched}", "-L", str(root)]
    home = {"PYTHONHOME": str(root / "usr"), "PYTHONPATH": os.pathsep.join(map(str, path))}
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return subprocess.run(
        [*command, str(root / "usr/bin/python3"), *arguments],
        env={**kept, **home, **architecture.emulating, "OPENBLAS_NUM_THREADS": "1", **environment},
        check=check,
        timeout=seconds,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
