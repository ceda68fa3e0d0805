"""`backup`: what a stopped node must not forget, in one file.

A node commits several times a minute, so a copy made beside it would hold half a step. The folder
is locked while it is copied: a running node has that lock, and keeps it.
"""

from __future__ import annotations

import io
import os
import tarfile
from argparse import Namespace
from pathlib import Path

from edge_opid.cli.output import print_lines
from edge_opid.config.service import load_config
from edge_opid.errors import ConfigError, OpidError
from edge_opid.store.real_disk import RealDisk
from edge_opid.store.whole_file import write_whole


def backup(given: Namespace) -> int:
    """Write the state of a stopped node to a new file that is its owner's alone."""
    config = load_config(given.file, os.environ)
    folder: Path = config.state_folder
    if os.path.lexists(given.out):
        raise ConfigError(f"{given.out} already exists, and nothing is overwritten")
    if not folder.is_dir():  # opening it would make one
        raise OpidError(f"there is no folder {folder}: there is nothing to back up")
    whole = io.BytesIO()
    with RealDisk(folder) as disk, tarfile.open(fileobj=whole, mode="w:gz") as archive:
        names = sorted(disk.names())
        for name in names:
            archive.add(folder / name, arcname=name, recursive=False)
    if not names:
        raise OpidError(f"folder {folder} holds no state: there is nothing to back up")
    write_whole(given.out, whole.getvalue(), mode=0o600)
    print_lines([f"{given.out}: {len(names)} files of {folder}, mode 0600"])
    return 0
