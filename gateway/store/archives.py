"""What was learned from archives: written by `opid-gateway backfill`, read for every fit.

No gateway ever writes this table, so no leader is needed: an archive is replaced or forgotten as a
whole, in one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import (
    Connection,
    LargeBinary,
    MetaData,
    Table,
    delete,
    insert,
    select,
)

from gateway.registry.archives import ArchiveRecord
from gateway.store.column_types import Number, Real, key, may, must
from gateway.store.rows import in_order, row_of

METADATA = MetaData()
ARCHIVES = Table(
    "archives",
    METADATA,
    *(key(name) for name in ("group", "archive", "node")),
    key("epoch", Number),
    must("sensors"),
    must("gate", Real),
    must("payload", LargeBinary),
    must("readings", Number),
    must("labelled", Number),
    may("from_ms", Number),
    may("until_ms", Number),
    must("at_ms", Number),
)


def of_group(connection: Connection, group: str | None) -> list[ArchiveRecord]:
    """Everything that archives taught this group; of all groups where none is named."""
    chosen = select(ARCHIVES)
    if group is not None:
        chosen = chosen.where(ARCHIVES.c.group == group)
    return in_order(ArchiveRecord, ARCHIVES, connection.execute(chosen).mappings())


def replace(
    connection: Connection, group: str, archive: str, records: Sequence[ArchiveRecord]
) -> int:
    """These records instead of what is there of the archive; how many those were."""
    this = ARCHIVES.c.group == group, ARCHIVES.c.archive == archive
    gone = connection.execute(delete(ARCHIVES).where(*this)).rowcount
    if records:
        connection.execute(insert(ARCHIVES), [row_of(each) for each in records])
    return gone
