"""`make reference`: write the pages."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks import refusals
from benchmarks.reference import commands, configuration, logs, messages, metrics

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = {
    "reference/commands.md": commands.page,
    "reference/configuration.md": configuration.page,
    "reference/logs.md": logs.page,
    "reference/messages.md": messages.page,
    "reference/metrics.md": metrics.page,
    "refusals.md": refusals.page,
}


def main() -> int:
    """Write every page that has changed."""
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), "utf-8")
        sys.stdout.write(f"wrote docs/{name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
