"""The paper's experiments: its Table 2 (and Fig. 2), and its Fig. 4.

    python -m benchmarks.paper --quick          # a look, under two minutes, into out/paper
    python -m benchmarks.paper                  # 50 repeats of everything, into benchmarks/results
    python -m benchmarks.paper --report         # only the page and the plots, from what is there

Interrupted runs go on where they stopped: each cell has a file of its own, and what it holds is not
measured again, unless `--redo METHOD`. Data comes from `--data FOLDER` (by default the shared one),
the digits from scikit-learn, and with `--network` what is missing from OpenML.

The C-stage learns the first instances of each class and keeps their sums only; ρ by generalised
cross-validation on these sums, λ = 1. The E-stage's 2n instances are those that follow, split at
random into n to fit and n to test on; `--anew` draws them from all that follow instead.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy

import argparse
import time
from collections.abc import Iterator, Sequence

from rich.progress import Progress

from benchmarks.common.cells import SEED, where
from benchmarks.common.data import Floats, Ints
from benchmarks.common.long_runs import (
    QUICK_SECONDS,
    page_command_line,
    parse_page_options,
    progress_bar,
)
from benchmarks.paper.cells import Cell, CellResults, read, write
from benchmarks.paper.data import available, compress, resplit
from benchmarks.paper.methods import METHODS, PRECISION, SHARE_METHODS, Draw, mixed_of
from benchmarks.paper.report import report
from benchmarks.paper.tables import SETTINGS

SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
REPEATS, QUICK_REPEATS, PRECISION_REPEATS = 50, 2, 10
EVERY = {**METHODS, **PRECISION}
GROUPS = ("table", "shares")
SIZES, QUICK_SIZES = 4, 2
"""How many n of each set."""
SAVE_EVERY_S = 10.0

Data = dict[str, tuple[Floats, Ints]]


def table_cells(names: Sequence[str], anew: bool, sizes: int) -> list[Cell]:
    """The first group: every set and the first so many n of Table 1, small n first."""
    return [
        Cell(name, SETTINGS[name].sizes[place], anew=anew)
        for place in range(sizes)
        for name in names
        if place < len(SETTINGS[name].sizes)
    ]


def share_cells(names: Sequence[str]) -> list[Cell]:
    """The second group: one n a set, every share of survivors."""
    return [Cell(name, SETTINGS[name].sizes[1], share) for share in SHARES for name in names]


def cells_wanted(names: Sequence[str], options: argparse.Namespace) -> list[Cell]:
    """The cells of the groups that were asked for; the second is not for a quick look."""
    cells: list[Cell] = []
    if "table" in options.groups:
        cells += table_cells(names, options.anew, QUICK_SIZES if options.quick else SIZES)
    if "shares" in options.groups and not (options.anew or options.quick):
        cells += share_cells(names)
    return cells


def measure(
    results: CellResults, data: tuple[Floats, Ints], repeats: int, methods: tuple[str, ...]
) -> Iterator[None]:
    """Fill in what is missing, one repeat after the other."""
    cell, setting = results.cell, SETTINGS[results.cell.name]
    if cell.share is not None:
        setting = resplit(setting, cell.share)
    world = compress(setting, *data)
    results.rho, results.where = world.rho, where()
    for repeat in range(repeats):
        seed = SEED + repeat
        draw = Draw(world, *world.draw(cell.n, seed, cell.anew), seed)
        wanted = methods if repeat < PRECISION_REPEATS else [m for m in methods if m in METHODS]
        for method in results.missing(wanted, repeat):
            results.add(method, EVERY[method](draw))
            if method == "fit_best":
                results.chosen.append(mixed_of(draw.best))
        yield


def run(cells: Sequence[Cell], data: Data, options: argparse.Namespace) -> None:
    """Measure every cell, saving as it goes; a quick run ends when its time is up."""
    end = time.monotonic() + (QUICK_SECONDS if options.quick else float("inf"))
    with progress_bar() as progress:
        whole = progress.add_task("cells", total=len(cells))
        for cell in cells:
            if time.monotonic() > end:
                progress.console.print(f"time is up before {cell.key}")
                break
            fill(cell, data[cell.name], options, progress)
            progress.advance(whole)


def fill(
    cell: Cell, data: tuple[Floats, Ints], options: argparse.Namespace, progress: Progress
) -> None:
    """One cell: what its file lacks, up to the wanted number of repeats."""
    repeats, methods = options.repeats, tuple(options.methods or EVERY)
    if cell.share is not None:
        methods = (*SHARE_METHODS, *PRECISION)
    results, saved = read(cell, options.folder), time.monotonic()
    for method in options.redo:
        results.forget(method)
    task = progress.add_task(cell.key, total=repeats)
    for _ in measure(results, data, repeats, methods):
        progress.advance(task)
        if time.monotonic() > saved + SAVE_EVERY_S:
            write(results, options.folder)
            saved = time.monotonic()
    write(results, options.folder)
    progress.remove_task(task)


def parsed() -> argparse.Namespace:
    """The command line, with what follows from it."""
    parser = page_command_line(__doc__, "two n a set, two repeats", list(EVERY))
    parser.add_argument("--network", action="store_true", help="ask OpenML for missing sets")
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--sets", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--anew", action="store_true", help="draw the E-stage's instances anew")
    parser.add_argument("--groups", nargs="+", default=list(GROUPS), choices=GROUPS)
    options = parse_page_options(parser, "paper")
    options.repeats = options.repeats or (QUICK_REPEATS if options.quick else REPEATS)
    return options


def main() -> None:
    """Measure, then write the page."""
    options = parsed()
    if not options.report:
        data = available(options.sets, options.data, options.network)
        run(cells_wanted(list(data), options), data, options)
    print(report(options.out))


if __name__ == "__main__":
    main()
