"""`opid-gateway`: run a gateway, set one up, look at its fleet, announce what happens to sensors.

Exit codes: 0 all is well; 1 something failed (the database, the broker, the disk); 2 the operator
made a mistake, and nothing was changed; 3 it took longer than the operator wanted to wait.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from edge_opid.errors import ConfigError, RefusedError
from gateway.cli.output import Terminal
from gateway.cli.parser import parser

INTERRUPTED = 130  # as the shell calls it


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; the exit code."""
    given = parser().parse_args(arguments)
    screen = Terminal(sys.stdout, sys.stderr)
    action: Callable[..., int] = given.action
    try:
        return action(given, screen)
    except BrokenPipeError:  # whoever read our list has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:  # what was refused by a disk, a database or a broker, too
        screen.remark(error)
        return 1
    except (ConfigError, RefusedError) as error:
        screen.remark(error)
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
