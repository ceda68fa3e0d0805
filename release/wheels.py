"""`make wheels`: wheels for four kinds of machine and an sdist, looked into, run, and built twice.

    python -m release.wheels [--folder dist] [--once] [--not-run]

1. The C file is cross-compiled with `ziglang`, against glibc 2.17, the oldest that pip's tags name,
   or musl. One wheel a machine serves every Python from 3.11 (the limited API).
2. `optional = true` lets an install without a compiler succeed; here it would give a wheel with an
   ARM tag and no library. So each wheel is looked into: its library, the machine that is for, the
   glibc it needs, the tag, the bill of materials.
3. Each is run: the golden bits of the C file (`golden_bits` of learner and node), under emulation
   where the machine is another. There is no Python for musl in Debian: musl's own loader says that
   it finds everything, and then the same bytes are run in a Python for glibc, which has what they
   need of a C library, too.
4. Everything is built a second time, elsewhere, and must have the same digest.

The wheels, the sdist and `SHA256SUMS` are left in the folder, and a table is printed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from emulation import DIST, ROOT
from emulation.architectures import ARM64
from emulation.golden import GOLDEN, LIBRARY, BitsError, golden_bits, oldest_python, python_headers
from release.archives import (
    read_tar,
    read_zip,
    sha256,
    with_record,
    write_tar_gz,
    write_zip,
)
from release.targets import ENTRY, SBOM, TARGETS, Target, WheelError, look_into

PROJECT = ROOT / "pyproject.toml"
PACKAGES = ("edge_opid", "gateway", "firmware_sim")
BESIDE = ("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE")
SMALL = f"-Wl,-s,--gc-sections,-u,{ENTRY}"
"""Without what ziglang brings along and nobody calls (250 kB on 32 bits); but keep the way in."""
MUSL_LOADER, MUSL_NAME = "lib/ld-musl-aarch64.so.1", "libc.so"


def source_date() -> int:
    """When the source was last changed: `SOURCE_DATE_EPOCH`, or the last commit."""
    said = os.environ.get("SOURCE_DATE_EPOCH")
    if said is None:
        command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return int(said)


def build(target: Target, source: Path, into: Path, epoch_s: int) -> Path:
    """The wheel for one kind of machine, from a copy of the sources."""
    from release.sbom import bill_of_materials  # noqa: PLC0415 - for who builds wheels

    with tempfile.TemporaryDirectory() as name:
        copy, plain = Path(name) / "source", Path(name) / "plain"
        shutil.copytree(source, copy)
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
        command += ["--no-build-isolation", "--disable-pip-version-check"]
        command += [f"--config-settings=--build-option=--plat-name={target.platform}"]
        run([*command, "--wheel-dir", str(plain), str(copy)], compiling_for(target, epoch_s))
        (wheel,) = plain.iterdir()
        files = read_zip(wheel)
        (metadata,) = (each for each in files if each.endswith(".dist-info/METADATA"))
        bill = bill_of_materials(files, PROJECT, target.platform, epoch_s)
        files[f"{Path(metadata).parent}/sboms/{SBOM}"] = bill
        made = into / wheel.name
        write_zip(made, with_record(files), epoch_s)
    return made


def build_sdist(source: Path, into: Path, epoch_s: int) -> Path:
    """The sources, as setuptools packs them, and then with dates and owners that stay the same."""
    with tempfile.TemporaryDirectory() as name:
        copy, plain = Path(name) / "source", Path(name) / "plain"
        shutil.copytree(source, copy)
        plain.mkdir()
        code = f"from setuptools.build_meta import build_sdist; build_sdist({str(plain)!r})"
        run([sys.executable, "-c", code], dict(os.environ), cwd=copy)
        (archive,) = plain.iterdir()
        made = into / archive.name
        write_tar_gz(made, read_tar(archive), epoch_s)
    return made


def run(command: list[str], environment: dict[str, str], cwd: Path | None = None) -> None:
    """Run a step of the build; what it said is shown if it fails."""
    done = subprocess.run(
        command,
        env=environment,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise WheelError(f"{' '.join(command)} failed:\n{done.stdout}")


def copy_source(to: Path) -> None:
    """What a wheel is built from, and nothing that lies about."""
    to.mkdir(parents=True)
    for name in BESIDE:
        shutil.copy(ROOT / name, to)
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("*.so", "__pycache__")
        shutil.copytree(ROOT / package, to / package, ignore=ignored)


def compiling_for(target: Target, epoch_s: int) -> dict[str, str]:
    """What setuptools has to be told to compile for another machine."""
    include = f" -I{python_headers(target.headers)}" if target.headers else ""
    zig = f"{sys.executable} -m ziglang cc -target {target.compiler} {SMALL}{include}"
    return {
        **os.environ,
        "CC": zig,
        "LDSHARED": f"{zig} -shared",
        "SOURCE_DATE_EPOCH": str(epoch_s),
        "PYTHONHASHSEED": "0",
    }


def try_out(wheel: Path, target: Target) -> str:
    """The golden bits of this wheel's library; for the table."""
    with tempfile.TemporaryDirectory() as name:
        unpacked = Path(name) / "unpacked"
        shutil.unpack_archive(wheel, unpacked, "zip")
        if target.emulated is None:
            environment = {**os.environ, "PYTHONPATH": str(unpacked)}
            for each in GOLDEN:
                run([sys.executable, *each], environment, cwd=unpacked)
            return f"bits ok, Python {sys.version_info.major}.{sys.version_info.minor}"
        libraries = []
        if target.is_musl:
            load_with_musl(unpacked)
            libraries = [stand_in_for_musl(Path(name) / "libraries")]
        try:
            golden_bits(target.emulated, unpacked, libraries)
        except BitsError as wrong:
            raise WheelError(f"{wheel.name}: {wrong}") from wrong
        loaded = "musl loads it; bits ok with glibc" if target.is_musl else "bits ok"
        return f"{loaded}, emulated, Python 3.11"


