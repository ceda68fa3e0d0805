"""How a benchmark says whether an aim was reached: the figure, the aim, the verdict."""

from __future__ import annotations


def verdict(what: str, value: float, aim: float, *, at_least: bool) -> str:
    """One line: reached or missed, and by how much."""
    reached = value >= aim if at_least else value <= aim
    sign = "≥" if at_least else "≤"
    return f"{'reached' if reached else 'MISSED '}  {what}: {value:.4g} (aim {sign} {aim:g})"
