"""What the README shows is what somebody saw. Its snippets are run as doctests."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def results(name: str) -> str:
    return (ROOT / "benchmarks/results" / name).read_text("utf-8").strip()


def docs(name: str) -> str:
    return (ROOT / "docs" / name).read_text("utf-8")


def test_what_the_demo_is_said_to_print_is_what_it_printed() -> None:
    """A figure polished by hand: pages have the run's file, the README lines of it, in order."""
    printed = results("meeting_rooms.txt")
    assert f"```text\n{printed}\n```" in docs("demo.md")
    assert f"```text\n{results('rolling_replacement.txt')}\n```" in docs("scenarios.md")
    (shown,) = re.findall(r"```text\n(.*?)\n```", README, re.S)
    lines = iter(printed.splitlines())
    assert shown
    assert all(line in lines for line in shown.splitlines())


def test_the_readme_takes_a_few_minutes() -> None:
    """Word by word it grows, until nobody reads it."""
    assert len(README.split()) <= 700


def test_every_command_that_the_readme_names_exists() -> None:
    """Every verb that the README mentions is one of the Makefile's."""
    named = set(re.findall(r"`make ([a-z-]+)", README))
    verbs = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text("utf-8"), re.M))
    assert named
    assert named <= verbs


def test_every_link_of_the_documentation_leads_somewhere() -> None:
    """Every relative link of every page is a file or a folder."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    links = [
        (page, target)
        for page in pages
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    ]
    assert len(links) > 30
    broken = [(page, target) for page, target in links if not (page.parent / target).exists()]
    assert broken == []
