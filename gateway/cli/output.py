"""How the command line answers: tables for people, JSON for machines, one sentence for mistakes.

Results go to stdout and nothing else does; remarks, the progress bar and errors go to stderr. So
`opid-gateway node list … --json | jq` works while a person watches the bar.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

PROGRAM = "opid-gateway"
WIDE = 10_000  # columns of a pipe: whoever reads it wants whole lines
NOTHING = "–"

Advance = Callable[[int, int], None]
"""Called with how many are done, and of how many."""


class Terminal:
    """Two streams. Words of nodes and operators are shown as they are: markup is off."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out, self._err = out, err
        self._console = _console(out)

    def table(self, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Rows under headings; on a narrow terminal cells are folded, never cut."""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for heading in headings:
            table.add_column(heading, overflow="fold")
        for row in rows:
            table.add_row(*row)
        with self._console.capture() as drawn:
            self._console.print(table)
        self.lines(line.rstrip() for line in drawn.get().splitlines())

    def facts(self, pairs: Iterable[tuple[str, str]]) -> None:
        """What one thing is like: a name and a value on each line."""
        pairs = list(pairs)
        width = max(len(name) for name, _ in pairs)
        self.lines(f"{name.ljust(width)}  {value}" for name, value in pairs)

    def json(self, data: Any) -> None:
        """One document."""
        self.lines([json.dumps(data, ensure_ascii=False, indent=2)])

    def lines(self, lines: Iterable[str]) -> None:
        """Lines of the result."""
        self._out.write("".join(f"{line}\n" for line in lines))
        self._out.flush()

    def remark(self, sentence: object) -> None:
        """Something to know that is not the result, or why there is none."""
        self._out.flush()
        self._err.write(f"{PROGRAM}: {sentence}\n")
        self._err.flush()

    @contextmanager
    def bar(self, what: str) -> Iterator[Advance]:
        """A progress bar while the block runs; without a terminal there is none."""
        if not _tty(self._err):
            yield _unseen  # rich before 15 ends even a disabled bar with an empty line
            return
        parts = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
        console = _console(self._err)
        progress = Progress(
            *parts,
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        with progress:
            task = progress.add_task(what, total=None)
            yield lambda done, total: progress.update(task, completed=done, total=total)


def _unseen(_done: int, _total: int) -> None:
    """Nobody watches."""


def _tty(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def _console(stream: TextIO) -> Console:
    width = None if stream.isatty() else WIDE
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


# -- words ---------------------------------------------------------------------------------------


def moment(ms: int | None) -> str:
    """A time as the operator's clock shows it.

    >>> moment(None), moment(2**53 - 1)
    ('–', '9007199254740991 ms')
    """
    if ms is None:
        return NOTHING
    try:
        return datetime.fromtimestamp(ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):  # beyond the year 9999
        return f"{ms} ms"


def number(value: float | None) -> str:
    """A number as short as it can be.

    >>> number(0.25), number(None)
    ('0.25', '–')
    """
    return NOTHING if value is None else f"{value:g}"


def percent(share: float | None) -> str:
    """A share of one.

    >>> percent(0.8333)
    '83.3 %'
    """
    return NOTHING if share is None else f"{100 * share:.1f} %"


def names(many: Iterable[str]) -> str:
    """Several names in one cell."""
    return ", ".join(many) or NOTHING
