"""The table of everything refused or dropped, against the code that refuses and drops."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.refusals import PAGE, page
from edge_opid import reasons as node
from edge_opid.reasons import NodeReason, Reason
from edge_opid.tally import AGAIN_MS, CULPRITS_MAX, FIRST_BYTES, Tally, first_bytes
from edge_opid.wire import LIMITS
from edge_opid.wire.ids import check_id
from gateway import reasons as gateway

ROOT = Path(__file__).resolve().parents[1]
TABLES = tuple(dict.fromkeys((*node.TABLES, *gateway.TABLES)))
ALL = [each for table in TABLES for each in table]
RAISED = {"WireError", "OrderError", "ModelError", "EventError"}
"""Errors that can refuse a message, and whose first argument is the reason."""
NO_MESSAGE = {"file", "names", "runtime", "seal", "width"}
"""Reasons of a model file on disk: no message is refused for them."""


def trees(*folders: str) -> Iterator[tuple[Path, ast.Module]]:
    for folder in folders:
        for file in sorted((ROOT / folder).rglob("*.py")):
            if file.name != "reasons.py":
                yield file, ast.parse(file.read_text("utf-8"))


def called(call: ast.Call) -> str:
    found = call.func
    return found.id if isinstance(found, ast.Name) else getattr(found, "attr", "")


def test_every_line_of_the_table_is_used_somewhere() -> None:
    """A counter is dropped from the code, and the page goes on promising it."""
    used = {
        (each.value.id, each.attr)
        for _, tree in trees("edge_opid", "gateway")
        for each in ast.walk(tree)
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name)
    }
    raised = {f"refused-{reason}" for reason in raised_reasons()}
    unused = [
        repr(each)
        for each in ALL
        if (type(each).__name__, each.name) not in used and each.value not in raised
    ]
    assert unused == []


def raised_reasons() -> set[str]:
    found = {"layout", "mismatch", "lifecycle", "error"}  # those that their classes give
    for _, tree in trees("edge_opid", "gateway"):
        for each in ast.walk(tree):
            if isinstance(each, ast.Call) and called(each) in RAISED and each.args:
                first = each.args[0]
                found |= {first.value} if isinstance(first, ast.Constant) else set()
            if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "reason":
                found |= {n.value for n in ast.walk(each.value) if isinstance(n, ast.Constant)} & {
                    "ext",
                    "type",
                }
    return found - NO_MESSAGE


def test_every_error_that_can_refuse_a_message_has_a_line_in_the_table() -> None:
    """Somebody raises a WireError with a new reason: it would be counted as `refused-error`."""
    names = {each.value for each in ALL}
    assert {f"refused-{reason}" for reason in raised_reasons()} - names == set()


def test_nothing_is_counted_under_a_name_that_is_not_in_the_table() -> None:
    """A counter with a name of its own has no sentence, no page, and nobody knows what it means."""
    wrong = []
    for file, tree in trees("edge_opid/node", "edge_opid/service", "edge_opid/link", "gateway"):
        for each in ast.walk(tree):
            if isinstance(each, ast.AugAssign) and isinstance(each.target, ast.Subscript):
                key = each.target.slice
                counter = ast.unparse(each.target.value)
                if counter.endswith("counts") and isinstance(key, ast.Constant | ast.JoinedStr):
                    wrong.append(f"{file.name}:{each.lineno} {ast.unparse(each.target)}")
            if isinstance(each, ast.Call) and called(each) in {"note", "_note", "Noted", "refuse"}:
                first = each.args[0] if each.args else None
                literal = isinstance(first, ast.Constant | ast.JoinedStr)
                if literal and "store" not in str(file):
                    wrong.append(f"{file.name}:{each.lineno} {ast.unparse(each)[:60]}")
    assert wrong == []


def test_the_page_is_what_the_tables_say() -> None:
    """`make refusals` writes it again."""
    assert PAGE.read_text("utf-8") == page()


def test_every_line_says_what_happened_what_to_do_and_where_to_read_on() -> None:
    """A name without a sentence helps nobody at three in the morning."""
    for each in ALL:
        check_id(each.value, "counter")
        assert each.what.endswith("."), each
        assert not each.level or each.event, each
        if each.level in (node.WARNING, node.ERROR) and each.do:
            assert each.do.endswith((".", "?")), each
        file, _, anchor = each.page.partition("#")
        headings = re.findall(r"^#+ (.+)$", (ROOT / "docs" / file).read_text("utf-8"), re.M)
        slugs = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in headings}
        assert not anchor or anchor in slugs, each.page


@pytest.mark.parametrize("tables", [node.TABLES, gateway.TABLES])
def test_a_status_has_room_for_every_counter(tables: tuple[type[Reason], ...]) -> None:
    """A status that leaves out the last names of the alphabet would be silent again."""
    assert sum(len(table) for table in tables) <= LIMITS.counts_max


# -- when a line is worth writing ------------------------------------------------------------------


def told(tally: Tally) -> int:
    return len(tally.take_lines())


def test_a_storm_of_duplicates_is_a_dozen_lines_and_is_told_again_after_an_hour() -> None:
    """Ten thousand copies of one reading must not fill the card with log."""
    tally = Tally()
    for _ in range(10_000):
        tally.begin("opid/1/farm/n1/reading/attic", b"", now_ms=0)
        tally.note(NodeReason.DUPLICATE, about="attic")
    assert told(tally) == 14  # 1, 2, 4 … 8192
    tally.begin("", b"", now_ms=AGAIN_MS)
    tally.note(NodeReason.DUPLICATE, about="attic")
    assert told(tally) == 1
    assert tally.counts[NodeReason.DUPLICATE] == 10_001


def test_a_loud_device_does_not_hide_a_quiet_one_and_invented_names_do_not_flood() -> None:
    """One sender has made 100,000 mistakes when another one makes its first."""
    tally = Tally()
    for _ in range(100_000):
        tally.note(NodeReason.UNKNOWN_SENSOR, about="loud")
    tally.take_lines()
    tally.note(NodeReason.UNKNOWN_SENSOR, about="quiet")
    assert told(tally) == 1
    for invented in range(10_000):
        tally.note(NodeReason.UNKNOWN_SENSOR, about=f"x{invented}")
    assert told(tally) <= CULPRITS_MAX + 1


@pytest.mark.parametrize(
    "payload",
    [b'{"password": "hunter2"}', b"psk=hunter2", b"\x81\xa5token\xa7hunter2", b"x" * 47 + b"key=1"],
)
def test_first_bytes_are_short_printable_and_hold_no_secret(payload: bytes) -> None:
    """A device publishes its credentials on a topic that a mapping reaches."""
    shown = first_bytes(payload)
    assert "hunter2" not in shown
    assert shown.isprintable()
    assert len(shown) <= 4 * FIRST_BYTES
