"""A node beside a bare paho subscriber, on the same broker, in the same run.

    python -m benchmarks.node [--readings 5000] [--rounds 3] [--json out/node.json]

Rate: readings (all labelled) from the first byte sent to the acknowledgement of the last, which
comes after its commit; the yardstick is a paho subscriber that counts the same messages. Machines
differ and are shared, so judge by the ratio: the two take turns, and the medians are compared.
Memory: the node with TLS, a client certificate and a signed document with weights, at D = 125,
beside an interpreter that has only loaded numpy, paho and msgpack.
"""

from __future__ import annotations

import json
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from compileall import compile_dir
from contextlib import contextmanager
from pathlib import Path

from nacl.signing import SigningKey

import edge_opid
from benchmarks.common.command import add_json_option, command_line, write_json
from benchmarks.common.measuring import cpu_s, memory_mb
from benchmarks.common.raw_mqtt import RawClient
from benchmarks.common.verdict import verdict
from benchmarks.node.parts import certificates
from edge_opid.link.packets import publish_packet
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
from firmware_sim.live.mosquitto import HOST, ROOMY, Mosquitto, free_port
from firmware_sim.live.processes import Child
from firmware_sim.live.services import NodeProcess

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


def settings(size: str) -> str:
    """The configuration of a node."""
    vanishing, surviving = names(size)
    lines = [
        f'[node]\nsite = "farm"\nnode = "n1"\nclasses = {list(CLASSES)}',
        f"vanishing = {vanishing}\nrate_per_second = 1000000.0\nrate_burst = 1000000",
        "commit_s = 0.5",
        f'[gateway]\nkeys = ["{KEY.verify_key.encode().hex()}"]',
    ]
    for name in (*vanishing, *surviving):
        lines.append(f'[[sensors]]\nid = "{name}"\nreference = 0.0\nscale = 1.0')
    return "\n".join(lines) + "\n"


@contextmanager
def node(folder: Path, size: str, ports: tuple[int, int], broker: str = "") -> Iterator[Child]:
    """A node that is connected and has subscribed, on the second port; we listen on the first.

    At the end it is stopped, not killed: then its status file has its last words.
    """
    with (
        client(ports[0], "starter", str(TOPICS.to(Channel.STATUS))) as listener,
        NodeProcess(folder, ports[1], settings(size), broker) as child,
    ):
        for _, payload in listener.messages():
            if decode(payload, Status).online:
                break
        yield child
        child.stop()


def client(port: int, name: str, *filters: str) -> RawClient:
    """A socket and a few lines of MQTT 3.1.1, which leave the two cores to what is measured."""
    return RawClient(port, name, *filters, mqtt_5=False)


def yardstick(folder: Path, *arguments: str) -> Child:
    """Another program to measure beside the node."""
    command = [sys.executable, str(Path(__file__).with_name("parts.py")), *arguments]
    return Child("yardstick", command, folder / "yardstick.log", piped=True)


@contextmanager
def brokers(folder: Path, *, nodelay: bool) -> Iterator[tuple[int, int]]:
    """A mosquitto's plain port and its TLS port.

    Without `nodelay`, which is its default, it keeps a small message back until the subscriber's
    kernel has confirmed the one before, and that takes up to 40 ms.
    """
    tls = free_port()
    files = {"cafile": "ca.pem", "certfile": "broker.pem", "keyfile": "broker.key"}
    encrypted = (
        f"listener {tls} {HOST}",
        *(f"{option} {folder / name}" for option, name in files.items()),
        "require_certificate true",
    )
    options = ROOMY if nodelay else tuple(each for each in ROOMY if "nodelay" not in each)
    with Mosquitto(folder, extra=(*options, *encrypted)) as broker:
        yield broker.port, tls


def publication(topic: str, payload: bytes, number: int) -> bytes:
    """A PUBLISH of QoS 1, ready to be sent."""
    return publish_packet(topic.encode(), payload, qos=1, packet_id=number % 65_535 + 1)


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


