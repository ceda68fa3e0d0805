"""A private mosquitto: on a loopback port of its own, in a folder of its own, gone at the end.

The simulator, the tests and the benchmarks all start theirs here.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from firmware_sim.live.processes import WAIT_S, LiveError, Server, wait_until

HOST = "127.0.0.1"
RELOADED = "Reloading config."  # a line of its log
ROOMY = (
    "max_queued_messages 100000",
    "set_tcp_nodelay true",  # or a small message waits up to 40 ms for the one before
)


def find_mosquitto() -> str | None:
    """The program, also where a user's PATH does not lead to it."""
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


def free_port() -> int:
    """A loopback port nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def connects(port: int, host: str = HOST) -> bool:
    """Whether somebody listens there."""
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError:
        return False
    return True


class Mosquitto(Server):
    """One broker in `folder`: `with Mosquitto(folder) as broker: connect(broker.port)`.

    `users` (name → password) makes a password file, `tls` names the options cafile, certfile and
    keyfile, `acl` is the text of an ACL file, `extra` are more lines of configuration. `config`
    is a finished configuration, of which nothing but the listener is replaced; a `verbose` one logs
    every packet. It keeps its port when it is started again.
    """

    def __init__(
        self,
        folder: Path,
        *,
        users: Mapping[str, str] | None = None,
        acl: str = "",
        tls: Mapping[str, Path] | None = None,
        persistence: bool = False,
        extra: tuple[str, ...] = (),
        verbose: bool = False,
        config: Path | None = None,
        port: int = 0,
    ) -> None:
        self.folder, self.port = folder, port or free_port()
        self._users, self._acl, self._tls = users or {}, acl, tls or {}
        self._persistence, self._extra, self._config = persistence, extra, config
        self._log_types = ("all",) if verbose else ("error", "warning", "notice")
        file = folder / "mosquitto.conf"
        super().__init__(
            "broker", [find_mosquitto() or "mosquitto", "-c", file], folder / "mosquitto.log"
        )

    def start(self) -> None:
        """Write its configuration, start it, and wait until it answers."""
        if find_mosquitto() is None:
            raise LiveError("mosquitto is not installed: apt-get install mosquitto")
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "mosquitto.conf").write_text("\n".join(self._lines()) + "\n")
        super().start()

    def answers(self) -> bool:
        """Whether it takes connections."""
        return connects(self.port)

    def reload(self) -> None:
        """Let it read passwords and ACL again, and wait until it has."""
        before = self.log().count(RELOADED)
        os.kill(self.pid, signal.SIGHUP)
        wait_until(lambda: self.log().count(RELOADED) > before, "mosquitto reads its files again")

    def _lines(self) -> list[str]:
        lines = [f"log_type {each}" for each in self._log_types]
        if os.geteuid() == 0:
            lines.append("user root")  # it would become a user who cannot read this folder
        listener = f"listener {self.port} {HOST}"
        if self._config is not None:
            text = re.sub(r"(?m)^listener .*$", listener, self._config.read_text("utf-8"))
            return [*lines, f"persistence_location {self.folder}/", text, *self._extra]
        lines += [listener, "max_inflight_messages 256"]
        lines += [f"{option} {path}" for option, path in self._tls.items()]
        if self._tls:
            lines.append("require_certificate true")
        lines += self._password_lines()
        if self._acl:
            (self.folder / "acl").write_text(self._acl)
            lines.append(f"acl_file {self.folder / 'acl'}")
        if self._persistence:
            lines += ["persistence true", f"persistence_location {self.folder}/"]
        return [*lines, *self._extra]

    def _password_lines(self) -> list[str]:
        if not self._users:
            return ["allow_anonymous true"]
        path = self.folder / "passwords"
        path.touch(mode=0o600)
        for user, password in self._users.items():
            command = ["mosquitto_passwd", "-b", str(path), user, password]
            subprocess.run(command, check=True, capture_output=True, timeout=WAIT_S)
        return ["allow_anonymous false", f"password_file {path}"]
