"""Who is measured: a node and its peers, each on topics of its own, and what they are given."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from nacl.signing import SigningKey

from benchmarks.common.measuring import cpu_s
from benchmarks.common.raw_mqtt import RawClient
from edge_opid.link.packets import publish_packet
from edge_opid.wire import Channel, NodeTopics, Reading, Status, decode, encode
from firmware_sim.live.processes import WAIT_S, Child, LiveError
from firmware_sim.live.services import NodeProcess
from firmware_sim.live.toml import toml_table

SITE = "farm"
CLASSES = ("fresh", "stale", "bad")
SIZES = {"few": (1, 4), "many": (25, 49)}
"""Sensors that vanish and that survive. With the bias, many are D = 25 + 2·50 = 125."""
KEY = SigningKey(bytes(range(32)))
PEERS = ("echo", "river", "vowpal", "sklearn")
WINDOW = 256
SETTLE_S = 0.05  # for the last commit, once the last prediction is out


def names(size: str) -> tuple[list[str], list[str]]:
    """The sensors that vanish, and those that survive."""
    vanishing, surviving = SIZES[size]
    return [f"v{n}" for n in range(vanishing)], [f"s{n}" for n in range(surviving)]


def settings(size: str, node: str = "n1", qos: int = 1) -> str:
    """The configuration of a node: it takes all that comes, and commits as it does by default."""
    vanishing, surviving = names(size)
    own = {"vanishing": vanishing, "rate_per_second": 1e6, "rate_burst": 10**6}
    sensors = (*vanishing, *surviving)
    return (
        toml_table("node", own, site=SITE, node=node, classes=CLASSES, prediction_qos=qos)
        + toml_table("gateway", keys=[KEY.verify_key.encode().hex()])
        + "".join(toml_table("[sensors]", id=s, reference=0.0, scale=1.0) for s in sensors)
    )


def client(port: int, name: str, *filters: str) -> RawClient:
    """A socket and a few lines of MQTT 3.1.1, which leave the two cores to what is measured."""
    return RawClient(port, name, *filters, mqtt_5=False)


def publication(topic: str, payload: bytes, number: int) -> bytes:
    """A PUBLISH of QoS 1, ready to be sent."""
    return publish_packet(topic.encode(), payload, qos=1, packet_id=number % 65_535 + 1)


def readings(topic: str, size: str, count: int, boot: int) -> list[bytes]:
    """Packets ready to be sent: labelled readings of all sensors, numbered from 1."""
    vanishing, surviving = names(size)
    chance, packets = random.Random(boot), []
    for seq in range(1, count + 1):
        values = {name: chance.gauss(0.0, 1.0) for name in (*vanishing, *surviving)}
        reading = Reading(boot, seq, seq, values, chance.choice(CLASSES))
        packets.append(publication(topic, encode(reading), seq))
    return packets


@dataclass(frozen=True, slots=True)
class Contender:
    """One program that runs, and where it listens and speaks."""

    name: str
    process: Child
    topics: NodeTopics

    @property
    def reading_topic(self) -> str:
        """Where it expects readings."""
        return str(self.topics.to(Channel.READING, "s"))

    @property
    def prediction_topic(self) -> str:
        """Where it says what it predicts."""
        return str(self.topics.to(Channel.PREDICTION))


def compiling() -> str:
    """What the unit has Python do before the first start, so that all is compiled by then."""
    unit = files("edge_opid.service").joinpath("opid-node.service").read_text("utf-8")
    found = re.search(r'^ExecStartPre=.* -c "(.*)"$', unit, re.MULTILINE)
    assert found is not None
    return found[1]


@contextmanager
def as_a_service(cache: Path) -> Iterator[None]:
    """The environment that the unit gives a node: optimised, and compiled before it starts."""
    before = dict(os.environ)
    os.environ |= {"PYTHONOPTIMIZE": "2", "PYTHONPYCACHEPREFIX": str(cache)}
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        subprocess.run([sys.executable, "-c", compiling()], check=True, timeout=WAIT_S)
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def node(
    folder: Path, size: str, ports: tuple[int, int], broker: str = "", qos: int = 1
) -> Iterator[Contender]:
    """A node that is connected and has subscribed, on the second port; we listen on the first.

    At the end it is stopped, not killed: then its status file has its last words.
    """
    topics = NodeTopics(SITE, f"node-{qos}")
    own = settings(size, topics.node, qos)
    with ExitStack() as stack:
        status = str(topics.to(Channel.STATUS))
        listener = stack.enter_context(client(ports[0], f"starter-{qos}", status))
        with as_a_service(folder.parent / "compiled"):
            child = stack.enter_context(NodeProcess(folder, ports[1], own, broker))
        for _, payload in listener.messages():
            if decode(payload, Status).online:
                break
        yield Contender(f"node, QoS {qos}", child, topics)
        child.stop()


@contextmanager
def peer(folder: Path, name: str, port: int, qos: int) -> Iterator[Contender]:
    """One of `peers`, which listens."""
    folder.mkdir(parents=True, exist_ok=True)
    topics = NodeTopics(SITE, f"{name}-{qos}")
    program = Path(__file__).with_name("peers.py")
    heard, said = (str(topics.to(*to)) for to in ((Channel.READING, "s"), (Channel.PREDICTION,)))
    command = [sys.executable, str(program), name, str(port), heard, said, str(qos)]
    child = Child(
        name, [*command, str(folder / f"{name}-{qos}.db")], folder / f"{name}-{qos}.log", piped=True
    )
    with child:
        assert child.line() == "ready"
        yield Contender(f"{name}, QoS {qos}", child, topics)


@contextmanager
def contenders(folder: Path, size: str, port: int, qos: int) -> Iterator[list[Contender]]:
    """All of them, on one broker, at the same quality of service."""
    with ExitStack() as stack:
        found = [stack.enter_context(node(folder / f"node-{qos}", size, (port, port), qos=qos))]
        found += [stack.enter_context(peer(folder, name, port, qos)) for name in PEERS]
        yield found


def saturate(port: int, contender: Contender, packets: list[bytes]) -> float:
    """Give it readings as fast as it answers; its processor µs for each.

    Never more than 512 wait for an answer, as with two senders of a window of 256 each.
    """
    with client(port, "hearer", contender.prediction_topic) as hearer, client(port, "sender") as to:
        answers = hearer.messages()
        before = cpu_s(contender.process.pid)
        to.send(b"".join(packets[:WINDOW]))
        for start in range(0, len(packets), WINDOW):
            to.send(b"".join(packets[start + WINDOW : start + 2 * WINDOW]))
            for _ in packets[start : start + WINDOW]:
                next(answers)
        time.sleep(SETTLE_S)
        return 1e6 * (cpu_s(contender.process.pid) - before) / len(packets)


@dataclass(slots=True)
class Pace:
    """What became of one contender at a steady pace."""

    cpu_us: float
    latencies_ms: list[float]

    def percentile(self, share: int) -> float:
        """So many of a hundred predictions came sooner."""
        ordered = sorted(self.latencies_ms)
        return ordered[min(len(ordered) - 1, len(ordered) * share // 100)]


def paced(
    port: int, all_of: list[Contender], packets: Mapping[str, list[bytes]], per_s: float
) -> dict[str, Pace]:
    """Readings at a steady pace, to one contender after the other within each period.

    So all of them live on the same machine at the same time, and none is busy while another is.
    """
    found = {each.name: Pace(0.0, []) for each in all_of}
    count = len(next(iter(packets.values())))
    topics = [each.prediction_topic for each in all_of]
    with client(port, "pace-hearer", *topics) as hearer, client(port, "pace-sender") as sender:
        heard = hearer.messages()
        before = {each.name: cpu_s(each.process.pid) for each in all_of}
        began, slot = time.perf_counter(), 1.0 / (per_s * len(all_of))
        for number in range(count):
            for place, each in enumerate(all_of):
                due = began + (number * len(all_of) + place) * slot
                time.sleep(max(0.0, due - time.perf_counter()))
                sent = time.perf_counter()
                sender.send(packets[each.name][number])
                _hear(heard, each.prediction_topic, sent)
                found[each.name].latencies_ms.append(1000 * (time.perf_counter() - sent))
        time.sleep(1.0 / per_s)  # the last one's period, too
        for each in all_of:
            found[each.name].cpu_us = 1e6 * (cpu_s(each.process.pid) - before[each.name]) / count
    return found


def _hear(heard: Iterator[tuple[str, bytes]], topic: str, sent: float) -> None:
    for said, _ in heard:
        if said == topic:
            return
        if time.perf_counter() - sent > WAIT_S:
            raise LiveError(f"no prediction on {topic} in {WAIT_S} s")
