"""TOML as we write it: for the files that `init` makes and for what `discover` proposes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping


def quoted(text: str) -> str:
    """A text in TOML, whose basic strings are those of JSON except for one character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def array(texts: Iterable[str]) -> str:
    """A list of texts in TOML.

    >>> array(["fresh", "stale"])
    '["fresh", "stale"]'
    """
    return f"[{', '.join(map(quoted, texts))}]"


def inline_table(texts: Mapping[str, str]) -> str:
    """A table of texts on one line; a key that is more than a word is quoted.

    >>> inline_table({"humidity": "h1", "AM2301.Temperature": "t1"})
    '{ humidity = "h1", "AM2301.Temperature" = "t1" }'
    """
    return f"{{ {', '.join(f'{_key(key)} = {quoted(text)}' for key, text in texts.items())} }}"


def comment(text: str) -> str:
    r"""A line that no parser reads, whatever somebody has called their device.

    >>> comment("attic\n[node]")
    '# attic?[node]'
    """
    return "# " + "".join(each if each.isprintable() else "?" for each in text)


def _key(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9_-]+", text) else quoted(text)
