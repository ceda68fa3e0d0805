"""A gateway beside bare publishing: a thousand nodes go through one change at once.

    python -m benchmarks.gateway.wave [--nodes 1000] [--sensors 12] [--json out/gateway.json]

Wave: at every node one sensor dies and another joins; the seconds from the moment the fit is there
(orders to be signed and saved) until the database knows that every node has the new weights. The
yardstick, in the same run on the same broker: as many bare retained publications of the same size,
from the first to the acknowledgement of the last. Then the E-stage's time beside scikit-learn's on
one batch, and the gateway's resident memory.
"""

from __future__ import annotations

import platform
import re
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks.common.command import add_json_option, command_line, write_json
from benchmarks.common.measuring import memory_mb
from benchmarks.common.verdict import verdict
from benchmarks.gateway import estage
from benchmarks.gateway.fleet import CLASSES, KEY, SITE, roomy
from edge_opid.link.mqtt import MqttLink
from firmware_sim.live.mosquitto import ROOMY, Mosquitto
from firmware_sim.live.processes import Child, wait_until
from firmware_sim.live.services import GatewayProcess

RATIO_MAX = 4.0
WAIT_S = 300.0
ROUNDS = 3


def gateway(folder: Path, port: int, nodes: int) -> GatewayProcess:
    """Its patience is short, its retries are long."""
    names = [f"n{n}" for n in range(nodes)]
    group = f'[[groups]]\nid = "all"\nsite = "{SITE}"\nclasses = {list(CLASSES)}\nnodes = {names}\n'
    policy = "settle_s = 3\nsummary_wait_s = 60\nretry_s = 60"
    return GatewayProcess(folder, port, KEY, policy, group)


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


def waves(gateway: GatewayProcess, nodes: int) -> list[float]:
    """The seconds of every wave of weights to all nodes that the gateway's log tells of."""
    _, _, fitted = gateway.log().partition("event=fitted")
    return [float(each) for each in re.findall(rf"orders={nodes} seconds=([0-9.]+)", fitted)]


def layouts_reported(gateway: GatewayProcess, nodes: int, version: int) -> bool:
    """Whether every node has reported this layout, and obeys the newest order."""
    found = gateway.remembers()
    orders = {order.key: order.version for order in found.orders}
    return len(found.nodes) == nodes and all(
        node.reported_layout >= version and node.reported_version >= orders[node.key]
        for node in found.nodes
    )


def measure(folder: Path, nodes: int, sensors: int) -> dict[str, float]:
    """The whole story once."""
    with Mosquitto(folder / "broker", extra=ROOMY) as broker:
        script = str(Path(__file__).with_name("fleet.py"))
        crowd = [sys.executable, script, str(broker.port), str(nodes), str(sensors)]
        with gateway(folder, broker.port, nodes) as served:
            served.wait_connected()
            with Child("fleet", crowd, folder / "fleet.log", piped=True) as fleet:
                if fleet.line() != "ready":
                    sys.exit(f"the fleet did not start:\n{fleet.log()}")
                for true, what in (
                    (partial(layouts_reported, served, nodes, 2), "all report the change"),
                    (partial(waves, served, nodes), "all have the new weights"),
                ):
                    wait_until(true, what, WAIT_S, pause_s=0.2)
            resident = memory_mb(served.pid)
        size = max(len(order.payload) for order in served.remembers().orders)
        bare = [bare_publishing(broker.port, nodes, size) for _ in range(ROUNDS)]
    return {
        "nodes": nodes,
        "order bytes": size,
        "wave s": waves(served, nodes)[-1],
        "bare s": statistics.median(bare),
        "resident MB": resident[0],
        "resident MB, most": resident[1],
    }


def main() -> None:
    """Print the figures and the verdicts."""
    parser = command_line(__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--sensors", type=int, default=12)
    add_json_option(parser)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), given.nodes, given.sensors)
    print(f"{platform.machine()}, Python {platform.python_version()}")
    for name, value in found.items():
        print(f"  {name}: {value:g}")
    ratio = found["wave s"] / found["bare s"]
    print(verdict("wave / bare retained publications", ratio, RATIO_MAX, at_least=False))
    estage.speeds(estage.task())
    write_json(given.json, found)


if __name__ == "__main__":
    main()
