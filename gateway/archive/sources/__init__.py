"""Where an archive's rows are: one module a kind, and which kind an address means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edge_opid.errors import RefusedError
from gateway.archive.mapping import ArchiveMapping
from gateway.archive.task import Part

SQLITE = b"SQLite format 3\0"


class SourceError(RefusedError, ValueError):
    """The archive is at fault, or its address."""

    def __init__(self, sentence: str) -> None:
        super().__init__("archive", sentence)


@dataclass(frozen=True, kw_only=True)
class Archive:
    """An archive in parts, whose order never changes, and what a checkpoint knows it by."""

    kind: str
    parts: Sequence[Part]
    mapping: ArchiveMapping
    """The operator's, with what the kind of source adds to it."""
    identity: Sequence[str]
    """Changes when the rows may have changed."""

    @property
    def rows(self) -> int:
        """About how many."""
        return sum(part.rows for part in self.parts)


def open_archive(addresses: Sequence[str], mapping: ArchiveMapping) -> Archive:
    """The archive at these addresses: Parquet files, a database, or a recorder's file."""
    first = addresses[0]
    if first.startswith(("postgresql://", "postgres://", "postgresql+psycopg://")):
        from gateway.archive.sources.postgresql import open_table  # noqa: PLC0415 - psycopg

        return open_table(_only(addresses), mapping)
    if "://" not in first and Path(first).is_file() and _is_sqlite(Path(first)):
        from gateway.archive.sources.recorder import open_recorder  # noqa: PLC0415

        return open_recorder(Path(_only(addresses)), mapping)
    from gateway.archive.sources.parquet import open_files  # noqa: PLC0415 - pyarrow

    return open_files(addresses, mapping)


def _only(addresses: Sequence[str]) -> str:
    if len(addresses) > 1:
        raise SourceError(f"a database is one archive: give one address, not {len(addresses)}")
    return addresses[0]


def _is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(SQLITE)) == SQLITE
