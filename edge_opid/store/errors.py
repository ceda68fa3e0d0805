"""What can go wrong with the durable state, and what was noticed while reading it back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from edge_opid.errors import RefusedError


class StoreError(RefusedError, OSError):
    """The disk, or a limit of the store, is at fault. What was pending is still pending.

    `reason` is a short word to count by: `disk` (an operation failed: full, read-only, broken),
    `record` (one record is too large), `pending` (too many bytes wait for a commit),
    `journal-full` (every segment is in use: take a snapshot), `snapshot` (too large), `version`
    (written by another format), `limits` (the limits contradict each other), `locked` (another
    process has the folder), `state-gone` (the folder or a file was deleted, moved or unmounted
    while it was open), `missing` (there should be a state, and there is none).

    >>> error = StoreError("disk", "commit: No space left on device: free some space", errno=28)
    >>> print(error)
    commit: No space left on device: free some space
    >>> error.reason, error.errno, isinstance(error, OSError)
    ('disk', 28, True)
    """

    def __init__(self, reason: str, sentence: str, errno: int | None = None) -> None:
        super().__init__(reason, sentence)
        self.errno = errno


@contextmanager
def disk_errors(doing: str, advice: str) -> Iterator[None]:
    """Turn the `OSError` of a disk operation into a `StoreError` that says what was being done.

    >>> with disk_errors("commit of 3 records", "they stay pending"):
    ...     raise OSError(30, "Read-only file system")
    Traceback (most recent call last):
    ...
    edge_opid.store.errors.StoreError: commit of 3 records: [Errno 30] Read-only file system; \
they stay pending
    """
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        raise StoreError("disk", f"{doing}: {error}; {advice}", error.errno) from error


@dataclass(frozen=True, slots=True)
class Note:
    """Something noticed when the store was opened: a kind to count by, the file, a sentence.

    `torn`: the last commit before a power cut is incomplete; nobody was told it was durable,
    unless the disk spoilt it afterwards. `quarantined`: a file that was whole once is not any
    more, and was set aside. `damaged`: the same, but the rest of the file is still in use; what is
    lost of it, a snapshot covers.
    `postponed`: the disk refused the tidying up; the next commit tries again.

    >>> print(Note("torn", "journal-1", "journal-1: the commit of record 7 is incomplete"))
    journal-1: the commit of record 7 is incomplete
    """

    kind: str
    file: str
    sentence: str

    def __str__(self) -> str:
        return self.sentence
