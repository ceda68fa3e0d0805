"""The small file that `opid-node status` reads.

It belongs on a RAM disk (`/run`): it is replaced every few seconds, is never synced, and means
nothing after a restart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edge_opid.store.whole_file import write_whole


def write_status(path: Path, status: Mapping[str, Any]) -> None:
    """Replace the file in one step, so that a reader never sees half of it."""
    write_whole(path, json.dumps(status, ensure_ascii=False).encode(), durable=False)


def read_status(path: Path) -> dict[str, Any]:
    """What a node wrote last; `OSError` or `ValueError` if there is nothing to read.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "status.json"
    ...     write_status(path, {"online": True})
    ...     read_status(path)
    {'online': True}
    """
    status = json.loads(path.read_text("utf-8"))
    if not isinstance(status, dict):
        raise ValueError(f"{path} is not a status file: it holds {type(status).__name__}")
    return status
