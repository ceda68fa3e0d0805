"""Every key of node.toml and gateway.toml: its type, its default, and what it means.

Keys and types are those that the loaders check; the words are the comments of the example files,
which a user reads anyway. A key without words there is an error here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks.reference.tables import code, head, table
from edge_opid.config import service as node
from edge_opid.config.schema import Shape, kinds_of
from gateway import config as gateway

DOCS = Path(__file__).resolve().parents[2] / "docs"
ABOUT = """\
Both files are TOML. A relative path is relative to the folder of the file. `OPID_<SECTION>_<KEY>`
in the environment replaces a key of a section, such as `OPID_BROKER_HOST`. A mistake is reported
with file, line and key. `opid-node check` and `opid-gateway check` say what a file means before
anything runs. To start from a file: [node.example.toml](../node.example.toml),
[gateway.example.toml](../gateway.example.toml)."""
TYPES = {
    "str": "text",
    "int": "whole number",
    "float": "number",
    "bool": "true or false",
    "tuple[str, ...]": "list of texts",
    "Mapping[str, str]": "table of texts",
    "Mapping[str, str] | str": "table of texts, or text",
}


class Explained(NamedTuple):
    """A key as an example file has it."""

    words: str
    shown: str
    optional: bool


def page() -> str:
    """The whole page."""
    parts = [head("Configuration", ABOUT)]
    for name, shape in (("node", node.SHAPE), ("gateway", gateway.SHAPE)):
        parts.append(f"\n## {name}.toml\n")
        explained = dict(_explained((DOCS / f"{name}.example.toml").read_text("utf-8")))
        parts += _sections(name, shape, explained)
    return "".join(parts)


def _sections(file: str, shape: Shape, explained: Mapping[str, Explained]) -> Iterator[str]:
    lists = {section: kinds_of(kind) for section, kind in shape.lists.items()}
    for section, kinds in (*shape.sections.items(), *lists.items()):
        shown = f"[[{section}]]" if section in lists else f"[{section}]"
        yield f"\n### {file}.toml `{shown}`\n\n"
        rows = []
        for key, kind in kinds.items():
            found = explained[f"{section}.{key}"]
            needed = "**needed**" if f"{section}.{key}" in shape.needed else ""
            example = code(found.shown) if found.optional or not needed else needed
            words = TYPES[kind.removesuffix(" | None")]
            rows.append((code(key), words, example, found.words))
        yield table(("key", "type", "default or example", "meaning"), rows)


def _explained(text: str) -> Iterator[tuple[str, Explained]]:
    """Each key of an example file once, with the comment above it."""
    section, words, seen, before = "", list[str](), set[str](), ""
    for line in text.splitlines():
        header = re.fullmatch(r"\[\[?(\w+)\]\]?", line)
        setting = re.fullmatch(r"(# )?(\w+) = (.+)", line)
        if header:
            section, before = header[1], ""  # the comment above it is about its first key
        elif setting and f"{section}.{setting[2]}" not in seen:
            name = setting[2]
            seen.add(f"{section}.{name}")
            told = " ".join(words) or f"See `{before}`."  # two keys share a comment
            yield f"{section}.{name}", Explained(told, setting[3], bool(setting[1]))
            words, before = [], name
        elif setting:
            words = []
        elif line.startswith("#"):
            words.append(line.removeprefix("#").strip())
        else:
            words = []
