"""Runs in an environment with a TFLite runtime: scores rows with models, and says what it cost.

    python -m benchmarks.tflite.scores CASES.npz SCORES.npz

For each case of the first file, `NAME|file` (the bytes of a `.tflite`), `NAME|x` (rows),
`NAME|columns` and `NAME|classes` (the order in which rows and scores have them); the second file
holds `NAME|scores`, `NAME|seconds` (one score each, best of twenty rounds), and once `runtime`,
`bytes` (resident, added by the runtime and the first model) and `numpy`.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from edge_opid.models.matrix import Predictor
from edge_opid.models.tflite import load_tflite

ROUNDS, TIMED = 20, 500


def resident() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def seconds(model: Predictor, rows: Any) -> float:
    """How long one score takes: the quickest of a few rounds."""
    best = np.inf
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for x in rows:
            model.scores(x)
        best = min(best, (time.perf_counter() - start) / len(rows))
    return float(best)


def main(cases: str, out: str) -> None:
    """Score everything."""
    found: dict[str, Any] = {"numpy": np.__version__}
    with np.load(cases, allow_pickle=False) as saved:
        names = [key.removesuffix("|file") for key in saved.files if key.endswith("|file")]
        for name in names:
            rows, before = saved[f"{name}|x"], resident()
            model = load_tflite(saved[f"{name}|file"].tobytes())
            columns, classes = (saved[f"{name}|{what}"].tolist() for what in ("columns", "classes"))
            model = model.arranged(columns, classes)
            found[f"{name}|scores"] = np.array([model.scores(x) for x in rows])
            found[f"{name}|seconds"] = seconds(model, rows[:TIMED])
            found.setdefault("bytes", resident() - before)
            found["runtime"] = model.runtime
    np.savez(out, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
