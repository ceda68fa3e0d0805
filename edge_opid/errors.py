"""What can go wrong, and who is at fault.

Every error of this package is an `OpidError`, and also what a Python user would catch anyway
(`ValueError` for bad input). A message names the culprit, both values, and what to do.
"""

from __future__ import annotations

from dataclasses import dataclass


class OpidError(Exception):
    """The root of every error this package raises on purpose."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one reading was not taken: a short reason to count by, and a sentence to show.

    >>> print(Refusal("width", "expected 75 values, got 74"))
    expected 75 values, got 74
    """

    reason: str
    sentence: str

    def __str__(self) -> str:
        return self.sentence


class ReadingError(OpidError, ValueError):
    """The reading is at fault. Nothing was learned and no byte of state has changed."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.sentence)
        self.refusal = refusal


class LayoutError(OpidError, ValueError):
    """The description of the sensors is at fault: a name, a scale, a set of knots."""


class MismatchError(OpidError, ValueError):
    """Two things that should belong together do not: other widths, classes, λ or ρ."""
