"""The gateway's durable state: SQLAlchemy Core over an SQLite file, or PostgreSQL by its URL."""

from gateway.registry.fleet import StoredFleet
from gateway.store.commands import FORGET, RELEARN, CommandRecord
from gateway.store.errors import (
    DatabaseError,
    LeaderError,
    RecordError,
    StoreVersionError,
)
from gateway.store.store import SUMMARIES_KEPT, FleetStore

__all__ = [
    "FORGET",
    "RELEARN",
    "SUMMARIES_KEPT",
    "CommandRecord",
    "DatabaseError",
    "FleetStore",
    "LeaderError",
    "RecordError",
    "StoreVersionError",
    "StoredFleet",
]
