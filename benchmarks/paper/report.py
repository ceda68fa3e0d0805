"""The page of the paper's experiments, written from the cells' files: tables, verdicts, doubts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.common.cells import SEED
from benchmarks.common.data import Floats
from benchmarks.common.pages import Lines, short, table
from benchmarks.common.statistics import compared, mean_and_spread
from benchmarks.paper.cells import CellResults
from benchmarks.paper.methods import BASELINES, FORMS, METHODS, PRECISION, SHARE_METHODS
from benchmarks.paper.stats import beyond_two_errors, cells_of, column, verdict
from benchmarks.paper.tables import COLUMNS, SETTINGS, paper_cell
from benchmarks.paper.words import ABOUT, CHOICES, DIFFERENCES, PRECISION_ABOUT, SHARES_ABOUT


def label(results: CellResults) -> str:
    """Set and n."""
    return f"{SETTINGS[results.cell.name].title} {results.cell.n}"


def accuracies(cells: Sequence[CellResults]) -> Lines:
    """Mean (standard deviation), and below it the paper's mean where it has one."""
    rows = []
    for results in cells:
        paper = paper_cell(results.cell.name, results.cell.n)
        row = [label(results), str(max(len(column(results, method)) for method in METHODS))]
        means = {m: column(results, m).mean() for m in METHODS if len(column(results, m))}
        for method in METHODS:
            if method not in means:
                row.append("–")
                continue
            mean, spread = mean_and_spread(column(results, method))
            text = f"{short(mean)} ({short(spread)})"
            text = f"**{text}**" if mean >= max(means.values()) - 1e-12 else text
            row.append(f"{text}<br>paper {short(paper[method][0])}" if method in paper else text)
        rows.append(row)
    return table(("set, n", "repeats", *METHODS), rows)


def aims(cells: Sequence[CellResults]) -> Lines:
    """What had to be shown, cell by cell, and how many cells show it."""
    rows, tally = [], Counter[str]()
    for results in cells:
        found = verdict(results)
        if found is None:
            continue
        reached = found.reached
        tally.update({aim: int(done) for aim, done in reached.items()})
        tally.update({f"{aim} of": 1 for aim in reached})
        marks = ["yes" if reached.get(aim, True) else "**NO**" for aim in AIMS]
        paper = "–" if found.paper is None else short(found.paper)
        rows.append([
            label(results), str(len(column(results, "fit_best"))), short(found.best),
            f"{paper} {marks[0] if found.paper is not None else ''}",
            f"{found.baseline[0]} {short(found.baseline[1])} {marks[1]}",
            f"{short(found.z)} {marks[2]}",
            f"{found.rival[0]} {short(found.rival[1])} ± {short(found.rival[2])} {marks[3]}",
        ])  # fmt: skip
    heads = ("set, n", "repeats", "fit_best", *(f"{aim}: {rule}" for aim, rule in AIMS.items()))
    counts = [f"{aim}: {tally[aim]} of {tally[f'{aim} of']} cells" for aim in AIMS]
    return [f"**fit_best** reaches: {'; '.join(counts)}.", "", *table(heads, rows)]


AIMS = {
    "paper": "≥ its better column − .01",
    "baselines": "≥ the best − .005",
    "Z": "≥ Z alone",
    "OPID(e)": "≥ the better − one standard error",
}


def duels(cells: Sequence[CellResults]) -> Lines:
    """Win/tie/loss of three methods against every one, over the cells."""
    rows = []
    for ours in ("fit_best", "OPIDe", "OPID"):
        row = [ours]
        for theirs in (*BASELINES, *FORMS):
            both = [(column(r, ours), column(r, theirs)) for r in cells]
            marks = [compared(a, b) for a, b in both if len(a) and len(b)]
            text = f"{marks.count(1)}/{marks.count(0)}/{marks.count(-1)}"
            row.append("–" if ours == theirs else text)
        rows.append(row)
    return table(("win/tie/loss of", *BASELINES, *FORMS), rows)


def doubts(cells: Sequence[CellResults]) -> Lines:
    """Every figure that is more than two standard errors from the paper's."""
    rows, count, above = [], 0, 0
    for results in cells:
        count += len(paper_cell(results.cell.name, results.cell.n))
        for method, ours, theirs, errors in beyond_two_errors(results):
            above += ours > theirs
            rows.append([label(results), method, short(ours), short(theirs), f"{errors:+.1f}"])
    heads = ("set, n", "method", "here", "paper", "standard errors between")
    told = f"{len(rows)} of {count} figures; {above} of them are above the paper's."
    return [told, "", *table(heads, rows), DIFFERENCES, ""]


def chosen(cells: Sequence[CellResults]) -> Lines:
    """What `fit_best` mixed, and the ρ of each set."""
    rows = []
    for results in cells:
        tally = Counter(results.chosen).most_common()
        taken = ", ".join(f"{name} {count}" for name, count in tally) or "–"
        rows.append([label(results), f"{results.rho:.3g}", taken])
    return table(("set, n", "ρ", "forms with a share, in how many repeats"), rows)


