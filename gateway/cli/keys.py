"""`key show`, `key new`, `key use`: from one signing key to the next without a node left behind.

Nodes obey whoever they have a public key of, and may have several. So a new key is made first and
lies beside the old one (`gateway.key.next`) until every node has its public key; then it is used.
The old one is kept (`gateway.key.old`), in case a node was forgotten.
"""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path

from nacl.signing import SigningKey

from edge_opid.store.whole_file import write_whole
from gateway.cli.context import OperatorError
from gateway.cli.output import Terminal
from gateway.config import load_config, load_signing_key

SECRET, PUBLIC = 0o600, 0o644


def show(given: Namespace, screen: Terminal) -> int:
    """The public key that nodes know the gateway by, and the next one."""
    path = load_config(given.config, os.environ).key_file
    screen.facts([(path.name, _public(path))])
    if (following := next_of(path)).exists():
        screen.facts([(following.name, _public(following))])
    return 0


def new(given: Namespace, screen: Terminal) -> int:
    """Make the next key; the one in use stays in use."""
    path = load_config(given.config, os.environ).key_file
    load_signing_key(path)
    following = next_of(path)
    if following.exists():
        raise OperatorError(f"{following} already exists: use it, or delete it")
    _write(following, bytes(SigningKey.generate()).hex(), SECRET, path)
    both = f'keys = ["{_public(path)}", "{_public(following)}"]'
    screen.lines(
        [
            f"wrote {following}",
            "",
            "what remains to be done:",
            f"- in every node.toml, under [gateway]: {both}; restart each node",
            f"- then: opid-gateway key use {given.config}, and restart the gateway",
        ]
    )
    return 0


def use(given: Namespace, screen: Terminal) -> int:
    """Let the next key be the one that signs, from the gateway's next start on."""
    path = load_config(given.config, os.environ).key_file
    following, old = next_of(path), path.with_name(f"{path.name}.old")
    if not following.exists():
        raise OperatorError(f"there is no {following}: create it with opid-gateway key new first")
    if old.exists():
        raise OperatorError(f"{old} already exists: nodes may still need it; delete it first")
    public, kept = _public(following), load_signing_key(path)
    _write(old, bytes(kept).hex(), SECRET, path)  # before the only copy gives way
    following.replace(path)
    _write(path.with_suffix(".pub"), public, PUBLIC, path)
    screen.lines(
        [
            f"{path} is the new key, {old} the former one",
            "",
            "what remains to be done:",
            "- restart the gateway: it signs every order again",
            "- when `node list` shows every order reported, delete the former key and remove it "
            "from every node.toml",
            f"- keep a copy of {path} where nobody else can read it",
        ]
    )
    return 0


def next_of(path: Path) -> Path:
    """Where the next key lies until it is used."""
    return path.with_name(f"{path.name}.next")


def _public(path: Path) -> str:
    return load_signing_key(path).verify_key.encode().hex()


def _write(path: Path, text: str, mode: int, like: Path) -> None:
    """A file of whoever has the key in use: the service's user must be able to read it."""
    found = like.stat()
    owner = (found.st_uid, found.st_gid) if os.geteuid() == 0 else None
    write_whole(path, f"{text}\n".encode(), mode=mode, owner=owner)
