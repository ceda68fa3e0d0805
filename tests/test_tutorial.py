"""The tutorial, as a reader types it: its commands run in one shell, on a broker of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from support.mosquitto import find_mosquitto, free_port

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/tutorial.md").read_text("utf-8")
TIDY = "trap 'kill $(jobs -p) 2> /dev/null || true' EXIT"
UNTIL = "for _ in $(seq 60); do {} && break; sleep 1; done"
FASTER = {  # what a reader waits for, this waits for as well, on a machine that may be slow
    "sleep 10": UNTIL.format("[ -e office-status.json.watch ]"),
    "seq 40": "seq 12",
    "sleep 2\n": "",
    "sleep 60": UNTIL.format("grep -q '\"silent\": ..plug-1' office-status.json"),
    "sleep 30": UNTIL.format("grep -q '\"layout_version\": [1-9]' office-status.json")
    + "; sleep 9",
    "mosquitto -p 1883 &": "mosquitto -p 1883 2> mosquitto.log &",
    "opid-node run office.toml &": "opid-node run office.toml 2>> node.log &",
}


def shell_of(page: str) -> str:
    """Every command but the installation; a minute of the tutorial takes some seconds here."""
    blocks = re.findall(r"(?ms)^```sh\n(.*?)^```", page)
    assert len(blocks) == 8
    script = "\n".join(blocks)
    for slow, fast in FASTER.items():
        assert slow in script
        script = script.replace(slow, fast)
    return script.replace("--port 1883 &", "--port 1883 --every 0.1 2> devices.log &")


@pytest.mark.timeout(
    600
)  # some twenty programs, one after the other, on a machine that may be busy
def test_the_tutorial_ends_with_a_node_that_uses_its_new_sensor(tmp_path) -> None:
    """A command is renamed or a file no longer loads, and the first evening ends in step three."""
    broker = Path(find_mosquitto())
    script = shell_of(PAGE).replace("1883", str(free_port()))
    for step in ("learned", "dead", "replaced"):  # what `status` read, at each of its three calls
        script = re.sub(
            r"(?m)^opid-node status office.toml$",
            f"opid-node status office.toml > {step}.txt; cp office-status.json {step}.json",
            script,
            count=1,
        )
    (tmp_path / "edge-opid").symlink_to(ROOT)
    programs = [sysconfig.get_path("scripts"), str(Path(sys.executable).parent), str(broker.parent)]
    path = os.pathsep.join([*programs, os.environ["PATH"]])
    with (tmp_path / "shown").open("w") as shown:  # no pipe: whoever is left would keep it open
        done = subprocess.run(
            ["timeout", "560", "bash", "-m", "-e", "-c", f"{TIDY}\n{script}"],
            cwd=tmp_path, env={**os.environ, "PATH": path}, stdout=shown, stderr=shown,
            timeout=580, check=False,
        )  # fmt: skip
    assert done.returncode == 0, (tmp_path / "shown").read_text()[-4000:]
    learned, dead, replaced = (
        json.loads((tmp_path / f"{step}.json").read_text())
        for step in ("learned", "dead", "replaced")
    )
    # Of a dozen labels within seconds an accuracy is luck: that they were learned is not.
    assert learned["counts"]["learned"] >= 5
    assert dead["silent"] == ["plug-1"]
    assert "silent" not in replaced
    assert "plug-2" in (tmp_path / "office.toml").read_text()
