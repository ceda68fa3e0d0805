"""How a source is set up, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge_opid.config.schema import DURATION_S_MAX
from edge_opid.errors import SettingError, shown
from edge_opid.wire import LIMITS


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig:
    """Where a source keeps its spool, which topics it uses, and its bounds."""

    folder: Path
    reading_topic: str
    ack_topic: str
    spool_bytes_max: int = 16 * 2**20  # a day and a half of 100-byte readings, one a second
    drop_oldest: bool = False  # the default refuses: the script knows best what to do
    sync_every: int = 32
    sync_s: float = 1.0
    window: int = 256
    resend_s: float = 10.0  # longer than a node's commit interval, or every reading goes twice
    background: bool = True  # a thread hears acknowledgements; without it, call `pump`
    connect_s: float = 2.0  # the block begins when the broker has answered, or after so long
    leave_s: float = (
        7.0  # leaving it waits so long for a node that commits every 5 s; 0: not at all
    )

    def __post_init__(self) -> None:
        for name in ("spool_bytes_max", "sync_every", "window"):
            _check(name, getattr(self, name), (int,), LIMITS.integer_max)
        for name in ("sync_s", "resend_s"):
            _check(name, getattr(self, name), (int, float), DURATION_S_MAX)
        for name in ("connect_s", "leave_s"):
            _check(name, getattr(self, name), (int, float), DURATION_S_MAX, zero=True)


def _check(
    name: str, value: Any, kinds: tuple[type, ...], high: float, *, zero: bool = False
) -> None:
    number = isinstance(value, kinds) and not isinstance(value, bool)
    if not (number and (0 < value <= high or (zero and value == 0))):  # NaN is above nothing
        what = "a number" if float in kinds else "a whole number"
        low = "of at least 0" if zero else "above 0"
        complaint = f"must be {what} {low} and at most {high:g}, got {shown(value)}"
        raise SettingError(name, complaint)


@dataclass(slots=True, kw_only=True)
class SourceCounters:
    """What happened to the readings."""

    sent: int = 0  # taken by `send`
    refused: int = 0  # not taken: spool full, or disk at fault
    faults: int = 0  # failed reads, syncs, deletions: survived, and tried again
    acknowledged: int = 0  # acknowledgements that were news
    bad_acks: int = 0  # undecodable, or beyond anything ever sent
    disconnected: int = 0  # connections that ended, or could not be made
    renumbered: int = 0  # given another number: see `edge_opid.source.backlog`
    lost: int = 0  # dropped or rotten, sent as a reading without values
