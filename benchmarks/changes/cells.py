"""What was measured: how many readings each method had right, stage by stage, and their files.

A stream has one file. A run is a method with a seed; what the file holds is not measured again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.changes.peers import Method
from benchmarks.changes.streams import StagedStream
from benchmarks.common.cells import replace_file, where

FIRST = (50, 100, 200)
"""Readings after a change that are looked at by themselves."""
Run = dict[str, list[int]]
"""`all`: right ones of each stage; `50` …: of the first so many of each stage after a change."""


def run(method: Method, stream: StagedStream) -> Run:
    """Predict, then learn, every reading once."""
    counts: Run = {"all": [], **{str(first): [] for first in FIRST}}
    for stage in stream.stages():
        method.change(stage)
        hits = []
        for place in stage.rows:
            label, row = int(stream.y[place]), stream.row(place, stage.sensors)
            hits.append(method.guess_then_learn(row, label) == label)
        counts["all"].append(sum(hits))
        if stage.rows.start:
            for first in FIRST:
                counts[str(first)].append(sum(hits[:first]))
    return counts


@dataclass
class StreamResults:
    """A stream's file."""

    stream: str
    length: int = 0
    """Readings of a stage."""
    runs: dict[str, dict[int, Run]] = field(default_factory=dict)
    """By method and seed."""
    where: dict[str, str] = field(default_factory=dict)

    def has(self, method: str, seed: int) -> bool:
        """Whether this run is there already."""
        return seed in self.runs.get(method, {})

    def add(self, method: str, seed: int, found: Run) -> None:
        """One more run."""
        self.runs.setdefault(method, {})[seed] = found


def read(stream: str, folder: Path) -> StreamResults:
    """What the stream's file holds, or nothing yet."""
    path = folder / f"{stream}.json"
    if not path.exists():
        return StreamResults(stream)
    stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    runs = {
        method: {int(seed): found for seed, found in by_seed.items()}
        for method, by_seed in stored["runs"].items()
    }
    return StreamResults(stream, stored["length"], runs, stored["where"])


def write(results: StreamResults, folder: Path) -> None:
    """Replace the file in one step; the order in which runs were measured does not show."""
    runs = {
        method: {str(seed): results.runs[method][seed] for seed in sorted(results.runs[method])}
        for method in sorted(results.runs)
    }
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(by)}" for name, by in runs.items())
    head = {"stream": results.stream, "length": results.length, "where": results.where}
    text = json.dumps(head, indent=1)[:-2] + ',\n "runs": {\n' + lines + "\n }\n}\n"
    replace_file(folder / f"{results.stream}.json", text)


def place() -> dict[str, str]:
    """The machine and the versions, the peers' too."""
    found = where()
    for package in ("edge-opid", "river", "openmoa"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
