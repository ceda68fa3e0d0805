"""Files that only their owner may read: the gateway's signing key, a database URL."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from nacl.signing import SigningKey

from edge_opid.errors import ConfigError

SEED_HEX_CHARS = 64  # an Ed25519 seed
BYTES_MAX = 4_096  # one line; anything larger is another file


def load_signing_key(path: Path) -> SigningKey:
    """The key whose orders the nodes obey: 64 hex digits in a file that is the owner's alone.

    Whoever can read it can command the fleet, so a file that lets anybody else in is refused, also
    the group: a copy may have been made already.
    """
    text = read_secret(path, "key file")
    if not re.fullmatch(f"[0-9a-fA-F]{{{SEED_HEX_CHARS}}}", text):
        raise ConfigError(
            f"key file {path} must hold {SEED_HEX_CHARS} hex digits, an Ed25519 seed, got "
            f"{len(text)} characters that are not: restore it from your backup"
        )
    return SigningKey(bytes.fromhex(text))


def read_secret(path: Path, what: str) -> str:
    """The one line in the file; no error ever quotes it."""
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            text = file.read(BYTES_MAX + 1).decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{what} {path} cannot be read: it must be UTF-8 text") from None
    except OSError as error:
        raise ConfigError(f"{what} {path} cannot be read: {error.strerror}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(
            f"{what} {path} has mode {mode:04o}, which lets others in; it must be 0600 or 0400: "
            f"chmod 600 {path}"
        )
    if len(text) > BYTES_MAX:
        raise ConfigError(f"{what} {path} must have at most {BYTES_MAX} bytes, got more")
    return text.strip()
