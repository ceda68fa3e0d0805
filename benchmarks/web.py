"""The pages of a thousand nodes: how soon, how large, at what cost; and the size of the history.

    python -m benchmarks.web [--nodes 1000] [--sensors 10] [--seconds 30] [--predictions 1000]

A database is made with nodes, sensors and a day of history. `opid-gateway web` serves it. Meanwhile
a process writes as a gateway does: the status and the sample of every node once a minute. Viewers
do what the script of the fleet page does: the page once, then its live document every four seconds,
compressed. The last line is the same with so many predictions a second on a mosquitto, one a second
of every node. CPU is that of the web process, from /proc, in per cent of a core.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import math
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from edge_opid.link.background import BackgroundLink
from edge_opid.link.options import MqttOptions
from edge_opid.wire import InstanceId, Prediction, SensorDescription, Status, encode, to_json
from firmware_sim.live.mosquitto import Mosquitto, free_port
from firmware_sim.live.processes import Child, wait_until
from gateway.registry import LayoutRecord, NodeRecord, OrderRecord, SensorRecord, SensorState
from gateway.registry.history import MinutesRecord, Sample
from gateway.registry.records import Record
from gateway.store import FleetStore

EVERY_S = 4.0
HISTORY_H = 24
TICK_S = os.sysconf("SC_CLK_TCK")


def status(now_ms: int) -> bytes:
    """What a node says of itself."""
    return encode(
        Status(
            online=True,
            layout_version=1,
            model_version=1,
            time_ms=now_ms,
            version=1,
            counts={"readings": 5_000, "learned": 80, "predictions": 4_990, "rate-limited": 2},
            accuracy={"own": 0.91, "model": 0.9, "lately": 0.88, "frequent": 0.5},
        )
    )


def records(number: int, sensors: int, now_ms: int) -> list[Record]:
    """Everything of one node."""
    place: dict[str, Any] = {"site": "city", "node": f"n{number}"}
    described = tuple(
        SensorDescription(id=f"s{n}", role=f"r{n}", reference=0.0, scale=1.0)
        for n in range(sensors)
    )
    found: list[Record] = [
        NodeRecord(
            **place, group="air", gate=8.0, online=True, seen_ms=now_ms, reported_version=1,
            reported_layout=1, reported_model=1, status=status(now_ms),
        ),
        LayoutRecord(
            **place, version=1, sensors=described, vanishing=(), gate=8.0, change=0, at_ms=now_ms
        ),
        OrderRecord(**place, version=1, layout_version=1, payload=b"x" * 900, at_ms=now_ms),
    ]  # fmt: skip
    found += [
        SensorRecord(
            **place, id=each.id, role=each.role, state=SensorState.ACTIVE, since_ms=now_ms,
            reference=0.0, scale=1.0, reason="introduced by its node",
        )
        for each in described
    ]  # fmt: skip
    return found


def an_hour(node: str, hour: int, seed: int) -> MinutesRecord:
    """A lively hour: accuracy and counts that change every minute."""
    found = MinutesRecord(site="city", node=node, hour=hour)
    for minute in range(60):
        noise = (seed * 7919 + minute * 104_729) % 1_000
        sample = Sample(0.85 + noise / 10_000, 55 + noise % 10, noise % 3, int(noise > 950))
        found = found.with_sample(minute, sample)
    return found


def make(folder: Path, nodes: int, sensors: int, broker_port: int) -> tuple[Path, str]:
    """The configuration and the database; a day of history for each node."""
    names = ", ".join(f'"n{n}"' for n in range(nodes))
    config, url = folder / "gateway.toml", f"sqlite:///{folder / 'gateway.sqlite'}"
    config.write_text(
        f'[gateway]\ndatabase = "{url}"\nkey = "k"\n[broker]\nport = {broker_port}\n'
        f'[[groups]]\nid = "air"\nsite = "city"\nclasses = ["a", "b"]\nnodes = [{names}]\n'
    )
    now_ms = time.time_ns() // 1_000_000
    hour = now_ms // 3_600_000
    day = [an_hour("n0", hour - back, back) for back in range(HISTORY_H)]
    with FleetStore.open(url) as store:
        store.claim()
        for number in range(nodes):
            past = [replace(each, node=f"n{number}") for each in day]
            store.save([*records(number, sensors, now_ms), *past])
    return config, url


class Writer(threading.Thread):
    """What a gateway writes: the status and the sample of every node once a minute."""

    def __init__(self, url: str, nodes: int) -> None:
        super().__init__(daemon=True)
        self.over, self._url, self._nodes = threading.Event(), url, nodes

    def run(self) -> None:
        """A sixtieth of the fleet every second."""
        with FleetStore.open(self._url) as store:
            fleet = {each.node: each for each in store.fleet().nodes}
            names = sorted(fleet)
            for turn in range(10**6):
                if self.over.wait(1.0):
                    return
                now_ms = time.time_ns() // 1_000_000
                some = names[turn % 60 :: 60]
                heard = [replace(fleet[n], seen_ms=now_ms, status=status(now_ms)) for n in some]
                hours = [an_hour(n, now_ms // 3_600_000, turn) for n in some]
                store.save([*heard, *hours])


class Predictions(threading.Thread):
    """What nodes say: so many predictions a second, each node in its turn."""

    def __init__(self, port: int, nodes: int, per_s: int) -> None:
        super().__init__(daemon=True)
        self.over, self._nodes, self._per_s = threading.Event(), nodes, per_s
        self._link = BackgroundLink(MqttOptions(client_id="nodes", port=port, persistent=False))

    @property
    def sent(self) -> int:
        """How many the broker has been given."""
        return self._link.counters.published

    def run(self) -> None:
        """A tenth of them every tenth of a second."""
        self._link.start()
        self._link.wait_connected(30.0)
        at_once, number, due_s = self._per_s // 10, 0, time.monotonic()
        while not self.over.is_set():
            for _ in range(at_once):
                number += 1
                topic = f"opid/1/city/n{number % self._nodes}/prediction"
                self._link.publish(topic, prediction(number), 0)
            due_s += 0.1
            time.sleep(max(0.0, due_s - time.monotonic()))
        self._link.stop(0.0)


def prediction(number: int) -> bytes:
    """What a node says of an instance, as JSON."""
    sure = 0.5 + number % 50 / 100
    return to_json(
        Prediction(
            instance=InstanceId("box", 1, number),
            time_ms=time.time_ns() // 1_000_000,
            label="a",
            scores={"a": sure, "b": 1 - sure},
            model_version=1,
            layout_version=1,
            predictor="own",
            confidence=sure,
        )
    )


class Viewer(threading.Thread):
    """A browser that has the fleet open."""

    def __init__(self, port: int, first_s: float, until_s: float) -> None:
        super().__init__(daemon=True)
        self._port, self._first_s, self._until_s = port, first_s, until_s
        self.waits: list[float] = []
        self.bytes = 0

    def run(self) -> None:
        """The page, then its live document every few seconds."""
        time.sleep(self._first_s)
        with suppress(OSError, http.client.HTTPException):  # the pages have ended
            self._look()

    def _look(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        path, tag = "/", ""
        while time.monotonic() < self._until_s:
            began_s = time.monotonic()
            connection.request(
                "GET", path, headers={"Accept-Encoding": "gzip", "If-None-Match": tag}
            )
            answer = connection.getresponse()
            self.waits.append(time.monotonic() - began_s)
            self.bytes += len(answer.read())
            tag = answer.headers["ETag"] if path != "/" else ""
            path = "/api/live.json"
            time.sleep(max(0.0, EVERY_S - (time.monotonic() - began_s)))


@contextmanager
def watched(config: Path, viewers: int) -> Iterator[None]:
    """The pages of a running gateway, with so many looking at them until the block ends."""
    if not viewers:
        yield
        return
    port = free_port()
    command = [sys.executable, "-m", "gateway", "web", str(config), "--port", str(port)]
    with Child("web", command, config.parent / "web.log") as pages:
        wait_until(lambda: _answers(port), "the pages answer", meanwhile=pages.check)
        for number in range(viewers):
            Viewer(port, EVERY_S * number / viewers, math.inf).start()
        yield


def cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK_S


def resident_mb(pid: int) -> float:
    """Its resident memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def watch(port: int, pid: int, viewers: int, seconds: float) -> None:
    """Print what so many viewers cost."""
    before_s, began_s = cpu_s(pid), time.monotonic()
    until_s = began_s + seconds
    crowd = [Viewer(port, EVERY_S * n / max(1, viewers), until_s) for n in range(viewers)]
    for each in crowd:
        each.start()
    time.sleep(seconds)
    for each in crowd:
        each.join(60)
    used = 100 * (cpu_s(pid) - before_s) / (time.monotonic() - began_s)
    waits = sorted(wait for each in crowd for wait in each.waits)
    told = f"{viewers:3} viewers: {used:5.1f} % of a core, {resident_mb(pid):.0f} MB resident"
    if waits:
        sent = sum(each.bytes for each in crowd) / 1024 / seconds
        told += f"; first byte {1000 * median(waits):.0f} ms (median), "
        told += f"{1000 * waits[int(0.95 * (len(waits) - 1))]:.0f} ms (95 %); {sent:.0f} kB/s"
    print(told, flush=True)


