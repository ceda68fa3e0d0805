"""The journal: records in order, on a ring of preallocated segments.

1. A group of records is one frame: one write, one sync. It counts once both have returned.
2. After a failure nothing has moved: the same records are written to the same place again, which
   also makes pages dirty again that a failed sync has made the kernel forget.
3. A frame that does not fit begins a new segment: from a spare one, or a fresh one while there are
   fewer than `segments_max`. Its header is durable before its name, its name before its records.
4. `release(before)` gives up segments whose records all lie before that index. They become spares:
   their space stays ours, and their next life costs no filling with zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from edge_opid.store.disk import Disk
from edge_opid.store.errors import Note, StoreError
from edge_opid.store.files import RESCUE_TMP, Cleanup, file_name, next_number, numbers, quarantine
from edge_opid.store.frames import SegmentHeader, payload_bytes
from edge_opid.store.limits import StoreLimits
from edge_opid.store.recovery import JournalSurvey, survey
from edge_opid.store.segment import Segment, copy_frames, fill_with_zeros


class Journal:
    """Open the journal. Snapshots cover the records before `start`, two those before `floor`.

    Opening reads, and adds to `chores` what there is to tidy. `end` is the index after the last
    durable record.
    """

    def __init__(
        self,
        disk: Disk,
        limits: StoreLimits,
        chores: Cleanup,
        start: int,
        floor: int,
        nonce: Callable[[], bytes],
    ) -> None:
        self._disk, self._limits, self._chores, self._nonce = disk, limits, chores, nonce
        names = disk.names()
        found = survey(disk, names, start, floor)
        self.end: int = found.end
        self.notes: list[Note] = found.notes
        self._segments = found.segments
        self._tail = found.tail
        self._spares: list[str] = []
        self._sync_failed = False
        self._next_number = next_number(names, "journal", "spare")
        self._tidy(found, names)
        self.release(floor)  # the power may have gone before the last release was done

    # --- writing ---------------------------------------------------------------------------

    def write(self, records: Sequence[bytes]) -> None:
        """Make one group durable. On `OSError` nothing has changed; call it again."""
        segment, tail = self._place(payload_bytes(records))
        self._tail = segment.write(self._disk, tail, self.end, records)
        self.end += len(records)

    def _place(self, payload: int) -> tuple[Segment, int]:
        if self._tail is not None and self._segments[-1].room(self._tail, payload):
            return self._segments[-1], self._tail
        segment = self._begin_segment()
        return segment, segment.header.page

    def _begin_segment(self) -> Segment:
        spare = self._spares[-1] if self._spares else self._make_spare()
        header = self._new_header(self.end, self._limits.page_bytes, self._limits.segment_bytes)
        segment = Segment(header)
        self._disk.write(spare, 0, header.encode())
        self._disk.sync(spare)
        self._disk.replace(spare, segment.name)
        self._spares.remove(spare)
        self._adopt(segment)
        self._chores.add(self._disk.sync_names)
        self._chores.finish()
        return segment

    def _make_spare(self) -> str:
        if len(self._segments) >= self._limits.segments_max:
            raise StoreError(
                "journal-full",
                f"all {len(self._segments)} of {self._limits.segments_max} journal segments hold "
                "records that the two newest snapshots do not both cover: take a snapshot, and "
                "a second one if that does not help",
            )
        name = file_name("spare", self._next_number)
        self._disk.create(name, self._limits.segment_bytes)
        self._spares.append(name)
        fill_with_zeros(self._disk, name, self._limits.segment_bytes)
        return name

    def _new_header(self, first: int, page: int, size: int) -> SegmentHeader:
        return SegmentHeader(
            number=self._next_number, first=first, nonce=self._nonce(), page=page, size=size
        )

    def _adopt(self, segment: Segment) -> None:
        if self._segments:
            self._segments[-1].until = segment.first
        self._segments.append(segment)
        self._tail = segment.header.page
        self._next_number += 1

    # --- reading ---------------------------------------------------------------------------

    def records(self, start: int, end: int) -> Iterator[bytes]:
        """Records [start, end), read one group at a time: a node's memory is small."""
        position = start
        for segment in [segment for segment in self._segments if segment.until > start]:
            for frame in segment.frames(self._disk):
                fresh = frame.records[max(0, position - frame.first) : max(0, end - frame.first)]
                if frame.first <= position:
                    yield from fresh
                    position += len(fresh)
        if position < end:
            raise StoreError(
                "disk",
                f"record {position} could be read when the journal was opened, and now cannot: "
                "replace the medium",
            )

    # --- giving up ---------------------------------------------------------------------------

    def release(self, before: int) -> None:
        """Recycle the segments whose records all lie before that index; never the last one."""
        while len(self._segments) > 1 and self._segments[1].first <= before:
            self._give_up(self._segments.pop(0))

    def _give_up(self, segment: Segment) -> None:
        if segment.damaged:
            quarantine(self._disk, self._chores, segment.name, self._limits.quarantined_max)
        elif segment.header.size != self._limits.segment_bytes or not self._room_for_spare():
            self._chores.add(partial(self._disk.remove, segment.name))
        else:
            self._chores.add(partial(self._recycle, segment))

    def _recycle(self, segment: Segment) -> None:
        spare = file_name("spare", segment.header.number)
        self._disk.replace(segment.name, spare)
        self._spares.append(spare)

    def _room_for_spare(self) -> bool:
        return len(self._segments) + len(self._spares) < self._limits.segments_max

    def begun_since(self, index: int) -> int:
        """How many segments hold records from this index on."""
        return sum(segment.until > index for segment in self._segments)

    # --- tidying up after opening --------------------------------------------------------------

    def _tidy(self, found: JournalSurvey, names: list[str]) -> None:
        if RESCUE_TMP in names:
            self._chores.add(partial(self._disk.remove, RESCUE_TMP))
        if found.rescue is not None:
            self._chores.add(partial(self._rescue, found.rescue))
            self._chores.add(self._disk.sync_names)
            quarantine(self._disk, self._chores, found.rescue.name, self._limits.quarantined_max)
        elif self._segments:
            self._chores.add(partial(self._make_durable, self._segments[-1]))
        for name in found.aside:
            quarantine(self._disk, self._chores, name, self._limits.quarantined_max)
        for number in numbers(names, "spare"):
            self._inspect_spare(file_name("spare", number))

    def _make_durable(self, segment: Segment) -> None:
        """A process that was killed may have left a last group that only the page cache holds."""
        if self._sync_failed:
            segment.write_last_again(self._disk)
        self._sync_failed = True
        self._disk.sync(segment.name)
        self._sync_failed = False

    def _inspect_spare(self, name: str) -> None:
        if self._disk.size(name) == self._limits.segment_bytes and self._room_for_spare():
            self._spares.append(name)
        else:
            self._chores.add(partial(self._disk.remove, name))

    def _rescue(self, damaged: Segment) -> None:
        """Copy the good frames of a damaged segment into a new one, which overrules it."""
        header = self._new_header(damaged.first, damaged.header.page, damaged.header.size)
        if RESCUE_TMP in self._disk.names():
            self._disk.remove(RESCUE_TMP)
        copy_frames(self._disk, damaged, RESCUE_TMP, header)
        copy = Segment(header, until=damaged.until)
        self._disk.replace(RESCUE_TMP, copy.name)
        self._segments.remove(damaged)
        self._adopt(copy)
        self._tail = None
