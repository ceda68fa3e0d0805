"""What is wrong with bytes, a topic or a message: one error, with a word to count by."""

from __future__ import annotations

from edge_opid.errors import OpidError


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
