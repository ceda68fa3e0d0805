"""Whose the files of a fleet become: the gateway and the broker run as users of their own.

`init` is run by root, and a secret is its owner's alone. So what a service reads is given to its
user, where that user exists; where not, there is a line for the operator to type.
"""

from __future__ import annotations

import os
import pwd
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

SERVICE, BROKER = "opid-gateway", "mosquitto"


def give_to_services(folder: Path, service: str = SERVICE, broker: str = BROKER) -> list[str]:
    """Give each secret of root's to whoever must read it; what remains to be done, a line each."""
    left: list[str] = []
    if os.geteuid() != 0:
        return left  # who sets up a fleet as themselves runs it as themselves
    for user, paths in _readers(folder.absolute(), service, broker).items():
        ours = [path for path in paths if _is_roots(path)]
        found = _account(user)
        if found is None and ours:
            left += _by_hand(user, ours)
        elif found is not None:
            for path in ours:
                os.chown(path, found.pw_uid, found.pw_gid, follow_symlinks=False)
    return left


def _is_roots(path: Path) -> bool:
    """A file of root's that is really here: a service could have left a link to another one."""
    if path.parent.is_symlink() or not os.path.lexists(path):
        return False
    found = path.lstat()
    return stat.S_ISREG(found.st_mode) and found.st_uid == 0


def _readers(folder: Path, service: str, broker: str) -> dict[str, list[Path]]:
    keys = sorted((folder / "keys").glob("*"))
    return {service: keys, broker: [folder / "mosquitto" / name for name in ("passwords", "acl")]}


def _account(user: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(user)
    except KeyError:
        return None


def _by_hand(user: str, paths: list[Path]) -> Iterator[str]:
    if user == BROKER:
        yield "install mosquitto: this machine has no user of that name"
    else:
        yield f"create the service's user: sudo adduser --system --group --no-create-home {user}"
    files = " ".join(shlex.quote(str(path)) for path in paths)
    yield f"let {user} read its files: sudo chown {user}: {files}"
