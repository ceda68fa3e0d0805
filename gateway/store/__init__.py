"""The gateway's durable state: SQLAlchemy Core over an SQLite file, or PostgreSQL by its URL."""

from gateway.registry.fleet import Stored

from .commands import FORGET, CommandRecord
from .errors import (
    DatabaseError,
    MasterError,
    RecordError,
    StoreError,
    StoreUrlError,
    StoreVersionError,
)
from .store import SUMMARIES_KEPT, Store

__all__ = [
    "FORGET",
    "SUMMARIES_KEPT",
    "CommandRecord",
    "DatabaseError",
    "MasterError",
    "RecordError",
    "Store",
    "StoreError",
    "StoreUrlError",
    "StoreVersionError",
    "Stored",
]
