"""The tables of few and late labels: what is measured, its files, and the page.

Everyone goes through every stream at four label rates and three delays. A stream has a file, saved
after every run; what it holds is not measured again. The streams are those of `benchmarks.changes`
and, without a change, room occupancy and an office with all channels (`benchmarks.room_occupancy
--labels`).
"""

from __future__ import annotations

import importlib.util
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.changes.few_labels import CONTENDERS, LAYER, RULES, rules, run
from benchmarks.changes.streams import STREAMS, StagedStream, StreamSetting, arranged
from benchmarks.common.cells import SEED, replace_file, where
from benchmarks.common.data import Floats, Ints
from benchmarks.common.few_labels import DELAYS, RATES, Schedule, kappa
from benchmarks.common.long_runs import QUICK_SECONDS
from benchmarks.common.pages import Lines, short, table

WHOLE = {
    "room-all": StreamSetting("Room occupancy, all channels", 16, 1, 4000, 8, timed=True),
    "office-all": StreamSetting("Office, second file, all channels", 5, 1, 2665, 8, timed=True),
}
"""Streams without a change: all channels, one stage, the first so many readings."""
TIED = 0.002
NOT_HERE = ("OpenMOA FESL", "OpenMOA FTRL", "OpenMOA FOBOS")
ABOUT = """# Few labels, late labels, and sensors that change

Written by `make bench-changes LABELS=1` and `make bench-room LABELS=1` from the files in
`few_labels/`.

The streams of [many changes](changes.md), and without changes and with all channels room occupancy
(its first 4,000 readings) and the second file of the office (2,665). A share of the readings is
labelled, drawn by the seed, and a label comes before the next reading (delay 0), or 10 or 100
readings late. *last label* is the no-change classifier, *majority* the most frequent class, both
with the labels known by then; *restart* and *zero-fill* are nodes, as on that page; peers are
river's, each going on through the changes and starting *anew*. **Behind everyone stands the same
time layer**, fed with what that method said: the row *+ layer* is what it gains. The node publishes
*node + layer*. In shuffled streams there is no order that the layer could use.

The figures are of the layer before docs/decisions/0056. Since then it leaves answers in shuffled
streams as they are, for everyone: there, read the rows without it.

*first 100*: of the readings after each change. *κ* is κ-temporal, the share of the last label's
mistakes that is avoided, for streams in the order of time. *ECE*: the expected calibration error in
15 bins from the 200th label on. *µs*: processor time a reading, learning included, on a busy
machine; of a row *+ layer*, the layer's own.
"""


def stream_of(name: str, data: tuple[Floats, Ints], seed: int, *, short: bool) -> StagedStream:
    """The stream of this seed."""
    if name not in WHOLE:
        return arranged(name, data, seed, short=short)
    (X, y), setting = data, WHOLE[name]
    return StagedStream(name, setting, X[: setting.length], y[: setting.length], int(y.max()) + 1)


Data = dict[str, tuple[Floats, Ints]]
Task = tuple[int, float, int, str, str]
"""Seed, rate, delay, method, stream."""


def tasks(data: Data, seeds: int, rates: Sequence[float], methods: Sequence[str]) -> Iterator[Task]:
    """Seed by seed, labels at once first, and the rates that matter most first."""
    few_first = sorted(rates, key=lambda rate: rate not in (0.1, 0.02))
    for seed in range(SEED, SEED + seeds):
        for delay in DELAYS:
            for rate in few_first:
                for method in methods:
                    for name in data:
                        if name not in WHOLE or not method.endswith(
                            (", anew", "restart", "zero-fill")
                        ):
                            yield seed, rate, delay, method, name


def measure(
    data: Data,
    folder: Path,
    *,
    seeds: int,
    quick: bool,
    rates: Sequence[float] = RATES,
    methods: Sequence[str] = tuple(CONTENDERS),
) -> None:
    """Do what the files lack; a quick look ends when its time is up."""
    end = time.monotonic() + (QUICK_SECONDS if quick else float("inf"))
    if importlib.util.find_spec("river") is None:
        print("river is left out: it is not installed")
        methods = [method for method in methods if not method.startswith("river")]
    for seed, rate, delay, method, name in tasks(data, seeds, rates, methods):
        if time.monotonic() > end:
            print(f"time is up before {method} on {name}")
            break
        path, key = folder / f"{name}.json", f"{rate:g} {delay} {seed}"
        stored: dict[str, Any] = {"stream": name, "where": where(), "runs": {}}
        if path.exists():
            stored = json.loads(path.read_text(encoding="utf-8"))
        cell = stored["runs"].setdefault(key, {})
        if method in cell:
            continue
        stream = stream_of(name, data[name], seed, short=quick)
        schedule = Schedule.drawn(len(stream.y), rate, delay, seed)
        cell |= rules(stream, schedule)
        cell[method] = run(CONTENDERS[method](stream, seed), stream, schedule)
        replace_file(path, json.dumps(stored, indent=1) + "\n")
        print(name, key, method, flush=True)


def rows(cells: Sequence[dict[str, Any]], *, timed: bool) -> Iterator[list[str]]:
    """A line a method, alone and with the layer; figures are means over the seeds."""
    last = mean(cell["last label"]["whole"] for cell in cells)
    for method in (*RULES, *CONTENDERS):
        found = [cell[method] for cell in cells if method in cell]
        if not found:
            continue
        kinds = {"": found}
        if method not in RULES:
            kinds = {"": [f["alone"] for f in found], LAYER: [f["layer"] for f in found]}
        for suffix, many in kinds.items():
            whole = mean(each["whole"] for each in many)
            firsts = [each["first"] for each in many if each["first"] is not None]
            errors = [each["ece"] for each in many if each.get("ece") is not None]
            yield [
                method + suffix,
                short(mean(firsts)) if firsts else "–",
                short(whole),
                f"{kappa(whole, last):+.2f}" if timed else "–",
                short(mean(errors)) if errors else "–",
                f"{mean(e['micros'] for e in many):.0f}" if "micros" in many[0] else "–",
                str(len(many)),
            ]


