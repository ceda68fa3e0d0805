"""`make arm`, second half: the tests of what runs on a Pi, on emulated processors.

    python -m emulation.suite [--arch arm64] [tests/test_layout.py ...]

Debian's Python, NumPy and pytest of that architecture run a copy of the tree with the library of
its wheel (`make wheels` first). No machine is booted. What cannot run there is printed with the
reason; the booted machine of `make pi` covers most of that.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from emulation import DIST, ROOT
from emulation.architectures import ARCHITECTURES, Architecture
from emulation.debian import CACHE, extracted, let_kernel_run
from emulation.golden import LIBRARY

RELEASE = "trixie"
PACKAGES = (
    "python3",
    "python3-numpy",
    "python3-msgpack",
    "python3-paho-mqtt",
    "python3-nacl",
    "python3-pytest",
    "python3-pytest-timeout",
    "python3-pytest-xdist",
    "python3-hypothesis",
)
SUBJECTS = ("classifier", "kernel", "layout", "learner", "node", "source", "store", "wire")
BROKER = "starts processes and a broker, and waits for them: see make pi"
GATEWAY = "needs the gateway's libraries (scikit-learn, SQLAlchemy)"
CANNOT = {
    "test_learner_precision.py": "a million readings: hours under emulation",
    "test_node_changes_story.py": BROKER,
    "test_node_fuzz.py": GATEWAY,
    "test_node_gateway_duties.py": BROKER,
    "test_node_home.py": "needs a recorded office and a broker",
    "test_node_imports.py": "starts processes and looks at their memory: see make pi",
    "test_node_init.py": GATEWAY,
    "test_node_kernel.py": GATEWAY,
    "test_node_kill.py": BROKER,
    "test_node_loud.py": BROKER,
    "test_node_retained.py": BROKER,
    "test_node_rhythm.py": "simulates weeks: hours under emulation",
    "test_node_story.py": BROKER,
    "test_node_unknown.py": GATEWAY,
    "test_source_broker.py": BROKER,
    "test_source_cron.py": BROKER,
    "test_source_death.py": BROKER,
    "test_store_gone.py": BROKER,
}
TREE = ("edge_opid", "gateway", "firmware_sim", "benchmarks", "tests", "pyproject.toml")


def chosen() -> list[str]:
    """The test files that run there, by name."""
    names = sorted(
        path.name for each in SUBJECTS for path in (ROOT / "tests").glob(f"test_{each}*.py")
    )
    gone = CANNOT.keys() - set(names)
    if gone:
        raise SystemExit(f"emulation.suite: CANNOT names tests that are gone: {sorted(gone)}")
    return [f"tests/{name}" for name in names if name not in CANNOT]


def tree_for(architecture: Architecture) -> Path:
    """A copy of the tree whose library is that architecture's, not this machine's."""
    tag = architecture.wheel
    wheels = sorted(DIST.glob(f"edge_opid-*-manylinux*_{tag}.whl"))
    if not wheels:
        raise SystemExit(
            f"emulation.suite: no wheel for {architecture.wheel} in dist/: make wheels"
        )
    tree = (CACHE / "suite" / architecture.debian).absolute()
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    for name in TREE:
        ignored = shutil.ignore_patterns("*.so", "__pycache__")
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, tree)
    unpacked = tree / "wheel"
    shutil.unpack_archive(wheels[-1], unpacked, "zip")
    shutil.move(unpacked / LIBRARY, tree / LIBRARY)
    shutil.rmtree(unpacked)
    return tree


def run_there(architecture: Architecture, tests: list[str]) -> int:
    """The exit code of pytest."""
    root = extracted(architecture, RELEASE, PACKAGES)
    let_kernel_run(architecture)  # a test that starts another Python finds it emulated as well
    tree = tree_for(architecture)
    folder = root / "usr/lib" / architecture.triplet
    environment = {
        **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
        **architecture.emulating,
        "PYTHONHOME": str(root / "usr"),
        "PYTHONUNBUFFERED": "1",
        # Compiling takes most of a minute for each Python that a test starts: once is enough.
        "PYTHONPYCACHEPREFIX": str(tree.with_name(f"{tree.name}-compiled")),
        "OPENBLAS_NUM_THREADS": "1",
        "QEMU_LD_PREFIX": str(root),
        "QEMU_SET_ENV": f"LD_LIBRARY_PATH={folder}/blas:{folder}/lapack",
    }
    python = [architecture.user_emulator, str(root / "usr/bin/python3")]

    def there(*words: str) -> int:
        return subprocess.run([*python, *words], cwd=tree, env=environment, check=False).returncode

    print(f"== {architecture.debian}", flush=True)
    kernel = "from edge_opid import native; raise SystemExit(native.name != 'compiled')"
    if there("-c", kernel) or there("-m", "edge_opid.learner.golden_bits"):
        return 1
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:doctest", "-o", "addopts=-ra"]
    options += ["-n", str(os.cpu_count()), "--dist", "worksteal", "--durations=25"]
    return there("-m", "pytest", *options, "-o", "timeout=3600", *tests)


def main() -> int:
    """Run the suite on one architecture, or on both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", choices=ARCHITECTURES, action="append")
    parser.add_argument("tests", nargs="*", default=chosen())
    given = parser.parse_args()
    for name, reason in CANNOT.items():
        print(f"not run: {name}: {reason}")
    codes = []
    for name in given.arch or list(ARCHITECTURES):
        began = time.monotonic()
        codes.append(run_there(ARCHITECTURES[name], given.tests))
        print(f"{name}: exit code {codes[-1]} after {(time.monotonic() - began) / 60:.0f} min")
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
