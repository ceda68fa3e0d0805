"""What a node loads into its 64 MB: itself, three small libraries, and what its file asks for."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import pytest
from support.mosquitto import Mosquitto
from support.node_process import NodeProcess, wait_until

from benchmarks.node.parts import certificates
from edge_opid.cli.run import EARLY
from firmware_sim.live.processes import WAIT_S
from firmware_sim.live.toml import toml_table

NOBODY = toml_table("broker", host="127.0.0.1", port=1)  # the node starts, and goes on trying
CONFIG = (
    toml_table("node", site="farm", node="n1", classes=["fresh", "stale"])
    + toml_table("[sensors]", id="temp")
    + NOBODY
    + toml_table("state", folder="state")
)
WITH_TLS = CONFIG.replace(NOBODY, toml_table("broker", host="127.0.0.1", port=1, tls_ca="ca.pem"))
UNIT = {"PYTHONOPTIMIZE": "2"}  # as the unit starts it: without docstrings and asserts
ASKED_FOR = {
    "a gateway": (toml_table("gateway", keys=["ab" * 32]), {"nacl.signing"}),
    "a file to serve": (toml_table("serve", tflite="none.tflite"), {"edge_opid.models.tflite"}),
}
"""Sections of the file, and what is loaded for each of them and not without."""
NOT_FOR_A_NODE = {
    "edge_opid.discovery",
    "edge_opid.link.background",
    "edge_opid.archive",
    "edge_opid.classifier",
    "edge_opid.homeassistant",  # for a node that announces itself
    "edge_opid.layout.many",
    "edge_opid.river",
    "edge_opid.sklearn",
    "edge_opid.source",
    "edge_opid.testing",
    "firmware_sim",
    "gateway",
}
TOO_HEAVY = {
    "argparse",  # 0.9 MB with gettext and the next two: `run FILE` needs no parser
    "locale",
    "shutil",
    "email",  # 1.9 MB with the next one: paho names urllib.request (`link.postponed`)
    "http",
    "matplotlib",
    "numpy.random",  # 7 MB
    "pandas",
    "pyarrow",
    "random",  # 0.2 MB
    "river",
    "rich",
    "scipy",  # 28 MB
    "sklearn",  # 90 MB
    "sqlalchemy",
}
MODULES_MAX = 129
LINES_MAX = 5_000


def modules(folder: Path, text: str, environment: Mapping[str, str] = os.environ) -> set[str]:
    """Every module that `opid-node run` has imported by the time it has tried to connect."""
    file = folder / "node.toml"
    file.write_text(text)
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "edge_opid", "run", str(file)],
        env={**environment, **EARLY, **UNIT},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            found = set()
            for line, _ in zip(process.stderr, range(LINES_MAX), strict=False):
                found |= set(re.findall(r"^import time:.*\| +(\S+)$", line))
                if 'event="not connected"' in line:
                    break
            else:
                pytest.fail("the node ended before it had tried to connect")
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=WAIT_S)
    return found


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """What a node with nothing but a sensor has loaded."""
    return modules(tmp_path_factory.mktemp("node"), CONFIG)


@pytest.fixture(scope="module")
def numpy_alone() -> set[str]:
    """What NumPy brings along; before 2.0 that is all of itself."""
    alone = "import sys, numpy; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", alone], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


@pytest.mark.parametrize("wish", ASKED_FOR)
def test_a_node_loads_what_its_file_asks_for_and_not_without(
    loaded: set[str], tmp_path: Path, wish: str
) -> None:
    """A signature costs 1 MB of library, and most nodes at home have no gateway."""
    section, needed = ASKED_FOR[wish]
    assert not needed & loaded
    assert needed <= modules(tmp_path, CONFIG + section)


def test_a_node_without_tls_loads_no_openssl(
    loaded: set[str], numpy_alone: set[str], tmp_path: Path
) -> None:
    """Both paho and hashlib, which a digest comes from, import it at once: 4 MB."""
    certificates(tmp_path)
    assert not {"_ssl", "_hashlib"} & (loaded - numpy_alone)
    assert {"_ssl", "edge_opid.link.tls"} <= modules(tmp_path, WITH_TLS)


def test_nothing_that_befalls_a_connection_without_tls_loads_openssl(
    numpy_alone: set[str], tmp_path: Path
) -> None:
    """Where paho catches an error it names those of ssl, which would load it all the same."""
    settings = CONFIG.partition("[broker]")[0]
    with (
        Mosquitto(tmp_path / "broker") as broker,
        NodeProcess(tmp_path, broker.port, settings, "keepalive_s = 1") as node,
    ):
        for life in (1, 2):
            wait_until(lambda: broker.log().count("PINGREQ from") >= 3 * life, "pings")  # noqa: B023
            maps = Path(f"/proc/{node.pid}/maps").read_text()
            assert ("libcrypto" in maps) == ("_hashlib" in numpy_alone)
            broker.kill()
            wait_until(lambda: node.log().count('event="not connected"') >= life, "the end")  # noqa: B023
            broker.start()


def test_the_unit_compiles_all_that_a_node_loads_before_it_starts(tmp_path: Path) -> None:
    """A module that the node compiles itself leaves the compiler's memory behind: 1 MB once."""
    unit = files("edge_opid.service").joinpath("opid-node.service").read_text("utf-8")
    code = re.search(r'^ExecStartPre=.* -c "(.*)"$', unit, re.MULTILINE)
    assert code is not None
    cache = tmp_path / "cache"
    environment = {**os.environ, **UNIT, "PYTHONPYCACHEPREFIX": str(cache)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run([sys.executable, "-c", code[1]], env=environment, check=True, timeout=120)
    before = set(cache.rglob("*.pyc"))
    certificates(tmp_path)
    modules(tmp_path, WITH_TLS + toml_table("gateway", keys=["ab" * 32]), environment)
    later = {path.name.split(".")[0] for path in cache.rglob("*.pyc") if path not in before}
    assert later <= {"__main__"}  # which `python -m` has, and the program on the path has not


def test_help_is_the_same_without_docstrings() -> None:
    """`python -OO` throws docstrings away: what a user reads must not be one."""
    said = [
        subprocess.run(
            [sys.executable, *flags, "-m", "edge_opid", *of, "--help"],
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for of in ([], ["run"], ["discover"])
        for flags in ([], ["-OO"])
    ]
    assert said[0::2] == said[1::2]
    assert len(said[0]) > 500


def test_a_running_node_has_loaded_no_double_no_simulator_and_no_gateway(loaded: set[str]) -> None:
    """An import that is handy for a test once put the broker in memory on every node."""
    assert {"edge_opid.service.loop", "paho.mqtt.client"} <= loaded
    assert not [name for name in loaded if is_part_of(NOT_FOR_A_NODE, name)]


def test_a_running_node_has_loaded_no_library_that_would_fill_it(
    loaded: set[str], numpy_alone: set[str]
) -> None:
    """One `import scipy` for convenience takes half of what a node has."""
    assert not [name for name in loaded - numpy_alone if is_part_of(TOO_HEAVY, name)]


def test_a_running_node_loads_no_more_modules_of_ours_than_it_did(loaded: set[str]) -> None:
    """Each costs a node about 50 kB: one more is a decision, and this number its place."""
    ours = [name for name in loaded if is_part_of({"edge_opid"}, name)]
    assert len(ours) <= MODULES_MAX, sorted(ours)


def is_part_of(packages: set[str], name: str) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in packages)
