"""What the gateway wants done. Records to save are not among them: the fleet keeps those."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.registry import NodeKey


@dataclass(frozen=True, slots=True)
class Publish:
    """Send this to the broker, once everything decided so far is saved."""

    topic: str
    payload: bytes
    retain: bool = False


@dataclass(frozen=True, slots=True)
class Listen:
    """Subscribe to exactly these filters, besides those always wanted."""

    filters: frozenset[str]


@dataclass(frozen=True, slots=True)
class Fit:
    """Fit this change on the first `size` instances of its batch, and report to `on_fitted`."""

    change: int
    size: int


@dataclass(frozen=True, slots=True)
class ForgetExamples:
    """The change is closed: its raw readings are not kept."""

    change: int


@dataclass(frozen=True, slots=True)
class Recall:
    """Read what these nodes have said of what they know, and tell `on_recalled`."""

    nodes: tuple[NodeKey, ...]


Action = Publish | Listen | Fit | ForgetExamples | Recall
