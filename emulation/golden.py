"""`make arm`, first half: the C file has the same bits on ARM as everywhere.

    python -m emulation.golden [--arch arm64]

gcc compiles it here for the other machine, as it would there for an owner who installs from the
sources, and Debian's Python runs `golden_bits` of learner and node under emulation. (`make wheels`
does the same with what ziglang compiles.) Right about bits, and it says nothing of speed.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

from emulation import ROOT
from emulation.architectures import ARCHITECTURES, ARM64, Architecture
from emulation.debian import extracted, need
from emulation.programs import run_python

LIBRARY = "edge_opid/native/_compiled.abi3.so"
SOURCE = "edge_opid/native/_compiled.c"
RELEASE = "bookworm"  # its Python is 3.11, the oldest that the library is for
PACKAGES = ("python3", "libpython3-dev", "python3-numpy")
GOLDEN = [["-P", "-m", f"edge_opid.{each}.golden_bits"] for each in ("learner", "node")]


class BitsError(Exception):
    """The bits are others, or none were computed."""


def oldest_python(architecture: Architecture) -> Path:
    """Debian's oldest Python that we serve, NumPy, Python's headers; and musl for its wheel."""
    more = ("musl",) if architecture is ARM64 else ()
    return extracted(architecture, RELEASE, [*PACKAGES, *more])


def python_headers(architecture: Architecture) -> Path:
    """Python's headers for that machine, in a folder of their own, as C's are the compiler's."""
    root = oldest_python(architecture)
    (version,) = (each.name for each in (root / "usr/include").glob("python3.*"))
    include = root / "only-python"
    if not include.exists():
        shutil.copytree(root / "usr/include" / version, include)
        beside = Path(architecture.triplet) / version
        shutil.copytree(root / "usr/include" / beside, include / beside)
    return include


def golden_bits(
    architecture: Architecture, package: Path, libraries: Sequence[Path] = ()
) -> Sequence[str]:
    """What `golden_bits` say of the library in this folder; `BitsError` if any are wrong."""
    root, said = oldest_python(architecture), []
    for each in GOLDEN:
        done = run_python(
            architecture, root, each, path=[package], libraries=libraries, check=False
        )
        if done.returncode:
            raise BitsError(f"{each[-1]} under {architecture.user_emulator}:\n{done.stdout}")
        said += done.stdout.splitlines()
    return said


def compile_with_gcc(architecture: Architecture, package: Path) -> None:
    """A copy of the node's package with its library, as setuptools would have it made there."""
    compiler = f"{architecture.triplet}-gcc"
    need(compiler)
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "edge_opid", package / "edge_opid", ignore=ignored)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    (library,) = project["tool"]["setuptools"]["ext-modules"]
    command = [compiler, *library["extra-compile-args"], "-Wno-psabi", "-fPIC", "-shared"]
    command += [f"-I{python_headers(architecture)}", str(ROOT / SOURCE)]
    command += ["-o", str(package / LIBRARY)]
    subprocess.run(command, check=True)


def main() -> int:
    """Print the bits of one architecture, or of both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", choices=ARCHITECTURES, action="append")
    for name in parser.parse_args().arch or list(ARCHITECTURES):
        print(f"== {name}, compiled by gcc", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            compile_with_gcc(ARCHITECTURES[name], Path(folder))
            try:
                print(*golden_bits(ARCHITECTURES[name], Path(folder)), sep="\n", flush=True)
            except BitsError as wrong:
                sys.stderr.write(f"emulation.golden: {wrong}\n")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
