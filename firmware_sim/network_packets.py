"""What travels over a simulated connection."""

from __future__ import annotations

from dataclasses import dataclass

from edge_opid.link.contract import Will
from edge_opid.link.outbox import Outgoing


@dataclass(frozen=True, slots=True)
class Connect:
    """A client says who it is."""

    client: str
    persistent: bool
    inflight_max: int
    will: Will | None


@dataclass(frozen=True, slots=True)
class Accepted:
    """The broker takes it, and says whether it remembers it."""

    session_present: bool


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Ask for a filter, or with `qos` -1 ask no longer."""

    filter: str
    qos: int


@dataclass(frozen=True, slots=True)
class Publish:
    """A message under a packet id, which means something to this connection only."""

    packet_id: int
    message: Outgoing


@dataclass(frozen=True, slots=True)
class Confirm:
    """The receiver of a message has it."""

    packet_id: int


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The client leaves as it should: no will."""


@dataclass(frozen=True, slots=True)
class End:
    """The other side is gone."""


Packet = Connect | Accepted | Subscribe | Publish | Confirm | Goodbye | End
"""Those of MQTT's packets that matter here, and the end of the stream."""
