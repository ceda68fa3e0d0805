"""What a node asks the world to do. Whoever runs it does these things, in the order given."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Append:
    """Keep this record for the next commit: one accepted input (`inputs.pack`)."""

    record: bytes


@dataclass(frozen=True, slots=True)
class Commit:
    """Make what was appended durable, then call `committed`; if that fails, `commit_failed`."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Send a message, at least once."""

    topic: str
    payload: bytes
    retain: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """Tell the broker that this delivery has been dealt with: the token given to `handle`."""

    token: object


Action = Append | Commit | Publish | Release
