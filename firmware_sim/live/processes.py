"""Programs in processes of their own, for the simulator, the tests and the benchmarks.

A `Child` is stopped as systemd would stop it and killed as a power cut would, and may be started
again; its output goes to a log file. Whatever ends us ends our children (`leash.py`). A `Server` is
a child that answers somebody: starting it means waiting until it does.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Self

from edge_opid.cli.run import EARLY
from edge_opid.errors import OpidError

STOP_S = 30.0  # for a program to end when it is asked to, on a busy machine
WAIT_S = 150.0  # for one thing to happen there: an end to waiting, by which nothing is judged
LOG_SHOWN = 4_000  # characters of the end of a log
QUIET = {**EARLY, "PYTHONUNBUFFERED": "1"}  # a node that lacks them starts itself once more
LEASH = Path(__file__).with_name("leash.py")


class LiveError(OpidError, RuntimeError):
    """A process, or its broker, did not do what it must."""


def wait_until(
    true: Callable[[], object],
    what: str,
    timeout_s: float = WAIT_S,
    meanwhile: Callable[[], object] = lambda: None,
    pause_s: float = 0.005,
) -> None:
    """Return as soon as it is true; `LiveError` with what it was after the timeout."""
    deadline = time.monotonic() + timeout_s
    while not true():
        meanwhile()
        if time.monotonic() > deadline:
            raise LiveError(f"waited {timeout_s:g} s, but not {what}")
        time.sleep(pause_s)


class Child:
    """One program, and the file where it writes what it has to say.

    As a context it is started at the beginning of the block and killed at its end.
    """

    stop_signal: ClassVar = signal.SIGTERM
    kill_signal: ClassVar = signal.SIGKILL
    leashed: ClassVar = True

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log_file: Path,
        *,
        cwd: Path | None = None,
        user: tuple[int, int] | None = None,  # another one and their group, if we are root
        piped: bool = False,  # what it prints is for `line`, and only its errors for the log
    ) -> None:
        self.name, self.log_file = name, log_file
        self.lives = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.exit_code: int | None = None  # of its last life
        self._command, self._cwd, self._user, self._piped = command, cwd, user, piped
        self._asked = False  # to end

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """Its process number; there must be a process."""
        assert self.process is not None, f"{self.name} is not running"
        return self.process.pid

    def start(self) -> None:
        """Begin its first life, or another one."""
        leash: list[str | Path] = [sys.executable, "-S", LEASH] if self.leashed else []
        user, group = self._user or (None, None)
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [*leash, *self._command],
                stdin=subprocess.PIPE if self._piped else subprocess.DEVNULL,
                stdout=subprocess.PIPE if self._piped else log,
                stderr=log,
                cwd=self._cwd,
                env={**os.environ, **QUIET},
                start_new_session=True,  # Ctrl-C is ours: we stop them in order
                user=user,
                group=group,
                extra_groups=None if user is None else [],
            )
        self._asked = False
        self.lives += 1

    def ask(self) -> None:
        """Ask it to end, once: a second signal could meet a process that is already packing up."""
        if self.process is not None and not self._asked:
            self.process.send_signal(self.stop_signal)
        self._asked = True

    def stop(self) -> int:
        """Ask it to end, wait, kill it if it does not listen; the exit code."""
        self.ask()
        process, self.process = self.process, None
        assert process is not None, f"{self.name} is not running"
        self.exit_code = _ended(process)
        return self.exit_code

    def kill(self) -> None:
        """End it without a goodbye; nothing happens where nothing runs."""
        process, self.process = self.process, None  # from now on its end is no surprise
        if process is not None:
            process.send_signal(self.kill_signal)
            self.exit_code = _ended(process)

    def check(self) -> None:
        """Raise with the end of its log if it has ended by itself."""
        code = None if self.process is None else self.process.poll()
        if code is not None:
            told = self.log()[-LOG_SHOWN:].strip()
            raise LiveError(f"{self.name} ended with exit code {code}; its last lines:\n{told}")

    def line(self) -> str:
        """The next line it prints, if it is piped; nothing once it has ended."""
        pipe = self.process.stdout if self.process is not None else None
        assert pipe is not None, f"{self.name} is not running, or not piped"
        return pipe.readline().decode().strip()

    def log(self) -> str:
        """What it had to say, in all its lives."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def resident_bytes(self) -> int:
        """What it takes of the machine's memory now; 0 where nobody can say."""
        try:
            text = Path(f"/proc/{self.pid}/statm").read_text()
        except OSError:
            return _asked_of_ps(self.pid)
        return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Server(Child):
    """A child that others connect to."""

    def start(self) -> None:
        """Start it, or start it again, and wait until it answers."""
        super().start()
        try:
            wait_until(self.answers, f"{self.name} answers", WAIT_S, self.check, 0.01)
        except BaseException:
            self.kill()
            raise

    def answers(self) -> bool:
        """Whether somebody who connected now would be served."""
        raise NotImplementedError


@dataclass
class Together:
    """Parts that `_open` puts on one stack: where one does not open, the others are closed."""

    stack: ExitStack = field(default_factory=ExitStack, kw_only=True)

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self.stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def _open(self) -> None:
        raise NotImplementedError


@dataclass
class Children:
    """All processes that were started: `with Children(folder) as children:`."""

    folder: Path
    all: list[Child] = field(default_factory=list)

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def add(self, child: Child) -> Child:
        """Start a child that ends with the others."""
        self.all.append(child)
        child.start()
        return child

    def start(self, name: str, command: Sequence[str | Path]) -> Child:
        """Start a program whose log is in our folder."""
        return self.add(Child(name, command, self.folder / f"{name}.log"))

    def python(self, name: str, *arguments: str | Path) -> Child:
        """Start a Python module, by this interpreter."""
        return self.start(name, [sys.executable, "-m", *arguments])

    def check(self) -> None:
        """Raise if one of them has ended by itself."""
        for child in self.all:
            child.check()

    def stop(self) -> dict[str, int]:
        """End all, the last one first; their exit codes.

        All are asked at once, but for the first: it may be the broker, and the others want to say
        goodbye to it.
        """
        codes = {}
        for child in reversed(self.all[1:]):
            child.ask()
        while self.all:
            child = self.all.pop()
            if child.process is not None:
                codes[child.name] = child.stop()
        return codes


def _ended(process: subprocess.Popen[bytes]) -> int:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    try:
        return process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait(STOP_S)


def _asked_of_ps(pid: int) -> int:
    command = ["ps", "-o", "rss=", "-p", str(pid)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return 1024 * int(found.stdout.strip() or 0)
