"""Every event that a log line may have: from the tables of reasons, and from calls in the code."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.reference.tables import code, head, table
from edge_opid import reasons as node
from gateway import reasons as gateway

ROOT = Path(__file__).resolve().parents[2]
LEVELS = ("debug", "info", "warning", "error")
ABOUT = """\
A log line is `key=value`, to stderr or to the journal of systemd: `level`, `event`, and what the
event is about. Every counter is the name of a reason; [refusals](../refusals.md) says what each
means and what to do."""


class Call(NamedTuple):
    """A line of code that logs."""

    event: str
    level: str
    keys: tuple[str, ...]
    program: str


def page() -> str:
    """The whole page."""
    calls = table(
        ("event", "level", "with the keys", "from"),
        [(code(c.event), c.level, ", ".join(map(code, c.keys)), c.program) for c in _calls()],
    )
    refused = table(
        ("event", "level", "reasons"),
        [(code(event), level, reasons) for (event, level), reasons in _refusals()],
    )
    return (
        head("Log events", ABOUT)
        + f"\n## What happens\n\n{calls}"
        + "\n## What is refused, dropped or ignored\n\n"
        + "These lines have a `reason`, which is also the name of the counter.\n\n"
        + refused
    )


def _refusals() -> Iterator[tuple[tuple[str, str], str]]:
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for group in dict.fromkeys((*node.TABLES, *gateway.TABLES)):
        for each in group:
            if each.level:
                found[each.event, each.level].append(code(each.value))
    for key in sorted(found):
        yield key, ", ".join(found[key])


def _calls() -> list[Call]:
    """Each event once; the parts of edge_opid that a gateway uses, too, are named by a node."""
    found: dict[tuple[str, str], Call] = {}
    for package, program in (("edge_opid", "node or script"), ("gateway", "gateway")):
        for path in sorted((ROOT / package).rglob("*.py")):
            for call in _in_module(ast.parse(path.read_text("utf-8")), program):
                known = found.get((call.event, call.level), call)
                programs = dict.fromkeys((*known.program.split(", "), program))
                found[call.event, call.level] = known._replace(program=", ".join(programs))
    return sorted(found.values())


def _in_module(module: ast.AST, program: str) -> Iterator[Call]:
    for each in ast.walk(module):
        if not isinstance(each, ast.Call) or not isinstance(each.func, ast.Attribute):
            continue
        target = each.func.value
        if isinstance(target, ast.Name) and target.id == "log" and each.func.attr in LEVELS:
            keys = tuple(str(k.arg) for k in each.keywords if k.arg not in (None, "trace"))
            for event in _texts(each.args[0]):
                yield Call(event, each.func.attr, keys, program)
        elif each.func.attr == "_complain":  # of a source: one line of code, two events
            for event in _texts(each.args[0]):
                yield Call(event, "error", ("topic", "faults", "why"), program)


def _texts(event: ast.expr) -> list[str]:
    """The text, or both of `a if … else b`."""
    found = (each.value for each in ast.walk(event) if isinstance(each, ast.Constant))
    return [each for each in found if isinstance(each, str)]
