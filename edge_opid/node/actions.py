"""What a node asks the world to do. Whoever runs it does these things, in the order given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Append(NamedTuple):
    """Keep this record for the next commit: one accepted input (`inputs.pack`)."""

    record: bytes


@dataclass(frozen=True, slots=True)
class Commit:
    """Make what was appended durable, then call `committed`; if that fails, `commit_failed`."""


class Publish(NamedTuple):
    """Send a message, at least once."""

    topic: str
    payload: bytes
    retain: bool = False


class Release(NamedTuple):
    """Tell the broker that this delivery has been dealt with: the token given to `handle`."""

    token: object


class Refused(NamedTuple):
    """A delivery was refused for this reason, so many times by now: for the log."""

    reason: str
    topic: str
    times: int


class Warn(NamedTuple):
    """Write a line to the log: something that whoever looks after the node should know."""

    event: str
    fields: Mapping[str, object]


Action = Append | Commit | Publish | Release | Refused | Warn
