"""What `mkdocs.yml` needs beyond mkdocs: the README as home, and files outside of docs/.

Pages link to each other as they lie in the repository, so that the links work there. In the site a
file outside of docs/ that some page links to stands under `repository/`, and every link to it is
turned; the README is `index.md`. A link to a folder leads to the folder's README. A diagram is
shown by the picture that `make diagrams` drew of it: a page asks no other server for a script.
"""

from __future__ import annotations

import os
import re
import sys
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.reference.diagrams import FENCE as DIAGRAM  # noqa: E402 - found only now
from benchmarks.reference.diagrams import picture_of  # noqa: E402

LINK = re.compile(r'(\]\(|\bsrc="|\bsrcset="|\bhref=")(?![a-z]+:|#|/)([^)#"\s]+)')
FENCE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.M | re.S)


def on_files(files: Any, config: Any) -> Any:
    """Add the README, and whatever is linked from page to page outside of docs/."""
    wanted = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    seen = set(wanted)
    while wanted:
        page = wanted.pop()
        if _uri(page).startswith("repository/") or page == ROOT / "README.md":
            files.append(File.generated(config, _uri(page), abs_src_path=str(page)))
        found = set(_targets(page)) - seen if page.suffix == ".md" else set()
        seen |= found
        wanted += sorted(each for each in found if ROOT / "docs" not in each.parents)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn the links of a page to where their targets stand in the site."""
    at = Path(page.file.abs_src_path)
    here = PurePosixPath(_uri(at)).parent

    def turned(match: re.Match[str]) -> str:
        target = _resolved(at, match[2])
        if target is None:
            return match[0]  # mkdocs says what is wrong with it
        return match[1] + os.path.relpath(_uri(target), here)

    numbers = count(1)
    markdown = DIAGRAM.sub(lambda _: f"![diagram]({_beside(at, next(numbers))})", markdown)
    parts = FENCE.split(markdown)  # code, at odd places, is left as it is
    return "".join(
        part if place % 2 else LINK.sub(turned, part) for place, part in enumerate(parts)
    )


def _beside(page: Path, number: int) -> str:
    return os.path.relpath(picture_of(page, number), page.parent)


def _targets(page: Path) -> list[Path]:
    text = "".join(FENCE.split(page.read_text("utf-8"))[::2])
    found = (_resolved(page, match[2]) for match in LINK.finditer(text))
    return [each for each in found if each is not None]


def _resolved(page: Path, target: str) -> Path | None:
    path = (page.parent / target).resolve()
    if path.is_dir():
        path /= "README.md"
    return path if path.is_file() and ROOT in path.parents else None


def _uri(path: Path) -> str:
    """Where a file of the repository stands in the site."""
    inside = path.relative_to(ROOT)
    if inside == Path("README.md"):
        return "index.md"
    if inside.parts[0] == "docs":
        return PurePosixPath(*inside.parts[1:]).as_posix()
    return PurePosixPath("repository", *inside.parts).as_posix()
