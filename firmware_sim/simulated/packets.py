"""What travels over a simulated connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from edge_opid.link.contract import Will
from edge_opid.link.queues import Outgoing


class Connect(NamedTuple):
    """A client says who it is."""

    client: str
    persistent: bool
    inflight_max: int
    will: Will | None


class ConnectionAccepted(NamedTuple):
    """The broker takes it, says whether it remembers it, and how much it takes unconfirmed."""

    session_present: bool
    receive_max: int


class Subscribe(NamedTuple):
    """Ask for a filter, or with `qos` -1 ask no longer."""

    filter: str
    qos: int


class PublishPacket(NamedTuple):
    """A message under a packet id, which means something to this connection only."""

    packet_id: int
    message: Outgoing


class Raw(NamedTuple):
    """A PUBLISH as the bytes that a broker sends: whoever receives it has to make sense of them."""

    data: bytes


class Confirm(NamedTuple):
    """The receiver of a message has it."""

    packet_id: int


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The client leaves as it should: no will."""


@dataclass(frozen=True, slots=True)
class End:
    """The other side is gone."""


Packet = Connect | ConnectionAccepted | Subscribe | PublishPacket | Raw | Confirm | Goodbye | End
"""Those of MQTT's packets that matter here, and the end of the stream."""
