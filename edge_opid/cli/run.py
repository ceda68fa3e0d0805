"""`run`: serve until told to stop.

Three settings must stand in the environment before the first library is loaded: one BLAS thread
(more only cost memory on matrices this small), one malloc arena, and the size from which on malloc
takes memory from the system and gives it back. glibc reads these at the start of the process and
never again; left to itself it begins with these 128 kB, raises them with the first snapshot, and
keeps what each one took. A reading takes less, an acknowledgement more. The unit file sets all
three; without it, `run` starts itself once more, in the same process, with all set.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from edge_opid import log
from edge_opid.config.service import load_config
from edge_opid.errors import ConfigError, OpidError, sentence_of
from edge_opid.link.postponed import postponed
from edge_opid.service.systemd import Systemd

if TYPE_CHECKING:  # a node that runs is spared it
    from argparse import Namespace

EARLY = {
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "131072",
}


def run(given: Namespace) -> int:
    """What was typed with options."""
    return serve(given.file, given.speed)


def serve(file: Path, speed: float = 1.0) -> int:
    """Serve until SIGTERM or SIGINT, then commit, say goodbye, and end."""
    config = load_config(file, os.environ)
    if not EARLY.keys() <= os.environ.keys():
        os.execve(sys.executable, sys.orig_argv, {**EARLY, **os.environ})
    with postponed("ssl", "hashlib"):  # OpenSSL is for those who use TLS
        from edge_opid.service.wiring import open_loop  # noqa: PLC0415 - paho is for `run` alone

    log.set_up(config.log_level, os.environ)
    try:
        with open_loop(config, Systemd(os.environ), speed) as loop:
            for each in (signal.SIGTERM, signal.SIGINT):
                signal.signal(each, lambda *_: loop.stop())
            return loop.run()
    except ConfigError as error:
        log.error("cannot go on", why=f"{file.name}: {error}")
        return 2  # it would be the same at the next attempt
    except (OpidError, OSError) as error:
        log.error("cannot go on", why=sentence_of(error))
    except Exception:  # noqa: BLE001 - the log must tell what systemd is about to restart
        log.error("died of a bug", trace=True)
    return 1
