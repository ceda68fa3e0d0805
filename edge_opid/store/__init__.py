"""The durable state of a node: a journal of records and snapshots, through a small `Disk`.

Read in this order: `store` (what is promised), `disk` (what is asked of a disk), `frames` (the
bytes), `segment`, `survey` (reading back), `journal`, `snapshots`; `real_disk` is the one file that
touches the file system.
"""

from edge_opid.store.disk import Disk
from edge_opid.store.errors import Note, StoreError
from edge_opid.store.limits import StoreLimits
from edge_opid.store.real_disk import FolderToRead, RealDisk
from edge_opid.store.store import Recovered, Store

__all__ = [
    "Disk",
    "FolderToRead",
    "Note",
    "RealDisk",
    "Recovered",
    "Store",
    "StoreError",
    "StoreLimits",
]
