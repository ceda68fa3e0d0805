"""`account renew`, `account remove`: another password for a name at the broker, or none."""

from __future__ import annotations

from argparse import Namespace

from gateway.cli.output import Terminal
from gateway.setup.accounts import remove_account, renew_account

RELOAD = "- reload the broker's files: systemctl reload mosquitto (or SIGHUP)"


def renew(given: Namespace, screen: Terminal) -> int:
    """A new password for one name; the old one holds until the broker reads its files again."""
    file = renew_account(given.folder, given.name)
    screen.lines(
        [
            f"wrote {file}",
            "",
            "what remains to be done:",
            f"- put {file.name} where {given.name} reads it",
            RELOAD,
            f"- restart {given.name}",
        ]
    )
    return 0


def remove(given: Namespace, screen: Terminal) -> int:
    """No password for one name and its sensors: nobody can log in by them any more."""
    gone = remove_account(given.folder, given.name)
    screen.lines([*(f"{name} can no longer log in" for name in gone)])
    screen.lines(["", "what remains to be done:", RELOAD])
    return 0
