"""A private mosquitto for one test: its own port, its own folder, gone at the end.

It listens on the loopback interface only. Where mosquitto is missing the test is skipped with a
reason; where the variable CI is set a missing broker is a failure, for a test that never runs
proves nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

START_S = 10.0
HOST = "127.0.0.1"
RELOADED = "Reloading config."


def find_mosquitto() -> str:
    """The broker's program, or a skipped (in CI: failed) test."""
    found = shutil.which("mosquitto") or shutil.which("/usr/sbin/mosquitto")
    if found is None:
        reason = "mosquitto is not installed: apt-get install mosquitto"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def free_port() -> int:
    """A loopback port nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@dataclass
class Mosquitto:
    """One broker in `folder`: `with Mosquitto(tmp_path) as broker: connect(broker.port)`.

    `users` (name → password) makes a password file, `tls` names the options cafile, certfile and
    keyfile, `acl` is the text of an ACL file, `extra` are more lines of configuration. `config`
    is a finished configuration, of which nothing but the listener is replaced.
    """

    folder: Path
    users: dict[str, str] = field(default_factory=dict)
    acl: str = ""
    tls: dict[str, Path] = field(default_factory=dict)
    persistence: bool = False
    extra: tuple[str, ...] = ()
    config: Path | None = None
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Mosquitto:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it, again on the same port after a `stop` or `kill`, and wait until it answers."""
        program = find_mosquitto()
        self.port = self.port or free_port()
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "mosquitto.conf"
        config.write_text("\n".join(self._lines()) + "\n")
        with (self.folder / "mosquitto.log").open("ab") as log:
            self.process = subprocess.Popen([program, "-c", config], stdout=log, stderr=log)
        deadline = time.monotonic() + START_S
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"mosquitto did not start:\n{self.log()}")
            time.sleep(0.01)

    def stop(self) -> None:
        """End it as an operator would."""
        self._signal(signal.SIGTERM)

    def reload(self) -> None:
        """Let it read passwords and ACL again, and wait until it has."""
        assert self.process is not None
        before = self.log().count(RELOADED)
        self.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + START_S
        while self.log().count(RELOADED) == before:
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.01)

    def kill(self) -> None:
        """End it as a power cut would."""
        self._signal(signal.SIGKILL)

    def log(self) -> str:
        """What it had to say."""
        return (self.folder / "mosquitto.log").read_text(errors="replace")

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

    def _answers(self) -> bool:
        try:
            socket.create_connection((HOST, self.port), timeout=1.0).close()
        except OSError:
            return False
        return True

    def _lines(self) -> list[str]:
        lines = ["log_type all"]
        if os.geteuid() == 0:
            lines.append("user root")  # it would become a user who cannot read this folder
        listener = f"listener {self.port} {HOST}"
        if self.config is not None:
            text = re.sub(r"(?m)^listener .*$", listener, self.config.read_text("utf-8"))
            return [*lines, f"persistence_location {self.folder}/", text, *self.extra]
        lines += [listener, "max_inflight_messages 256"]
        lines += [f"{option} {path}" for option, path in self.tls.items()]
        if self.tls:
            lines.append("require_certificate true")
        lines += self._password_lines()
        if self.acl:
            (self.folder / "acl").write_text(self.acl)
            lines.append(f"acl_file {self.folder / 'acl'}")
        if self.persistence:
            lines += ["persistence true", f"persistence_location {self.folder}/"]
        return [*lines, *self.extra]

    def _password_lines(self) -> list[str]:
        if not self.users:
            return ["allow_anonymous true"]
        path = self.folder / "passwords"
        path.touch(mode=0o600)
        for user, password in self.users.items():
            command = ["mosquitto_passwd", "-b", str(path), user, password]
            subprocess.run(command, check=True, capture_output=True, timeout=START_S)
        return ["allow_anonymous false", f"password_file {path}"]
