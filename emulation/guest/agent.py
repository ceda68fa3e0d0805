"""Runs inside the emulated machine and does what the host asks through a virtio port.

A request is a line of JSON (`id`, `user`, `command`, `seconds`), and so is its answer (`id`,
`code`, `out`). Each command gets a thread, so that one that hangs does not keep the others waiting.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from io import RawIOBase
from pathlib import Path
from typing import Any

PORT = Path("/dev/virtio-ports/opid.agent")
KILLED = 124  # what timeout(1) says


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Run the command as its user, in a login shell."""
    words = ["runuser", "-u", request["user"], "--", "bash", "-lc", request["command"]]
    home = "/root" if request["user"] == "root" else f"/home/{request['user']}"
    environment = {"HOME": home, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
    try:
        done = subprocess.run(
            words,
            cwd=home,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=request["seconds"],
            check=False,
        )
        code, out = done.returncode, done.stdout
    except subprocess.TimeoutExpired as late:
        code, out = KILLED, late.stdout or b""
    return {"id": request["id"], "code": code, "out": out.decode("utf-8", "replace")}


def lines_of(port: RawIOBase) -> Iterator[bytes]:
    """Whole lines as they arrive."""
    kept = b""
    while True:
        new = port.read(4_096)
        if not new:
            time.sleep(0.1)  # nobody is at the other end
            continue
        *whole, kept = (kept + new).split(b"\n")
        yield from whole


def write_all(port: RawIOBase, data: bytes) -> None:
    """All of it: the port takes 32 kB at a time."""
    while data:
        data = data[port.write(data) or 0 :]


def main() -> None:
    """Serve until the plug is pulled."""
    one_at_a_time = threading.Lock()
    while not PORT.exists():  # a device that systemd would wait for, but not for long enough
        time.sleep(0.2)
    with PORT.open("r+b", buffering=0) as port:  # one file for both: it opens only once

        def serve(request: dict[str, Any]) -> None:
            line = json.dumps(answer(request)).encode() + b"\n"
            with one_at_a_time:
                write_all(port, line)

        write_all(port, b'{"id": 0}\n')  # here I am
        for line in lines_of(port):
            threading.Thread(target=serve, args=(json.loads(line),), daemon=True).start()


main()
