"""Configurations for real processes, written from values."""

from __future__ import annotations

import json
from collections.abc import Mapping


def toml_table(header: str, settings: Mapping[str, object] | None = None, **more: object) -> str:
    """One table of a configuration; what is None is left out.

    >>> print(toml_table("[sensors]", id="a", scale=0.5, unit=None), end="")
    [[sensors]]
    id = "a"
    scale = 0.5
    """
    given = {**(settings or {}), **more}
    lines = [f"{name} = {toml(value)}\n" for name, value in given.items() if value is not None]
    return f"[{header}]\n" + "".join(lines)


def toml(value: object) -> str:
    """Texts, numbers and lists of texts are written alike in TOML and JSON.

    >>> toml(("a", "b")), toml(0.5)
    ('["a", "b"]', '0.5')
    """
    return json.dumps(value, ensure_ascii=False)
