"""What a node asks the world to do. Whoever runs it does these things, in the order given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from edge_opid.tally import LogLine


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


Action = Append | Commit | Publish | Release | LogLine
