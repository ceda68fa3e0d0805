"""What can go wrong, and who is at fault.

Every error that this package raises on purpose is one of two kinds, and also what a Python user
would catch anyway (`ValueError` for bad input, `OSError` for a disk):

- `RefusedError`: something was refused, and nothing has changed because of it. `reason` is a short
  word to count by.
- `ConfigError`: something is configured wrongly. `key` is the setting to mend.

A message names the culprit, both values, and what to do.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

OURS = ("edge_opid", "gateway", "firmware_sim")


class OpidError(Exception):
    """The root of every error this package raises on purpose."""


class RefusedError(OpidError):
    """Something was refused, and nothing has changed because of it.

    `reason` is one of a few short words, so that a service can count refusals without keeping what
    it refused; the sentence is for people.
    """

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


class ConfigError(OpidError, ValueError):
    """The configuration is at fault; `key` says which setting, and is empty for a whole file."""

    def __init__(self, sentence: str, key: str = "") -> None:
        super().__init__(sentence)
        self.key = key


class SettingError(ConfigError):
    """One setting is at fault. Whoever has read it from a file adds the file and the line.

    >>> error = SettingError("node.gate", "must be above 0, got -8")
    >>> error.key, str(error)
    ('node.gate', 'node.gate must be above 0, got -8')
    """

    def __init__(self, key: str, complaint: str) -> None:
        super().__init__(f"{key} {complaint}", key)


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


class ReadingError(RefusedError, ValueError):
    """The reading is at fault. Nothing was learned and no byte of state has changed."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.reason, refusal.sentence)
        self.refusal = refusal


class LayoutError(RefusedError, ValueError):
    """The description of the sensors is at fault: a name, a scale, a set of knots."""

    def __init__(self, sentence: str) -> None:
        super().__init__("layout", sentence)


class MismatchError(RefusedError, ValueError):
    """Two things that should belong together do not: other widths, classes, λ or ρ."""

    def __init__(self, sentence: str) -> None:
        super().__init__("mismatch", sentence)


class WireError(RefusedError, ValueError):
    """What arrived, or was about to be sent, is at fault: bytes, a topic or a message.

    The sentence names the field, what it must be and what it was.

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


def sentence_of(error: Exception) -> str:
    """An error as a person wants to read it: the file and what is wrong with it, and no number.

    >>> sentence_of(FileNotFoundError(2, "No such file or directory", "old.tar.gz"))
    'old.tar.gz: no such file or directory'
    >>> sentence_of(ConfigError("node.gate must be above 0, got -8"))
    'node.gate must be above 0, got -8'
    """
    if not isinstance(error, OSError) or isinstance(error, OpidError) or not error.strerror:
        return str(error)
    what = error.strerror[:1].lower() + error.strerror[1:]
    names = [shown_path(each) for each in (error.filename, error.filename2) if each is not None]
    return f"{' and '.join(names)}: {what}" if names else what


def shown_path(path: object) -> str:
    """A path without quotes, unless it needs some."""
    text = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else str(path)
    return text if text.isprintable() else shown(text)


def shown(value: object) -> str:
    r"""A value as an error may quote it: escaped, and never longer than a line.

    >>> print(shown("a\nforged log line"))
    'a\nforged log line'
    >>> len(shown("x" * 10_000))
    43
    """
    text = repr(value[:48]) if isinstance(value, str | bytes) else repr(value)
    return text if len(text) <= 43 else text[:40] + "..."


def missing_extra(error: ModuleNotFoundError, extra: str) -> str:
    """The sentence for whoever installed a program without the libraries it needs.

    A missing module of our own is no such case but a bug, and raised again.

    >>> missing_extra(ModuleNotFoundError(name="sqlalchemy.engine"), "gateway")
    "sqlalchemy is not installed: this program needs the extra 'gateway': pip install \
'edge-opid[gateway]'"
    """
    package = (error.name or "").partition(".")[0]
    if package in ("", *OURS):
        raise error
    return (
        f"{package} is not installed: this program needs the extra {extra!r}: "
        f"pip install 'edge-opid[{extra}]'"
    )
