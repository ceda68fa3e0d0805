"""Where a key stands in a TOML file: `tomllib` says it for bad syntax only."""

from __future__ import annotations

import re
from pathlib import Path

_HEADER = re.compile(r"\s*\[\[?\s*([^\]]+?)\s*\]")
_KEY = re.compile(r"(.*?)(?:\[(\d+)\])?(?:\.(.+))?", re.DOTALL)  # matches any text


def place(text: str, key: str, path: Path) -> str:
    """The file, and the line if the key or its section stands in it."""
    number = line_of(text, key)
    return path.name if number is None else f"{path.name}, line {number}"


def line_of(text: str, key: str) -> int | None:
    r"""The line of a key, or of its section, which a TOML parser does not tell; None: nowhere.

    >>> text = '[node]\nsite = "farm"\n[[sensors]]\nid = "t1"\n[[sensors]]\nid = "t1"'
    >>> line_of(text, "sensors[1].id"), line_of(text, "node.rho"), line_of(text, "log.level")
    (6, 1, None)
    >>> line_of('[[groups]]\nid = "air"\nnodes = ["n1", "N2"]', "groups[0].nodes[1]")
    3
    """
    within = re.sub(r"\[\d+\]$", "", key) if "." in key else key  # an item stands in its list
    section, wanted, name = _KEY.fullmatch(within).groups()  # type: ignore[union-attr]
    quoted = re.compile(rf"""\s*["']?{re.escape(name or section)}["']?\s*[=.]""")
    header_line, place, inside = None, -1, not name
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            title = header[1].replace('"', "")
            place += title == section
            here = wanted is None or place == int(wanted)
            inside = here and title == section
            if here and title == f"{section}.{name}":
                return number
            if inside and header_line is None:
                header_line = number
        elif inside and quoted.match(line):
            return number
    return header_line
