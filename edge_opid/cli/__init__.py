"""`opid-node` in parts: one module for each verb.

Read in this order: `parser` (what can be typed), `run`, `check`, `status`, `watch`, `export`,
`classes`, `discover`, `init`, `selftest`. A verb takes the arguments and returns the exit code:

0 done; 1 something failed (the disk, the broker, no running node); 2 a mistake in the command or
the configuration.

`run FILE`, as the unit types it, needs no parser: argparse, with the locales and terminals that it
loads to be able to help, would stay in a node's memory for as long as it runs (0.9 MB).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path

from edge_opid.errors import ConfigError, OpidError, sentence_of

PROGRAM = "opid-node"
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
    words = sys.argv[1:] if arguments is None else arguments
    try:
        return _run(Path(words[1])) if _is_plain_run(words) else _obey(words)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our lines has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OpidError, OSError) as error:
        sys.stderr.write(f"{PROGRAM}: {sentence_of(error)}\n")
        return 2 if isinstance(error, ConfigError) else 1


def _is_plain_run(words: Sequence[str]) -> bool:
    """Whether this is `run FILE`, without any option."""
    return len(words) == 2 and words[0] == "run" and not words[1].startswith("-")


def _run(file: Path) -> int:
    from edge_opid.cli.run import serve  # noqa: PLC0415 - only who serves

    return serve(file)


def _obey(words: Sequence[str]) -> int:
    from edge_opid.cli.parser import obey, parser  # noqa: PLC0415 - see above

    return obey(parser().parse_args(words))
