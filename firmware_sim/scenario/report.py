"""What became of a scenario: a table, a line of blocks, a plot, and all figures as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from firmware_sim.scenario.recording import recording
from firmware_sim.scenario.rivals import BEST, RESTARTED, ZERO_FILLING
from firmware_sim.scenario.score import FIRST, MODELS, SERVED, Score, share_of_the_way

BLOCKS = "▁▂▃▄▅▆▇█"
WIDTH = 72  # characters of a sparkline
NARROWEST = 5  # readings of each node behind one of them
CURVE = 25  # readings of each node that make one point of the plot
COLOURS = {SERVED: "#0b6e4f", ZERO_FILLING: "#c8553d", RESTARTED: "#8d99ae", BEST: "#2b2d42"}


@dataclass
class Report:
    """One run, as far as people want to know it.

    `facts` are lines of their own: a name, and what to say of it.
    """

    title: str
    score: Score
    facts: dict[str, str] = field(default_factory=dict)

    # --- text -------------------------------------------------------------------------------------

    def rows(self) -> list[tuple[str, ...]]:
        """One for each change, then all changes, then everything from beginning to end."""
        changes = self.score.after_changes()
        found = [
            (str(change.at), change.words, *(_percent(change.accuracy[m]) for m in MODELS))
            for change in changes
        ]
        if changes:
            means = [_mean(change.accuracy[model] for change in changes) for model in MODELS]
            found.append(("", "all changes", *map(_percent, means)))
        found.append(("", "the whole time", *(_percent(self.score.overall(m)) for m in MODELS)))
        return found

    def text(self) -> str:
        """The table, the curve, and the facts, for a terminal without colours."""
        headings = ("at", f"first {FIRST} labelled after", *MODELS)
        return "\n".join(
            [self.title, "", *aligned([headings, *self.rows()]), "", *self.sparkline(), ""]
            + [f"{name:28} {words}" for name, words in self._all_facts().items()]
            + [""]
        )

    def sparkline(self) -> list[str]:
        """Accuracy over time, ours and that of the two usual ways, and where changes were."""
        readings = self.score.script.scenario.readings
        width = max(NARROWEST, math.ceil(readings / WIDTH))
        curves = {
            name: self.score.over_time(name, width) for name in (SERVED, ZERO_FILLING, RESTARTED)
        }
        seen = [value for curve in curves.values() for value in curve if not math.isnan(value)]
        low, high = min(seen, default=0.0), max(seen, default=1.0)
        marks = [" "] * len(curves[SERVED])
        for change in self.score.after_changes():
            marks[change.at // width] = "▲"
        lines = [f"{name:>16} {spark(curve, low, high)}" for name, curve in curves.items()]
        return [*lines, f"{'changes':>16} {''.join(marks)}   {_percent(low)} to {_percent(high)}"]

    def share(self) -> float:
        """Of the way from the restarted model to the best linear one."""
        return self.score.share_of_the_way()

    def _all_facts(self) -> dict[str, str]:
        share = self.share()
        way = "unknown: nothing to gain" if math.isnan(share) else f"{100 * share:.0f} %"
        return {"way to the best linear model": f"{way} (0: {RESTARTED}, 100: {BEST})"} | self.facts

    # --- files ------------------------------------------------------------------------------------

    def write(self, folder: Path, name: str) -> list[Path]:
        """Text, JSON, the recording, and the plot, where matplotlib is there; what was written."""
        folder.mkdir(parents=True, exist_ok=True)
        text, data, film = (folder / f"{name}.{kind}" for kind in ("txt", "json", "svg"))
        text.write_text(self.text())
        data.write_text(json.dumps(self.as_json(), indent=2, ensure_ascii=False) + "\n")
        film.write_text(recording(self.score, self.title))
        plot = folder / f"{name}.png"
        return [text, data, film, plot] if self._plotted(plot) else [text, data, film]

    def as_json(self) -> dict[str, Any]:
        """Everything that is in the table and the plot; a figure that nobody has is null."""
        changes = self.score.after_changes()
        scenario = self.score.script.scenario
        return {
            "scenario": scenario.name,
            "seed": self.score.script.seed,
            "nodes": scenario.nodes,
            "readings": scenario.readings,
            "share_of_the_way": _number(share_of_the_way(changes)),
            "accuracy": {name: _number(self.score.overall(name)) for name in MODELS},
            "changes": [
                {
                    "at": change.at,
                    "what": change.words,
                    "nodes": list(change.nodes),
                    "labelled_readings": change.readings,
                    "accuracy": {name: _number(change.accuracy[name]) for name in MODELS},
                }
                for change in changes
            ],
            "curve_readings": CURVE,
            "curves": {n: [_number(v) for v in self.score.over_time(n, CURVE)] for n in MODELS},
            "facts": self.facts,
        }

    def _plotted(self, path: Path) -> bool:
        try:
            import matplotlib as mpl  # noqa: PLC0415 - of the extra `sim`, and slow to load
        except ImportError:
            return False
        mpl.use("Agg")
        from matplotlib import pyplot as plt  # noqa: PLC0415

        figure, axes = plt.subplots(figsize=(10, 4.5), layout="constrained")
        for name in reversed(MODELS):
            curve = self.score.over_time(name, CURVE)
            places = [CURVE * (number + 0.5) for number in range(len(curve))]
            axes.plot(
                places, curve, label=name, color=COLOURS[name], lw=2.4 if name == SERVED else 1.2
            )
        above = axes.get_xaxis_transform()  # readings to the right, shares of the height upwards
        for change in self.score.after_changes():
            axes.axvline(change.at, color="#adb5bd", lw=0.8, ls=":")
            axes.text(change.at, 1.02, change.words, rotation=20, fontsize=8, transform=above)
        axes.set(xlabel="readings of each node", ylabel="share right")
        axes.set_ylim(top=1.0)
        axes.margins(x=0.01)
        axes.legend(loc="lower left", ncols=len(MODELS), fontsize=8)
        figure.suptitle(self.title)
        figure.savefig(path, dpi=120)
        plt.close(figure)
        return True


def spark(values: Sequence[float], low: float, high: float) -> str:
    """A curve in one line of text; where there is no value there is a gap.

    >>> spark([0.5, 0.75, float("nan"), 1.0], 0.5, 1.0)
    '▁▅ █'
    """
    steps, span = len(BLOCKS) - 1, (high - low) or 1.0
    return "".join(
        " " if math.isnan(value) else BLOCKS[round(steps * (value - low) / span)]
        for value in values
    )


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns under each other: texts to the left, figures to the right.

    >>> aligned([("at", "what", "right"), ("250", "pm10 goes", "84.0")])
    ['at   what       right', '250  pm10 goes   84.0']
    """
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if place < 2 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{100 * share:.1f}"


def _number(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 4)


def _mean(values: Iterable[float]) -> float:
    found = [value for value in values if not math.isnan(value)]
    return sum(found) / len(found) if found else math.nan
