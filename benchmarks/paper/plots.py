"""The plots of the page: accuracy against n for each set, and against the share of survivors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from benchmarks.common.plots import Style, draw_method, finish, panels
from benchmarks.paper.cells import CellResults
from benchmarks.paper.stats import column
from benchmarks.paper.tables import SETTINGS, paper_cell

STYLES: dict[str, Style] = {
    "SVM": ("tab:gray", "s", "-"),
    "SVM(s)": ("tab:olive", "^", "-"),
    "Z alone": ("black", "x", "--"),
    "OPIDe": ("tab:blue", "o", "-"),
    "OPID": ("tab:green", "d", "-"),
    "fit_best": ("tab:red", "*", "-"),
}
"""Colour, marker and line of each method that is drawn. SVM^(a) would squeeze all others."""


def draw(axes: Axes, cells: Sequence[CellResults], places: Sequence[float]) -> None:
    """One line a method, with one standard error."""
    for method, style in STYLES.items():
        columns = [column(cell, method) for cell in cells]
        if all(len(values) for values in columns):
            draw_method(axes, method, style, places, columns)


def by_set(cells: Sequence[CellResults]) -> dict[str, list[CellResults]]:
    """The cells of each set, in order."""
    found: dict[str, list[CellResults]] = {}
    for cell in cells:
        found.setdefault(cell.cell.name, []).append(cell)
    return found


def plot_sizes(cells: Sequence[CellResults], path: Path) -> None:
    """Accuracy against n, the paper's OPID and OPIDe as hollow markers."""
    sets = by_set(cells)
    figure, axes = panels(len(sets))
    for panel, (name, own) in zip(axes, sets.items(), strict=True):
        sizes = [cell.cell.n for cell in own]
        draw(panel, own, sizes)
        for method, colour, marker in (("OPIDe", "tab:blue", "o"), ("OPID", "tab:green", "d")):
            told = [(n, paper_cell(name, n)[method][0]) for n in sizes if paper_cell(name, n)]
            for n, value in told:
                panel.plot(n, value, marker, color=colour, fillstyle="none", markersize=9)
        panel.set(title=SETTINGS[name].title, xlabel="n", xscale="log", xticks=sizes)
        panel.set_xticklabels([str(n) for n in sizes])
        panel.minorticks_off()
    axes[0].set_ylabel("test accuracy (hollow: the paper)")
    finish(figure, axes, path)


def plot_shares(cells: Sequence[CellResults], path: Path) -> None:
    """Accuracy against the share of columns that survive."""
    sets = by_set(cells)
    figure, axes = panels(len(sets))
    for panel, (name, own) in zip(axes, sets.items(), strict=True):
        draw(panel, own, [100 * (cell.cell.share or 0) for cell in own])
        panel.set(title=f"{SETTINGS[name].title}, n = {own[0].cell.n}", xlabel="survivors, %")
    axes[0].set_ylabel("test accuracy")
    finish(figure, axes, path)
