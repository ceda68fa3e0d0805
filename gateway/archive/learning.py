"""Parts in a fixed order into one total, with a checkpoint every few seconds.

Floating-point sums depend on their order, so whoever gathers a part, it is added when all before
it have been: any number of workers gives the same bits, and so does a run that was killed and went
on from its checkpoint. A checkpoint is one file that is replaced as a whole.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edge_opid.archive.sums import Sums
from edge_opid.errors import RefusedError, shown_path
from edge_opid.store.whole_file import write_whole
from gateway.archive.hands import Hands
from gateway.archive.sources import Archive
from gateway.archive.task import Epoch, Task

CHECKPOINT_S = 5.0
EPOCHS_MAX = 256
"""Sets of sensors of one node: more are not epochs but parts too short for a rare sensor."""
ARRAYS = ("labelled", "unlabelled", "moments", "heard")
Progress = Callable[[int, int], None]
"""Called with how many rows are in, and of how many."""


class CheckpointError(RefusedError, ValueError):
    """The checkpoint is of something else."""

    def __init__(self, sentence: str) -> None:
        super().__init__("checkpoint", sentence)


class EpochsError(RefusedError, ValueError):
    """A node seems to have had too many different sets of sensors."""

    def __init__(self, node: str) -> None:
        super().__init__(
            "epochs",
            f"node {node!r} of the archive has more than {EPOCHS_MAX} different sets of sensors: "
            "give larger row groups, or leave out columns with a value now and then",
        )


class Total:
    """What all parts so far say of each node and set of sensors, in the order they came."""

    def __init__(self, parts: int = 0, epochs: Sequence[Epoch] = ()) -> None:
        self.parts = parts
        self.epochs = {each.key: each for each in epochs}

    def add(self, found: Sequence[Epoch]) -> None:
        """One more part."""
        for epoch in found:
            if epoch.key in self.epochs:
                self.epochs[epoch.key].add(epoch)
            else:
                self.epochs[epoch.key] = epoch
                if sum(node == epoch.node for node, _ in self.epochs) > EPOCHS_MAX:
                    raise EpochsError(epoch.node)
        self.parts += 1


class Checkpoint:
    """A total in a file, and of which archive and task it is."""

    def __init__(self, path: Path, archive: Archive, task: Task) -> None:
        self._path, self._digest = path, digest_of(archive, task)

    def load(self) -> Total:
        """Where to go on; at the beginning where there is no file."""
        if not self._path.exists():
            return Total()
        try:
            with np.load(io.BytesIO(self._path.read_bytes()), allow_pickle=False) as saved:
                about = json.loads(bytes(saved["about"]).decode())
                arrays = {name: saved[name] for name in saved.files}
        except (OSError, ValueError, KeyError) as error:
            where = shown_path(self._path)
            raise CheckpointError(f"{where} is not a checkpoint ({error}): delete it") from error
        if about["digest"] != self._digest:
            raise CheckpointError(
                f"{shown_path(self._path)} is of another archive, mapping or group, or the archive "
                "has changed since: delete it to start again"
            )
        epochs = [_revived(n, told, arrays) for n, told in enumerate(about["epochs"])]
        return Total(about["parts"], epochs)

    def save(self, total: Total) -> None:
        """Replace the file."""
        arrays: dict[str, Any] = {}
        told = []
        for number, epoch in enumerate(total.epochs.values()):
            arrays |= {f"{number}.{name}": getattr(epoch.sums, name) for name in ARRAYS}
            told.append(
                {
                    "node": epoch.node,
                    "sensors": epoch.sensors,
                    "from_ms": epoch.from_ms,
                    "until_ms": epoch.until_ms,
                    "readings": epoch.sums.readings,
                    "others": epoch.sums.others,
                    "refused": dict(epoch.sums.refused),
                }
            )
        about = {"digest": self._digest, "parts": total.parts, "epochs": told}
        held = io.BytesIO()
        np.savez(held, about=np.frombuffer(json.dumps(about).encode(), np.uint8), **arrays)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self._path, held.getvalue(), mode=0o600)

    def remove(self) -> None:
        """All is learned and kept elsewhere."""
        self._path.unlink(missing_ok=True)


def _revived(number: int, told: dict[str, Any], arrays: dict[str, np.ndarray]) -> Epoch:
    return Epoch(
        node=told["node"],
        sensors=tuple(told["sensors"]),
        from_ms=told["from_ms"],
        until_ms=told["until_ms"],
        sums=Sums(
            **{name: arrays[f"{number}.{name}"] for name in ARRAYS},
            readings=told["readings"],
            others=told["others"],
            refused=Counter(told["refused"]),
        ),
    )


def digest_of(archive: Archive, task: Task) -> str:
    """A name for all that the total depends on; no address and no password can be read from it."""
    layouts = {node: each.to_dict() for node, each in sorted(task.layouts.items())}
    parts = [task.node, task.time, task.since_ms, task.until_ms, layouts, task.layout.to_dict()]
    wanted = task.wanted
    words = [dict(wanted.sensors), wanted.label, wanted.classes, dict(wanted.labels)]
    whole = json.dumps([list(archive.identity), len(archive.parts), parts, words], sort_keys=True)
    return hashlib.blake2b(whole.encode(), digest_size=16).hexdigest()


def learn(
    archive: Archive, task: Task, hands: Hands, checkpoint: Checkpoint, progress: Progress
) -> Total:
    """The total over all parts, from the checkpoint on; it is saved now and then, and at last."""
    total = checkpoint.load()
    rows, done = archive.rows, sum(part.rows for part in archive.parts[: total.parts])
    progress(done, rows)
    saved_s = time.monotonic()
    left = archive.parts[total.parts :]
    for part, found in zip(left, hands.gather(left, task), strict=True):
        total.add(found)
        done += part.rows
        progress(done, rows)
        if time.monotonic() - saved_s >= CHECKPOINT_S:
            checkpoint.save(total)
            saved_s = time.monotonic()
    checkpoint.save(total)
    return total
