"""`opid-gateway`: run a gateway, set one up, look at its fleet, announce what happens to sensors.

Exit codes: 0 all is well; 1 something failed (the database, the broker, the disk); 2 the operator
made a mistake, and nothing was changed; 3 it took longer than the operator wanted to wait.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from edge_opid.errors import ConfigError, OpidError
from edge_opid.wire import WireError
from gateway.cli.context import OperatorError
from gateway.cli.output import Terminal
from gateway.cli.parser import parser
from gateway.policy import PolicyError
from gateway.registry import EventError, LifecycleError
from gateway.setup.initialise import FolderError
from gateway.store import MasterError, StoreUrlError

MISTAKES = (
    OperatorError,
    ConfigError,
    PolicyError,
    FolderError,
    EventError,
    LifecycleError,
    WireError,  # of an announcement that the operator typed
    MasterError,
    StoreUrlError,
)
INTERRUPTED = 130  # as the shell calls it


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; the exit code."""
    given = parser().parse_args(arguments)
    screen = Terminal(sys.stdout, sys.stderr)
    action: Callable[..., int] = given.action
    try:
        return action(given, screen)
    except MISTAKES as error:
        screen.remark(error)
        return 2
    except BrokenPipeError:  # whoever read our list has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OpidError, OSError) as error:
        screen.remark(error)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
