"""What the pages name is there: tests, commands, files."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def page(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def test_every_test_that_the_page_of_attacks_names_exists() -> None:
    """A test is renamed or deleted, and the page goes on promising it."""
    named = set(re.findall(r"`(test_\w+\.py)::(test_\w+)`", page("docs/attacks.md")))
    defined = {
        (file.name, name)
        for file in (ROOT / "tests").glob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", file.read_text("utf-8"), re.M)
    }
    assert len(named) > 50
    assert named - defined == set()


def test_every_command_that_a_page_names_is_a_verb_of_the_makefile() -> None:
    """A verb is renamed, and a figure can no longer be repeated."""
    verbs = set(re.findall(r"^([a-z-]+):.*##", page("Makefile"), re.M))
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
    named = {
        verb for each in pages for verb in re.findall(r"`make ([a-z-]+)", each.read_text("utf-8"))
    }
    assert {"bench-update", "soak"} <= named
    assert named - verbs == set()


def test_every_package_says_where_to_start_and_its_links_lead_somewhere() -> None:
    """A folder is moved, and its neighbours' pages lead nowhere."""
    for package in ("edge_opid", "gateway", "firmware_sim", "benchmarks", "tests"):
        text = page(f"{package}/README.md")
        targets = re.findall(r"\]\(([^)#:\s]+)", text)
        assert targets
        assert [each for each in targets if not (ROOT / package / each).exists()] == []
        modules = re.findall(r"`(\w+/)`", text)
        assert [each for each in modules if not (ROOT / package / each).is_dir()] == []
