"""`pip install` with and without a compiler: both must end in a package that learns."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LEARN = """
from edge_opid import WoodburyLearner, native
learner = WoodburyLearner(vanishing=1, surviving=2, classes=2)
learner.learn_one([1.0, 2.0, 3.0], 1)
print(native.name, learner.readings, native.__file__)
"""


def built(tmp_path, **environment):
    """The wheel that `pip` builds from a copy of the sources, unpacked."""
    source, wheels, unpacked = tmp_path / "source", tmp_path / "wheels", tmp_path / "unpacked"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    for package in ("edge_opid", "gateway", "firmware_sim"):
        shutil.copytree(ROOT / package, source / package, ignore=ignored)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*command, "--wheel-dir", str(wheels), str(source)],
        env={**os.environ, **environment},
        check=True,
        timeout=240,
        capture_output=True,
    )
    (wheel,) = wheels.iterdir()
    zipfile.ZipFile(wheel).extractall(unpacked)
    return wheel.name, unpacked


def learns(unpacked):
    environment = {**os.environ, "PYTHONPATH": str(unpacked)}
    run = subprocess.run(
        [sys.executable, "-c", LEARN],
        env=environment,
        cwd=unpacked,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    name, readings, where = run.stdout.split()
    assert where.startswith(str(unpacked))
    assert readings == "1"
    return name


def test_without_a_compiler_the_install_succeeds_and_the_twin_learns(tmp_path):
    _, unpacked = built(tmp_path, CC="/bin/false", CXX="/bin/false")
    assert not list(unpacked.rglob("*.so"))
    assert learns(unpacked) == "numpy"


@pytest.mark.skipif(
    shutil.which(os.environ.get("CC", "cc")) is None and not os.environ.get("CI"),
    reason="no compiler on this machine",
)
def test_with_a_compiler_one_wheel_serves_every_python_from_3_11(tmp_path):
    wheel, unpacked = built(tmp_path)
    assert "-cp311-abi3-" in wheel
    (library,) = unpacked.rglob("*.so")
    assert library.stat().st_size < 100_000
    assert learns(unpacked) == "compiled"


def test_the_node_installs_nothing_but_what_it_needs():
    """It runs in 64 MB: scikit-learn and its like belong to the extras."""
    text = (ROOT / "pyproject.toml").read_text()
    base = text.split("\ndependencies = [")[1].split("]")[0]
    names = [part.split(">=")[0].strip(' "') for part in base.split(",")]
    assert names == ["numpy", "paho-mqtt", "msgpack", "pynacl"]
