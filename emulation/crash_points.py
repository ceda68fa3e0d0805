"""A thousand power cuts from one life: what would each have left of what was acknowledged?

The state of the node is on a disk of its own whose every write the emulator logs. While the node
lives, a `Source` on the host notes how long the log was when each acknowledgement had arrived. Each
cut point is then put together from the log, mounted (the kernel repairs the file system as it would
at boot), and opened as a node would open it:

1. Every reading acknowledged by then is in the state.
2. The state is, to the bit, what an undisturbed node knows after as many readings as are in it: so
   none is in it twice.
3. Nothing was set aside as spoilt.
"""

from __future__ import annotations

import hashlib
import random
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from edge_opid.config.service import parse_config
from edge_opid.node.journal_records import unpack_state
from edge_opid.service.wiring import open_node
from edge_opid.source import Source
from emulation import world
from emulation.write_log import CrashedDisk, requests
from firmware_sim.live.timeless import but_for_times

Acknowledged = Sequence[tuple[int, int]]
"""(bytes of the log, highest number acknowledged when it had them), both growing."""
ON_THEIR_WAY = 100  # fewer than a source's window: what waits in its spool is not `pending`


def watch(source: Source, log: Path, count: int, rate: float) -> list[tuple[int, int]]:
    """Send the world's readings, and note what was acknowledged at which length of the log."""
    noted: list[tuple[int, int]] = []
    began = time.monotonic()
    rows = world.readings(count)
    sent = 0
    while sent < count or not source.drained():
        room = ON_THEIR_WAY - source.pending
        due = min(count, int((time.monotonic() - began) * rate) + 1, sent + room)
        for values, label in rows[sent:due]:
            sent += 1
            source.send(values, label, time_ms=sent)
        acknowledged = sent - source.pending  # first this, and then the log: never too strict
        length = log.stat().st_size
        if not noted or acknowledged > noted[-1][1]:
            noted.append((length, acknowledged))
        time.sleep(0.02)
    return noted


def must_have(noted: Acknowledged, end: int) -> int:
    """The highest number that had been acknowledged when the log was so long.

    >>> must_have([(100, 3), (200, 5)], 199), must_have([(100, 3)], 99)
    (3, 0)
    """
    return max((seq for length, seq in noted if length <= end), default=0)


def survive(first: Path, log: Path, noted: Acknowledged, boot: int, points: int) -> Counter[str]:
    """Try so many cut points, spread over the life; counts of what was found."""
    life = list(requests(log))
    chance = random.Random(world.SEED)
    found: Counter[str] = Counter(requests=len(life), flushes=sum(each.is_flush for each in life))
    disk = CrashedDisk(first.read_bytes(), life)
    oracle = Oracle(boot)
    for cut in sorted(chance.randint(1, len(life)) for _ in range(points)):
        image = disk.after(cut, chance)
        found["points"] += 1
        found.update(judge(image, must_have(noted, life[cut - 1].end), oracle))
    return found


class Oracle:
    """What an undisturbed node knows after any number of readings, as digests."""

    def __init__(self, boot: int) -> None:
        self.config = parse_config(world.settings(), {})
        self._node = world.Undisturbed(self.config.node, boot)
        self._digests: list[bytes] = [_digest(self._node.after(0))]

    def after(self, count: int) -> bytes:
        """The digest after so many readings."""
        while len(self._digests) <= count:
            self._digests.append(_digest(self._node.after(len(self._digests))))
        return self._digests[count]


def _digest(state: bytes) -> bytes:
    return hashlib.sha256(state).digest()


def judge(image: bytes, needed: int, oracle: Oracle) -> Iterator[str]:
    """What is wrong with a disk that a power cut has left: nothing, or the names of it."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        file = Path(name) / "disk.img"
        file.write_bytes(image)
        with mounted(file, Path(name) / "mnt") as folder:
            config = replace(oracle.config, state_folder=folder)
            with open_node(config) as (node, _, recovered):
                state = unpack_state(node.snapshot())
                if any(note.kind == "quarantined" for note in recovered.notes):
                    yield "quarantined"
    applied = state["register"]["expected"].get(world.SOURCE, [0, 1])[1] - 1
    if applied < needed:
        yield "lost"
    if sum(state["frequency"]) != applied:
        yield "twice"
    if _digest(but_for_times(state)) != oracle.after(applied):
        yield "other bits"


@contextmanager
def mounted(disk: Path, at: Path) -> Iterator[Path]:
    """The files of a disk, after the kernel has repaired what a power cut left half."""
    at.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", "loop", str(disk), str(at)], check=True)
    try:
        yield at
    finally:
        subprocess.run(["umount", str(at)], check=True)
