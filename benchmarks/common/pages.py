"""Markdown pages that are written from figures: tables, and numbers as the paper prints them."""

from __future__ import annotations

from collections.abc import Sequence

Lines = list[str]


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Lines:
    """A Markdown table."""
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows), ""]


def short(value: float) -> str:
    """Four digits without the zero, as the paper prints them.

    >>> short(0.92534), short(1.0)
    ('.9253', '1.0000')
    """
    return f"{value:.4f}".removeprefix("0") if value >= 0 else f"−{short(-value)}"
