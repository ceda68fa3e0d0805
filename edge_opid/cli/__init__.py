"""`opid-node` in parts: one module for each verb.

Read in this order: `parser` (what can be typed), `run`, `check`, `status`, `watch`, `export`,
`classes`, `discover`, `init`, `selftest`. A verb takes what was typed and gives the exit code:

0 all is well; 1 it is not (the disk, the broker, no running node); 2 the command or the
configuration is at fault.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper

from edge_opid.cli.parser import PROGRAM, obey, parser
from edge_opid.errors import ConfigError, OpidError, sentence_of

INTERRUPTED = 130
"""The exit code of a command that Ctrl-C has ended, as shells have it."""


def prepare_streams() -> None:
    """Write what the terminal cannot show escaped; where a stream is closed, write to nobody.

    Both would otherwise end a command with a traceback, perhaps after it has done its work.
    """
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr has it


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; the exit code."""
    prepare_streams()
    given = parser().parse_args(arguments)
    try:
        return obey(given)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our lines has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OpidError, OSError) as error:
        sys.stderr.write(f"{PROGRAM}: {sentence_of(error)}\n")
        return 2 if isinstance(error, ConfigError) else 1
