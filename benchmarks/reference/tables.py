"""Markdown tables, and where a page says that nobody should edit it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def head(title: str, about: str) -> str:
    """The beginning of a generated page."""
    return f"# {title}\n\n{about}\n\nThis page is written by `make reference` from the code.\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""A table; a cell that holds the sign between cells gets it escaped.

    >>> print(table(("a", "b"), [("1|2", "3")]), end="")
    | a | b |
    |---|---|
    | 1\|2 | 3 |
    """
    lines = [_row(columns), "|" + "---|" * len(columns), *map(_row, rows)]
    return "".join(f"{line}\n" for line in lines)


def code(text: object) -> str:
    """A cell in the letters of code; nothing where there is nothing to say."""
    return f"`{text}`" if str(text) else ""


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(each.split()).replace("|", "\\|") for each in cells) + " |"
