"""`make refusals`: write docs/refusals.md from the tables of reasons.

The page is what `edge_opid.reasons` and `gateway.reasons` say, and nothing else; a test holds them
equal.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from edge_opid import reasons as node
from edge_opid.reasons import Reason
from gateway import reasons as gateway

PAGE = Path(__file__).resolve().parents[1] / "docs" / "refusals.md"
HEAD = """\
# Everything that is refused, dropped, clipped or ignored

Written by `make refusals` from [edge_opid/reasons.py](../edge_opid/reasons.py) and
[gateway/reasons.py](../gateway/reasons.py): change those, not this page.

Each row is the name of a counter. Under that name, `opid-node status` shows the count, the last
time, the topic and the first bytes; the log has a line `event="…" reason=NAME`. A repeated line is
logged the 1st, 2nd, 4th, 8th … time for each of the first 16 topics, sources or sensors it is
about (further ones share one count), and again after an hour without one. At most 48 bytes of the
payload are shown, and nothing from where it looks like a password or a token.
"""
COLUMNS = "| name | log | what happened | what to do | more |\n|---|---|---|---|---|\n"


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    tables = dict.fromkeys((*node.TABLES, *gateway.TABLES))
    for table in tables:
        told = [each for each in table if each.level]
        title, note = TITLES[table.__name__]
        parts.append(f"\n## {title}\n\n{note}\n\n{COLUMNS}{_rows(told)}")
    ordinary = [each for table in tables for each in table if not each.level]
    parts.append(f"\n## Counted and never logged\n\n{ORDINARY}\n\n{_list(ordinary)}")
    return "".join(parts)


TITLES = {
    "NodeReason": ("Readings, labels, orders and sensors", "On a node."),
    "WireReason": ("Messages that cannot be read", "On a node and on a gateway."),
    "OrderReason": ("Orders and models", "On a node; a gateway shares a few of the names."),
    "LinkReason": ("The connection to the broker", "On a node and on a gateway."),
    "ServiceReason": (
        "Disk, files and watchers",
        "On a node; a gateway has a status file, too.",
    ),
    "GatewayReason": ("Reports, examples, announcements and commands", "On a gateway."),
}
ORDINARY = "What happens as it should, or is the sum of something that has a line above."


def _rows(found: Iterable[Reason]) -> str:
    return "".join(f"{row}\n" for row in _cells(found))


def _cells(found: Iterable[Reason]) -> Iterator[str]:
    for each in found:
        where = f"[{each.page.partition('#')[0]}]({each.page})"
        cells = (f"`{each.value}`", f"{each.level}: {each.event}", each.what, each.do, where)
        yield f"| {' | '.join(cells)} |"


def _list(found: Iterable[Reason]) -> str:
    return "".join(f"- `{each.value}`: {each.what}\n" for each in found)


def main() -> int:
    """Write it."""
    PAGE.write_text(page(), "utf-8")
    sys.stdout.write(f"wrote {PAGE.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
