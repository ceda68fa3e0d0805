"""The gateway's durable state: SQLAlchemy Core over an SQLite file, or PostgreSQL by its URL."""

from gateway.registry.fleet import Stored
from gateway.store.commands import FORGET, CommandRecord
from gateway.store.errors import (
    DatabaseError,
    FleetStoreError,
    MasterError,
    RecordError,
    StoreUrlError,
    StoreVersionError,
)
from gateway.store.store import SUMMARIES_KEPT, FleetStore

__all__ = [
    "FORGET",
    "SUMMARIES_KEPT",
    "CommandRecord",
    "DatabaseError",
    "FleetStore",
    "FleetStoreError",
    "MasterError",
    "RecordError",
    "StoreUrlError",
    "StoreVersionError",
    "Stored",
]
