"""The page of the many changes, written from the streams' files: verdicts, tables, plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.changes.cells import StreamResults, read
from benchmarks.changes.peers import ANEW, LIFTED, LINEAR, RIVALS, product
from benchmarks.changes.stats import (
    ALL,
    JUDGED,
    OPPONENTS,
    SIMPLE,
    WINDOWS,
    Duel,
    best_mode,
    column,
    duels,
    precision,
    seeds_of,
    stage_accuracies,
)
from benchmarks.changes.streams import STREAMS
from benchmarks.changes.words import ABOUT, AIMS_ABOUT, CHOICES, PRECISION
from benchmarks.common.cells import SEED
from benchmarks.common.pages import Lines, short, table

SEEDS_MIN = 3
"""A t-test with fewer would call almost everything a tie."""
TITLES = {"50": "first 50", "100": "first 100", "200": "first 200", ALL: "whole"}


def opened(folder: Path) -> list[StreamResults]:
    """The streams that have a file, in their order."""
    return [read(name, folder) for name in STREAMS if (folder / f"{name}.json").exists()]


def place_of(found: Sequence[Duel]) -> str:
    """First, tied, or behind whom; one or two seeds can show neither, and leave it open."""
    behind = [duel.method for duel in found if duel.mark < 0 and duel.seeds >= SEEDS_MIN]
    if behind:
        return f"**behind** {', '.join(behind)}"
    few = [duel.method for duel in found if duel.seeds < SEEDS_MIN]
    if few:
        return f"**open**, fewer than {SEEDS_MIN} seeds of {', '.join(few)}"
    return "tied" if any(duel.mark == 0 for duel in found) else "first"


def aims(every: Sequence[StreamResults]) -> Lines:
    """What had to be shown, stream by stream, and how many cells show it."""
    rows, met = [], 0
    for results in every:
        for window in JUDGED:
            found = duels(results, window)
            if not found:
                continue
            verdict = place_of(found)
            met += not verdict.startswith("**")
            rows.append([STREAMS[results.stream].title, TITLES[window], *aim(found, verdict)])
    heads = ("stream", "readings", "seeds", "node", "best of the others", "verdict", "higher mean")
    return [f"Met in {met} of {len(rows)} cells.", "", *table(heads, rows)]


def aim(found: Sequence[Duel], verdict: str) -> list[str]:
    """Seeds, the node, the best of the others, the verdict, and everyone with a higher mean."""
    best = max(found, key=lambda duel: duel.theirs - duel.ours)
    fewest = min(duel.seeds for duel in found)
    most = max(duel.seeds for duel in found)
    seeds = str(most) if fewest == most else f"{fewest}–{most}"
    higher = [f"{d.method} {short(d.theirs - d.ours)}" for d in found if d.theirs > d.ours]
    ours, theirs = short(best.ours), f"{best.method} {short(best.theirs)}"
    return [seeds, ours, theirs, verdict, ", ".join(higher) or "–"]


def accuracies(results: StreamResults) -> Lines:
    """All methods in all windows."""
    rows = []
    for method in (LINEAR, LIFTED, *SIMPLE, "oracle", *RIVALS):
        row = [method]
        for window in WINDOWS:
            mode = best_mode(results, method, window) if method in RIVALS else method
            seeds = seeds_of(results, [mode])
            if not seeds:
                break
            mark = " anew" if mode.endswith(ANEW) else ""
            row.append(f"{short(float(column(results, mode, seeds, window).mean()))}{mark}")
        if len(row) > 1:
            rows.append([*row, str(len(seeds))])
    return table(("method", *(TITLES[window] for window in WINDOWS), "seeds"), rows)


def stages(results: StreamResults) -> Lines:
    """Accuracy over each stage: the node, what it is measured against, the oracle."""
    methods = [product(results.stream), "oracle"]
    methods += [best_mode(results, opponent, ALL) for opponent in OPPONENTS]
    measured = [method for method in methods if results.runs.get(method)]
    rows = [[method, *map(short, stage_accuracies(results, method))] for method in measured]
    count = max((len(row) - 1 for row in rows), default=0)
    return table(("stage", *(str(number + 1) for number in range(count))), rows)


def precisions(every: Sequence[StreamResults]) -> Lines:
    """float32 less float64."""
    rows = [
        [STREAMS[results.stream].title, form, str(seeds), short(mean), signed(difference)]
        for results in every
        for form, seeds, mean, difference in precision(results)
    ]
    return table(("stream", "form", "seeds", "float32", "float32 − float64"), rows)


def signed(value: float) -> str:
    """Four digits with their sign.

    >>> signed(0.00012), signed(-0.0001), signed(0.0)
    ('+.0001', '−.0001', '.0000')
    """
    return f"+{short(value)}" if value >= 0.00005 else short(round(value, 4) + 0.0)


def origin(every: Sequence[StreamResults]) -> Lines:
    """Seeds, versions and machines."""
    places = {tuple(sorted(results.where.items())) for results in every}
    lines = [", ".join(f"{what} {value}" for what, value in place) for place in sorted(places)]
    told = f"Seeds are {SEED}, {SEED + 1} and so on; the tables say how many."
    return [told, "", *(f"- {line}" for line in lines), ""]


def report(out: Path) -> str:
    """Write the page and the plot; returns the verdicts, for the terminal."""
    from benchmarks.changes.plots import plot  # noqa: PLC0415 - slow, and last

    every = opened(out / "changes")
    if not every:
        return f"nothing measured yet in {out / 'changes'}"
    plot(every, out / "changes.png")
    verdicts = aims(every)
    page = [
        ABOUT, *origin(every), "## What had to be shown", AIMS_ABOUT, "", *verdicts,
        "![accuracy after a change](changes.png)", "", "## How choices were made", CHOICES, "",
        "## float32 against float64", PRECISION, "", *precisions(every),
        "## Accuracy after a change, and over the whole stream", "",
    ]  # fmt: skip
    for results in every:
        page += [f"### {STREAMS[results.stream].title}", *shape(results), *accuracies(results)]
        page += ["Stage by stage (a peer in the mode that suits it over the whole):", ""]
        page += stages(results)
    (out / "changes.md").write_text("\n".join(page).rstrip() + "\n", encoding="utf-8")
    return "\n".join([*verdicts, f"{out / 'changes.md'} written"])


def shape(results: StreamResults) -> Lines:
    """How the stream is cut."""
    mine = STREAMS[results.stream]
    count = len(next(iter(next(iter(results.runs.values())).values()))[ALL])
    hats = "linear" if mine.binary else f"{mine.knots} knots at most"
    told = f"{mine.alive} sensors alive, {mine.replaced} replaced at a time, {count} stages of "
    return [f"{told}{results.length} readings, {hats}.", ""]
