"""How the command line answers: lines on stdout, and nothing else there."""

from __future__ import annotations

import sys
from collections.abc import Iterable


def print_lines(lines: Iterable[str]) -> None:
    """Lines of the result."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
