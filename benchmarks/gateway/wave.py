"""What a node costs its gateway: at rest, and when all of them change at once; from 500 to 10,000.

    python -m benchmarks.gateway.wave [--nodes 500 1000] [--rest 30] [--sensors 12]
        [--viewers 0 [--turns 0]] [--json out/gateway.json]

For each size a mosquitto, a gateway, and a fleet that is too thin to be what is measured
(`fleet.py`). First everybody is adopted. Then nothing happens for `--rest` seconds but what always
does, a status of every node twice a minute: the gateway's processor time in per cent of a core, and
what it writes, taken for a day. Then at every node one sensor dies and another joins: the processor
time, from the moment the fit is there until the database knows that every node has the new weights.
Processor time is what Linux counts for the gateway's process, all threads; on a busy machine it is
twice what it is on an idle one, which the time of one signature beside it shows. The yardstick
on the same broker, by the clock: as many bare retained publications of the same size.

The E-stage's time beside scikit-learn's on one batch is measured last. With `--viewers` the pages
are served beside it, and so many look at the fleet all the time; with `--turns`, every other time:
what the pages cost the gateway is the difference.
"""

from __future__ import annotations

import math
import platform
import re
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.common.command import add_json_option, command_line, write_json
from benchmarks.common.measuring import cpu_s, memory_mb, written_bytes
from benchmarks.common.verdict import verdict
from benchmarks.gateway import estage
from benchmarks.gateway.fleet import CLASSES, KEY, SITE, BareMqtt
from benchmarks.web import watched
from firmware_sim.live.mosquitto import ROOMY, Mosquitto
from firmware_sim.live.processes import Child, wait_until
from firmware_sim.live.services import GatewayProcess, all_obeyed

WAVE_US_MAX, GROWTH_MAX = 200.0, 1.2
REST_PERCENT_MAX, REST_GB_MAX = 6.0, 0.5
LARGE = 10_000
"""The size that the aims for a fleet at rest are for."""
WAIT_S = 900.0
CALM_S = 5.0
LOOK_S = 1.0  # between two looks at the database: each reads every node
DAY_S = 86_400
SIGNATURES = 500
Figures = dict[str, float]


def gateway(folder: Path, port: int, nodes: int) -> GatewayProcess:
    """Its patience is short, its retries are long."""
    names = [f"n{n}" for n in range(nodes)]
    group = f'[[groups]]\nid = "all"\nsite = "{SITE}"\nclasses = {list(CLASSES)}\nnodes = {names}\n'
    policy = "settle_s = 3\nsummary_wait_s = 300\nretry_s = 600\nretry_max_s = 600"
    return GatewayProcess(folder, port, KEY, policy, group)


def bare_publishing(port: int, count: int, size: int) -> float:
    """Seconds from the first of `count` retained publications to the last acknowledgement."""
    link, payload, start = BareMqtt(port, "bare"), bytes(size), time.perf_counter()
    for number in range(count):
        topic = f"bare/{number}".encode()
        link.publish(len(topic).to_bytes(2, "big") + topic, payload, retain=True)
        if number % 100 == 99:
            link.flush()
    link.flush()
    while link.confirmed < count:
        list(link.receive(WAIT_S))
    return time.perf_counter() - start


def waves(served: GatewayProcess) -> list[tuple[float, float]]:
    """The seconds of every wave since the first fit, by the clock and of the processor.

    Mostly it is one. Where announcements took so long that some nodes were fitted and obeyed before
    the last had spoken, there are several, or one with layouts in it: see `first_fitted`.
    """
    _, _, fitted = served.log().partition("event=fitted")
    found = re.findall(r"orders=\d+ seconds=([0-9.]+) cpu_s=([0-9.]+)", fitted)
    return [(float(seconds), float(cpu)) for seconds, cpu in found]


def first_fitted(served: GatewayProcess) -> int:
    """The members of the first fit. All nodes, or what follows is not a wave of weights alone."""
    found = re.search(r"event=fitted .*pooled=(\d+)", served.log())
    return int(found[1]) if found else 0


