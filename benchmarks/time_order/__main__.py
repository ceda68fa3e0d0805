"""Few labels, late labels, and the order of time: the node with its time layer, and without.

    python -m benchmarks.time_order                     # the reported streams, three seeds
    python -m benchmarks.time_order --quick             # one small cell, into out/time
    python -m benchmarks.time_order --streams room dna  # some of them; development ones, too
    python -m benchmarks.time_order --report            # only the page, from what is there
    python -m benchmarks.time_order --development       # what choices are made on, into out/time

Every stream is predicted, reading by reading, at four label rates and three delays; the seed draws
which readings are labelled, and in the simulator's worlds all that happens. Interrupted runs go on
where they stopped.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy

import argparse
import json
import logging
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.cells import SEED, replace_file, where
from benchmarks.common.command import command_line
from benchmarks.common.data import DATA
from benchmarks.common.few_labels import (
    AFTER,
    DELAYS,
    KNOWN,
    RATES,
    Schedule,
    calibration_error,
    coverage,
    last_labels,
)
from benchmarks.time_order.node import Death, predictions
from benchmarks.time_order.peer import peer_run
from benchmarks.time_order.report import report
from benchmarks.time_order.streams import DEVELOPMENT, REPORTED, STREAMS, TimedStream

ROOT = Path(__file__).resolve().parents[2]


def measured(stream: TimedStream, rate: float, delay: int, seed: int) -> dict[str, Any]:
    """One run of the node."""
    schedule = Schedule.drawn(len(stream.y), rate, delay, seed)
    start = time.process_time()
    made = predictions(stream, schedule)
    micros = 1e6 * (time.process_time() - start) / len(made)
    last, most, known = last_labels(stream.y, schedule)
    told = np.array([each.probabilities for each in made])
    served = np.array([each.winner for each in made])
    right, sure = served == stream.y, told.max(1)
    model = np.array([int(each.scores.argmax()) for each in made]) == stream.y
    late = known >= KNOWN
    return {
        "served": float(right.mean()),
        "model": float(model.mean()),
        "last": float((last == stream.y).mean()),
        "majority": float((most == stream.y).mean()),
        "calibration": calibration_error(sure[late], right[late]) if late.sum() > KNOWN else None,
        "coverage": coverage(sure, right),
        "micros": micros,
    }


def changed(stream: TimedStream, rate: float, seed: int) -> dict[str, Any]:
    """A third of the sensors is silent in the third quarter of the stream, and then returns."""
    quarter = len(stream.y) // 4
    gone = stream.sensors[: max(1, len(stream.sensors) // 3)]
    deaths = [Death(gone, range(2 * quarter, 3 * quarter))]
    schedule = Schedule.drawn(len(stream.y), rate, 0, seed)
    made = predictions(stream, schedule, deaths)
    sure = np.array([max(each.probabilities or [0.0]) for each in made])
    right = np.array([each.winner for each in made]) == stream.y
    found = {}
    for name, start in (("death", 2 * quarter), ("return", 3 * quarter)):
        rows = slice(start, start + AFTER)
        gap = abs(float(sure[rows].mean() - right[rows].mean()))
        error = calibration_error(sure[rows], right[rows], bins=5)
        found[name] = {"calibration": error, "gap": gap, "served": float(right[rows].mean())}
    return found


def tasks(options: argparse.Namespace) -> list[tuple[str, str]]:
    """File and key of every run: seed by seed, and what matters most first."""
    found = []
    few_first = sorted(options.rates, key=lambda rate: rate not in (0.1, 0.02))
    for seed in range(SEED, SEED + options.seeds):
        keys = [f"node {rate:g} {delay} {seed}" for rate in few_first for delay in options.delays]
        keys += [f"change {rate:g} 0 {seed}" for rate in (1.0, 0.1)]
        keys += [f"peer 0.1 0 {seed}"] if seed == SEED else []
        found += [(name, key) for key in keys for name in options.streams]
    return found


def one(stream: TimedStream, key: str) -> dict[str, Any] | None:
    """The run with this key."""
    kind, rate, delay, seed = key.split()
    if kind == "node":
        return measured(stream, float(rate), int(delay), int(seed))
    if kind == "change":
        return changed(stream, float(rate), int(seed))
    return peer_run(stream, Schedule.drawn(len(stream.y), float(rate), int(delay), int(seed)))


def measure(options: argparse.Namespace) -> None:
    """Do what the files lack, saving after every run."""
    for name, key in tasks(options):
        path = options.folder / f"{name}.json"
        stored: dict[str, Any] = {"where": where(), "runs": {}}
        if path.exists():
            stored = json.loads(path.read_text())
        if key in stored["runs"]:
            continue
        number = int(key.split()[3]) - SEED
        stored["runs"][key] = one(STREAMS[name](options.data, number), key)
        replace_file(path, json.dumps(stored, indent=1) + "\n")
        print(name, key, flush=True)


def main() -> None:
    """Measure, then write the page."""
    parser = command_line(__doc__)
    parser.add_argument("--quick", action="store_true", help="one small stream, one seed")
    parser.add_argument("--development", action="store_true", help="the development streams")
    parser.add_argument("--report", action="store_true", help="measure nothing, write the page")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--streams", nargs="+", default=list(REPORTED), choices=list(STREAMS))
    parser.add_argument("--rates", nargs="+", type=float, default=list(RATES))
    parser.add_argument("--delays", nargs="+", type=int, default=list(DELAYS))
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    aside = options.quick or options.development
    options.out = options.out or ROOT / ("out/time" if aside else "benchmarks/results")
    options.folder = options.out / "time_order"
    if options.development:
        options.streams = list(DEVELOPMENT)
    if options.quick:
        options.streams, options.seeds = ["office-test"], 1
        options.rates, options.delays = [0.1], [0, 10]
    if not options.report:
        measure(options)
    print(report(options.out))


if __name__ == "__main__":
    main()
