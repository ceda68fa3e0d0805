"""The commands that the pages tell an owner of a Raspberry Pi to type, read from the pages."""

from __future__ import annotations

import re

from emulation import ROOT

README = ROOT / "README.md"
RASPBERRY_PI = ROOT / "docs/raspberry-pi.md"
NODE = ROOT / "docs/node.md"
UPGRADE = ROOT / "docs/upgrade.md"
TFLITE = ROOT / "docs/tflite.md"
PAGES = (README, RASPBERRY_PI, NODE, UPGRADE, TFLITE)
WITH_PIP = {"arm64": "With pip, 64 bits", "armhf": "With pip, 32 bits"}
RUNTIME = {"trixie": "A runtime on Debian 13", "bookworm": "A runtime on Debian 12"}
SERVE = "Serve it"
ELSEWHERE = {
    "sudo -u opid-node opid-node watch 'zigbee2mqtt/#'": "it ends with Ctrl-C: tests/test_pages.py",
}
"""What `make pi` does not type, and who does."""
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


def lines_for(architecture: str) -> list[str]:
    """What the pages tell an owner of such a machine to type, each line once."""
    of_others = {heading for each, heading in WITH_PIP.items() if each != architecture}
    skipped = {(RASPBERRY_PI, heading) for heading in of_others}
    if architecture != "arm64":  # this runtime has no wheel for 32 bits
        skipped.add((TFLITE, RUNTIME["trixie"]))
    text = "".join(page.read_text("utf-8") for page in PAGES)
    for page, heading in skipped:
        text = text.replace(section(page.read_text("utf-8"), heading), "")
    found = map(without_comment, commands(text))
    return [line for line in dict.fromkeys(found) if line not in ELSEWHERE]


def without_comment(line: str) -> str:
    """The part of a line that a shell carries out.

    >>> without_comment("sudo opid-node check    # what it would do")
    'sudo opid-node check'
    """
    return line.partition(" #")[0].rstrip()


def section(text: str, heading: str) -> str:
    """What stands below a heading, up to the next one of its level or above."""
    found = re.search(rf"(?m)^(#+) {re.escape(heading)}$", text)
    if found is None:
        raise ValueError(f"no section is called {heading!r}")
    level = len(found[1])
    end = re.compile(rf"(?m)^#{{1,{level}}} ").search(text, found.end())
    return text[found.end() : end.start() if end else None]
