"""A gateway beside bare publishing: a thousand nodes go through one change at once.

    python -m benchmarks.gateway.wave [--nodes 1000] [--sensors 12] [--json out/gateway.json]

Wave: at every node one sensor dies and another joins; the seconds from the moment the fit is there
(orders to be signed and saved) until the database knows that every node has the new weights. The
yardstick, in the same run on the same broker: as many bare retained publications of the same size,
from the first to the acknowledgement of the last. Then the E-stage's time beside scikit-learn's on
one batch, and the gateway's resident memory.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.common.verdict import verdict
from benchmarks.gateway import estage
from benchmarks.gateway.fleet import CLASSES, KEY, SITE, roomy
from benchmarks.node.parts import certificates, line_of, memory_mb, mosquitto, process
from edge_opid.link.mqtt import MqttLink
from gateway.store import FleetStore

RATIO_MAX = 4.0
WAIT_S = 300.0
ROUNDS = 3


def configure(folder: Path, port: int, nodes: int) -> Path:
    """A gateway in its own folder; its patience is short, its retries are long."""
    key = folder / "gateway.key"
    key.touch(mode=0o600)
    key.write_text(KEY.encode().hex())
    names = [f"n{n}" for n in range(nodes)]
    toml = folder / "gateway.toml"
    toml.write_text(
        '[gateway]\ndatabase = "sqlite:///gateway.sqlite"\nkey = "gateway.key"\n'
        "settle_s = 3\nsummary_wait_s = 60\nretry_s = 60\n"
        f'[broker]\nhost = "127.0.0.1"\nport = {port}\n'
        f'[[groups]]\nid = "all"\nsite = "{SITE}"\nclasses = {list(CLASSES)}\nnodes = {names}\n'
    )
    return toml


def wait_until(true: Callable[[], bool], what: str) -> None:
    """Look again and again, for a while."""
    deadline = time.monotonic() + WAIT_S
    while not true():
        if time.monotonic() > deadline:
            sys.exit(f"waited {WAIT_S:g} s in vain until {what}")
        time.sleep(0.2)


def bare_publishing(port: int, count: int, size: int) -> float:
    """Seconds from the first of `count` retained publications to the last acknowledgement."""
    link = MqttLink(roomy("bare", port))
    link.start()
    link.wait_connected(30.0)
    payload, start = bytes(size), time.perf_counter()
    for number in range(count):
        link.publish(f"bare/{number}", payload, retain=True)
    wait = time.perf_counter() + WAIT_S
    while link.counters.published < count and time.perf_counter() < wait:
        time.sleep(0.001)
    taken = time.perf_counter() - start
    link.stop()
    return taken


def waves(log: Path, nodes: int) -> list[float]:
    """The seconds of every wave of weights to all nodes that the gateway's log tells of."""
    _, _, fitted = log.read_text().partition("event=fitted")
    return [float(each) for each in re.findall(rf"orders={nodes} seconds=([0-9.]+)", fitted)]


def layouts_reported(database: str, nodes: int, version: int) -> bool:
    """Whether every node has reported this layout, and obeys the newest order."""
    with FleetStore.open(database) as store:
        found = store.fleet()
    orders = {order.key: order.version for order in found.orders}
    return len(found.nodes) == nodes and all(
        node.reported_layout >= version and node.reported_version >= orders[node.key]
        for node in found.nodes
    )


def measure(folder: Path, nodes: int, sensors: int) -> dict[str, float]:
    """The whole story once."""
    certificates(folder)
    database = f"sqlite:///{folder / 'gateway.sqlite'}"
    log = folder / "gateway.log"
    with mosquitto(folder, nodelay=True) as (port, _):
        toml = configure(folder, port, nodes)
        gateway = process(sys.executable, "-m", "gateway", "run", toml, log=log)
        script = Path(__file__).with_name("fleet.py")
        with gateway as served:
            wait_until(lambda: "event=connected" in log.read_text(), "the gateway is connected")
            with process(sys.executable, script, str(port), str(nodes), str(sensors)) as fleet:
                if line_of(fleet) != "ready":
                    sys.exit("the fleet did not start")
                wait_until(lambda: layouts_reported(database, nodes, 2), "all report the change")
                wait_until(lambda: bool(waves(log, nodes)), "all have the new weights")
            resident = memory_mb(served.pid)
        with FleetStore.open(database) as store:
            size = max(len(order.payload) for order in store.fleet().orders)
        bare = [bare_publishing(port, nodes, size) for _ in range(ROUNDS)]
    return {
        "nodes": nodes,
        "order bytes": size,
        "wave s": waves(log, nodes)[-1],
        "bare s": statistics.median(bare),
        "resident MB": resident[0],
        "resident MB, most": resident[1],
    }


def main() -> None:
    """Print the figures and the verdicts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--sensors", type=int, default=12)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), given.nodes, given.sensors)
    print(f"{platform.machine()}, Python {platform.python_version()}")
    for name, value in found.items():
        print(f"  {name}: {value:g}")
    ratio = found["wave s"] / found["bare s"]
    print(verdict("wave / bare retained publications", ratio, RATIO_MAX, at_least=False))
    estage.speeds(estage.task())
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
