"""Processes that end when we end, whatever ends us.

They are stopped as systemd would; where one does not listen for long, as a power cut would.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edge_opid.errors import OpidError

STOP_S = 10.0
LOG_SHOWN = 2_000  # characters of the end of a log
QUIET = {"OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1", "PYTHONUNBUFFERED": "1"}
LEASH = Path(__file__).with_name("leash.py")


class LiveError(OpidError, RuntimeError):
    """A process of the demo, or its broker, did not do what it must."""


@dataclass
class Child:
    """One process, and where it writes what it has to say."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    asked: bool = False  # to end

    def check(self) -> None:
        """Raise with the end of its log if it has ended."""
        code = self.process.poll()
        if code is not None:
            told = self.log.read_text(errors="replace")[-LOG_SHOWN:].strip()
            raise LiveError(f"{self.name} ended with exit code {code}; it said last:\n{told}")

    def ask(self) -> None:
        """SIGTERM, once: a second one could meet a process that is already packing up."""
        if self.process.poll() is None and not self.asked:
            self.process.send_signal(signal.SIGTERM)
        self.asked = True

    def stop(self) -> int:
        """SIGTERM, then patience, then SIGKILL; the exit code."""
        self.ask()
        try:
            return self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait(STOP_S)

    def resident_bytes(self) -> int:
        """What it takes of the machine's memory now; 0 where nobody can say."""
        try:
            text = Path(f"/proc/{self.process.pid}/statm").read_text()
        except OSError:
            return _asked_of_ps(self.process.pid)
        return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")


@dataclass
class Children:
    """All processes that were started: `with Children(folder) as children:`."""

    folder: Path
    all: list[Child] = field(default_factory=list)

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, name: str, command: Sequence[str | Path]) -> Child:
        """Begin a process whose output goes to a log of its own."""
        log = self.folder / f"{name}.log"
        with log.open("ab") as out:
            process = subprocess.Popen(
                [sys.executable, "-S", LEASH, *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, **QUIET},
                start_new_session=True,  # Ctrl-C is ours: we stop them in order
            )
        child = Child(name, process, log)
        self.all.append(child)
        return child

    def python(self, name: str, *arguments: str | Path) -> Child:
        """Begin a Python module, by this interpreter."""
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
            codes[child.name] = child.stop()
        return codes


def _asked_of_ps(pid: int) -> int:
    command = ["ps", "-o", "rss=", "-p", str(pid)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return 1024 * int(found.stdout.strip() or 0)
