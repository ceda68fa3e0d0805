"""A private PostgreSQL: its own folder, a unix socket in it, gone at the end.

Nothing listens on a network. PostgreSQL refuses to run as root, so root lends the folder to another
user. The tests and the benchmarks all start theirs here.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Self

from firmware_sim.live.processes import WAIT_S, LiveError, Server

OWNER = "opid"
FAST = ("fsync=off", "full_page_writes=off", "shared_buffers=16MB", "max_connections=60")
"""Processes are killed here, never the power; the server's own durability is not ours to test."""


def find_program(name: str) -> str | None:
    """A program of the server, also where a user's PATH does not lead to it."""
    debian = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(debian[-1]) if debian else None)


def needed_program(name: str) -> str:
    """A program of the server, or a sentence."""
    found = find_program(name)
    if found is None:
        raise LiveError("PostgreSQL is not installed: apt-get install postgresql")
    return found


def other_user() -> tuple[int, int] | None:
    """For root: whose the server is instead, user and group."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return user.pw_uid, user.pw_gid
    raise LiveError("PostgreSQL does not run as root, and there is no user postgres or nobody here")


class Postgres(Server):
    """One server: `with Postgres() as server: FleetStore.open(server.database("fleet"))`.

    The folder is a short one of its own: the path of a unix socket has at most 107 bytes, and
    pytest's folders are closed to other users.
    """

    stop_signal = signal.SIGINT  # as an operator who does not wait for its clients
    kill_signal = signal.SIGQUIT  # without a checkpoint: it recovers when it starts again
    leashed = False  # the other user may not be allowed to run our Python

    def __init__(self, settings: tuple[str, ...] = FAST) -> None:
        self.folder = folder = Path(tempfile.mkdtemp(prefix="opid-pg-"))
        options = (f"unix_socket_directories={folder}", "listen_addresses=", *settings)
        command = [needed_program("postgres"), "-D", str(folder / "data")]
        for option in options:
            command += ["-c", option]
        super().__init__(
            "PostgreSQL", command, folder / "postgres.log", cwd=folder, user=other_user()
        )

    def __enter__(self) -> Self:
        try:
            self._make()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()  # its folder goes: there is nothing to tidy up
        shutil.rmtree(self.folder, ignore_errors=True)

    def database(self, name: str) -> str:
        """Make an empty database; returns its URL."""
        self.run("createdb", name)
        return f"postgresql://{OWNER}@/{name}?host={self.folder}"

    def sql(self, name: str, statement: str) -> str:
        """What a person with `psql` would get from a database."""
        return self.run("psql", "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", statement, name)

    def run(self, program: str, *arguments: str) -> str:
        """Run a client of the server as the owner of every database."""
        command = [needed_program(program), "-h", str(self.folder), "-U", OWNER, *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=WAIT_S, cwd=self.folder, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{program} {arguments}: {done.stderr}")
        return done.stdout.strip()

    def answers(self) -> bool:
        """Whether a client gets in."""
        command = [needed_program("psql"), "-X", "-h", str(self.folder), "-U", OWNER, "-c", ""]
        done = subprocess.run(
            [*command, "postgres"], capture_output=True, timeout=WAIT_S, check=False
        )
        return done.returncode == 0

    def _make(self) -> None:
        user, group = other_user() or (None, None)
        if user is not None and group is not None:
            os.chown(self.folder, user, group)
        command = [needed_program("initdb"), "-D", str(self.folder / "data"), "-U", OWNER]
        command += ["--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"]
        subprocess.run(
            command,
            check=True,
            capture_output=True,
            timeout=WAIT_S,
            cwd=self.folder,
            user=user,
            group=group,
            extra_groups=None if user is None else [],
        )
