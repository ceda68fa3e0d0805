"""The names of sites, nodes, sources, sensors and roles.

An id is safe in a topic, a file name, an ACL pattern and a log line. A slash would let a sensor
named `a/b` escape the pattern that pins it to its own topic; a plus or a hash would be a wildcard.
"""

from __future__ import annotations

import re
from functools import lru_cache

from edge_opid.errors import WireError, shown
from edge_opid.wire.limits import LIMITS

ID_PATTERN = re.compile(rf"[a-z0-9][a-z0-9_-]{{0,{LIMITS.id_chars_max - 1}}}")


@lru_cache(maxsize=1024)  # the same few names come with every reading
def is_id(text: str) -> bool:
    """Whether a text that is not too long is an id."""
    # fullmatch, because `$` would let a trailing newline through
    return ID_PATTERN.fullmatch(text) is not None


@lru_cache(maxsize=32)  # 13 kB for the largest set of names
def as_ids(names: tuple[object, ...]) -> tuple[str, ...] | None:
    """The names of a message, if all are ids and none comes twice.

    A node's readings have mostly the same, and get the same texts here each time: to compare those
    takes less than to compare equal ones.
    """
    ids = tuple(each for each in names if isinstance(each, str) and ID_PATTERN.fullmatch(each))
    return ids if len(set(ids)) == len(names) else None


def check_id(value: object, what: str) -> str:
    """`value`, if it is an id; otherwise a WireError that says what an id looks like.

    >>> check_id("greenhouse-2", "site")
    'greenhouse-2'
    >>> check_id("attic/temp", "sensor")
    Traceback (most recent call last):
    ...
    edge_opid.errors.WireError: sensor must be 1 to 32 of a-z, 0-9, _ and - and start with \
a letter or digit, got 'attic/temp': rename it
    """
    if isinstance(value, str) and len(value) <= LIMITS.id_chars_max and is_id(value):
        return value
    raise WireError(
        "id",
        f"{what} must be 1 to {LIMITS.id_chars_max} of a-z, 0-9, _ and - and start with "
        f"a letter or digit, got {shown(value)}: rename it",
    )
