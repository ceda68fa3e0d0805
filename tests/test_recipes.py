"""Every recipe prints what its first lines promise."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).resolve().parents[1]
RECIPES = sorted((ROOT / "docs" / "recipes").glob("*.py"))
CODE_LINES_MAX = 20  # what a person takes in at a glance; imports and blank lines do not count


def promised(recipe: Path) -> str:
    """The indented end of the docstring."""
    docstring = ast.get_docstring(ast.parse(recipe.read_text("utf-8")))
    return dedent("\n".join(line for line in docstring.splitlines() if line.startswith("    ")))


def code_lines(recipe: Path) -> int:
    source = recipe.read_text("utf-8")
    body = [node for node in ast.parse(source).body if not isinstance(node, ast.Import)]
    body = [node for node in body[1:] if not isinstance(node, ast.ImportFrom)]
    lines = source.splitlines()[body[0].lineno - 1 :]
    return sum(1 for line in lines if line.strip())


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.stem)
def test_recipe_prints_what_it_promises(recipe: Path, tmp_path: Path) -> None:
    """In a process and a folder of its own, as a reader runs it; a warning is an error."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    ran = subprocess.run(
        [sys.executable, "-W", "error", str(recipe)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert (ran.stderr, ran.returncode) == ("", 0)
    assert ran.stdout.rstrip("\n") == promised(recipe)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.stem)
def test_recipe_stays_short_and_promises_something(recipe: Path) -> None:
    """A recipe that grows is an example application: it belongs elsewhere."""
    assert promised(recipe)
    assert code_lines(recipe) <= CODE_LINES_MAX


def test_list_of_recipes_is_complete() -> None:
    """One wish a line, and a line for each file."""
    listed = (ROOT / "docs" / "recipes" / "README.md").read_text("utf-8")
    links = [line.split("](")[1].split(")")[0] for line in listed.splitlines() if "](" in line]
    assert sorted(link for link in links if link.endswith(".py")) == [r.name for r in RECIPES]
