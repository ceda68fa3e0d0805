"""The diagrams of the pages as pictures: `make diagrams`.

A page holds its diagram as mermaid's text, which GitHub draws. The site shows the picture that this
module drew from the same text, so that no reader's browser asks another server for a script.
`tests/test_docs.py` compares the text in a picture with that on its page.
"""

from __future__ import annotations

import re
import sys
from html import escape
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
FENCE = re.compile(r"^```mermaid\n(.*?)^```$", re.M | re.S)
CHROMIUM = "/usr/bin/chromium"
LOOK = (
    "mermaid.initialize({startOnLoad: false, theme: 'neutral', fontFamily: 'sans-serif',"
    " htmlLabels: false, flowchart: {htmlLabels: false}, deterministicIds: true})"
)
DRAW = "async ([id, text]) => (await mermaid.render(id, text)).svg"


def diagrams() -> dict[Path, str]:
    """Every diagram's text, by its picture: `images/gateway-1.svg` is the first of its page."""
    return {
        picture_of(page, number): text
        for page in sorted(DOCS.glob("*.md"))
        for number, text in enumerate(FENCE.findall(page.read_text("utf-8")), start=1)
    }


def picture_of(page: Path, number: int) -> Path:
    """Where the picture of a page's diagram stands."""
    return DOCS / "images" / f"{page.stem}-{number}.svg"


def with_text(svg: str, text: str) -> str:
    """A picture that says what it was drawn from, on white, since its lines are dark."""
    tag, rest = svg.replace('style="', 'style="background: white; ', 1).split(">", 1)
    return f"{tag}><desc>{escape(text)}</desc>{rest}\n"


def draw(mermaid: Path) -> None:
    """Draw all of them in Chromium, with this copy of mermaid."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - takes a second to load

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.set_content("<body></body>")
        page.add_script_tag(path=str(mermaid))
        page.evaluate(LOOK)
        for picture, text in diagrams().items():
            svg = page.evaluate(DRAW, [picture.stem, text])
            picture.write_text(with_text(svg, text), "utf-8")
        browser.close()


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
