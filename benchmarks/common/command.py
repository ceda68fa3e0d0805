"""What every benchmark's command line shares: its name and help, and figures written as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any


def command_line(about: str | None) -> argparse.ArgumentParser:
    """A parser named as one types it, whose help is the module's docstring as it stands."""
    spec = sys.modules["__main__"].__spec__
    name = spec.name.removesuffix(".__main__") if spec is not None else Path(sys.argv[0]).name
    return argparse.ArgumentParser(
        prog=f"python -m {name}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """`--json FILE`, for `write_json`."""
    parser.add_argument("--json", type=Path, help="also write the figures here")


def write_json(path: Path | None, figures: Any) -> None:
    """Write the figures if a file was named."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(figures, indent=1) + "\n")