def shares(cells: Sequence[CellResults]) -> Lines:
    """The second group."""
    rows = []
    for results in cells:
        figures = [column(results, method) for method in SHARE_METHODS]
        texts = [short(float(v.mean())) if len(v) else "–" for v in figures]
        share = f"{100 * (results.cell.share or 0):.0f} %"
        rows.append([label(results), share, str(len(figures[0])), *texts])
    return table(("set, n", "survivors", "repeats", *SHARE_METHODS), rows)


def precision(cells: Sequence[CellResults]) -> Lines:
    """What a node's numbers cost, over the repeats that were measured in both."""
    rows, means, repeats = [], [0.0], [0.0]
    for results in cells:
        gaps = [gap(results, method) for method in PRECISION]
        if not all(len(found) for found in gaps):
            continue
        means += [abs(float(found.mean())) for found in gaps]
        repeats += [float(np.abs(found).max()) for found in gaps]
        share = results.cell.share
        of = "" if share is None else f", {100 * share:.0f} % survive"
        texts = [signed(float(found.mean())) for found in gaps]
        rows.append([label(results) + of, str(len(gaps[0])), *texts])
    told = f"The largest difference of a cell is {short(max(means))}, "
    told += f"the largest of a single repeat {short(max(repeats))}."
    return [told, "", *table(("set, n", "repeats", *PRECISION), rows)]


def gap(results: CellResults, method: str) -> Floats:
    """A method in a node's numbers minus the same in float64, repeat by repeat; none if missing."""
    plain = method.split(",", maxsplit=1)[0]
    ours, exact = results.values.get(method, []), results.values.get(plain, [])
    count = min(len(ours), len(exact))
    return np.asarray(np.array(ours[:count]) - np.array(exact[:count]))


def signed(value: float) -> str:
    """Four digits with their sign.

    >>> signed(0.00131), signed(-0.00001)
    ('+.0013', '.0000')
    """
    text = short(abs(value))
    return text if float(text) == 0 else ("+" if value > 0 else "−") + text


def origin(cells: Sequence[CellResults]) -> Lines:
    """Where the figures come from."""
    places = {tuple(sorted(results.where.items())) for results in cells}
    lines = [", ".join(f"{what} {value}" for what, value in place) for place in sorted(places)]
    seeds = f"Repeat r draws and fits with the seed {SEED} + r; the tables say how many repeats."
    return [seeds, "", *(f"- {line}" for line in lines), ""]


def distance(cells: Sequence[CellResults]) -> str:
    """How far the three SVMs, which have nothing of ours, are from the paper's on average."""
    gaps = [
        abs(float(column(r, method).mean()) - paper_cell(r.cell.name, r.cell.n)[method][0])
        for r in cells
        if paper_cell(r.cell.name, r.cell.n) and SETTINGS[r.cell.name].ordered
        for method in COLUMNS[:3]
        if len(column(r, method))
    ]
    repeats = max((len(column(r, COLUMNS[0])) for r in cells), default=0)
    return f"{short(float(np.mean(gaps)))} (up to {repeats} repeats)" if gaps else "not measured"


def report(out: Path) -> str:
    """Write the page and the plots; returns the aims, for the terminal."""
    from benchmarks.paper.plots import plot_shares, plot_sizes  # noqa: PLC0415 - slow, and last

    every = cells_of(out / "paper")
    group_1 = [r for r in every if r.cell.share is None and not r.cell.anew]
    group_2 = [r for r in every if r.cell.share is not None]
    anew = [r for r in every if r.cell.anew]
    out.mkdir(parents=True, exist_ok=True)
    if group_1:
        plot_sizes(group_1, out / "paper-sizes.png")
    if group_2:
        plot_shares(group_2, out / "paper-shares.png")
    pools = (
        f"Mean distance of the three SVM columns from the paper's, over the ordered sets: "
        f"{distance(group_1)} with the instances that follow, {distance(anew)} with `--anew`."
    )
    verdicts = aims(group_1)
    page = [
        ABOUT, *origin(every), pools, "", "## What had to be shown", *verdicts,
        "## Test accuracy", "![accuracy against n](paper-sizes.png)", "", *accuracies(group_1),
        "## Paired t-tests at 0.05", *duels(group_1),
        "## Where the figures differ from the paper's", *doubts(group_1),
        "## What fit_best chose, and how", CHOICES, "", *chosen(group_1),
        "## The second group: how many features survive", SHARES_ABOUT, "",
        *(["![accuracy against the share of survivors](paper-shares.png)", ""] if group_2 else []),
        *shares(group_2),
        "## Precision", PRECISION_ABOUT, "", *precision([*group_1, *group_2]),
    ]  # fmt: skip
    (out / "paper.md").write_text("\n".join(page).rstrip() + "\n", encoding="utf-8")
    return "\n".join([*verdicts, f"{out / 'paper.md'} written"])
