"""How the name of a device becomes an id: the documented rule.

1. Accents go (é → e, ß → ss), capitals become small letters.
2. Everything that is no letter from a to z and no digit becomes one `-`; none at either end.
3. An id is the device and what it measures, each once: `Living Room`, `temperature` →
   `living-room-temperature`.
4. It has at most 32 characters: the device's name is cut, what it measures stays.
5. A name that is taken gets `-2`, `-3` … at its end. A name of which nothing is left is `device`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container

from edge_opid.wire.limits import LIMITS

NOTHING_LEFT = "device"


def slug(text: str) -> str:
    """A name in the letters of an id, of any length.

    >>> slug("Größe: Küche/2 "), slug("客厅")
    ('grosse-kuche-2', '')
    """
    plain = unicodedata.normalize("NFKD", text.replace("ß", "ss").casefold())
    letters = "".join(each for each in plain if not unicodedata.combining(each))
    return re.sub(r"[^a-z0-9]+", "-", letters).strip("-")


def sensor_id(device: str, measure: str) -> str:
    """Device and measure, each once, within an id's length.

    >>> sensor_id("Living Room", "temperature"), sensor_id("Attic Temperature", "temperature")
    ('living-room-temperature', 'attic-temperature')
    >>> sensor_id("The very long name of a room upstairs", "humidity")
    'the-very-long-name-of-a-humidity'
    """
    whose, what = slug(device), slug(measure)
    if f"-{whose}-".find(f"-{what}-") >= 0 or not what:
        return cut(whose or NOTHING_LEFT)
    if what.startswith(f"{whose}-") or not whose:
        return cut(what)
    room = LIMITS.id_chars_max - len(what) - 1
    return cut(f"{cut(whose, room)}-{what}") if room > 0 else cut(what)


def cut(name: str, length: int = LIMITS.id_chars_max) -> str:
    """The beginning of a name, ending in a letter or digit."""
    return name[:length].strip("-")


def unique(name: str, taken: Container[str]) -> str:
    """The name, or the first of its numbered ones that nobody has.

    >>> unique("attic", {"attic", "attic-2"})
    'attic-3'
    """
    found, number = name, 1
    while found in taken:
        number += 1
        ending = f"-{number}"
        found = cut(name, LIMITS.id_chars_max - len(ending)) + ending
    return found
