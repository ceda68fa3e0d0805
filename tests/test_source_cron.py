"""The three lines of docs/node.md as cron runs them: a process for each reading, and none is left.

    RUNS=10 PERIOD_S=8 COMMIT_S=5 python -m pytest -s tests/test_source_cron.py

runs them as a real machine would, with the node's own commit interval, and prints the figures.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from support.mosquitto import HOST, Mosquitto
from support.node_process import NodeProcess, listening, wait_until

from edge_opid.node.journal_records import Accepted, unpack_record
from edge_opid.store import RealDisk, Store
from edge_opid.wire import Channel, NodeTopics
from firmware_sim.live.observer import Observer

RUNS = int(os.environ.get("RUNS", "4"))
PERIOD_S = float(os.environ.get("PERIOD_S", "0"))  # 0: each when the one before is over
COMMIT_S = float(os.environ.get("COMMIT_S", "0.2"))
TOPICS = NodeTopics("greenhouse", "north")
SETTINGS = f"""
[node]
site = "greenhouse"
node = "north"
classes = ["dry", "damp"]
commit_s = {COMMIT_S}
[[sensors]]
id = "air-temp-7"
reference = 20.0
scale = 5.0
"""
ROOT = Path(__file__).resolve().parents[1]
THREE_LINES = re.search(
    r"    from edge_opid\.source import connect\n\n(    with .*\n        .*\n)",
    (ROOT / "docs" / "node.md").read_text("utf-8"),
)


def script(folder: Path, port: int, value: float) -> str:
    """The lines of docs/node.md, with another folder, port and value."""
    assert THREE_LINES is not None, "docs/node.md shows no sensor script"
    lines = THREE_LINES.group(0).replace("\n    ", "\n").strip()
    for shown, here in (
        ("/var/lib/attic", str(folder)),
        ('host="north.local"', f'host="{HOST}", port={port}'),
        ("21.3", str(value)),
    ):
        assert shown in lines
        lines = lines.replace(shown, here)
    return lines


def run(folder: Path, port: int, value: float) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", script(folder, port, value)], cwd=ROOT)


def applied(node: NodeProcess) -> list[float]:
    """Every reading in the journal of a node that was killed, in order."""
    with RealDisk(node.state_folder) as disk:
        _, recovered = Store.open(disk)
        inputs = [unpack_record(record) for record in recovered.records]
    return [each.values["air-temp-7"] for each in inputs if isinstance(each, Accepted)]


class Times:
    """When readings and acknowledgements were heard; looked at while the test waits."""

    def __init__(self, ear: Observer) -> None:
        self._ear, self.began = ear, time.monotonic()
        self.heard: dict[Channel, list[float]] = {Channel.READING: [], Channel.ACK: []}

    def wait(self, over: Callable[[], bool]) -> None:
        while not over():
            self._look()
            time.sleep(0.005)
        self._look()

    def _look(self) -> None:
        for channel, times in self.heard.items():
            news = len(self._ear.heard[channel]) - len(times)
            times.extend([time.monotonic()] * news)

    def passed(self, seconds: float) -> bool:
        return time.monotonic() - self.began >= seconds


def test_runs_of_the_three_lines_bring_a_reading_each(tmp_path: Path) -> None:
    """Each run was over before the node had committed, and none ever heard that it had."""
    runs: list[subprocess.Popen[bytes]] = []
    filters = [str(TOPICS.to(each, "attic")) for each in (Channel.READING, Channel.ACK)]
    with (
        Mosquitto(tmp_path / "broker") as broker,
        listening(broker.port, str(TOPICS.to(Channel.STATUS)), *filters) as ear,
        NodeProcess(tmp_path / "node", broker.port, SETTINGS) as node,
    ):
        wait_until(lambda: ear.heard[Channel.STATUS], "the node is up", meanwhile=node.check)
        times = Times(ear)
        for n in range(RUNS):
            if PERIOD_S:  # as cron does, whether the one before is over or not
                times.wait(lambda n=n: times.passed(n * PERIOD_S))
            elif runs:
                times.wait(lambda: runs[-1].poll() is not None)
            runs.append(run(tmp_path / "spool", broker.port, float(n)))
        times.wait(lambda: all(each.poll() is not None for each in runs))
        if not PERIOD_S:  # the last run may have heard its answer before we do
            wait_until(lambda: len(ear.heard[Channel.ACK]) >= RUNS, "all answers are heard")
            times.wait(lambda: True)
        assert [each.returncode for each in runs] == [0] * RUNS
        node.kill()
    assert applied(node) == [float(n) for n in range(RUNS)]
    pairs = zip(*times.heard.values(), strict=False)
    waits = [acknowledged - sent for sent, acknowledged in pairs]
    sent, answered = map(len, times.heard.values())
    print(f"\n{RUNS} runs: {sent} messages, {answered} acknowledgements", end=" ")
    print(f"after {min(waits):.2f} to {max(waits):.2f} s")
    if not PERIOD_S:
        assert sent == answered == RUNS
