"""`backup`, `restore`: the database in one file, while the gateway runs; and back, while none does.

SQLite copies a database page by page and begins again where somebody writes meanwhile, so the copy
is one moment of it. A copy is checked before it has its name. What a restore replaces is kept
beside it. PostgreSQL has tools of its own, and we say how to call them.

A restored database knows less than its nodes: what was ordered since is missing. The gateway sees
that in their statuses, and orders them anew above the versions they have (docs/upkeep.md).
"""

from __future__ import annotations

import os
import shlex
import sqlite3
import stat
from argparse import Namespace
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy.engine import make_url

from edge_opid.store.whole_file import sync_folder
from gateway.cli.context import OperatorError
from gateway.cli.output import Terminal
from gateway.config import GatewayConfig, load_config
from gateway.store import DatabaseError, FleetStore, LeaderError
from gateway.store.database import FAMILY, OWNERS_ALONE
from gateway.store.leader import FileLock
from gateway.store.tables import LEADER

FORMER = ".before-restore"
TABLE = LEADER.name
"""One that every database of ours has."""


def backup(given: Namespace, screen: Terminal) -> int:
    """Copy the database as it is now to a new file that is its owner's alone."""
    config = load_config(given.config, os.environ)
    source = _sqlite_file(
        config, given.file, "pg_dump --format=custom --file={file} --dbname={url}"
    )
    if not source.is_file():
        raise OperatorError(f"there is no {source} to back up: no gateway has used it yet")
    if os.path.lexists(given.file):
        raise OperatorError(f"{given.file} already exists, and nothing is overwritten")
    with _unfinished(given.file) as copy:
        _copy(source, copy)
        copy.replace(given.file)
    sync_folder(given.file.absolute().parent)
    screen.lines(
        [
            f"{given.file}: {given.file.stat().st_size} bytes, mode 0600",
            f"it holds labelled readings; {config.key_file} and {given.config} are not in it",
        ]
    )
    return 0


def restore(given: Namespace, screen: Terminal) -> int:
    """Put a copy in the place of the database; the former one is kept under another name."""
    config = load_config(given.config, os.environ)
    command = "pg_restore --clean --if-exists --dbname={url} {file}"
    target = _sqlite_file(config, given.file, command)
    former = Path(f"{target}{FORMER}")
    if os.path.lexists(former):
        raise OperatorError(f"{former} already exists, from another restore: move it away first")
    if not given.file.is_file():
        raise OperatorError(f"there is no {given.file} to restore")
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target), _unfinished(target) as copy:
        _copy(given.file, copy)
        _refuse_another_kind(copy, given.file)
        with FleetStore.open(f"sqlite:///{copy}") as store:  # or a sentence: too old, too new
            nodes = len(store.fleet().nodes)
        _give_like(copy, target)
        for ending in FAMILY:
            if (each := Path(f"{target}{ending}")).exists():
                each.replace(f"{former}{ending}")
        copy.replace(target)
    sync_folder(target.parent)
    kept = [f"the former database is now {former}"] if former.exists() else []
    screen.lines([f"{target} is {given.file}: {nodes} nodes", *kept, "start the gateway"])
    return 0


def _sqlite_file(config: GatewayConfig, file: Path, command: str) -> Path:
    url = make_url(config.database)
    if url.get_backend_name() != "sqlite":
        public = {key: value for key, value in url.query.items() if "password" not in key}
        shown = url.set(drivername="postgresql", query=public).render_as_string(hide_password=True)
        words = shlex.join(each.format(file=file, url=shown) for each in command.split())
        raise OperatorError(f"PostgreSQL has its own tools for this, run: {words}")
    return Path(str(url.database))


@contextmanager
def _unfinished(path: Path) -> Iterator[Path]:
    """A file beside `path`, empty and our own; gone at the end if it has not been renamed."""
    found = path.with_name(f"{path.name}.new")
    for ending in FAMILY:
        Path(f"{found}{ending}").unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    os.close(os.open(found, flags, OWNERS_ALONE))
    try:
        yield found
    finally:
        for ending in FAMILY:
            Path(f"{found}{ending}").unlink(missing_ok=True)


def _copy(source: Path, target: Path) -> None:
    """One moment of a database as one whole, checked file."""
    try:
        with (
            closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as old,
            closing(sqlite3.connect(target)) as new,
        ):
            old.backup(new)
            new.execute("PRAGMA journal_mode = DELETE").close()  # nothing of it beside the file
            (found,) = new.execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.Error as error:
        raise DatabaseError(f"{source} cannot be copied: {error}", transient=False) from error
    if found != "ok":
        raise DatabaseError(f"{source} is damaged: {found}", transient=False)
    handle = os.open(target, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _refuse_another_kind(copy: Path, file: Path) -> None:
    """An empty file, or somebody else's database, would become one of ours without a word."""
    with closing(sqlite3.connect(copy)) as connection:
        ours = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = ?", (TABLE,))
        if not ours.fetchone()[0]:
            raise OperatorError(f"{file} is not a gateway's database")


@contextmanager
def _locked(target: Path) -> Iterator[None]:
    """No gateway may serve what we replace, nor begin to."""
    if not target.exists():
        yield  # nobody serves what is not there
        return
    lock = FileLock(Path(f"{target.resolve()}.lock"))
    if not lock.take():
        raise LeaderError(f"{target} is being served by {lock.holder()}: stop it first")
    try:
        yield
    finally:
        lock.release()


def _give_like(copy: Path, target: Path) -> None:
    """The owner of what was there, or of its folder: the service must be able to write it."""
    like = target if target.exists() else target.parent
    found = like.stat()
    if os.geteuid() == 0 and stat.S_ISREG(copy.lstat().st_mode):
        os.chown(copy, found.st_uid, found.st_gid)
