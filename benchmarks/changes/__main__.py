"""Many changes, one after another: the node beside its peers on streams whose sensors slide.

    python -m benchmarks.changes --quick          # a look, under two minutes, into out/changes
    python -m benchmarks.changes                  # ten seeds of everything, into benchmarks/results
    python -m benchmarks.changes --group peers    # only the peers, which take most of the time
    python -m benchmarks.changes --report         # only the page and the plot, from what is there
    python -m benchmarks.changes --labels         # the same with few labels and late ones

Interrupted runs go on where they stopped: each stream has a file, and what it holds is not measured
again, unless `--redo METHOD`. Data comes from `--data FOLDER` (by default the shared one) and from
scikit-learn. Peers that are not installed are named and left out.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy

import argparse
import time
from collections.abc import Iterator

from benchmarks.changes import few_labels_page
from benchmarks.changes.cells import StreamResults, place, read, run, write
from benchmarks.changes.peers import METHODS, OURS, PEERS, applies, installed
from benchmarks.changes.report import report
from benchmarks.changes.streams import STREAMS, arranged, streams_data
from benchmarks.common.cells import SEED
from benchmarks.common.data import Floats, Ints
from benchmarks.common.few_labels import RATES
from benchmarks.common.long_runs import (
    QUICK_SECONDS,
    page_command_line,
    parse_page_options,
    progress_bar,
)

SEEDS, QUICK_SEEDS = 10, 2
GROUPS = {"all": METHODS, "ours": OURS, "peers": PEERS}

Data = dict[str, tuple[Floats, Ints]]
Task = tuple[int, str, str]
"""Seed, method, stream."""


def tasks(data: Data, options: argparse.Namespace) -> Iterator[Task]:
    """Seed by seed, so that an interrupted run has as many seeds of everything."""
    methods = installed(list(options.methods or GROUPS[options.group]))
    for seed in range(SEED, SEED + options.seeds):
        for method in methods:
            for name, (_, y) in data.items():
                if applies(method, name, int(y.max()) + 1):
                    yield seed, method, name


def measure(data: Data, options: argparse.Namespace) -> None:
    """Do what the files lack, saving after every run; a quick one ends when its time is up."""
    end = time.monotonic() + (QUICK_SECONDS if options.quick else float("inf"))
    files = {name: opened(name, options) for name in data}
    todo = [task for task in tasks(data, options) if not files[task[2]].has(task[1], task[0])]
    with progress_bar() as progress:
        bar = progress.add_task("runs", total=len(todo))
        for seed, method, name in todo:
            if time.monotonic() > end:
                progress.console.print(f"time is up before {method} on {name}")
                break
            progress.update(bar, description=f"{seed} {method}, {name}")
            one(files[name], data[name], method, seed, options)
            progress.advance(bar)


def opened(name: str, options: argparse.Namespace) -> StreamResults:
    """A stream's file, without what is to be measured again."""
    results = read(name, options.folder)
    for method in options.redo:
        results.runs.pop(method, None)
    return results


def one(
    results: StreamResults,
    data: tuple[Floats, Ints],
    method: str,
    seed: int,
    options: argparse.Namespace,
) -> None:
    """One method through one stream, and its file."""
    stream = arranged(results.stream, data, seed, short=options.quick)
    results.add(method, seed, run(METHODS[method](stream, seed), stream))
    results.length, results.where = stream.setting.length, place()
    write(results, options.folder)


def parsed() -> argparse.Namespace:
    """The command line, with what follows from it."""
    parser = page_command_line(__doc__, "three short stages, two seeds", list(METHODS))
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--streams", nargs="+", default=list(STREAMS), choices=list(STREAMS))
    parser.add_argument("--group", default="all", choices=list(GROUPS))
    parser.add_argument("--labels", action="store_true", help="few labels, and late ones")
    parser.add_argument("--rates", nargs="+", type=float, default=list(RATES))
    options = parse_page_options(parser, "changes")
    options.seeds = options.seeds or (QUICK_SEEDS if options.quick else SEEDS)
    return options


def main_labels(options: argparse.Namespace) -> None:
    """The tables of few and late labels."""
    if not options.report:
        names = [name for name in options.streams if name in ("room", "splice")]
        data = streams_data(names if options.quick else options.streams, options.data)
        seeds = 1 if options.quick else options.seeds
        folder, rates = options.out / "few_labels", [0.1] if options.quick else options.rates
        few_labels_page.measure(data, folder, seeds=seeds, quick=options.quick, rates=rates)
    print(few_labels_page.report(options.out))


def main() -> None:
    """Measure, then write the page."""
    options = parsed()
    if options.labels:
        main_labels(options)
        return
    if not options.report:
        measure(streams_data(options.streams, options.data), options)
    print(report(options.out))


if __name__ == "__main__":
    main()
