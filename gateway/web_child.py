"""The pages as a child of a running gateway: started with it, again when they die, and no more.

They share nothing but the database: a page that crashes or hangs is a process that crashes or
hangs. A thread waits for it, not the loop. A gateway that is killed leaves a pipe without a writer,
which ends the child.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

from edge_opid import log

AGAIN_S = 1.0  # before it is started again; twice as long each time …
AGAIN_MAX_S = 60.0  # … up to this
LIVED_S = 60.0  # whoever lived so long may begin at the first again
STOP_S = 10.0


class WebChild:
    """`opid-gateway web`, for as long as the block lasts."""

    def __init__(self, config: Path) -> None:
        self._command = [sys.executable, "-m", "gateway", "web", str(config), "--until-eof"]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="web", daemon=True)
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> WebChild:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._over.set()
            process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
        self._thread.join(STOP_S)
        if process is not None and process.poll() is None:
            process.kill()

    def _keep(self) -> None:
        wait_s = AGAIN_S
        while not self._over.is_set():
            began_s = time.monotonic()
            code = self._live()
            if code is None or self._over.is_set():
                return
            if time.monotonic() - began_s > LIVED_S:
                wait_s = AGAIN_S
            log.error("the pages have ended", code=code, again_s=wait_s)
            self._over.wait(wait_s)
            wait_s = min(2 * wait_s, AGAIN_MAX_S)

    def _live(self) -> int | None:
        with self._lock:
            if self._over.is_set():
                return None
            try:
                self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE)
            except OSError as error:  # no memory, no process left: perhaps later
                return error.errno or 1
        return self._process.wait()
