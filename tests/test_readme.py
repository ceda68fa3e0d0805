"""What the README shows is what somebody saw. Its snippets are run as doctests."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def test_the_demos_table_is_the_one_it_wrote() -> None:
    """The text beside the plot is the file of the same run, to the letter."""
    shown = (ROOT / "benchmarks/results/rolling_replacement.txt").read_text("utf-8").strip()
    assert f"```text\n{shown}\n```" in README


def test_every_command_that_the_readme_names_exists() -> None:
    """Every verb that the README mentions is one of the Makefile's."""
    named = set(re.findall(r"`make ([a-z-]+)", README))
    verbs = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text("utf-8"), re.M))
    assert named
    assert named <= verbs


def test_every_link_of_the_documentation_leads_somewhere() -> None:
    """Every relative link of every page is a file or a folder."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    links = [
        (page, target)
        for page in pages
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    ]
    assert len(links) > 30
    broken = [(page, target) for page, target in links if not (page.parent / target).exists()]
    assert broken == []
