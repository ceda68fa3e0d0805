"""`account renew`, `account remove`: another password for a name at the broker, or none."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator

from gateway.cli.output import Terminal
from gateway.setup.accounts import is_bridge, password_file, remove_account, renew_account
from gateway.setup.initialise import PASSWORDS, SITE_HOME

RELOAD = "- reload the broker's files: systemctl reload mosquitto (or SIGHUP)"


def renew(given: Namespace, screen: Terminal) -> int:
    """A new password for one name; the old one holds until the broker reads its files again."""
    file = renew_account(given.folder, given.name)
    if is_bridge(given.name):
        carry = f"copy {file} to the site's broker as {SITE_HOME}/{file.name}"
        reader = "the site's broker"
    else:
        carry, reader = f"put {file.name} where {given.name} reads it", given.name
    steps = [f"- {carry}", *_reload(given), f"- restart {reader}"]
    screen.lines([f"wrote {file}", "", "what remains to be done:", *steps])
    return 0


def remove(given: Namespace, screen: Terminal) -> int:
    """No password for one name and its sensors: nobody can log in by them any more."""
    gone = remove_account(given.folder, given.name)
    screen.lines([*(f"{name} can no longer log in" for name in gone)])
    screen.lines(["", "what remains to be done:", *_reload(given)])
    return 0


def _reload(given: Namespace) -> Iterator[str]:
    """The broker reads its files again; that of a site reads them on another machine."""
    passwords = password_file(given.folder, given.name)
    if str(passwords) != PASSWORDS:
        yield f"- copy {given.folder / passwords} to the site's broker as {SITE_HOME}/passwords"
    yield RELOAD
