"""The plot of the page: how soon after a change each method is right again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from benchmarks.changes.cells import StreamResults
from benchmarks.changes.peers import RIVALS, product
from benchmarks.changes.stats import WINDOWS, best_mode, column, seeds_of
from benchmarks.changes.streams import STREAMS
from benchmarks.common.plots import Style, draw_method, finish, panels

STYLES: dict[str, Style] = {
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
    for method, style in {**STYLES, ours: ("tab:red", "*", "-")}.items():
        columns = []
        for window in WINDOWS:
            mode = best_mode(results, method, window) if method in RIVALS else method
            columns.append(column(results, mode, seeds_of(results, [mode]), window))
        if all(len(values) for values in columns):
            name = "the node" if method == ours else method
            draw_method(axes, name, style, range(len(WINDOWS)), columns)


def plot(every: Sequence[StreamResults], path: Path) -> None:
    """One panel a stream."""
    figure, axes = panels(len(every))
    for panel, results in zip(axes, every, strict=True):
        draw(panel, results)
        panel.set(title=STREAMS[results.stream].title, xticks=range(len(WINDOWS)))
        panel.set_xticklabels(["first 50", "100", "200", "whole"])
    axes[0].set_ylabel("prequential accuracy")
    finish(figure, axes, path)
