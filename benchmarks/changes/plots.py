"""The plot of the page: how soon after a change each method is right again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from benchmarks.changes.cells import StreamResults
from benchmarks.changes.peers import RIVALS, product
from benchmarks.changes.stats import WINDOWS, best_mode, column, seeds_of
from benchmarks.changes.streams import STREAMS
from benchmarks.common.plots import finish, panels
from benchmarks.common.statistics import error

STYLES = {
    "oracle": ("black", "x", ":"),
    "zero-fill": ("tab:olive", "^", "-"),
    "restart": ("tab:gray", "s", "-"),
    "river LR": ("tab:blue", "o", "-"),
    "river HT": ("tab:cyan", "v", "-"),
    "river NB": ("tab:pink", "<", "-"),
    "river ARF": ("tab:green", "d", "-"),
    "OpenMOA FESL": ("tab:purple", "P", "--"),
    "OpenMOA FTRL": ("tab:brown", "p", "--"),
    "OpenMOA FOBOS": ("tab:orange", "h", "--"),
}
"""Colour, marker and line; the node is the red one."""


def draw(axes: Axes, results: StreamResults) -> None:
    """One line a method over the four windows, with one standard error."""
    ours = product(results.stream)
    for method, (colour, marker, line) in {**STYLES, ours: ("tab:red", "*", "-")}.items():
        means, errors = [], []
        for window in WINDOWS:
            mode = best_mode(results, method, window) if method in RIVALS else method
            values = column(results, mode, seeds_of(results, [mode]), window)
            if len(values):
                means.append(float(values.mean()))
                errors.append(error(values))
        if len(means) == len(WINDOWS):
            axes.errorbar(
                range(len(WINDOWS)), means, errors, label="the node" if method == ours else method,
                color=colour, marker=marker, linestyle=line, markersize=5, linewidth=1, capsize=2,
            )  # fmt: skip


def plot(every: Sequence[StreamResults], path: Path) -> None:
    """One panel a stream."""
    figure, axes = panels(len(every))
    for panel, results in zip(axes, every, strict=True):
        draw(panel, results)
        panel.set(title=STREAMS[results.stream].title, xticks=range(len(WINDOWS)))
        panel.set_xticklabels(["first 50", "100", "200", "whole"])
    axes[0].set_ylabel("prequential accuracy")
    finish(figure, axes, path)
