"""Names at the broker, after `init`: another password for one, or none any more.

The credentials are written first and the broker's file second, as `init` does: cut off in between,
the old password still holds, and the same call again makes another one. Credentials of a removed
name go first, too: left behind, they would be those of the next node of that name. The password by
which a site's broker logs in at the central one stands in its `bridge.conf` as well.
"""

from __future__ import annotations

import re
import secrets
from pathlib import Path, PurePosixPath

from gateway.setup.file_writer import SECRET, FolderError, open_writer
from gateway.setup.initialise import PASSWORD_BYTES, PASSWORDS
from gateway.setup.mosquitto_files import ended, names_in, password_line
from gateway.setup.plan import BRIDGE, GATEWAY, HOMEASSISTANT, OPERATOR, WEB

OF_PEOPLE_AND_SERVICES = (GATEWAY, OPERATOR, WEB, HOMEASSISTANT)
REMOTE_PASSWORD = re.compile(r"(?m)^remote_password .*$")


def renew_account(folder: Path, user: str) -> Path:
    """A new password; the file that holds it, to be carried to whoever logs in by this name."""
    folder = _folder_of_a_fleet(folder)
    with open_writer(folder) as writer:
        passwords = password_file(folder, user)
        lines = _lines(writer.read(passwords), user, folder / passwords)
        file, password = credentials_of(user), secrets.token_urlsafe(PASSWORD_BYTES)
        writer.rewrite(file, f"{user}\n{password}\n", SECRET)
        if is_bridge(user):
            file = bridge_conf_of(user)
            text = writer.read(file)
            writer.rewrite(file, REMOTE_PASSWORD.sub(f"remote_password {password}", text), SECRET)
        place = next(i for i, line in enumerate(lines) if line.startswith(f"{user}:"))
        lines[place] = password_line(user, password)
        writer.rewrite(passwords, "".join(lines), SECRET)
    return folder / file


def remove_account(folder: Path, user: str) -> list[str]:
    """Take a name and those of its sources out of the broker's file; who can no longer log in."""
    folder = _folder_of_a_fleet(folder)
    if user == GATEWAY or _is_gateway_of_a_site(user):
        raise FolderError("the gateway must be able to log in: renew its account instead")
    with open_writer(folder) as writer:
        passwords = password_file(folder, user)
        lines = _lines(writer.read(passwords), user, folder / passwords)
        known = sorted(names_in("".join(lines)))
        gone = [user, *(name for name in known if _is_source_of(user, name))]
        kept = [line for line in lines if line.partition(":")[0] not in gone]
        for name in gone:
            writer.discard(credentials_of(name))
        if is_bridge(user):
            writer.discard(bridge_conf_of(user))
        writer.rewrite(passwords, "".join(kept), SECRET)
    return gone


def password_file(folder: Path, user: str) -> PurePosixPath:
    """Where the broker of this user looks its name up: that of its site, or the central one."""
    site, is_node, _ = user.partition(".")
    own = PurePosixPath("sites") / site / "passwords"
    return own if is_node and (folder / own).is_file() else PurePosixPath(PASSWORDS)


def credentials_of(user: str) -> PurePosixPath:
    """Where `init` put name and password of a user.

    >>> print(credentials_of("gateway"), credentials_of("street.north.attic"))
    keys/gateway.credentials nodes/street-north/attic.credentials
    >>> print(credentials_of("bridge-hill"))
    sites/hill/bridge.credentials
    """
    if is_bridge(user):
        return bridge_conf_of(user).with_name("bridge.credentials")
    if "." not in user:
        return PurePosixPath("keys") / f"{user}.credentials"
    site, node, *source = user.split(".")
    name = f"{source[0]}.credentials" if source else "credentials"
    return PurePosixPath("nodes") / f"{site}-{node}" / name


def is_bridge(user: str) -> bool:
    """Whether the broker of a site logs in at the central one by this name."""
    return "." not in user and user.startswith(f"{BRIDGE}-")


def bridge_conf_of(user: str) -> PurePosixPath:
    """What the broker of that site reads."""
    return PurePosixPath("sites") / user.removeprefix(f"{BRIDGE}-") / "bridge.conf"


def _folder_of_a_fleet(folder: Path) -> Path:
    """The folder, if `init` made it: a misspelt one must not come into being."""
    folder = folder.absolute()
    if not (folder / PASSWORDS).is_file():
        raise FolderError(f"{folder} is not a folder created by init: it has no {PASSWORDS}")
    return folder


def _is_gateway_of_a_site(user: str) -> bool:
    return "." not in user and user.startswith(f"{GATEWAY}-")


def _is_source_of(user: str, name: str) -> bool:
    """Whether a node has this source; `operator` is none, and `operator.north` not its source."""
    return "." in user and name.startswith(f"{user}.")


def _lines(passwords: str, user: str, file: Path) -> list[str]:
    known = names_in(passwords)
    ours = user in OF_PEOPLE_AND_SERVICES or _is_gateway_of_a_site(user) or is_bridge(user)
    ours |= 1 <= user.count(".") <= 2
    if user not in known or not ours:
        raise FolderError(
            f"{file} has no account {user!r} created by init; it has: {', '.join(sorted(known))}"
        )
    return ended(passwords).splitlines(keepends=True)
