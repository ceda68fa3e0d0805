"""One cell of the comparison: which it is, what has been measured, and the file that keeps it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common.cells import SEED, replace_file


@dataclass(frozen=True)
class Cell:
    """One set, one n, one way of drawing, and for the second group one share of survivors."""

    name: str
    n: int
    share: float | None = None
    anew: bool = False

    @property
    def key(self) -> str:
        """The file's name.

        >>> Cell("dna", 60, share=0.2).key
        'dna-60-share20'
        """
        share = "" if self.share is None else f"-share{round(100 * self.share)}"
        return f"{self.name}-{self.n}{share}{'-anew' if self.anew else ''}"


@dataclass
class CellResults:
    """What a cell's file holds: accuracy by method and repeat, and where it was measured."""

    cell: Cell
    rho: float = 0.0
    values: dict[str, list[float]] = field(default_factory=dict)
    chosen: list[str] = field(default_factory=list)
    """What `fit_best` took, repeat by repeat."""
    where: dict[str, str] = field(default_factory=dict)

    def missing(self, methods: Sequence[str], repeat: int) -> list[str]:
        """The methods that have no value for this repeat yet."""
        return [method for method in methods if len(self.values.get(method, [])) <= repeat]

    def add(self, method: str, value: float) -> None:
        """The next repeat's value."""
        self.values.setdefault(method, []).append(value)

    def forget(self, method: str) -> None:
        """Measure it again: its code has changed."""
        self.values.pop(method, None)
        if method == "fit_best":
            self.chosen.clear()


def read(cell: Cell, folder: Path) -> CellResults:
    """What the cell's file holds, or nothing yet."""
    path = folder / f"{cell.key}.json"
    if not path.exists():
        return CellResults(cell)
    stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return CellResults(cell, stored["rho"], stored["values"], stored["chosen"], stored["where"])


def write(results: CellResults, folder: Path) -> None:
    """Replace the cell's file in one step, so that an interruption leaves the old one."""
    cell = results.cell
    stored = {
        "set": cell.name, "n": cell.n, "share": cell.share, "anew": cell.anew,
        "first_seed": SEED, "rho": results.rho, "where": results.where,
        "values": results.values, "chosen": results.chosen,
    }  # fmt: skip
    replace_file(folder / f"{cell.key}.json", json.dumps(stored, indent=1) + "\n")
