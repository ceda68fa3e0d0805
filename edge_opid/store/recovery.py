"""Reading the journal back: what is in use, what is torn, what is lost. Reads only, decides all.

Two facts make the decision possible. A frame is written, and a segment is made, only after every
record before its first index had been synced: so each of them **claims** that those records were
durable. And a segment made later overrules an earlier one from its first index on.

1. A journal file whose header is not whole is quarantined: headers are durable before the name.
   One that is not as long as it was made is read, and not written to again (`damaged`).
2. The newest wins: a segment ends where a newer one begins; one that begins no earlier than a
   newer one was about to be quarantined when the power went, and now is.
3. Claims are followed in order. A claim that begins where the last one ended goes on.
4. A claim that begins later proves a hole. If a snapshot covers the hole, it is noted
   (`damaged`), and reading goes on behind it. If two do, nobody needs what was there: segments were
   being recycled when the power went, some sooner than others.
5. Otherwise acknowledged records are lost. The history ends before the hole: the good frames of
   that segment are rescued into a new one, it and all later segments are quarantined.
6. Invalid bytes behind the last claim are a torn tail: nobody was told that they are durable. They
   will be overwritten, and cannot come back: see the checksum in `frames`.

Rule 6 is the limit of a journal that syncs once a commit: what the medium spoils at the very end,
with nothing valid behind it, looks like a commit that the power cut short. It is noted as `torn` if
enough of its header is left to recognise it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from edge_opid.store.disk import Disk
from edge_opid.store.errors import Note
from edge_opid.store.files import file_name, numbers
from edge_opid.store.segment import Segment, read_header


@dataclass(slots=True, kw_only=True)
class JournalSurvey:
    """What was found, and what is to be done about it."""

    end: int  # the index after the last good record
    segments: list[Segment] = field(default_factory=list)  # in use, in order
    tail: int | None = None  # where the last of them goes on; None: with a new segment
    rescue: Segment | None = None  # the last of them, if its good frames must be copied first
    aside: list[str] = field(default_factory=list)  # files to quarantine
    notes: list[Note] = field(default_factory=list)

    def note(self, kind: str, file: str, sentence: str) -> None:
        """Tell the operator; the sentence begins with the file."""
        self.notes.append(Note(kind, file, f"{file}: {sentence}"))


@dataclass(frozen=True, slots=True)
class _Claim:
    """Records [first, end) are here, and all before `first` were durable."""

    before: int  # the place in the list of the segment in which a hole before `first` would lie
    first: int
    end: int
    tail: int


def survey(disk: Disk, names: Iterable[str], start: int, floor: int) -> JournalSurvey:
    """Read every segment. Snapshots cover the records before `start`, two those before `floor`."""
    found = JournalSurvey(end=start)
    segments = _read_headers(disk, names, found)
    found.segments = _newest_wins(segments, found)
    if found.segments:
        _follow(disk, start, floor, found)
    return found


def _read_headers(disk: Disk, names: Iterable[str], found: JournalSurvey) -> list[Segment]:
    segments = []
    for number in numbers(names, "journal"):
        name, header = file_name("journal", number), read_header(disk, number)
        if header is None:
            found.aside.append(name)
            found.note("quarantined", name, "its header is spoilt, its records cannot be read")
            continue
        size = disk.size(name)
        if size != header.size:
            found.note("damaged", name, f"{size} bytes long, was made with {header.size}")
        segments.append(Segment(header, damaged=size != header.size))
    return segments


def _newest_wins(segments: list[Segment], found: JournalSurvey) -> list[Segment]:
    live: list[Segment] = []
    for segment in reversed(segments):
        if live and segment.first >= live[0].first:
            found.aside.append(segment.name)
            found.note("quarantined", segment.name, f"overruled by {live[0].name}")
            continue
        if live:
            segment.until = live[0].first
        live.insert(0, segment)
    return live


def _claims(disk: Disk, segments: list[Segment]) -> Iterator[_Claim]:
    for i, segment in enumerate(segments):
        yield _Claim(i - 1, segment.first, segment.first, segment.header.page)
        for frame in segment.frames(disk):
            yield _Claim(i, frame.first, frame.end, frame.next_offset)


def _follow(disk: Disk, start: int, floor: int, found: JournalSurvey) -> None:
    position = min(start, found.segments[0].first)
    for claim in _claims(disk, found.segments):
        if claim.first > max(position, start):
            _end_before_hole(position, claim, found)
            break
        if claim.first > max(position, floor):
            _note_covered_hole(position, claim.first, found.segments[claim.before], found)
        position, found.tail = max(position, claim.end), claim.tail
    else:
        _look_behind(disk, position, start, found)
    found.end = max(position, start)


def _end_before_hole(position: int, claim: _Claim, found: JournalSurvey) -> None:
    lost = f"records {position} to {claim.first - 1} are spoilt or missing"
    keep = claim.before + 1
    if keep and found.segments[keep - 1].first < position:
        found.rescue = found.segments[keep - 1]
        found.rescue.until = position
        found.note("quarantined", found.rescue.name, f"{lost}; those before them are kept")
    elif keep:
        keep -= 1  # the hole begins where that segment does: nothing of it can be used
    found.segments, dropped, found.tail = found.segments[:keep], found.segments[keep:], None
    for segment in dropped:
        found.aside.append(segment.name)
        found.note("quarantined", segment.name, f"cannot be applied, {lost}")


def _note_covered_hole(position: int, end: int, segment: Segment, found: JournalSurvey) -> None:
    segment.damaged = True
    sentence = f"records {position} to {end - 1} are spoilt; the newest snapshot covers them"
    found.note("damaged", segment.name, sentence)


def _look_behind(disk: Disk, position: int, start: int, found: JournalSurvey) -> None:
    last = found.segments[-1]
    if position < start:
        _note_covered_hole(position, start, last, found)
    elif found.tail is not None and last.begun_at(disk, found.tail, position):
        found.note("torn", last.name, f"the commit of record {position} is incomplete")
    if last.damaged:
        found.tail = None
    if last.damaged and last.first >= position:
        found.aside.append(found.segments.pop().name)
        found.note("quarantined", last.name, "not one of its records is left")
