"""Parquet files, of this machine or of anything that pyarrow has a file system for (s3://…).

A part is a few row groups of one file, about a million rows: the order of the files by name and of
the row groups in them is the order of the archive.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge_opid.archive.tables import arrow
from gateway.archive.mapping import ArchiveMapping
from gateway.archive.sources import Archive, SourceError

PART_ROWS = 2**20
BATCH_ROWS = 2**16


@dataclass(frozen=True)
class ParquetPart:
    """Some row groups of one file."""

    address: str
    groups: tuple[int, ...]
    rows: int
    columns: tuple[str, ...]
    encoded: tuple[str, ...]
    """Columns of few different values, read as a dictionary."""

    def batches(self) -> Iterator[Any]:
        """The rows, in the order of the file."""
        with _opened(self.address, self.encoded) as file:
            yield from file.iter_batches(
                BATCH_ROWS, list(self.groups), list(self.columns), use_threads=False
            )


def open_files(addresses: Sequence[str], mapping: ArchiveMapping) -> Archive:
    """Files, folders and patterns of files, in the order of their names."""
    files = sorted(file for each in addresses for file in _found(each))
    if not files:
        raise SourceError(f"there is no Parquet file at {', '.join(addresses)}")
    words = [each for each in (mapping.label, mapping.node) if each]
    columns = (*mapping.columns, *words, *([mapping.time] if mapping.time else []))
    parts: list[ParquetPart] = []
    identity: list[str] = []
    for address in files:
        with _opened(address) as file:
            _check_columns(address, columns, file.schema_arrow.names)
            groups = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        parts += [
            ParquetPart(address, numbers, rows, columns, tuple(words))
            for numbers, rows in _in_parts(groups)
        ]
        identity.append(f"{address} {groups} {_version(address)}")
    return Archive(kind="Parquet", parts=parts, mapping=mapping, identity=identity)


def _in_parts(groups: Sequence[int]) -> Iterator[tuple[tuple[int, ...], int]]:
    """Neighbouring row groups, together up to a million rows, and how many rows they are.

    >>> list(_in_parts([600_000, 300_000, 900_000, 10]))
    [((0, 1), 900000), ((2, 3), 900010)]
    """
    some: list[int] = []
    rows = 0
    for number, more in enumerate(groups):
        if some and rows + more > PART_ROWS:
            yield tuple(some), rows
            some, rows = [], 0
        some.append(number)
        rows += more
    if some:
        yield tuple(some), rows


def _found(address: str) -> list[str]:
    """The files that an address means."""
    if "://" in address:
        return _remote(address)
    path = Path(address)
    if path.is_dir():
        return [str(each) for each in path.rglob("*.parquet")]
    if path.is_file():
        return [str(path)]
    pattern = path.name
    if any(sign in pattern for sign in "*?[") and path.parent.is_dir():
        return [str(each) for each in path.parent.glob(pattern)]
    raise SourceError(f"there is no {address}")


def _remote(address: str) -> list[str]:
    system, path = _system(address)
    from pyarrow import fs  # noqa: PLC0415 - only for what is elsewhere

    info = system.get_file_info(path)
    if info.type == fs.FileType.File:
        return [address]
    if info.type != fs.FileType.Directory:
        raise SourceError(f"there is nothing at {address.partition('?')[0]}")
    base, mark, options = address.partition("?")
    prefix = base.removesuffix("/").removesuffix(path.removesuffix("/"))
    every = system.get_file_info(fs.FileSelector(path, recursive=True))
    names = [each.path for each in every if each.path.endswith(".parquet")]
    return [f"{prefix}{name}{mark}{options}" for name in names]


def _system(address: str) -> tuple[Any, str]:
    arrow()
    from pyarrow import fs  # noqa: PLC0415 - only for what is elsewhere

    try:
        system, path = fs.FileSystem.from_uri(address)
    except (OSError, ValueError) as error:
        raise SourceError(f"{address.partition('?')[0]} cannot be opened: {error}") from error
    return system, path


def _opened(address: str, encoded: Sequence[str] = ()) -> Any:
    pa = arrow()
    from pyarrow import parquet  # noqa: PLC0415

    try:
        if "://" in address:
            system, path = _system(address)
            return parquet.ParquetFile(
                system.open_input_file(path), read_dictionary=list(encoded), pre_buffer=True
            )
        return parquet.ParquetFile(address, read_dictionary=list(encoded))
    except pa.ArrowInvalid as error:
        raise SourceError(f"{address} is not a Parquet file: {error}") from error


def _version(address: str) -> str:
    """The size and the moment of a file: when it is written anew, they change."""
    if "://" in address:
        system, path = _system(address)
        info = system.get_file_info(path)
        return f"{info.size} {info.mtime_ns}"
    status = Path(address).stat()
    return f"{status.st_size} {status.st_mtime_ns}"


def _check_columns(address: str, wanted: Sequence[str], there: Sequence[str]) -> None:
    for name in wanted:
        if name not in there:
            raise SourceError(f"{address} has no column {name!r}; it has {', '.join(there)}")
