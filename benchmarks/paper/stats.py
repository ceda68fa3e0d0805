"""From the repeats of a cell to means, errors, paired tests and verdicts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.common.data import Floats
from benchmarks.common.statistics import error
from benchmarks.paper.cells import Cell, CellResults, read
from benchmarks.paper.methods import BASELINES, FORMS
from benchmarks.paper.tables import SETTINGS, paper_cell

PAPER_REPEATS = 50


def cells_of(folder: Path) -> list[CellResults]:
    """Every cell that has a file, in Table 1's order."""
    found = []
    for path in folder.glob("*.json"):
        stored = json.loads(path.read_text(encoding="utf-8"))
        found.append(
            read(Cell(stored["set"], stored["n"], stored["share"], stored["anew"]), folder)
        )
    names = list(SETTINGS)
    return sorted(found, key=lambda r: (names.index(r.cell.name), r.cell.n, r.cell.share or 0))


def column(results: CellResults, method: str) -> Floats:
    """A method's accuracies over the repeats that `fit_best` has; none where it has fewer.

    All figures of a cell are then means over the same draws, also while a run is under way.
    """
    values = results.values
    count = len(values.get("fit_best") or values.get(method, []))
    own = values.get(method, [])
    return np.array(own[:count] if len(own) >= count else [])


@dataclass(frozen=True)
class CellVerdict:
    """The aims of one cell: `fit_best` beside the paper, the baselines and the forms."""

    best: float
    paper: float | None
    """The better of the paper's OPIDe and OPID."""
    baseline: tuple[str, float]
    """The best of what knows nothing of the paper's method."""
    z: float
    rival: tuple[str, float, float]
    """The better of our OPIDe and OPID, and its standard error."""

    @property
    def reached(self) -> dict[str, bool]:
        """Aim by aim."""
        aims = {} if self.paper is None else {"paper": self.best >= self.paper - 0.01}
        aims["baselines"] = self.best >= self.baseline[1] - 0.005
        aims["Z"] = self.best >= self.z - 1e-12
        aims["OPID(e)"] = self.best >= self.rival[1] - self.rival[2]
        return aims


def verdict(results: CellResults) -> CellVerdict | None:
    """The cell's verdict, once every method has been measured."""
    columns = {method: column(results, method) for method in (*BASELINES, *FORMS, "fit_best")}
    if not all(len(values) for values in columns.values()):
        return None
    mean = {method: float(values.mean()) for method, values in columns.items()}
    paper = paper_cell(results.cell.name, results.cell.n)
    baseline = max(BASELINES, key=lambda method: mean[method])
    rival = max(("OPIDe", "OPID"), key=lambda method: mean[method])
    return CellVerdict(
        mean["fit_best"],
        max(paper["OPIDe"][0], paper["OPID"][0]) if paper else None,
        (baseline, mean[baseline]),
        mean["Z alone"],
        (rival, mean[rival], error(column(results, rival))),
    )


def beyond_two_errors(results: CellResults) -> list[tuple[str, float, float, float]]:
    """Methods whose mean differs from the paper's by more than two errors of the difference.

    With each: our mean, the paper's, and how many standard errors lie between.
    """
    found = []
    for method, (theirs, spread) in paper_cell(results.cell.name, results.cell.n).items():
        values = column(results, method)
        if not len(values):
            continue
        ours = float(values.mean())
        together = float(np.hypot(error(values), spread / np.sqrt(PAPER_REPEATS)))
        if abs(ours - theirs) > 2 * together:
            found.append((method, ours, theirs, (ours - theirs) / together))
    return found
