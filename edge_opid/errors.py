"""What can go wrong, and who is at fault.

Every error of this package is an `OpidError`, and also what a Python user would catch anyway
(`ValueError` for bad input). A message names the culprit, both values, and what to do.

What is wrong with bytes, a topic or a message: one error, with a word to count by.
"""

from __future__ import annotations

from dataclasses import dataclass


class OpidError(Exception):
    """The root of every error this package raises on purpose."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one reading was not taken: a short reason to count by, and a sentence to show.

    >>> print(Refusal("width", "expected 75 values, got 74"))
    expected 75 values, got 74
    """

    reason: str
    sentence: str

    def __str__(self) -> str:
        return self.sentence


class ReadingError(OpidError, ValueError):
    """The reading is at fault. Nothing was learned and no byte of state has changed."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.sentence)
        self.refusal = refusal


class LayoutError(OpidError, ValueError):
    """The description of the sensors is at fault: a name, a scale, a set of knots."""


class MismatchError(OpidError, ValueError):
    """Two things that should belong together do not: other widths, classes, λ or ρ."""


class WireError(OpidError, ValueError):
    """What arrived, or was about to be sent, is at fault. Nothing has changed because of it.

    `reason` is one of a few short words, so that a service can count refusals without keeping
    what it refused; the sentence names the field, what it must be and what it was.

    | reason | what was wrong |
    |---|---|
    | `size`, `truncated`, `trailing` | too many bytes, too few, or some left over |
    | `format`, `nesting`, `ext` | not msgpack, nested too deeply, or an extension type |
    | `schema`, `kind` | another schema version, or another message than this topic carries |
    | `type`, `range`, `nonfinite`, `length` | one value: its type, size, NaN or Inf, its length |
    | `id`, `text`, `topic` | a name that breaks the rules |
    | `duplicate`, `missing` | a key that comes twice, or not at all |
    | `shape`, `content` | an array of another length, or fields that contradict each other |
    | `signature` | not signed by a key that this node trusts |

    >>> error = WireError("range", "reading.seq must be from 1 to 9, got -4")
    >>> error.reason, str(error)
    ('range', 'reading.seq must be from 1 to 9, got -4')
    >>> isinstance(error, ValueError)
    True
    """

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


def shown(value: object) -> str:
    r"""A value as an error may quote it: escaped, and never longer than a line.

    >>> print(shown("a\nforged log line"))
    'a\nforged log line'
    >>> len(shown("x" * 10_000))
    43
    """
    text = repr(value[:48]) if isinstance(value, str | bytes) else repr(value)
    return text if len(text) <= 43 else text[:40] + "..."
