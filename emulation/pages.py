"""The commands that the pages tell an owner of a Raspberry Pi to type, read from the pages."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
RASPBERRY_PI = ROOT / "docs/raspberry-pi.md"
NODE = ROOT / "docs/node.md"
UPGRADE = ROOT / "docs/upgrade.md"
TFLITE = ROOT / "docs/tflite.md"
PROMPT = re.compile(r"(?m)^pi@north:~ \$ (.+)$")


def commands(text: str, heading: str | None = None) -> list[str]:
    r"""What stands after each prompt, of the whole page or of one of its sections.

    >>> page = "## One\npi@north:~ $ ls\n### More\npi@north:~ $ df\n## Two\npi@north:~ $ id\n"
    >>> commands(page, "One"), commands(page)
    (['ls', 'df'], ['ls', 'df', 'id'])
    """
    found = PROMPT.findall(text if heading is None else section(text, heading))
    if not found:
        raise ValueError(f"no line begins with 'pi@north:~ $' in section {heading!r}")
    return found


def section(text: str, heading: str) -> str:
    """What stands below a heading, up to the next one of its level or above."""
    found = re.search(rf"(?m)^(#+) {re.escape(heading)}$", text)
    if found is None:
        raise ValueError(f"no section is called {heading!r}")
    level = len(found[1])
    end = re.compile(rf"(?m)^#{{1,{level}}} ").search(text, found.end())
    return text[found.end() : end.start() if end else None]