def stand_in_for_musl(folder: Path) -> Path:
    """A folder in which glibc has musl's name: the loader finds that it has it already."""
    folder.mkdir()
    (folder / MUSL_NAME).symlink_to(oldest_python(ARM64) / "lib" / ARM64.triplet / "libc.so.6")
    return folder


def load_with_musl(unpacked: Path) -> None:
    """Let musl's loader resolve what the library needs: all but what Python itself will offer."""
    root = oldest_python(ARM64)
    command = [ARM64.user_emulator, "-L", str(root), str(root / MUSL_LOADER), "--list"]
    done = subprocess.run(
        [*command, str(unpacked / LIBRARY)], capture_output=True, text=True, check=False
    )
    said = (done.stdout + done.stderr).splitlines()
    missing = [line for line in said if "not found" in line or "Error loading" in line]
    missing = [line for line in missing if not re.search(r": _?Py\w+: symbol not found", line)]
    if missing or not any("libc" in line for line in said):
        raise WheelError("musl does not load the library:\n" + "\n".join(said))


def main() -> int:
    """Build, look, run, build again, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=DIST)
    parser.add_argument("--once", action="store_true", help="do not build a second time")
    parser.add_argument("--not-run", action="store_true", help="do not run the golden bits")
    given = parser.parse_args()
    epoch_s = source_date()
    given.folder.mkdir(parents=True, exist_ok=True)
    for pattern in ("edge_opid-*", "opid-node_*.deb", "SHA256SUMS"):  # packages are of wheels
        for old in given.folder.glob(pattern):
            old.unlink()
    try:
        with tempfile.TemporaryDirectory() as name:
            source = Path(name) / "source"
            copy_source(source)  # once: somebody may be editing
            options = {"again": not given.once, "tried": not given.not_run}
            rows = [*made(source, given.folder, epoch_s, **options)]
    except WheelError as error:
        sys.stderr.write(f"release.wheels: {error}\n")
        return 1
    print_table(rows)
    write_digests(given.folder)
    return 0


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table."""

    path: Path
    tried: str
    twice: str


def made(source: Path, folder: Path, epoch_s: int, *, again: bool, tried: bool) -> Iterator[Row]:
    """Everything that is handed out, each looked into, run and built again."""
    for target in TARGETS:
        wheel = build(target, source, folder, epoch_s)
        look_into(wheel.name, read_zip(wheel), target)
        ran = try_out(wheel, target) if tried else "not run"
        yield Row(wheel, ran, same(wheel, target, source, epoch_s) if again else "built once")
    sdist = build_sdist(source, folder, epoch_s)
    yield Row(sdist, "", same(sdist, None, source, epoch_s) if again else "built once")


def same(first: Path, target: Target | None, source: Path, epoch_s: int) -> str:
    """Build it a second time, from and to another folder; the digests must be equal."""
    with tempfile.TemporaryDirectory() as name:
        into = Path(name)
        if target is None:
            second = build_sdist(source, into, epoch_s)
        else:
            second = build(target, source, into, epoch_s)
        if sha256(second) != sha256(first):
            read = read_tar if target is None else read_zip
            one, two = read(first), read(second)
            names = sorted(each for each in one | two if one.get(each) != two.get(each))
            raise WheelError(f"{first.name} differs when it is built again, in {names or 'order'}")
    return "same digest twice"


def print_table(rows: Iterable[Row]) -> None:
    """A line for each file."""
    for row in rows:
        size = row.path.stat().st_size
        print(f"{row.path.name:62} {size:>8} B  {sha256(row.path)[:12]}  {row.twice}  {row.tried}")


def write_digests(folder: Path) -> None:
    """`SHA256SUMS`, for `sha256sum --check`: of the wheels, the sdist and the Debian packages."""
    files = sorted([*folder.glob("edge_opid-*"), *folder.glob("opid-node_*.deb")])
    (folder / "SHA256SUMS").write_text("".join(f"{sha256(each)}  {each.name}\n" for each in files))


if __name__ == "__main__":
    sys.exit(main())