def others(cell: dict[str, Any]) -> dict[str, float]:
    """How often each rival was right: rules, peers and other nodes, alone and with the layer."""
    found = {rule: float(cell[rule]["whole"]) for rule in RULES}
    for method in cell:
        if method not in (*RULES, "node"):
            found[method] = cell[method]["alone"]["whole"]
            found[method + LAYER] = cell[method]["layer"]["whole"]
    return found


def standing(stored: dict[str, Any]) -> list[str]:
    """A stream's row of the summary."""
    leads, ahead = [], Counter[str]()
    for cell in stored["runs"].values():
        rivals = others(cell)
        best = max(rivals, key=rivals.__getitem__)
        if "node" in cell and len(rivals) > len(RULES):
            leads.append(cell["node"]["layer"]["whole"] - rivals[best])
            ahead[best] += leads[-1] < -TIED
    who = [f"{name} ({count})" for name, count in ahead.most_common(3) if count]
    return [title(stored["stream"]), *counted(leads), ", ".join(who) or "–"]


def counted(leads: Sequence[float]) -> list[str]:
    """How often ahead, tied and behind; the mean, and the worst."""
    first, behind = sum(lead > TIED for lead in leads), sum(lead < -TIED for lead in leads)
    figures = [f"{mean(leads):+.4f}", f"{min(leads):+.4f}"] if leads else ["–", "–"]
    return [str(first), str(len(leads) - first - behind), str(behind), *figures]


def one_by_one(every: Sequence[dict[str, Any]]) -> Lines:
    """The node against each rival by itself, over all cells that have both."""
    leads: dict[str, list[float]] = {}
    for cell in (cell for stored in every for cell in stored["runs"].values() if "node" in cell):
        served = cell["node"]["layer"]["whole"]
        leads.setdefault("the node without the layer", []).append(
            served - cell["node"]["alone"]["whole"]
        )
        for rival, right in others(cell).items():
            leads.setdefault(rival, []).append(served - right)
    heads = ["against", "ahead", "tied", "behind", "mean lead", "worst"]
    rows = [[rival, *counted(many)] for rival, many in leads.items()]
    return ["Against each by itself, all streams together:", "", *table(heads, rows)]


def summary(every: Sequence[dict[str, Any]]) -> Lines:
    """Where the node is first, tied and behind, and who is ahead of it most often."""
    heads = ["stream", "first", "tied", "behind", "mean lead", "worst", "who is ahead, in cells"]
    return [
        "*node + layer*, which is what the node publishes, against the best of all others: rules,",
        "peers alone and with the layer, *restart* and *zero-fill*. A cell is a rate, a delay and",
        f"a seed; tied is within {TIED}. The best of a dozen is picked in hindsight, with luck on",
        "its side.",
        "",
        *table(heads, [standing(stored) for stored in every]),
    ]


def title(name: str) -> str:
    """The name of a stream for the page."""
    return (WHOLE.get(name) or STREAMS[name]).title


def missing(every: Sequence[dict[str, Any]]) -> Lines:
    """What was not run."""
    wanted = {f"{rate:g} {delay}" for rate in RATES for delay in DELAYS}
    lines = ["## Not run", f"- {', '.join(NOT_HERE)}: they need Java, and say no probabilities."]
    there = {stored["stream"] for stored in every}
    absent = [name for name in (*STREAMS, *WHOLE) if name not in there]
    lines += [f"- Streams whose data was not there: {', '.join(absent)}."] if absent else []
    for stored in every:
        have = {" ".join(key.split()[:2]) for key, cell in stored["runs"].items() if "node" in cell}
        left = wanted - have
        if left:
            which, told = (have, "all cells but") if len(have) < len(left) else (left, "")
            cells = [cell.split() for cell in sorted(which)]
            named = ", ".join(f"{float(rate):.1%} late by {delay}" for rate, delay in cells)
            lines.append(f"- {stored['stream']}: {told} {named}.".replace(":  ", ": "))
    return [*lines, ""]


def report(out: Path) -> str:
    """Write the page; returns where it is."""
    files = sorted((out / "few_labels").glob("*.json"))
    every = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    page = [ABOUT, *summary(every), *one_by_one(every), *missing(every)]
    heads = ("method", "first 100", "whole", "κ", "ECE", "µs", "seeds")
    for stored in every:
        name = stored["stream"]
        timed = (WHOLE.get(name) or STREAMS[name]).timed
        page += [f"## {title(name)}", ""]
        cells: dict[tuple[float, int], list[dict[str, Any]]] = {}
        for key, cell in stored["runs"].items():
            rate, delay, _ = key.split()
            cells.setdefault((float(rate), int(delay)), []).append(cell)
        for (rate, delay), many in sorted(cells.items(), key=lambda c: (-c[0][0], c[0][1])):
            told = "at once" if delay == 0 else f"{delay} readings late"
            page += [f"### {rate:.1%} of the labels, {told}".replace(".0%", "%"), ""]
            page += table(heads, list(rows(many, timed=timed)))
    path = out / "few_labels.md"
    path.write_text("\n".join(page).rstrip() + "\n", encoding="utf-8")
    return f"{path} written"
