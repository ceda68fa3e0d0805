"""What a sensor script on the Pi needs: `send`, without losing a reading.

Read in this order: `number` (a reading's number), `spool` (what is on disk), `window` (what to send
next: decisions without I/O), `backlog` (from one to the other), `source` (everything together),
`connect`.
"""

from edge_opid.source.connect import (
    connect,
    decode_ack,
    decode_reading,
    encode_reading,
    settings_for,
)
from edge_opid.source.number import FIRST_SEQ, ReadingNumber
from edge_opid.source.settings import SourceConfig, SourceCounters
from edge_opid.source.source import Source
from edge_opid.source.spool import SourceError, Spool, SpoolError, SpoolFullError
from edge_opid.source.window import ResendWindow

__all__ = [
    "FIRST_SEQ",
    "ReadingNumber",
    "ResendWindow",
    "Source",
    "SourceConfig",
    "SourceCounters",
    "SourceError",
    "Spool",
    "SpoolError",
    "SpoolFullError",
    "connect",
    "decode_ack",
    "decode_reading",
    "encode_reading",
    "settings_for",
]
