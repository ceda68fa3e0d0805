"""Every bound of the store in one place, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass

from edge_opid.store.errors import StoreError
from edge_opid.store.frames import FRAME_HEADER_BYTES, RECORD_HEADER_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """How much the store may hold, in memory and on the card.

    >>> limits = StoreLimits()
    >>> limits.segment_bytes * limits.segments_max // 2**20  # MiB of journal, never more
    8
    >>> StoreLimits(pending_bytes_max=2**20)
    Traceback (most recent call last):
    ...
    edge_opid.store.errors.StoreError: pending_bytes_max 1048576 must be <= 1044448, so that one \
commit fits into a segment of 1048576 bytes: lower it, or raise segment_bytes
    """

    page_bytes: int = 4096  # what a file system writes at least: a commit never shares a page
    segment_bytes: int = 2**20  # 255 small commits; at one every 5 s a segment lasts 21 minutes
    segments_max: int = 8  # in use and spare together; 8 MiB of an SD card, taken once and kept
    record_bytes_max: int = 65_536  # as large as the largest message on the wire
    pending_bytes_max: int = 131_072  # waits in memory while the disk refuses; one commit's size
    snapshot_bytes_max: int = 2**24  # a learner with D = 1,250 in float32 is 6.3 MB
    quarantined_max: int = 4  # files kept for a look, of each kind; older ones make room

    def __post_init__(self) -> None:
        self._check_pages()
        self._check_fit()

    def _check_pages(self) -> None:
        if self.page_bytes < 64 or self.segment_bytes % self.page_bytes:
            raise StoreError(
                "limits",
                f"segment_bytes {self.segment_bytes} must be a multiple of page_bytes "
                f"{self.page_bytes}, and that at least 64: round it up",
            )
        if self.segments_max < 4:
            raise StoreError(
                "limits",
                f"segments_max {self.segments_max} must be >= 4: two snapshots' worth of journal, "
                "the segment in use, and one to go on with",
            )

    def _check_fit(self) -> None:
        room = self.segment_bytes - self.page_bytes - FRAME_HEADER_BYTES
        if self.pending_bytes_max > room:
            raise StoreError(
                "limits",
                f"pending_bytes_max {self.pending_bytes_max} must be <= {room}, so that one "
                f"commit fits into a segment of {self.segment_bytes} bytes: lower it, or raise "
                "segment_bytes",
            )
        if self.record_bytes_max + RECORD_HEADER_BYTES > self.pending_bytes_max:
            raise StoreError(
                "limits",
                f"record_bytes_max {self.record_bytes_max} must be <= pending_bytes_max "
                f"{self.pending_bytes_max} - {RECORD_HEADER_BYTES}, or the largest record could "
                "never be appended: raise pending_bytes_max",
            )
