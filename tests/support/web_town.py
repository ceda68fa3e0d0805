"""Everything real: a broker, a gateway with its pages, a node, a sensor script, and a browser."""

from __future__ import annotations

import json
import os
import urllib.request
from contextlib import contextmanager
from pathlib import Path

from edge_opid.source import connect
from firmware_sim.live import services
from firmware_sim.live.processes import Together
from firmware_sim.live.toml import toml_table
from support.fleet_rig import CLASSES, SITE, SeenWorld
from support.gateway_process import POLICY, node_settings
from support.mosquitto import Mosquitto, free_port, needed
from support.node_process import WAIT_S, NodeProcess, wait_until
from support.rig import KEY

CHROMIUM = ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome")
ROLES = ("pm", "no", "co")
REBOUND = "evil.example"
"""A stranger's name that was made to point to this machine."""


def find_chromium() -> str:
    """The browser's program, or a skipped (in CI: failed) test."""
    found = next((each for each in CHROMIUM if Path(each).exists()), None)
    return needed(found, "Chromium is not installed: apt-get install chromium")


class Serves:
    """A process that has pages on a port of this machine."""

    port: int

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def answers(self):
        try:
            with urllib.request.urlopen(f"{self.url}/healthz", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False


class WebGateway(Serves, services.GatewayProcess):
    """`opid-gateway run --web`."""

    def __init__(self, folder, port, nodes):
        self.port = free_port()
        group = toml_table("[groups]", id="air", site=SITE, classes=CLASSES, nodes=nodes)
        web = toml_table("web", port=self.port)
        super().__init__(folder, port, KEY, POLICY, group + web)
        self._command = [*self._command, "--web"]


class WebTown(Together):
    """One node at work, and the pages of its gateway."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def _open(self):
        enter = self.stack.enter_context
        self.broker = enter(Mosquitto(self.folder / "broker"))
        self.gateway = WebGateway(self.folder / "gateway", self.broker.port, ("n1", "n2"))
        self.stack.callback(self.gateway.kill)
        self.gateway.start()
        self.gateway.wait_connected()
        settings = node_settings("n1", ROLES).replace("timeout_s = 1.0", "timeout_s = 600.0")
        self.node = enter(NodeProcess(self.folder / "n1", self.broker.port, settings))
        spool = self.folder / "spool"
        self.source = enter(connect(SITE, "n1", "box", spool, port=self.broker.port, sync_s=60.0))
        self.world, self.sensors = SeenWorld(1), {f"{role}-n1": role for role in ROLES}
        wait_until(self.gateway.answers, "the pages answer", meanwhile=self.gateway.check)

    def send(self, count, *, labelled):
        """Readings, all applied when this returns."""
        for _ in range(count):
            values, label = self.world.instance(self.sensors)
            self.source.send(values, label if labelled else None)
        assert self.source.drained(WAIT_S)

    def counts(self):
        """What the node has counted, as its status file has it."""
        path = self.folder / "n1" / "status.json"
        return json.loads(path.read_text())["counts"] if path.exists() else {}

    def agreed(self):
        """The node has reported the order in force."""
        found = self.gateway.remembers()
        return bool(found.orders) and all(
            node.reported_version >= order.version
            for node in found.nodes
            for order in found.orders
            if node.key == order.key
        )

    def states(self):
        return {each.id: str(each.state) for each in self.gateway.remembers().sensors}


@contextmanager
def browser():
    """Debian's Chromium, driven by Playwright."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - takes a second to load

    options = ["--no-sandbox", f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1"]
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=find_chromium(), args=options)
        try:
            yield found
        finally:
            found.close()


SCREENSHOTS = os.environ.get("OPID_SCREENSHOTS")