def bare_rate(folder: Path, port: int, packets: list[bytes]) -> tuple[float, float]:
    """Messages a second of a bare subscriber, and its CPU µs for each.

    They go to another topic of the same length, so that the node does not hear them too.
    """
    mine, topic = (str(NodeTopics("farm", n).to(Channel.READING, "s")) for n in ("n1", "n9"))
    packets = [packet.replace(mine.encode(), topic.encode(), 1) for packet in packets]
    sender = client(port, "sender")
    with yardstick(folder, "bare", str(port), topic, str(len(packets))) as child:
        assert child.line() == "ready"
        before, began = cpu_s(child.pid), time.perf_counter()
        sender.send_all(packets)
        assert child.line() == "done"
        took = time.perf_counter() - began
        used = cpu_s(child.pid) - before
    sender.close()
    return len(packets) / took, used / len(packets) * 1e6


def node_rate(port: int, child: Child, packets: list[bytes]) -> tuple[float, float]:
    """Readings a second of the node, durable and acknowledged, and its CPU µs for each.

    The clock stops with the last commit that was full; the rest waits for the time limit.
    """
    listener = client(port, "hearer", str(TOPICS.to(Channel.ACK, "s")))
    sender = client(port, "sender")
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
    with node(folder / f"rate-{size}", size, (port, port)) as child:
        for boot in range(1, rounds + 1):
            packets = readings(size, count, boot)
            for name, pair in (
                ("node", node_rate(port, child, packets)),
                ("bare", bare_rate(folder, port, packets)),
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
    with node(folder / f"latency-{size}", size, (port, port)):
        listener = client(port, "hearer", str(TOPICS.to(Channel.PREDICTION)))
        sender = client(port, "sender")
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
    weights = Weights("matrix", {"W": Matrix.of(W)})
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
    listener = client(port, "hearer", str(TOPICS.to(Channel.ACK, "s")))
    sender = client(port, "sender")
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
    port = ports[0]
    files = {"ca": "ca.pem", "certificate": "client.pem", "key": "client.key"}
    tls = [f'tls_{name} = "{folder / file}"' for name, file in files.items()]
    began = time.perf_counter()
    with node(folder / "memory", "many", ports, "\n".join(tls)) as child:
        started = time.perf_counter() - began
        listener = client(port, "watcher", str(TOPICS.to(Channel.STATUS)))
        sender = client(port, "orderer")
        sender.send(publication(str(TOPICS.to(Channel.DESIRED)), order("many"), 1))
        while decode(next(listener.messages())[1], Status).model_version != 1:
            pass
        in_windows(port, readings("many", count, boot=1))
        now, most = memory_mb(child.pid)
        sender.close()
        listener.close()
    with yardstick(folder, "idle") as idle:
        assert idle.line() == "ready"
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
    parser = command_line(__doc__)
    parser.add_argument("--readings", type=int, default=5_000, help="for each round")
    parser.add_argument("--rounds", type=int, default=3)
    add_json_option(parser)
    options = parser.parse_args()
    print(f"{platform.machine()}, Python {platform.python_version()}\n")
    compile_dir(edge_opid.__path__[0], quiet=1)  # as `pip install` does: else every start compiles
    found: dict[str, Figures] = {}
    count = max(options.readings, 2 * COMMIT_RECORDS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        certificates(folder)
        with brokers(folder, nodelay=False) as ports:
            found["default"] = latency(folder / "default", ports[0], "few", 200)
        with brokers(folder, nodelay=True) as ports:
            for size in SIZES:
                rounds = options.rounds
                found[f"rate-{size}"] = rates(folder, ports[0], size, count, rounds)
                found[f"latency-{size}"] = latency(folder, ports[0], size, min(count, 1_000))
            found["memory"] = memory(folder, ports, count)
    print(table(found))
    print()
    print("\n".join(aims(found)))
    write_json(options.json, found)


if __name__ == "__main__":
    main()
