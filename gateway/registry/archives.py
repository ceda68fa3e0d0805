"""What an operator's archive taught a group: a record for each node and set of sensors in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from edge_opid.wire import SensorDescription


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveRecord:
    """The statistics of one node of an archive while it had the same sensors: a layout epoch."""

    KEY: ClassVar[tuple[str, ...]] = ("group", "archive", "node", "epoch")
    group: str
    archive: str
    """What the operator called it."""
    node: str
    """As the archive calls it; empty where it does not tell nodes apart."""
    epoch: int
    """From 1, in the order in which these sets of sensors came first."""
    sensors: tuple[SensorDescription, ...]
    gate: float
    payload: bytes
    """A `SummaryMessage`, as a node would have sent it."""
    readings: int
    """All of them, labelled or not."""
    labelled: int
    from_ms: int | None
    until_ms: int | None
    at_ms: int
    """When it was learned."""

    @property
    def name(self) -> str:
        """How a pool lists it."""
        where = f"{self.archive}/{self.node}" if self.node else self.archive
        return f"archive {where} #{self.epoch}"
