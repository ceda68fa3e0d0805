"""What the store's files are called, and how it tidies up.

| name | what |
|---|---|
| `journal-0000000007` | a segment of the journal; the name appears once its header is durable |
| `spare-0000000003` | a segment that was or will be one; its content means nothing |
| `snapshot-0000000002` | a whole snapshot; the name appears once its content is durable |
| `*.tmp` | not finished when the power went; removed |
| `*.quarantined` | was whole once and is not any more; kept for a look, never read again |

Every other name is somebody else's and left alone. Numbers only grow.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from edge_opid.store.disk import Disk

_NAME = re.compile(r"(journal|spare|snapshot)-(\d{10})(\.quarantined)?")
RESCUE_TMP = "rescue.tmp"
SNAPSHOT_TMP = "snapshot.tmp"


def file_name(kind: str, number: int) -> str:
    """The name of a file of this kind.

    >>> file_name("journal", 7)
    'journal-0000000007'
    """
    return f"{kind}-{number:010d}"


def numbers(names: Iterable[str], kind: str, *, quarantined: bool = False) -> list[int]:
    """The numbers of the files of one kind, lowest first; whatever else lies there is ignored.

    >>> numbers(["journal-0000000007", "journal-0000000002", "journal-7", "photo.jpg"], "journal")
    [2, 7]
    """
    matches = (_NAME.fullmatch(name) for name in names)
    return sorted(int(m[2]) for m in matches if m and m[1] == kind and bool(m[3]) is quarantined)


def next_number(names: Iterable[str], *kinds: str) -> int:
    """A number above all of these kinds, the quarantined ones included."""
    names = list(names)
    used = [n for kind in kinds for q in (False, True) for n in numbers(names, kind, quarantined=q)]
    return max(used, default=0) + 1


class Cleanup:
    """Tidying up that may wait, in order, because correctness never hangs on it alone.

    A disk that is full or read-only must not keep a node from starting: what `open` finds to tidy
    goes here, is tried at once, and again before the next commit. A chore that raised is tried
    again from its beginning, so each is one disk operation, or can be repeated.

    >>> chores = Cleanup()
    >>> chores.add(lambda: print("swept"))
    >>> len(chores)
    1
    >>> chores.finish()
    swept
    """

    def __init__(self) -> None:
        self._todo: deque[Callable[[], None]] = deque()

    def add(self, chore: Callable[[], None]) -> None:
        """Put one at the end."""
        self._todo.append(chore)

    def finish(self) -> None:
        """Do them all; the first that raises stays, and so do those after it."""
        while self._todo:
            self._todo[0]()
            self._todo.popleft()

    def __len__(self) -> int:
        return len(self._todo)


def quarantine(disk: Disk, chores: Cleanup, name: str, keep: int) -> None:
    """Set a file aside under its own name, and let the oldest of its kind make room."""
    kind = name.partition("-")[0]
    chores.add(partial(disk.replace, name, f"{name}.quarantined"))
    chores.add(partial(_prune, disk, kind, keep))


def _prune(disk: Disk, kind: str, keep: int) -> None:
    aside = numbers(disk.names(), kind, quarantined=True)
    for number in aside[: max(0, len(aside) - keep)]:
        disk.remove(f"{file_name(kind, number)}.quarantined")
