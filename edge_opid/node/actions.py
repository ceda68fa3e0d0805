"""What a node asks the world to do. Whoever runs it does these things, in the order given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Append(NamedTuple):
    """Keep this record for the next commit: one accepted input (`journal_records`)."""

    record: bytes


@dataclass(frozen=True, slots=True)
class Commit:
    """Make what was appended durable, then call `on_committed`, or else `on_commit_failed`."""


class Publish(NamedTuple):
    """Send a message, at least once."""

    topic: str
    payload: bytes
    retain: bool = False


class Release(NamedTuple):
    """Tell the broker that this delivery has been dealt with: the token given to `handle`."""

    token: object


class Warn(NamedTuple):
    """Something that whoever looks after the node should know, for the so-manieth time.

    Whoever runs the node writes it to the log, at its 1st, 2nd, 4th, 8th … time.
    """

    event: str
    times: int
    fields: Mapping[str, object]


Action = Append | Commit | Publish | Release | Warn
