"""Pages whose measurements take hours: their options, and how far they are.

Each run is kept in a file as soon as it is made, so an interrupted measurement goes on where it
stopped, and `--report` writes the page from what is there.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks.common.command import command_line
from benchmarks.common.data import DATA

ROOT = Path(__file__).resolve().parents[2]
QUICK_SECONDS = 80.0


def page_command_line(
    about: str | None, quick: str, methods: Sequence[str]
) -> argparse.ArgumentParser:
    """The parser of a page whose runs are kept in files; `quick` says what a quick look is."""
    parser = command_line(about)
    parser.add_argument("--quick", action="store_true", help=f"{quick}, under two minutes")
    parser.add_argument("--report", action="store_true", help="measure nothing, write the page")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--methods", nargs="+", choices=methods)
    parser.add_argument("--redo", nargs="+", default=[], choices=methods)
    return parser


def parse_page_options(parser: argparse.ArgumentParser, name: str) -> argparse.Namespace:
    """The options, with where the page called `name` goes and the folder of its runs."""
    options = parser.parse_args()
    options.out = options.out or ROOT / (f"out/{name}" if options.quick else "benchmarks/results")
    options.folder = options.out / name
    return options


def progress_bar() -> Progress:
    """How far a long run is, and how long it will still take."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    return Progress(*columns, TimeRemainingColumn())
