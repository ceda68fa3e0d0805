"""What a node loads into its 64 MB: itself and four small libraries."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

CONFIG = """
[node]
site = "farm"
node = "n1"
classes = ["fresh", "stale"]
[[sensors]]
id = "temp"
[broker]
host = "127.0.0.1"
port = 1  # nobody listens there: the node starts, and goes on trying
[state]
folder = "state"
"""
EARLY = {"OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
NOT_FOR_A_NODE = {
    "edge_opid.classifier",
    "edge_opid.river",
    "edge_opid.sklearn",
    "edge_opid.source",
    "edge_opid.testing",
    "firmware_sim",
    "gateway",
}
TOO_HEAVY = {
    "matplotlib",
    "numpy.random",  # 7 MB
    "pandas",
    "river",
    "rich",
    "scipy",  # 28 MB
    "sklearn",  # 90 MB
    "sqlalchemy",
}
MODULES_MAX = 102
LINES_MAX = 5_000


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Every module that `opid-node run` has imported by the time it has tried to connect."""
    file: Path = tmp_path_factory.mktemp("node") / "node.toml"
    file.write_text(CONFIG)
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "edge_opid", "run", str(file)],
        env={**os.environ, **EARLY},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            found = set()
            for line, _ in zip(process.stderr, range(LINES_MAX), strict=False):
                found |= set(re.findall(r"^import time:.*\| +(\S+)$", line))
                if "event=disconnected" in line:
                    break
            else:
                pytest.fail("the node ended before it had tried to connect")
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)
    return found


def test_a_running_node_has_loaded_no_double_no_simulator_and_no_gateway(loaded: set[str]) -> None:
    """An import that is handy for a test once put the broker in memory on every node."""
    assert {"edge_opid.service.loop", "paho.mqtt.client"} <= loaded
    assert not [name for name in loaded if is_part_of(NOT_FOR_A_NODE, name)]


def test_a_running_node_has_loaded_no_library_that_would_fill_it(loaded: set[str]) -> None:
    """One `import scipy` for convenience takes half of what a node has."""
    assert not [name for name in loaded if is_part_of(TOO_HEAVY, name)]


def test_a_running_node_loads_no_more_modules_of_ours_than_it_did(loaded: set[str]) -> None:
    """Each costs a node about 50 kB: one more is a decision, and this number its place."""
    ours = [name for name in loaded if is_part_of({"edge_opid"}, name)]
    assert len(ours) <= MODULES_MAX, sorted(ours)


def is_part_of(packages: set[str], name: str) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in packages)
