"""A node beside a bare paho subscriber, on the same broker, in the same run.

    python -m benchmarks.node [--readings 5000] [--rounds 3] [--json out/node.json]

Rate: readings (all labelled) from the first byte sent to the acknowledgement of the last, which
comes after its commit; the yardstick is a paho subscriber that counts the same messages. Machines
differ and are shared, so judge by the ratio: the two take turns, and the medians are compared.
Memory: the node with TLS, a client certificate and a signed document with weights, at D = 125,
beside an interpreter that has only loaded numpy, paho and msgpack.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from compileall import compile_dir
from contextlib import contextmanager
from pathlib import Path

from nacl.signing import SigningKey

import edge_opid
from benchmarks.common.verdict import verdict
from benchmarks.node.parts import (
    Client,
    certificates,
    cpu_s,
    line_of,
    memory_mb,
    mosquitto,
    process,
    publication,
)
from edge_opid.wire import (
    Ack,
    Channel,
    Desired,
    Matrix,
    NodeTopics,
    Prediction,
    Reading,
    SensorDescription,
    Status,
    Weights,
    decode,
    encode,
    seal_desired,
)

CLASSES = ("fresh", "stale", "bad")
SIZES = {"few": (1, 4), "many": (25, 49)}
"""Sensors that vanish and that survive. With the bias, many are D = 25 + 2·50 = 125."""
TOPICS = NodeTopics("farm", "n1")
KEY = SigningKey(bytes(range(32)))
PACED_PER_S = 200
COMMIT_RECORDS = 128  # the default
Figures = dict[str, float]


def names(size: str) -> tuple[list[str], list[str]]:
    """The sensors that vanish, and those that survive."""
    vanishing, surviving = SIZES[size]
    return [f"v{n}" for n in range(vanishing)], [f"s{n}" for n in range(surviving)]


def configure(folder: Path, size: str, broker: str) -> Path:
    """The configuration of a node in its own folder."""
    vanishing, surviving = names(size)
    lines = [
        f'[node]\nsite = "farm"\nnode = "n1"\nclasses = {list(CLASSES)}',
        f"vanishing = {vanishing}\nrate_per_second = 1000000.0\nrate_burst = 1000000",
        "commit_s = 0.5",
        f'[gateway]\nkeys = ["{KEY.verify_key.encode().hex()}"]',
        f'[broker]\nhost = "127.0.0.1"\n{broker}',
        '[state]\nfolder = "state"\nstatus_file = "status.json"',
    ]
    for name in (*vanishing, *surviving):
        lines.append(f'[[sensors]]\nid = "{name}"\nreference = 0.0\nscale = 1.0')
    folder.mkdir(parents=True)
    (folder / "node.toml").write_text("\n".join(lines) + "\n")
    return folder / "node.toml"


@contextmanager
def node(folder: Path, size: str, port: int, broker: str) -> Iterator[subprocess.Popen[str]]:
    """A running node that is connected and has subscribed."""
    toml = configure(folder, size, broker)
    listener = Client(port, "starter", str(TOPICS.to(Channel.STATUS)))
    with process(sys.executable, "-m", "edge_opid", "run", toml, log=folder / "log") as child:
        for _, payload in listener.messages():
            if decode(payload, Status).online:
                break
        listener.close()
        yield child


def readings(size: str, count: int, boot: int) -> list[bytes]:
    """Packets ready to be sent: labelled readings of all sensors, numbered from 1."""
    vanishing, surviving = names(size)
    chance, topic = random.Random(boot), str(TOPICS.to(Channel.READING, "s"))
    packets = []
    for seq in range(1, count + 1):
        values = {name: chance.gauss(0.0, 1.0) for name in (*vanishing, *surviving)}
        reading = Reading(boot, seq, seq, values, chance.choice(CLASSES))
        packets.append(publication(topic, encode(reading), seq))
    return packets


# --- rate -----------------------------------------------------------------------------------------


def bare_rate(port: int, packets: list[bytes]) -> tuple[float, float]:
    """Messages a second of a bare subscriber, and its CPU µs for each.

    They go to another topic of the same length, so that the node does not hear them too.
    """
    program = Path(__file__).with_name("parts.py")
    mine, topic = (str(NodeTopics("farm", n).to(Channel.READING, "s")) for n in ("n1", "n9"))
    packets = [packet.replace(mine.encode(), topic.encode(), 1) for packet in packets]
    sender = Client(port, "sender")
    with process(sys.executable, program, "bare", str(port), topic, str(len(packets))) as child:
        assert line_of(child) == "ready"
        before, began = cpu_s(child.pid), time.perf_counter()
        sender.send_all(packets)
        assert line_of(child) == "done"
        took = time.perf_counter() - began
        used = cpu_s(child.pid) - before
    sender.close()
    return len(packets) / took, used / len(packets) * 1e6


def node_rate(port: int, child: subprocess.Popen[str], packets: list[bytes]) -> tuple[float, float]:
    """Readings a second of the node, durable and acknowledged, and its CPU µs for each.

    The clock stops with the last commit that was full; the rest waits for the time limit.
    """
    listener = Client(port, "hearer", str(TOPICS.to(Channel.ACK, "s")))
    sender = Client(port, "sender")
    before, began = cpu_s(child.pid), time.perf_counter()
    sender.send_all(packets)
    acknowledgements = (decode(payload, Ack).seq for _, payload in listener.messages())
    done = next(seq for seq in acknowledgements if seq > len(packets) - COMMIT_RECORDS)
    took, used = time.perf_counter() - began, cpu_s(child.pid) - before
    rate = done / took, used / done * 1e6
    while done < len(packets):
        done = max(done, next(acknowledgements))
    sender.close()
    listener.close()
    return rate


def rates(folder: Path, port: int, size: str, count: int, rounds: int) -> Figures:
    """Both, in turns."""
    found: dict[str, list[float]] = {"bare": [], "bare_us": [], "node": [], "node_us": []}
    with node(folder / f"rate-{size}", size, port, f"port = {port}") as child:
        for boot in range(1, rounds + 1):
            packets = readings(size, count, boot)
            for name, pair in (
                ("node", node_rate(port, child, packets)),
                ("bare", bare_rate(port, packets)),
            ):
                found[name].append(pair[0])
                found[f"{name}_us"].append(pair[1])
    told = json.loads((folder / f"rate-{size}" / "status.json").read_text())  # its last words
    medians = {name: statistics.median(values) for name, values in found.items()}
    refused = told["service"].get("publish_refused", 0)
    medians["refused"] = refused / (count * rounds)
    medians["ratio"] = medians["node"] / medians["bare"]
    return medians


# --- latency --------------------------------------------------------------------------------------


def latency(folder: Path, port: int, size: str, count: int) -> Figures:
    """From a reading's first byte to its prediction's last, at a steady pace; in ms."""
    packets, sent, took = readings(size, count, boot=1), [0.0] * (count + 1), []
    with node(folder / f"latency-{size}", size, port, f"port = {port}"):
        listener = Client(port, "hearer", str(TOPICS.to(Channel.PREDICTION)))
        sender = Client(port, "sender")
        predictions = listener.messages()
        began = time.perf_counter()
        for seq, packet in enumerate(packets, 1):
            time.sleep(max(0.0, began + seq / PACED_PER_S - time.perf_counter()))
            sent[seq] = time.perf_counter()
            sender.send(packet)
            _, payload = next(predictions)
            prediction = decode(payload, Prediction)
            took.append(1000 * (time.perf_counter() - sent[prediction.instance.seq]))
        sender.close()
        listener.close()
    took.sort()
    return {f"p{share}": took[min(len(took) - 1, len(took) * share // 100)] for share in (50, 99)}


# --- memory and start -----------------------------------------------------------------------------


def order(size: str) -> bytes:
    """A signed document: the same sensors as a new layout, and weights for them."""
    vanishing, surviving = names(size)
    described = tuple(
        SensorDescription(id=n, role=n, reference=0.0, scale=1.0, timeout_s=60.0)
        for n in (*vanishing, *surviving)
    )
    W = [[0.0] * len(CLASSES)] * (len(described) + 1)
    weights = Weights("folded", {"W": Matrix.of(W)})
    document = Desired(
        site="farm",
        node="n1",
        version=1,
        layout_version=1,
        sensors=described,
        vanishing=tuple(vanishing),
        gate=8.0,
        classes=CLASSES,
        weights=weights,
    )
    return seal_desired(document, KEY)


def in_windows(port: int, packets: list[bytes]) -> None:
    """As `Source` sends: never more than 256 on their way."""
    listener = Client(port, "hearer", str(TOPICS.to(Channel.ACK, "s")))
    sender = Client(port, "sender")
    acknowledgements = (decode(payload, Ack).seq for _, payload in listener.messages())
    for start in range(0, len(packets), 256):
        window = packets[start : start + 256]
        sender.send_all(window)
        while next(acknowledgements) < start + len(window):
            pass
    sender.close()
    listener.close()


def memory(folder: Path, ports: tuple[int, int], count: int) -> Figures:
    """Resident MB of a node in full use, and of the interpreter alone; seconds to start."""
    port, tls_port = ports
    files = {"ca": "ca.pem", "certificate": "client.pem", "key": "client.key"}
    tls = [f'tls_{name} = "{folder / file}"' for name, file in files.items()]
    broker = "\n".join([f"port = {tls_port}", *tls])
    began = time.perf_counter()
    with node(folder / "memory", "many", port, broker) as child:
        started = time.perf_counter() - began
        listener = Client(port, "watcher", str(TOPICS.to(Channel.STATUS)))
        sender = Client(port, "orderer")
        sender.send(publication(str(TOPICS.to(Channel.DESIRED)), order("many"), 1))
        while decode(next(listener.messages())[1], Status).model_version != 1:
            pass
        in_windows(port, readings("many", count, boot=1))
        now, most = memory_mb(child.pid)
        sender.close()
        listener.close()
    with process(sys.executable, Path(__file__).with_name("parts.py"), "idle") as idle:
        assert line_of(idle) == "ready"
        bare, _ = memory_mb(idle.pid)
    return {"start": started, "now": now, "most": most, "idle": bare, "more": now - bare}


# --- the report -----------------------------------------------------------------------------------


def table(found: dict[str, Figures]) -> str:
    """Everything measured, as Markdown."""
    lines = ["| what | figure |", "|---|---|"]
    for size, (vanishing, surviving) in SIZES.items():
        rate, late = found[f"rate-{size}"], found[f"latency-{size}"]
        sensors = f"{vanishing + surviving} sensors"
        lines += [
            f"| {sensors}: node, durable | {rate['node']:,.0f}/s, {rate['node_us']:.0f} µs CPU |",
            f"| {sensors}: bare paho | {rate['bare']:,.0f}/s, {rate['bare_us']:.0f} µs CPU |",
            f"| {sensors}: node / bare | {rate['ratio']:.2f} |",
            f"| {sensors}: predictions dropped, outbox full | {rate['refused']:.0%} |",
            f"| {sensors}: prediction, p50 / p99 at {PACED_PER_S}/s "
            f"| {late['p50']:.1f} / {late['p99']:.1f} ms |",
        ]
    used, slow = found["memory"], found["default"]
    return "\n".join(
        [
            *lines,
            f"| prediction, p50 / p99 where mosquitto's set_tcp_nodelay is off, its default "
            f"| {slow['p50']:.1f} / {slow['p99']:.1f} ms |",
            f"| resident: node, D = 125, TLS, signed | {used['now']:.1f} MB |",
            f"| resident: at the most | {used['most']:.1f} MB |",
            f"| resident: interpreter, numpy, paho, msgpack | {used['idle']:.1f} MB |",
            f"| start to first status | {used['start']:.2f} s |",
        ]
    )


def aims(found: dict[str, Figures]) -> list[str]:
    """Each aim with the figure it is judged by."""
    lines = [
        verdict(
            f"{size} sensors: node / bare paho", found[f"rate-{size}"]["ratio"], 0.5, at_least=True
        )
        for size in SIZES
    ]
    used = found["memory"]
    lines.append(verdict("MB above the bare interpreter", used["more"], 5.0, at_least=False))
    lines.append(verdict("MB at the most", used["most"], 48.0, at_least=False))
    return lines


def main() -> None:
    """Measure, print, and write the figures where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readings", type=int, default=5_000, help="for each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    print(f"{platform.machine()}, Python {platform.python_version()}\n")
    compile_dir(edge_opid.__path__[0], quiet=1)  # as `pip install` does: else every start compiles
    found: dict[str, Figures] = {}
    count = max(options.readings, 2 * COMMIT_RECORDS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        certificates(folder)
        with mosquitto(folder, nodelay=False) as ports:
            found["default"] = latency(folder / "default", ports[0], "few", 200)
        with mosquitto(folder, nodelay=True) as ports:
            for size in SIZES:
                rounds = options.rounds
                found[f"rate-{size}"] = rates(folder, ports[0], size, count, rounds)
                found[f"latency-{size}"] = latency(folder, ports[0], size, min(count, 1_000))
            found["memory"] = memory(folder, ports, count)
    print(table(found))
    print()
    print("\n".join(aims(found)))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
