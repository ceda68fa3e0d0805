"""`opid-gateway`: run a gateway, set one up, look at its fleet, announce what happens to sensors.

Exit codes: 0 all is well; 1 something failed (the database, the broker, the disk); 2 the operator
made a mistake, and nothing was changed; 3 it took longer than the operator wanted to wait.

What the gateway needs beyond a node is the extra `gateway`. It is imported when the program runs,
so that whoever lacks it is told in a sentence.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from edge_opid.cli import prepare_streams
from edge_opid.errors import ConfigError, RefusedError, missing_extra, sentence_of

INTERRUPTED = 130  # as the shell calls it


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; the exit code."""
    prepare_streams()
    try:
        return _obey(arguments)
    except ModuleNotFoundError as error:
        sys.stderr.write(f"opid-gateway: {missing_extra(error, 'gateway')}\n")
        return 2


def _obey(arguments: Sequence[str] | None) -> int:
    from gateway.cli.output import Terminal  # noqa: PLC0415 - of the extra `gateway`
    from gateway.cli.parser import parser  # noqa: PLC0415

    given = parser().parse_args(arguments)
    screen = Terminal(sys.stdout, sys.stderr)
    action: Callable[..., int] = given.action
    try:
        return action(given, screen)
    except BrokenPipeError:  # whoever read our list has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:  # what was refused by a disk, a database or a broker, too
        screen.remark(sentence_of(error))
        return 1
    except (ConfigError, RefusedError) as error:
        screen.remark(error)
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
