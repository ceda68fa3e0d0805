"""`opid-sim`, and what it says where the extra `sim` is missing."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; the exit code."""
    try:
        from firmware_sim.cli import main as obey  # noqa: PLC0415 - needs the extra `sim`

        return obey(arguments)
    except ModuleNotFoundError as error:
        from edge_opid.errors import missing_extra  # noqa: PLC0415 - brings NumPy; `cli` is first

        sys.stderr.write(f"opid-sim: {missing_extra(error, 'sim')}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
