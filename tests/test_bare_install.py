"""`pip install .` and nothing else: what a node needs is there, and the other programs say so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from support.mosquitto import free_port
from test_install import built

from emulation.pages import RASPBERRY_PI, commands

NODE_LIBRARIES = ("numpy", "paho", "msgpack", "nacl", "cffi", "pycparser")  # with what they need
COMPANIONS = ("numpy.libs", "pynacl.libs", "_cffi_backend*")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that holds our wheel, a node's four libraries, and no more.

    The libraries are links to those of this environment, so nothing is downloaded.
    """
    folder = tmp_path_factory.mktemp("bare")
    built(folder, CC="/bin/false", CXX="/bin/false")
    place = folder / "venv"
    venv.create(place, with_pip=False)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(place)}))
    here = [Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")]
    for each in (path for root in here for name in NODE_LIBRARIES for path in root.glob(name)):
        if not (site / each.name).exists():
            (site / each.name).symlink_to(each)
    for each in (path for name in COMPANIONS for path in here[1].glob(name)):
        (site / each.name).symlink_to(each)
    (wheel,) = (folder / "wheels").iterdir()
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin/python"), "install"]
    command = [*pip, "--quiet", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(command, check=True, capture_output=True, timeout=240)
    return place / "bin"


def typed(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [str(program), *arguments]
    return subprocess.run(
        command, env=environment, cwd="/", capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(
    ("program", "arguments", "extra"),
    [
        ("opid-gateway", ("--help",), "gateway"),
        ("opid-gateway", ("run", "gateway.toml"), "gateway"),
        ("opid-sim", ("soak", "--seeds", "1"), "sim"),
        ("opid-sim", ("run", "rolling_replacement"), "sim"),
    ],
)
def test_a_program_without_its_extra_names_it_in_one_sentence(bare, program, arguments, extra):
    """Whoever followed the README's first line got a traceback of seven files."""
    ran = typed(bare / program, *arguments)
    assert (ran.returncode, ran.stdout) == (2, "")
    sentence = rf"{program}: \w+ is not installed: this program needs the extra '{extra}': "
    advice = re.escape(f"pip install 'edge-opid[{extra}]'")
    assert re.fullmatch(f"{sentence}{advice}\n", ran.stderr), ran.stderr


@pytest.mark.parametrize("command", [("opid-node", "--help"), ("opid-sim", "list")])
def test_what_needs_no_extra_works_without_one(bare, command):
    program, *arguments = command
    ran = typed(bare / program, *arguments)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout


def test_an_installed_node_brings_its_unit_along(bare, tmp_path):
    """The unit lay in the repository only: whoever had the wheel had none."""
    words = ("--root", str(tmp_path), "--class", "a", "--class", "b", "--port", "1", "--dry-run")
    ran = typed(bare / "opid-node", "init", *words)
    assert ran.returncode == 0, ran.stderr
    assert f"would write {tmp_path}/etc/systemd/system/opid-node.service\n" in ran.stdout
    assert f"sudo {bare}/opid-node check" in ran.stdout


def test_a_missing_module_of_our_own_is_a_bug_and_not_an_extra():
    """A renamed module must not be blamed on whoever installed the package."""
    code = (
        "import sys; sys.modules['gateway.cli.parser'] = None\n"
        "from gateway.__main__ import main; main(['--help'])"
    )
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 1
    assert "ModuleNotFoundError" in ran.stderr
    assert "gateway.cli.parser" in ran.stderr


# --- the steps on the pages -----------------------------------------------------------------------

ELSEWHERE = (
    r"sudo apt install [a-z0-9 -]+",
    # These two are done by `bare`, with a wheel of this tree.
    r"sudo python3 -m venv( --system-site-packages)? /opt/opid-node",
    r"sudo /opt/opid-node/bin/pip install \./edge_opid-\S+\.whl",
    r"sudo ln -s /opt/opid-node/bin/opid-node /usr/local/bin/",
    r"sudo systemctl daemon-reload && sudo systemctl enable --now opid-node",
    r"sudo opid-node status",  # of a service: what it says is tested elsewhere
)


@pytest.mark.skipif(os.geteuid() != 0, reason="the steps are root's")
@pytest.mark.parametrize("section", ["With pip, 64 bits", "With pip, 32 bits"])
def test_the_steps_for_a_raspberry_pi_work_as_they_are_printed(bare, tmp_path, section):
    """Each line is run in a root of its own, or is one of a few that only `make pi` can run."""
    lines = commands(RASPBERRY_PI.read_text("utf-8"), section)
    assert len(lines) >= 4
    ran = 0
    for line in lines:
        if any(re.fullmatch(each, line) for each in ELSEWHERE):
            continue
        program, verb, *words = line.removeprefix("sudo ").split()
        assert program == "opid-node", line
        if verb == "init":
            words += ["--root", str(tmp_path), "--port", str(free_port())]
        if verb == "check":
            words += [str(tmp_path / "etc/opid-node/node.toml")]
        done = typed(bare / "opid-node", verb, *words)
        assert done.returncode == 0, (line, done.stderr)
        ran += 1
    assert ran == 2
    unit = (tmp_path / "etc/systemd/system/opid-node.service").read_text()
    assert f"ExecStart={bare}/opid-node run /etc/opid-node/node.toml\n" in unit
