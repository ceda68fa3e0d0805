"""How sentences of the gateway name many things."""

from __future__ import annotations

from collections.abc import Iterable

SHOWN_MAX = 12
"""Names in a sentence: who has more nodes than that looks at the list."""


def listed(names: Iterable[str]) -> str:
    """Names for a sentence, however many there are.

    >>> listed(["a", "b"]), listed(map(str, range(15)))[-17:]
    ('a, b', '10, 11 and 3 more')
    """
    every = list(names)
    rest = f" and {len(every) - SHOWN_MAX} more" if len(every) > SHOWN_MAX else ""
    return ", ".join(every[:SHOWN_MAX]) + rest if every else "none"
