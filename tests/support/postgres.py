"""A private PostgreSQL for the tests: its own folder, a unix socket in it, gone at the end.

Nothing listens on a network. PostgreSQL refuses to run as root, so root lends the folder to another
user. Where PostgreSQL is missing the test is skipped with a reason; where the variable CI is set
that is a failure, for a test that never runs proves nothing.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

START_S = 60.0
OWNER = "opid"
FAST = ("fsync=off", "full_page_writes=off", "shared_buffers=16MB", "max_connections=30")
"""The tests kill processes, never the power; the server's own durability is not ours to test."""


def find_program(name: str) -> str:
    """A program of the server, or a skipped (in CI: failed) test."""
    debian = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = shutil.which(name) or (str(debian[-1]) if debian else None)
    if found is None:
        reason = "PostgreSQL is not installed: apt-get install postgresql"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def other_user() -> dict[str, Any]:
    """For root: the arguments that make a child process another user's."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    pytest.skip("PostgreSQL does not run as root, and there is no user postgres or nobody here")


@dataclass
class Postgres:
    """One server: `with Postgres() as server: Store.open(server.database("fleet"))`.

    The folder is a short one of its own: the path of a unix socket has at most 107 bytes, and
    pytest's folders are closed to other users.
    """

    settings: tuple[str, ...] = FAST
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="opid-pg-")))
    process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Postgres:
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

    def start(self) -> None:
        """Start it, or start it again, and wait until it answers."""
        data = self.folder / "data"
        options = [f"unix_socket_directories={self.folder}", "listen_addresses=", *self.settings]
        command = [find_program("postgres"), "-D", str(data)]
        for option in options:
            command += ["-c", option]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.folder, **other_user()
            )
        deadline = time.monotonic() + START_S
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"PostgreSQL did not start:\n{self.log()}")
            time.sleep(0.02)

    def stop(self) -> None:
        """End it as an operator would who does not wait for its clients (a fast shutdown)."""
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        """End it without a checkpoint (an immediate shutdown): it recovers when it starts again."""
        self._signal(signal.SIGQUIT)

    def database(self, name: str) -> str:
        """Make an empty database; returns its URL."""
        self.run("createdb", name)
        return f"postgresql://{OWNER}@/{name}?host={self.folder}"

    def sql(self, name: str, statement: str) -> str:
        """What a person with `psql` would get from a database."""
        return self.run("psql", "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", statement, name)

    def run(self, program: str, *arguments: str) -> str:
        """Run a client of the server as the owner of every database."""
        command = [find_program(program), "-h", str(self.folder), "-U", OWNER, *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=START_S, cwd=self.folder, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{program} {arguments}: {done.stderr}")
        return done.stdout.strip()

    def log(self) -> str:
        """What it had to say."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    @property
    def _log(self) -> Path:
        return self.folder / "postgres.log"

    def _make(self) -> None:
        program = find_program("initdb")
        user = other_user()
        if user:
            os.chown(self.folder, user["user"], user["group"])
        command = [program, "-D", str(self.folder / "data"), "-U", OWNER, "--auth=trust"]
        command += ["--encoding=UTF8", "--no-locale", "--no-sync"]
        subprocess.run(
            command, check=True, capture_output=True, timeout=START_S, cwd=self.folder, **user
        )

    def _answers(self) -> bool:
        command = [find_program("psql"), "-X", "-h", str(self.folder), "-U", OWNER, "-c", ""]
        done = subprocess.run(
            [*command, "postgres"], capture_output=True, timeout=START_S, check=False
        )
        return done.returncode == 0

    def _signal(self, number: signal.Signals) -> None:
        if self.process is None:
            return
        self.process.send_signal(number)
        try:
            self.process.wait(START_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(START_S)
        self.process = None