def all_adopted(served: GatewayProcess, nodes: int) -> bool:
    """Whether the database says that every node obeys its first order."""
    return all_obeyed(served.remembers(), nodes)


def all_have_weights(served: GatewayProcess, nodes: int) -> bool:
    """Whether the database says that every node serves the weights of its last order."""
    if not waves(served):
        return False
    found = served.remembers()
    models = {node.key: node.reported_model for node in found.nodes}
    return all_obeyed(found, nodes) and all(
        order.fit >= 0 and models[order.key] >= order.version for order in found.orders
    )


def at_rest(served: GatewayProcess, nodes: int, seconds: float) -> Figures:
    """Processor and disk of a gateway that hears nothing but that all is well."""
    time.sleep(CALM_S)
    start, cpu, written = time.monotonic(), cpu_s(served.pid), written_bytes(served.pid)
    time.sleep(seconds)
    passed = time.monotonic() - start
    used = cpu_s(served.pid) - cpu
    return {
        "rest, % of a core": 100 * used / passed,
        "rest, µs a node and minute": 1e6 * used / passed * 60 / nodes,
        "rest, GB written a day": (written_bytes(served.pid) - written) / passed * DAY_S / 1e9,
    }


def measure(folder: Path, nodes: int, sensors: int, rest_s: float, viewers: int) -> Figures:
    """The whole story of one fleet."""
    script = str(Path(__file__).with_name("fleet.py"))
    with (
        Mosquitto(folder / "broker", extra=ROOMY) as broker,
        gateway(folder, broker.port, nodes) as served,
    ):
        served.wait_connected()
        crowd = [sys.executable, script, str(broker.port), str(nodes), str(sensors)]
        with (
            Child("fleet", crowd, folder / "fleet.log", piped=True) as fleet,
            watched(served.toml, viewers),
        ):
            if fleet.line() != "adopted":
                sys.exit(f"the fleet was not adopted:\n{fleet.log()}\n{served.log()[-2000:]}")
            adopted = partial(all_adopted, served, nodes)
            wait_until(adopted, "all are adopted", WAIT_S, served.check, LOOK_S)
            found: Figures = {"nodes": nodes, **at_rest(served, nodes, rest_s)}
            cpu, crowd_cpu = cpu_s(served.pid), cpu_s(fleet.pid)
            _announce(fleet)
            done = partial(all_have_weights, served, nodes)
            wait_until(done, "all have the new weights", WAIT_S, served.check, LOOK_S)
            found["change, µs a node"] = 1e6 * (cpu_s(served.pid) - cpu) / nodes
            found["fleet's share, µs a node"] = 1e6 * (cpu_s(fleet.pid) - crowd_cpu) / nodes
        seconds, used = map(sum, zip(*waves(served), strict=True))
        found["wave, µs a node"], found["wave, s"] = 1e6 * used / nodes, seconds
        found["waves"], found["first fit, nodes"] = len(waves(served)), first_fitted(served)
        size = max(len(order.payload) for order in served.remembers().orders)
        found["bare, s"] = min(bare_publishing(broker.port, nodes, size) for _ in range(3))
        found["a signature, µs"] = signature_us()
        found["order, bytes"] = size
        found["resident, MB"] = memory_mb(served.pid)[0]
        found["database, MB"] = database_mb(folder / "gateway.sqlite")
    return found


def signature_us() -> float:
    """Processor time of one Ed25519 signature here and now: what every order costs at least, and
    how much slower this machine is at the moment than at its best.
    """
    times = []
    for _ in range(SIGNATURES):
        start = time.process_time()
        KEY.sign(bytes(1_200))
        times.append(time.process_time() - start)
    return 1e6 * statistics.median(times)


def _announce(fleet: Child) -> None:
    assert fleet.process is not None
    assert fleet.process.stdin is not None
    fleet.process.stdin.write(b"change\n")
    fleet.process.stdin.flush()