def first_bytes(port: int, times: int = 9) -> None:
    """How soon and how large the fleet's page is."""
    waits, bodies = [], []
    for _ in range(times):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        began_s = time.monotonic()
        connection.request("GET", "/", headers={"Accept-Encoding": "gzip"})
        answer = connection.getresponse()
        waits.append(time.monotonic() - began_s)
        bodies.append(answer.read())
        time.sleep(0.5)
    sent, plain = len(bodies[-1]) / 1024, len(gzip.decompress(bodies[-1])) / 1024
    first, usual, most = (1000 * each for each in (waits[0], median(waits), max(waits[1:])))
    print(
        f"fleet page: first byte {first:.0f} ms the first time, then {usual:.0f} ms median of "
        f"{times}, {most:.0f} ms at most; {sent:.0f} kB sent, {plain:.0f} kB unpacked"
    )


def history_size() -> None:
    """Bytes of a node's history by the minute, in SQLite."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "g.sqlite"
        with FleetStore.open(f"sqlite:///{path}") as store:
            store.claim()
        empty = path.stat().st_size
        with FleetStore.open(f"sqlite:///{path}") as store:
            store.claim()
            store.save([an_hour(f"n{n}", hour, n + hour) for n in range(10) for hour in range(240)])
            hours = 10 * 240
        size = (path.stat().st_size - empty) / hours
    days = 90 * 24 * size / 1e6
    print(f"history: {size:.0f} bytes an hour of a node; 90 days of a node {days:.2f} MB")
    began_s = time.perf_counter()
    for _ in range(10):
        an_hour("n", 0, 1)
    print(f"one sample: {1e6 * (time.perf_counter() - began_s) / 600:.0f} µs")


def main() -> int:
    """Measure and print."""
    given = options()
    history_size()
    with tempfile.TemporaryDirectory() as name, Mosquitto(Path(name) / "broker") as broker:
        config, url = make(Path(name), given.nodes, given.sensors, broker.port)
        port = free_port()
        command = [sys.executable, "-m", "gateway", "web", str(config), "--port", str(port)]
        writer = Writer(url, given.nodes)
        crowd = Predictions(broker.port, given.nodes, given.predictions)
        with Child("web", command, Path(name) / "web.log") as pages:
            wait_until(lambda: _answers(port), "the pages answer", meanwhile=pages.check)
            assert pages.process is not None
            pid = pages.process.pid
            writer.start()
            print(f"{given.nodes} nodes with {given.sensors} sensors each")
            first_bytes(port)
            for viewers in (0, 1, 20):
                watch(port, pid, viewers, given.seconds)
            crowd.start()
            for viewers in (0, 20):
                before, began_s = crowd.sent, time.monotonic()
                watch(port, pid, viewers, given.seconds)
                rate = (crowd.sent - before) / (time.monotonic() - began_s)
                print(f"             meanwhile {rate:.0f} predictions a second reached the broker")
            for each in (writer, crowd):
                each.over.set()
                each.join(10)
    return 0


def options() -> argparse.Namespace:
    """What was typed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--sensors", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--predictions", type=int, default=1_000)
    return parser.parse_args()


def _answers(port: int) -> bool:
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
