"""Figures of several panels, written to a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from benchmarks.common.statistics import error

mpl.use("Agg")  # a file, no window

from matplotlib import pyplot as plt

Style = tuple[str, str, str]
"""Colour, marker and line of a method."""


def draw_method(
    axes: Axes,
    method: str,
    style: Style,
    places: Sequence[float],
    columns: Sequence[NDArray[np.float64]],
) -> None:
    """A line through the means of these columns of results, with one standard error."""
    means, errors = [values.mean() for values in columns], [error(values) for values in columns]
    colour, marker, line = style
    axes.errorbar(
        places, means, errors, label=method, color=colour, marker=marker, linestyle=line,
        markersize=5, linewidth=1, capsize=2,
    )  # fmt: skip


def panels(count: int) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels, three in a row."""
    across = min(3, count)
    down = (count + across - 1) // across
    figure, axes = plt.subplots(down, across, figsize=(4.6 * across, 3.6 * down), squeeze=False)
    every = list(axes.flat)
    for spare in every[count:]:
        spare.set_axis_off()
    return figure, every[:count]


def finish(figure: Figure, axes: Sequence[Axes], path: Path) -> None:
    """One legend for all panels below them, file, and the memory given back."""
    pairs = (zip(*panel.get_legend_handles_labels(), strict=True) for panel in axes)
    lines = {name: line for pair in pairs for line, name in pair}  # not every panel has them all
    figure.legend(lines.values(), lines.keys(), loc="lower center", ncols=len(lines), fontsize=8)
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    # No date or version in the file: the same figures give the same bytes.
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)
