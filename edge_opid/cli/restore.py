"""`restore`: a state that `backup` has written, in the place of one that is gone.

Nothing is overwritten: the folder must be missing or empty. The state is read as the node will read
it before it gets its place; one of another node, or of another format, is refused there.

A restored state is older than the world. Readings that were acknowledged since are gone from it,
and no sender has them any more: the node asks for them, is told other numbers, and goes on from
there after a minute. Orders it has obeyed since are published again by the broker or the gateway.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import zlib
from argparse import Namespace
from dataclasses import replace
from gzip import BadGzipFile
from pathlib import Path

from edge_opid.cli.output import print_lines
from edge_opid.config.service import load_config
from edge_opid.errors import ConfigError, OpidError

BYTES_MAX = 256 * 2**20  # many times what a state has; an archive may claim any size


def restore(given: Namespace) -> int:
    """Put the state in the archive where the configuration says that the state is."""
    from edge_opid.service.wiring import open_node  # noqa: PLC0415 - it brings paho along

    config = load_config(given.file, os.environ)
    folder = config.state_folder
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"folder {folder} is not empty, and nothing is overwritten: move it away")
    unpacked = folder.with_name(f"{folder.name}.restoring")
    shutil.rmtree(unpacked, ignore_errors=True)
    unpacked.mkdir(parents=True, mode=0o700)
    try:
        _unpack(given.archive, unpacked)
        with open_node(replace(config, state_folder=unpacked), must_have_run=True) as (node, *_):
            node.planned()  # what a start would refuse is refused here
            readings = node.state.local_models.learner.readings
        _give_like(unpacked, folder if folder.exists() else folder.parent)
        unpacked.replace(folder)
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)
    print_lines([f"{folder} is {given.archive}: {readings} readings learned; start the node"])
    return 0


def _unpack(archive: Path, folder: Path) -> None:
    """Files, by plain names, and nothing else that an archive may hold."""
    try:
        with tarfile.open(archive) as found:
            members = found.getmembers()
            if sum(each.size for each in members) > BYTES_MAX:
                raise OpidError(f"{archive} is not a backup of a node: it is too large")
            for each in members:
                source = found.extractfile(each) if each.isreg() else None
                if source is None or Path(each.name).name != each.name or each.name in (".", ".."):
                    raise OpidError(f"{archive} is not a backup of a node: it has {each.name!r}")
                with source, (folder / each.name).open("xb") as target:
                    shutil.copyfileobj(source, target)
                (folder / each.name).chmod(0o600)
            _read_to_the_end(found)
    except (tarfile.TarError, EOFError, BadGzipFile, zlib.error) as error:
        why = str(error).partition(":")[0]  # the rest lists what every decompressor thought of it
        raise OpidError(f"{archive} is not a backup of a node: {why}") from error


def _read_to_the_end(archive: tarfile.TarFile) -> None:
    """The checksum of the whole stands behind the last file, where nobody else looks."""
    left = BYTES_MAX
    while archive.fileobj is not None and left > 0 and archive.fileobj.read(2**20):
        left -= 2**20


def _give_like(folder: Path, like: Path) -> None:
    """The owner that the folder had: the service's user must be able to write it."""
    if os.geteuid() == 0:
        owner = like.stat()
        for path in (folder, *folder.iterdir()):
            os.chown(path, owner.st_uid, owner.st_gid)