def database_mb(path: Path) -> float:
    """How large the database is, by its pages."""
    with sqlite3.connect(path) as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    return float(pages * size / 1e6)


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The b of value = a · nodes^b, by least squares on logarithms: 1 is a straight line."""
    x, y = [math.log(each) for each in sizes], [math.log(each) for each in values]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    above = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return above / sum((a - mean_x) ** 2 for a in x)


def print_table(found: Sequence[Figures]) -> None:
    """A row a figure, a column a size, and how each grows with the nodes."""
    several = len(found) > 1
    print("|" + "|".join(["", *(f"{each['nodes']:,.0f}" for each in found)]), end="")
    print("| exponent |" if several else "|")
    print("|" + "---|" * (1 + len(found) + several))
    for name in list(found[0])[1:]:
        values = [each[name] for each in found]
        print(f"| {name} | " + " | ".join(f"{value:.3g}" for value in values), end=" |")
        whole = several and all(value > 0 for value in values)
        grows = exponent([each["nodes"] for each in found], values) if whole else math.nan
        print(f" {grows:.2f} |" if several else "")


def print_verdicts(found: Sequence[Figures]) -> None:
    """What was aimed at, where the sizes it is for were measured."""
    by_size = {round(each["nodes"]): each for each in found}
    wave = {size: each["wave, µs a node"] for size, each in by_size.items()}
    if 1_000 in wave:
        what = "CPU a node in a wave of 1,000, µs"
        print(verdict(what, wave[1_000], WAVE_US_MAX, at_least=False))
        most = max(wave)
        if most > 1_000:
            what = f"its growth to {most:,} nodes"
            print(verdict(what, wave[most] / wave[1_000], GROWTH_MAX, at_least=False))
    if LARGE in by_size:
        rest = by_size[LARGE]
        what = f"{LARGE:,} nodes at rest, % of a core"
        print(verdict(what, rest["rest, % of a core"], REST_PERCENT_MAX, at_least=False))
        what = f"{LARGE:,} nodes at rest, GB written a day"
        print(verdict(what, rest["rest, GB written a day"], REST_GB_MAX, at_least=False))


def compare_with_pages(nodes: int, sensors: int, rest_s: float, viewers: int, turns: int) -> None:
    """The wave without the pages and with them, in turns: medians of each, and all runs."""
    runs: dict[int, list[Figures]] = {0: [], viewers: []}
    for _ in range(turns):
        for looking, found in runs.items():
            with tempfile.TemporaryDirectory() as folder:
                found.append(measure(Path(folder), nodes, sensors, rest_s, looking))
    shown = "wave, µs a node", "wave, s", "first fit, nodes", "change, µs a node", "a signature, µs"
    for name in shown:
        for looking, found in runs.items():
            values = [each[name] for each in found]
            every = " ".join(f"{value:.3g}" for value in values)
            print(f"{name}, {looking} viewers: median {statistics.median(values):.3g} ({every})")


def main() -> None:
    """Print the figures and the verdicts."""
    parser = command_line(__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[500, 1000])
    parser.add_argument("--rest", type=float, default=30.0)
    parser.add_argument("--sensors", type=int, default=12)
    parser.add_argument("--viewers", type=int, default=0)
    parser.add_argument("--turns", type=int, default=0)
    add_json_option(parser)
    given = parser.parse_args()
    if given.turns:
        size = max(given.nodes)
        compare_with_pages(size, given.sensors, given.rest, given.viewers, given.turns)
        return
    found = []
    for nodes in given.nodes:
        with tempfile.TemporaryDirectory() as folder:
            found.append(measure(Path(folder), nodes, given.sensors, given.rest, given.viewers))
        print(f"{nodes:,} nodes: " + ", ".join(f"{k} {v:.3g}" for k, v in found[-1].items()))
    print(f"\n{platform.machine()}, Python {platform.python_version()}\n")
    print_table(found)
    print()
    print_verdicts(found)
    estage.speeds(estage.task())
    write_json(given.json, found)


if __name__ == "__main__":
    main()
